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
from autograder.sandbox.child import TOO_BUSY

PATIENCE = 15.0
"""Seconds after which a submission no longer keeps others from starting: it may hang."""
WAITING = 3
"""Slow submissions per job that may run beside the others; the limit bounds the memory."""
TICK = 0.2
"""Seconds between two checks whether another submission may start."""
NOT_KEPT = "its result could not be kept: is the disk full, or was it handed in again just now?"


def judge_here(
    desk: Desk, submissions: Sequence[Submission], jobs: int
) -> Iterator[tuple[Submission, str]]:
    """Judge submissions and keep their results; those for whom the machine was too busy again, alone.

    Args:
        desk: the lesson's desk.
        submissions: each has a notebook.
        jobs: how many run at once; slow ones run beside them.

    Yields:
        Each submission when it is done, with the reason why no result is kept, or "".
    """
    again = []
    for submission, problem in _judge_all(desk, submissions, jobs):
        if TOO_BUSY in problem:
            again.append(submission)
        else:
            yield submission, problem
    for submission in again:
        yield submission, judge_one(desk, submission)


def _judge_all(
    desk: Desk, submissions: Sequence[Submission], jobs: int
) -> Iterator[tuple[Submission, str]]:
    """Judge submissions, each once; see `judge_here`."""
    waiting, done = deque(submissions), SimpleQueue()
    running: dict[str, float] = {}  # since when, by student
    while waiting or running:
        now = time.monotonic()
        quick = sum(now - start < PATIENCE for start in running.values())
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
    """Yield the finished submissions; wait a moment for the first."""
    try:
        yield done.get(timeout=TICK)
        while not done.empty():
            yield done.get()
    except Empty:
        return


def _judge(desk: Desk, submission: Submission, done: SimpleQueue) -> None:
    done.put((submission, judge_one(desk, submission)))


def judge_one(desk: Desk, submission: Submission) -> str:
    """Judge one submission, unless it was judged meanwhile; return why no result is kept, or ""."""
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
