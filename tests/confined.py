"""What the tests of the sandbox share: the two ways to start, and a place for scripts."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE

from autograder.sandbox import command
from autograder.sandbox.doctor import Start
from autograder.sandbox.fork_server import ForkServer

HAS_SANDBOX = sys.platform.startswith("linux") and shutil.which("bwrap") is not None
needs_bubblewrap = pytest.mark.skipif(
    not HAS_SANDBOX,
    reason="the sandbox needs Linux and bubblewrap: apt-get install bubblewrap",
)


@contextmanager
def starting(way: str) -> Iterator[Start]:
    """`command.popen` for "cold", that of a fork server for "warm"."""
    if way == "cold":
        yield command.popen
        return
    with ForkServer() as server:
        yield server.popen


class Place:
    """A view and a submission, and scripts that run in a sandbox which shows them."""

    def __init__(self, folder: Path) -> None:
        self.view, self.submission = folder / "view", folder / "submission"
        for shown in (self.view, self.submission):
            shown.mkdir()
            shown.chmod(0o755)

    def popen(self, start: Start, script: str, limits=None, pass_fds=(), arguments=()):
        """Start a script inside."""
        file = self.view / "script.py"
        file.write_text(script, encoding="utf-8")
        file.chmod(0o644)
        argv = ["/view/script.py", *arguments]
        limits = limits or command.Limits()
        return start(argv, self.view, self.submission, limits, pass_fds=pass_fds)

    def run(self, start: Start, script: str, **options) -> tuple[int, str]:
        """Run a script inside to its end: its exit code and what it printed."""
        return finish(self.popen(start, script, **options))


def finish(process: subprocess.Popen) -> tuple[int, str]:
    """Wait for a process: its exit code and what it printed."""
    with process:
        output = process.communicate(timeout=PATIENCE)[0]
    return process.returncode, output.decode().strip()
