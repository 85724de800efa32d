"""Judge one submission on a worker of a Dask cluster: the worker supervises, its sandbox runs the code.

The cluster's scheduler imports this file as well, and needs nothing else of the judge: whatever else a
worker needs is imported when the first task runs.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograder.desk import Desk

IDLE = 60.0
"""The idle seconds after which a worker ends its sandbox and forgets the secret."""
NAMED = ("second-token", "torch", "numpy", "ipython")
"""Packages whose versions are named where a worker is refused."""


@dataclass(frozen=True)
class File:
    """An entry of a submission's folder.

    Attributes:
        path: the path in the folder, as the system writes it.
        mode: its kind and permissions.
        size: its size in bytes.
        data: its content; None if that is not read.
    """

    path: bytes
    mode: int
    size: int
    data: bytes | None


@dataclass(frozen=True, repr=False)  # Dask's logs are no place for what it holds
class Task:
    """Everything that a worker is told about a submission, but not whose it is.

    Attributes:
        notebook: the name of the file to judge.
        files: the entries of its folder, folders before their entries.
        released: the lesson's notebook as students get it.
        secret: the grader's secret.
        settings: the judge's settings, as plain data.
        grader: the digest of the grader on the machine that grades the class.
        versions: the versions on that machine, see `versions`.
    """

    notebook: str
    files: tuple[File, ...]
    released: bytes
    secret: bytes
    settings: Mapping[str, Any]
    grader: str
    versions: Mapping[str, str]


class Refused(Exception):
    """This worker cannot judge this lesson; the message says why."""


def judge(task: Task) -> dict[str, str]:
    """Judge a submission on the worker that calls.

    Returns:
        "worker", its address, and one of "kept", a result as JSON, "refused", why this worker cannot
        judge the lesson, or "failed", why it cannot judge this submission.
    """
    from distributed import get_worker

    worker = get_worker()
    try:
        with _desk_for(task, Path(worker.local_directory)) as (desk, folder):
            reply = _judge(desk, task, folder)
    except Refused as error:
        reply = {"refused": f"worker {worker.name} at {worker.address}: {error}"}
    except Exception as error:  # of this one; the worker goes on
        reply = {"failed": f"{type(error).__name__}: {error}"}
    return {**reply, "worker": worker.address}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide about results, by name."""
    installed = {"python": python_version()}
    for name in NAMED:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "missing"
    return installed


def _judge(desk: Desk, task: Task, folder: Path) -> dict[str, str]:
    from autograder.result import Outcome

    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as name:
        place = Path(name, "submission")
        lay_out(task, place)
        kept = desk.judge(place / task.notebook)
    if kept.result.outcome == Outcome.INFRA_ERROR:
        return {"failed": kept.result.reason}
    return {"kept": json.dumps(asdict(kept))}


def lay_out(task: Task, place: Path) -> None:
    """Write the entries of a submission's folder to a new folder; an entry that cannot be sent becomes an
    empty one of its kind."""
    place.mkdir()
    for file in task.files:
        path = place / os.fsdecode(file.path)
        if stat.S_ISLNK(file.mode):
            path.symlink_to("nowhere")
            continue
        if stat.S_ISDIR(file.mode):
            path.mkdir()
        elif not stat.S_ISREG(file.mode):
            os.mkfifo(path)
        elif file.data is None:
            path.touch()
            os.truncate(path, file.size)
        else:
            path.write_bytes(file.data)
        path.chmod(stat.S_IMODE(file.mode))


# --- the desks of this process, one per lesson, kept from task to task ---------------------------


@dataclass
class _Open:
    """A desk in use, or waiting for its next task."""

    desk: Desk
    folder: Path
    close: Callable[[], None]
    users: int = 0
    timer: threading.Timer | None = None


_desks: dict[str, _Open] = {}
_lock = threading.Lock()
_code: dict[str, str] = {}  # by lesson, the digest of what judges it when this process loaded that


@contextmanager
def _desk_for(task: Task, scratch: Path) -> Iterator[tuple[Desk, Path]]:
    """Yield the desk of a task's lesson and its folder; the desk is closed after some idle time.

    Raises:
        Refused: this worker differs from the grader, or cannot confine a student's code.
    """
    key = json.dumps([task.grader, dict(task.settings)], sort_keys=True)
    with _lock:
        if key not in _desks:
            _desks[key] = _open(task, scratch)
        opened = _desks[key]
        opened.users += 1
        if opened.timer:
            opened.timer.cancel()
    try:
        yield opened.desk, opened.folder
    finally:
        with _lock:
            opened.users -= 1
            if not opened.users:
                opened.timer = threading.Timer(IDLE, _close_if_idle, [key])
                opened.timer.daemon = True
                opened.timer.start()


def _close_if_idle(key: str) -> None:
    with _lock:
        opened = _desks.get(key)
        if opened and not opened.users and opened.timer is threading.current_thread():
            del _desks[key]
            opened.close()


def _open(task: Task, scratch: Path) -> _Open:
    with ExitStack() as stack:
        # In the worker's own folder: where it is killed, its nanny or the next worker removes that.
        folder = tempfile.TemporaryDirectory(
            dir=scratch, prefix="second-token-", ignore_cleanup_errors=True
        )
        place = Path(stack.enter_context(folder))
        released = place / task.notebook
        released.write_bytes(task.released)
        _require_same_grader(task, released)
        try:
            desk = _desk(task, released)
            stack.callback(desk.close)
            desk.open()
        except Exception as error:
            raise Refused(f"it cannot judge: {error}") from error
        return _Open(desk, place, stack.pop_all().close)


def _desk(task: Task, released: Path) -> Desk:
    from autograder.desk import Desk

    secret = released.parent / "secret"
    secret.touch(0o600)
    secret.write_bytes(task.secret)
    log = logging.getLogger(__name__)
    return Desk(released, secret.parent, task.settings, judge_again=True, log=log)


def _require_same_grader(task: Task, released: Path) -> None:
    """Raise `Refused` if this worker's code or libraries differ from the grader's."""
    try:
        from autograder.kept_results import digest_of_grader, digest_of_judging
    except ImportError as error:
        raise Refused(f"the course is not installed there as for grading: {error}") from error
    here = versions()
    others = [
        f"{name} {here[name]} in place of {expected}"
        for name, expected in task.versions.items()
        if here[name] != expected
    ]
    if others or digest_of_grader(released, task.secret) != task.grader:
        why = ", ".join(others) or "its files of the course or the judge are others"
        raise Refused(f"another grader runs there: {why}. Install the same as here.")
    code = digest_of_judging(released.stem)
    if _code.setdefault(released.stem, code) != code:
        raise Refused("the grader's files have changed since it began. Restart the workers.")
