"""Start student processes for one lesson; here alone it is chosen how.

cold    bubblewrap around a new Python, which imports torch itself: the reference
warm    forked, in milliseconds, from a server that has imported torch, into a fresh sandbox
bare    nothing around it, for those who ask for that by name

Cold and warm differ in one argument of `sandboxed`: `command.popen`, or that of a `ForkServer`.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import course
from autograder.lessons import lesson_folders
from autograder.sandbox import library_view, submission_view
from autograder.sandbox.child import Child, InfraError
from autograder.sandbox.command import VIEW, Limits, SandboxMissing
from autograder.sandbox.library_view import STUDENT

if TYPE_CHECKING:
    from autograder.sandbox.fork_server import ForkServer

FOLDERS = "judge-"
"""How the folders of judges begin; then comes the number of the process."""
ABANDONED = 24 * 3600
"""Seconds after which the folder of a process that is gone is removed."""
NO_SANDBOX = (
    "WITHOUT A SANDBOX (unsafe_no_sandbox): the student's code could read, write and send all that "
    "the account could that graded it."
)


def sandboxed(
    popen: Callable[..., subprocess.Popen],
    view: Path,
    lesson: str,
    submission: Path,
    limits: Limits | None = None,
) -> Child:
    """Start a student process in the sandbox.

    Args:
        popen: `command.popen` for a cold start, that of a `ForkServer` for a warm one.
        view: of the library, see `library_view`.
        lesson: module name, such as "kv_cache".
        submission: the folder with the student's files, see `submission_view`.
        limits: what it may use, if not the usual.

    Raises:
        InfraError: it could not be started, or was not ready in time.
        SandboxMissing: a part of the sandbox is not installed.
    """

    def start(arguments: Sequence[str], fds: Sequence[int]) -> subprocess.Popen:
        argv = [f"{VIEW}/{STUDENT}", *arguments]
        return popen(argv, view, submission, limits or Limits(), fds)

    return Child(start, lesson)


def bare(view: Path, lesson: str, submission: Path, home: Path) -> Child:
    """Start a student process with nothing around it but an environment of its own.

    Args:
        view, lesson, submission: as above.
        home: an empty folder, the student's HOME.

    Raises:
        InfraError: it could not be started, or was not ready in time.
    """
    environment = {
        "PATH": os.defpath,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "TORCH_COMPILE_DISABLE": "1",
    }

    def start(arguments: Sequence[str], fds: Sequence[int]) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-I", "-B", "-u", str(view / STUDENT), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=submission,
            pass_fds=fds,
            start_new_session=True,
        )

    return Child(start, lesson)


class Launcher:
    """Starts the student processes of one lesson, until it is closed.

    They start warm in the sandbox, once all its barriers have been proven on this machine; or bare.

    Args:
        module: the lesson's, such as "kv_cache".
        unsafe_no_sandbox: run student code on this account, with no barrier around it.
        meanwhile: called in a thread of its own, while the first code runs.
        server: what `start_server` has started already; the caller closes it.

    Attributes:
        level: in what the processes run, as a sentence for reports.

    Raises:
        SandboxMissing: a barrier does not hold here; the message names the ways out.
        ValueError: there is no such lesson.
    """

    def __init__(
        self,
        module: str,
        unsafe_no_sandbox: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        server: ForkServer | None = None,
    ) -> None:
        self.module = module
        with ExitStack() as stack:
            _remove_abandoned()
            folder = tempfile.TemporaryDirectory(
                prefix=f"{FOLDERS}{os.getpid()}-", ignore_cleanup_errors=True
            )
            self._folder = Path(stack.enter_context(folder))
            if unsafe_no_sandbox:
                server = None
            elif server is None:
                server = stack.enter_context(start_server())
            self.view = lay_out_view(self._folder / "view", module)
            self._popen, self.level = None, NO_SANDBOX
            if server:
                self._popen, self.level = server.popen, _proof(server.popen)
            threading.Thread(target=meanwhile, daemon=True).start()
            self.close = stack.pop_all().close

    @contextmanager
    def start_for(self, submission: Path) -> Iterator[Callable[[], Child]]:
        """Give a function that starts a process for the folder of one submission, until the block ends.

        The processes see a copy of the folder. Where that cannot be made, starting one says so.
        """
        folder = tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True)
        with folder as name:
            try:
                copy = submission_view.lay_out(submission, Path(name, "submission"))
                start = partial(self._start, copy)
            except OSError as error:
                start = partial(_fail, f"the submission's folder cannot be copied: {error}")
            yield start

    def _start(self, copy: Path) -> Child:
        if self._popen:
            return sandboxed(self._popen, self.view, self.module, copy)
        return bare(self.view, self.module, copy, Path(tempfile.mkdtemp(dir=copy.parent)))


def _remove_abandoned() -> None:
    """Remove the folders of judges that were killed, which could not do it themselves; the old ones, for
    a judge in a container may have a number that nobody has here."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*-*"):
        number = folder.name.removeprefix(FOLDERS).partition("-")[0]
        with suppress(OSError):  # another judge removes it
            old = time.time() - folder.stat().st_mtime > ABANDONED
            if old and number.isdecimal() and not _runs(int(number)):
                shutil.rmtree(folder, ignore_errors=True)  # somebody else's stays


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # somebody else's
    return True


def _fail(reason: str) -> Child:
    raise InfraError(reason)


def start_server() -> ForkServer:
    """Start a fork server.

    Raises:
        SandboxMissing: it cannot be started here.
    """
    # Only here: without a sandbox, nothing of it needs to be there.
    from autograder.sandbox import doctor
    from autograder.sandbox.fork_server import ForkServer

    try:
        return ForkServer()
    except (SandboxMissing, ImportError, OSError, RuntimeError) as error:
        raise SandboxMissing(f"{error}\n{doctor.ways_out()}") from error


def _proof(popen: Callable[..., subprocess.Popen]) -> str:
    """Prove all barriers on a fork server, and return a sentence about it."""
    from autograder.sandbox import proof

    return f"Judged in a sandbox, all {proof.require(popen)} barriers of which held here."


def lay_out_view(place: Path, module: str) -> Path:
    """Lay out what processes of a lesson see of the library, and return the folder.

    It is compiled, for else every process would do that anew: first the library itself, so that this
    need not be done the next time, and then what cannot be written there. Everyone may read the view,
    whatever the umask is: root's sandbox belongs to nobody."""
    compileall.compile_dir(Path(course.__file__).parent, quiet=2)
    view = library_view.lay_out(place, module, list(lesson_folders()))
    compileall.compile_dir(view, ddir=VIEW, quiet=2)
    for path in (view, *view.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    return view
