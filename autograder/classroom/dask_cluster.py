"""Judge many submissions at once on a running Dask cluster.

Each task carries one submission to a worker, which starts a sandbox for it (`dask_task.py`), and brings
back its result. Results are written here, so a worker that is killed loses nothing but time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from autograder.classroom import dask_task
from autograder.classroom.course import CannotStart
from autograder.classroom.dask_task import File, Task
from autograder.classroom.judging import NOT_KEPT, TICK
from autograder.classroom.submissions import Submission
from autograder.desk import Desk
from autograder.kept_results import digest_of_submission, read_kept
from autograder.sandbox import submission_view

if TYPE_CHECKING:
    from distributed import Client, Future

IN_FLIGHT = 2
"""Tasks at the cluster per thread of its workers: one that is judged, and one that waits."""
RETRIES = 3
"""How often a submission is sent again after a worker failed to judge it, or the cluster lost it."""
CONNECT = 15.0
"""Seconds in which the scheduler has to answer."""
LOOK = 5.0
"""Seconds between two looks at the cluster's workers."""
FETCH = 30.0
"""Seconds to fetch one result; then its worker may be gone, and it is tried again later."""

log = logging.getLogger(__name__)


def judge_on_dask(
    desk: Desk, submissions: Sequence[Submission], address: str
) -> Iterator[tuple[Submission, str]]:
    """Judge submissions on a cluster and keep their results here.

    Args:
        desk: the lesson's desk; it starts no sandbox.
        submissions: each has a notebook.
        address: the address of the cluster's scheduler, such as tcp://scheduler:8786.

    Yields:
        Each submission when it is done, with the reason why no result is kept, or "".

    Raises:
        CannotStart: there is no such cluster, or Dask is not installed here.
    """
    with _connect(address) as client:
        yield from _Cluster(client, desk).judge(submissions)


@contextmanager
def _connect(address: str) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError as error:
        install = "pip install -c constraints.txt -e '.[dask]'"
        raise CannotStart(f"--dask needs Dask: {install}") from error
    try:
        asyncio.run(_reach(address))
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TypeError of an address with no port
        why = str(error).partition("\n")[0] or type(error).__name__
        raise CannotStart(
            f"no Dask scheduler answers at {address!r}: {why}. "
            "--dask takes the address that it printed when it began, such as tcp://scheduler:8786"
        ) from error
    with client:
        yield client


async def _reach(address: str) -> None:
    """Connect and leave: a `Client` that cannot connect takes half a minute to give up.

    Raises:
        OSError, ValueError, TypeError: nobody answers at the address, or it is not an address.
    """
    from distributed import Security
    from distributed.comm import connect

    options = Security().get_connection_args("client")
    await (await connect(address, timeout=CONNECT, **options)).close()


@dataclass
class _Job:
    """A submission that is not finished.

    Attributes:
        failed: the workers that failed to judge it.
        lost: how often its task was lost.
        problem: the last error.
    """

    submission: Submission
    failed: set[str] = field(default_factory=set)
    lost: int = 0
    problem: str = ""


