"""What this machine is, and how many seconds calls take on it.

Seconds are of the wall clock, for calls whose work is done when they return, as on a CPU. Their
minimum tells what the machine can do, their median what it did.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Card:
    """The facts about a machine that a timing should be printed with.

    Attributes:
        cpu: the processor's name.
        cores: how many of its cores this process may use.
        memory: main memory in bytes.
        gpu: name of the first GPU that torch can use, or None.
        gpu_memory: its memory in bytes; None without a GPU, or where it shares the main memory.
        system: operating system and its version.
        versions: of Python, torch, numpy and the course.
    """

    cpu: str
    cores: int
    memory: int
    gpu: str | None
    gpu_memory: int | None
    system: str
    versions: dict[str, str]


def card() -> Card:
    """Describe the machine that runs this."""
    gpu, gpu_memory = _gpu()
    return Card(
        cpu=_cpu_name(),
        cores=_usable_cores(),
        memory=_memory_bytes(),
        gpu=gpu,
        gpu_memory=gpu_memory,
        system=platform.system(),
        versions={
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": metadata.version("numpy"),
            "course": _course_version(),
        },
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread inside the `with` block.

    In a step of the mini-GPT threads mostly wait for one another; with one thread, times can be
    compared.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(call: Callable[[], object], warmup: int = 1, repeats: int = 5) -> list[float]:
    """Time each of `repeats` calls in wall-clock seconds, after `warmup` calls that do not count.

    Raises:
        ValueError: `call` cannot be called, `warmup` is below 0 or `repeats` below 1.
    """
    _check_call("call", call)
    _check_count("warmup", warmup, at_least=0)
    _check_count("repeats", repeats, at_least=1)
    for _ in range(warmup):
        call()
    return [_stopwatch(call) for _ in range(repeats)]


def interleaved(
    calls: Mapping[Name, Callable[[], object]], rounds: int = 5
) -> dict[Name, list[float]]:
    """Time several calls interleaved, A, B, A, B, …, so that a noisy minute affects all of them.

    Each is called once before the timing starts.

    Args:
        calls: by name.
        rounds: how often each is measured.

    Returns:
        Wall-clock seconds by name, `rounds` of each, in the order measured.

    Raises:
        ValueError: there is nothing to call, something cannot be called, or `rounds` is below 1.
    """
    if not calls:
        raise ValueError("calls must name at least one call, got none")
    for name, call in calls.items():
        _check_call(f"calls[{name!r}]", call)
    _check_count("rounds", rounds, at_least=1)
    for call in calls.values():
        call()
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_stopwatch(call))
    return times


def _stopwatch(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _check_call(name: str, call: object) -> None:
    if not callable(call):
        raise ValueError(
            f"{name} must be something to call, such as lambda: model(tokens); "
            f"got {type(call).__name__}"
        )


def _check_count(name: str, value: object, at_least: int) -> None:
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux: a container may own only some of them
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kilobytes = ctypes.c_ulonglong()  # Windows
    ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))
    return kilobytes.value * 1024


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if platform.system() == "Darwin":
        question = ["sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(question, capture_output=True, text=True)
        if answer.returncode == 0:
            return answer.stdout.strip()
    return platform.processor() or platform.machine()


def _gpu() -> tuple[str | None, int | None]:
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return properties.name, properties.total_memory
    if torch.backends.mps.is_available():
        return "Apple GPU", None
    return None, None


def _course_version() -> str:
    try:
        return metadata.version("second-token")
    except metadata.PackageNotFoundError:
        return "not installed"
