"""The benchmarks, run as a user runs them, and their modules."""

import importlib.util
import os
import subprocess
import sys
from types import ModuleType

from lessons import ROOT


def run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run `python benchmarks/NAME.py` in one thread."""
    command = [sys.executable, f"benchmarks/{name}.py", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def refusal(name: str, arguments: list[str]) -> str:
    """Run a benchmark with arguments that it refuses; what it says, which is no traceback."""
    done = run(name, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def load(name: str) -> ModuleType:
    """Import the module of a benchmark, which finds its harness beside it."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    known = f"benchmark_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, ROOT / "benchmarks" / f"{name}.py")
        sys.modules[known] = importlib.util.module_from_spec(spec)  # dataclasses look it up
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]
