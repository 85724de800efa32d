"""Open the lessons in JupyterLab: `python -m course lab`, which is what `make lab` runs."""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

FIRST = Path("lessons", "00-start", "start.ipynb")
CANNOT_START = 2


def main(arguments: list[str]) -> int:
    """Start JupyterLab in the working directory; returns the exit code when it ends.

    Args:
        arguments: JupyterLab's own, such as --no-browser.
    """
    place = Path.cwd()
    if not (place / FIRST).exists():
        print(
            f"There is no {FIRST.as_posix()} in {place}: run this where the lessons lie.",
            file=sys.stderr,
        )
        return CANNOT_START
    if not find_spec("jupyterlab"):
        print(
            "JupyterLab is not installed: pip install -c constraints.txt -e '.[lab]'",
            file=sys.stderr,
        )
        return CANNOT_START
    options = [
        f"--ServerApp.root_dir={place}",
        f"--LabApp.default_url=/lab/tree/{FIRST.as_posix()}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # JupyterLab refuses to run as root unless told to; in a container there is often no one else.
        options.append("--allow-root")
    sys.argv[1:] = [*options, *arguments]
    runpy.run_module("jupyterlab", run_name="__main__")  # a program beside the course, not a part
    return 0
