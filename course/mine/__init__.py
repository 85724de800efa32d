"""Let a lesson run on what the student wrote in earlier ones, where that passes the visible checks.

The first cell of each lesson calls `use_mine`. It reads the notebooks of earlier lessons that lie beside
this one (`student_code`), runs their visible checks in a process of its own (`trial`), and puts the
functions that pass in the place of ours in `course.minigpt` (`replacing`). Grading always uses ours.

The one switch is `use_mine(..., on=False)`, or the environment variable `SECOND_TOKEN_MINE`:

    0         off: ours everywhere
    1         on: yours where they pass (so it is in JupyterLab and VS Code when nothing is set)
    missing   yours only where ours are not given yet
"""

from __future__ import annotations

import os

SWITCH = "SECOND_TOKEN_MINE"
MODES = ("0", "1", "missing")


def use_mine(lesson: str, on: bool | None = None) -> None:
    """Put the student's own earlier functions in the place of ours, and say in one line which.

    In a kernel that no student has open (grading, builds, tests) it does nothing.

    Args:
        lesson: the module of the lesson that is open, such as "kv_cache".
        on: True or False overrides the environment variable.

    Raises:
        ValueError: the environment variable is set to something else.
    """
    mode = _mode(on)
    from course.files.notebooks import notebook_handed_in, on_colab, own_notebook

    notebook = own_notebook() or notebook_handed_in()
    if notebook is None and not on_colab():
        return
    from course.mine.choosing import choose

    line = choose(lesson, notebook, mode)
    if line:
        print(line)


def _mode(on: bool | None) -> str:
    if on is not None:
        return "1" if on else "0"
    mode = os.environ.get(SWITCH, "1")
    if mode not in MODES:
        raise ValueError(f"{SWITCH} is one of {', '.join(MODES)}, got {mode!r}")
    return mode
