"""Starts `student.py` in the sandbox, cold or warm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autograder.sandbox.child import Child
from autograder.sandbox.command import VIEW, Limits
from autograder.sandbox.library_view import STUDENT


def start_confined(
    popen: Callable[..., subprocess.Popen],
    view: Path,
    lesson: str,
    submission: Path,
    limits: Limits | None = None,
) -> Child:
    """A student process that can reach nothing.

    Args:
        popen: `sandbox.popen`, or that of a `ForkServer`.
        view: of the lesson, see `view.py`.
        lesson: module name.
        submission: the folder with the student's files.
        limits: what it may use, if not the usual.

    Raises:
        InfraError: it could not be started, or was not ready in time.
        SandboxMissing: a part of the sandbox is not installed.
    """

    def start(argv: Sequence[str], pass_fds: Sequence[int], **_: Any) -> subprocess.Popen:
        return popen(argv, view, submission, limits or Limits(), pass_fds)

    return Child(lambda fds: [f"{VIEW}/{STUDENT}"], lesson, popen=start)
