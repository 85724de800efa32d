"""Judge many submissions at once on this machine: each in a thread that watches its sandbox."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from autograder.classroom.submissions import Submission
from autograder.desk import Desk
from autograder.result import Outcome

PATIENCE = 15.0
"""Seconds after which a submission no longer keeps others from beginning: it may hang."""
WAITING = 3
"""Submissions a job that may be waited for beside those that count, so that memory has an end."""
TICK = 0.2
"""Seconds between two looks at whether another submission may begin."""
NOT_KEPT = "its result could not be kept: is the disk full, or was it handed in anew just now?"


def judge_here(
    desk: Desk, submissions: Sequence[Submission], jobs: int
) -> Iterator[tuple[Submission, str]]:
    """Judge submissions and keep their results.

    Args:
        desk: of the lesson.
        submissions: each with a notebook.
        jobs: how many at once; one that takes long is waited for beside them.

    Yields:
        Each submission when it is done, with why it has no result that is kept, or "".
    """
    waiting, done = deque(submissions), SimpleQueue()
    running: dict[str, float] = {}  # since when, by student
    while waiting or running:
        now = time.monotonic()
        quick = sum(now - begun < PATIENCE for begun in running.values())
        while waiting and quick < jobs and len(running) < jobs * (1 + WAITING):
            submission = waiting.popleft()
            running[submission.student] = now
            quick += 1
            # As daemons, so that Ctrl-C need not wait for them.
            threading.Thread(target=_judge, args=(desk, submission, done), daemon=True).start()
        for submission, problem in _finished(done):
            del running[submission.student]
            yield submission, problem


def _finished(done: SimpleQueue) -> Iterator[tuple[Submission, str]]:
    """Take what is finished; wait a moment for the first."""
    try:
        yield done.get(timeout=TICK)
        while not done.empty():
            yield done.get()
    except Empty:
        return


def _judge(desk: Desk, submission: Submission, done: SimpleQueue) -> None:
    done.put((submission, judge_one(desk, submission)))


def judge_one(desk: Desk, submission: Submission) -> str:
    """Judge one submission, unless another did it meanwhile; return why no result is kept, or ""."""
    try:
        if desk.find(submission.notebook):
            return ""
        kept = desk.judge(submission.notebook)
        if kept.result.outcome == Outcome.INFRA_ERROR:
            return f"the machine failed: {kept.result.reason}"
        if not desk.kept(submission.notebook):
            return NOT_KEPT
        return ""
    except Exception as error:  # of this one; the others go on
        return f"the machine failed: {type(error).__name__}: {error}"