class _Cluster:
    """The workers of a cluster, and their refusals."""

    def __init__(self, client: Client, desk: Desk) -> None:
        self._client, self._desk = client, desk
        self._versions = dask_task.versions()
        self._refused: dict[str, str] = {}  # why, by the worker's address
        self._threads: dict[str, int] = {}  # by the worker's address
        self._looked: float | None = None

    def judge(self, submissions: Sequence[Submission]) -> Iterator[tuple[Submission, str]]:
        """Judge submissions, a few at a time; see `judge_on_dask`."""
        waiting = deque(map(_Job, submissions))
        running: dict[Future, _Job] = {}
        while waiting or running:
            while waiting and len(running) < self._room():
                job = waiting.popleft()
                if self._desk.find(job.submission.notebook):  # another judged it meanwhile
                    yield job.submission, ""
                    continue
                try:
                    running[self._send(job)] = job
                except Exception as error:  # of this one; the others go on
                    yield job.submission, job.problem or f"it cannot be sent to a worker: {error}"
            time.sleep(TICK)
            for future in [future for future in running if future.done()]:
                job = running.pop(future)
                if self._take(future, job):
                    yield job.submission, ""
                elif job.lost > RETRIES or len(job.failed) > RETRIES:
                    yield job.submission, job.problem
                else:
                    waiting.append(job)

    def _room(self) -> int:
        """Return how many tasks may be at the cluster; at least some, since a cluster without workers may
        grow with its work."""
        if self._looked is None or time.monotonic() - self._looked > LOOK:
            self._look()
        return IN_FLIGHT * max(1, sum(self._threads.values()))

    def _look(self) -> None:
        """Update the list of workers."""
        try:
            threads = dict(self._client.nthreads())
        except (OSError, RuntimeError, AttributeError):  # AttributeError while it is out of reach
            threads = self._threads
        if not threads and (self._threads or self._looked is None):
            log.warning("No worker is at the scheduler. Waiting for one.")
        self._threads, self._looked = threads, time.monotonic()

    def _send(self, job: _Job) -> Future:
        """Send a submission to a worker that may be able to judge it.

        Raises:
            Exception: it cannot be sent; `problem` may say why.
        """
        task = _task(self._desk, job.submission, self._versions)
        # Asked without the desk's cache, which looks only once: perhaps hours ago.
        notebook = job.submission.notebook
        if self._desk.digest(notebook) != digest_of_submission(notebook):
            job.problem = "it was handed in again while others were judged"
            raise LookupError(job.problem)
        if self._threads and not self._able(job):
            self._look()  # another may have come
        able = self._able(job)
        if self._threads and not able:
            job.problem = job.problem or next(iter(self._refused.values()))
            raise LookupError(job.problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a submission may be large
            return self._client.submit(
                dask_task.judge,
                task,
                key=f"judge-{uuid4().hex}",
                pure=False,
                workers=able if self._refused or job.failed else None,
                # Else it would wait for ever if these ended: a worker that begins anew is another.
                allow_other_workers=bool(self._refused or job.failed),
            )

    def _able(self, job: _Job) -> list[str]:
        """List the workers who have not said that they cannot judge a submission."""
        return [name for name in self._threads if name not in {*self._refused, *job.failed}]

    def _take(self, future: Future, job: _Job) -> bool:
        """Handle the outcome of a task; tell whether its result is kept."""
        from distributed import KilledWorker

        try:
            reply = future.result(timeout=FETCH)
        except KilledWorker:
            job.problem = "the workers that judged it were killed, one after another"
            job.lost = RETRIES + 1  # Dask has tried again already
            return False
        except (Exception, asyncio.CancelledError) as error:
            job.problem = f"the cluster lost it: {_brief(error)}"
            job.lost += 1
            return False
        if "kept" in reply:
            return self._keep(reply["kept"], job)
        job.problem = reply.get("refused") or f"the machine failed: {reply['failed']}"
        if "refused" in reply:
            self._refused[reply["worker"]] = reply["refused"]
        else:
            job.failed.add(reply["worker"])
        return False

    def _keep(self, result: str, job: _Job) -> bool:
        digest = self._desk.digest(job.submission.notebook)
        try:
            self._desk.results.keep(digest, read_kept(json.loads(result)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("%s: judged, but the result cannot be kept: %s", job.submission.folder, error)
        if self._desk.kept(job.submission.notebook):
            return True
        job.problem, job.lost = NOT_KEPT, RETRIES + 1
        return False


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__} {str(error).strip().partition(chr(10))[0]}".strip()


def _task(desk: Desk, submission: Submission, versions: dict[str, str]) -> Task:
    files = tuple(_files(submission.notebook))
    released = desk.released.read_bytes()
    what = (submission.notebook.name, files, released, desk.secret)
    return Task(*what, desk.settings, desk.grader, versions)


def _files(notebook: Path) -> Iterator[File]:
    """Yield the files of a submission's folder that a student's process may see, and the kind of the
    notebook if that is not a readable file."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        copy = submission_view.lay_out(notebook.parent, Path(name, "submission"))
        for path in sorted(copy.rglob("*")):
            data = path.read_bytes() if path.is_file() else None
            yield _file(path.relative_to(copy), path, data)
        if not (copy / notebook.name).exists():
            yield _file(Path(notebook.name), notebook, None)


def _file(name: Path, path: Path, data: bytes | None) -> File:
    state = path.lstat()
    return File(os.fsencode(name), state.st_mode, state.st_size, data)
