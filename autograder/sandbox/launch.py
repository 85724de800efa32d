"""How the student processes of one lesson are started: the one place that chooses.

They start in the sandbox, once all its barriers have been proven on this machine; or, if somebody
asks for that by name, with nothing around them.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from autograder.judge import Start
from autograder.lessons import lesson_folders
from autograder.sandbox import library_view
from autograder.sandbox.child import start_without_sandbox
from autograder.sandbox.confined import start_confined

UNSAFE = (
    "WITHOUT A SANDBOX (unsafe_no_sandbox): the student's code could read, write and send all that "
    "the account could that graded it."
)


class Starting:
    """What it takes to start students' processes for one lesson, until it is closed.

    Args:
        module: the lesson's, such as "kv_cache".
        unsafe_no_sandbox: run student code on this account, with no barrier around it.

    Attributes:
        level: in what the processes run, as a sentence for reports.

    Raises:
        SandboxMissing: a barrier does not hold here; the message names the ways out.
        ValueError: there is no such lesson.
    """

    def __init__(self, module: str, unsafe_no_sandbox: bool = False) -> None:
        self.module = module
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="judge-", ignore_cleanup_errors=True)
            self._folder = Path(stack.enter_context(folder))
            self.view = library_view.lay_out(self._folder / "view", module, list(lesson_folders()))
            _let_read(self.view)
            self.level = UNSAFE
            if not unsafe_no_sandbox:
                self._server, self.level = _confining(stack)
            self._sandboxed = not unsafe_no_sandbox
            self.close = stack.pop_all().close

    def start_for(self, submission: Path) -> Start:
        """Starts a process that may read the folder of one submission."""
        if self._sandboxed:
            return lambda: start_confined(self._server.popen, self.view, self.module, submission)
        return lambda: start_without_sandbox(
            self.view, self.module, submission, Path(tempfile.mkdtemp(dir=self._folder))
        )


def _confining(stack: ExitStack) -> tuple[Any, str]:
    """A fork server, all barriers proven on it, and the sentence that says so."""
    # Only here: without a sandbox, nothing of it needs to be there.
    from autograder.sandbox import doctor
    from autograder.sandbox.command import SandboxMissing
    from autograder.sandbox.fork_server import ForkServer

    try:
        server = stack.enter_context(ForkServer())
    except (SandboxMissing, ImportError, OSError, RuntimeError) as error:
        raise SandboxMissing(f"{error}\n{doctor.ways_out()}") from error
    findings = doctor.require(server.popen)
    return server, f"Judged in a sandbox, all {len(findings)} barriers of which held here."


def _let_read(folder: Path) -> None:
    """Whatever the umask is: started by root, the sandbox belongs to nobody."""
    for path in (folder, *folder.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
