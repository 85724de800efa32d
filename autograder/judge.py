"""Judge one submission: run its cells in a student process, ask every question, decide here.

The student's cells run in a process that knows nothing (`student.py`). This side draws each
challenge after the cells ran, sends it, takes what comes back for a claim, and compares it with the
oracle here. A question whose probe kills or hangs the process costs that question: the process is
started anew, the cells are run again, and the next question is asked.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from autograder.assignment import Assignment, BadSubmission, CodeCell, Question, read_submission
from autograder.diagnosis.recognize import diagnose
from autograder.lessons import find
from autograder.sandbox.child import Child, ChildFault, InfraError
from course.checks.check import Check, failed

Start = Callable[[], Child]
"""Starts a fresh student process for this submission."""

ROUNDS = 3
"""Challenges for each question; all must be met."""
STARTS = 3
"""Attempts to start a process before the machine is blamed."""
DEAD_CELLS = 3
"""Cells of one notebook that may end or hang the process; each costs a start."""
MESSAGE, OUTPUT = 2_000, 64 * 2**10
"""Characters that are kept of one message and of all output."""


class Outcome(StrEnum):
    """The three outcomes of a submission, and of a question. Each ends in exactly one."""

    SCORE = "SCORE"
    """It was judged."""
    STUDENT_FAULT = "STUDENT_FAULT"
    """It could not be judged, by the student's doing: no points, and a reason."""
    INFRA_ERROR = "INFRA_ERROR"
    """It could not be judged, and the student has no part in that: no grade at all."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question. `score` is the part of `max_points` earned, 0 … 1; `bug` and
    `family` say which mistake of the museum was recognised, if any."""

    check: str
    outcome: Outcome
    score: float
    max_points: float
    message: str
    bug: str = ""
    family: str = ""

    @property
    def points(self) -> float:
        return self.score * self.max_points


@dataclass(frozen=True)
class Result:
    """The result of one submission: plain data.

    Attributes:
        outcome: SCORE, or why there is no grade for the whole of it; then `reason` says more.
        submission: SHA-256 of the file, or "" when it could not be read.
        answers: one for each question of the lesson, in its order.
        cells: what went wrong in the student's own cells, one line each.
        output: what the student's process wrote, cut.
    """

    lesson: str
    outcome: Outcome
    reason: str
    submission: str
    answers: tuple[Answer, ...]
    cells: tuple[str, ...] = ()
    output: str = ""

    @property
    def points(self) -> float:
        return sum(answer.points for answer in self.answers)


@dataclass(frozen=True)
class Deadlines:
    """The seconds of wall-clock time that a cell, a question and a whole submission may take."""

    cell: float = 120
    question: float = 60
    submission: float = 600


class _GaveUp(Exception):
    """The submission cannot be asked anything more; the message says why."""


def grade_one(
    notebook: Path,
    assignment: Assignment,
    start: Start,
    secret: bytes,
    deadlines: Deadlines | None = None,
) -> Result:
    """Judge one submission. Never raises; the same file and secret give the same grade.

    Args:
        notebook: the file as it was handed in.
        assignment: what the lesson asks.
        start: starts a student process, from a view of that lesson.
        secret: the grader's, from which seeds are made.
        deadlines: what to wait for at most.
    """
    digest = ""
    try:
        digest, cells = read_submission(notebook, assignment)
        session = _Session(start, cells, deadlines or Deadlines())
        try:
            return _judge(session, assignment, digest, secret)
        finally:
            session.close()
    except BadSubmission as error:
        return _without_score(assignment, Outcome.STUDENT_FAULT, str(error), digest)
    except InfraError as error:
        return _without_score(assignment, Outcome.INFRA_ERROR, str(error), digest)
    except Exception:  # whatever it is, it is ours, and no student may get a zero for it
        reason = f"the judge itself failed:\n{traceback.format_exc(limit=-5)}"
        return _without_score(assignment, Outcome.INFRA_ERROR, reason, digest)


def _without_score(
    assignment: Assignment,
    outcome: Outcome,
    reason: str,
    digest: str,
    session: _Session | None = None,
) -> Result:
    reason = reason[:MESSAGE]
    answers = (Answer(q.check, outcome, 0.0, q.points, reason) for q in assignment.questions)
    return _result(assignment, outcome, reason, digest, answers, session)


def _result(assignment, outcome, reason, digest, answers, session) -> Result:
    cells, output = (session.cell_reports(), session.output()) if session else ((), "")
    return Result(assignment.module, outcome, reason, digest, tuple(answers), cells, output)


def _judge(session: _Session, assignment: Assignment, digest: str, secret: bytes) -> Result:
    try:
        session.child()  # cells that nobody survives are known before the first question
    except _GaveUp as error:
        fault = Outcome.STUDENT_FAULT
        return _without_score(assignment, fault, str(error), digest, session)
    answers = [_ask(session, assignment, q, digest, secret) for q in assignment.questions]
    session.close()
    return _result(assignment, Outcome.SCORE, "", digest, answers, session)


def draw_seed(secret: bytes, digest: str, check: str, number: int) -> int:
    """Draw the seed of one challenge, 0 … 2⁶² - 1: an HMAC that nobody without the secret can
    compute, and that is the same in every retry."""
    text = f"{digest}:{check}:{number}".encode()
    return int.from_bytes(hmac.digest(secret, text, hashlib.sha256)[:8], "big") >> 2


def _ask(
    session: _Session, assignment: Assignment, question: Question, digest: str, secret: bytes
) -> Answer:
    """Ask one question with ROUNDS challenges, until one is lost."""
    name = f"{assignment.module}.{question.check}"
    check = find(name)

    def answer(outcome: Outcome, score: float, message: str) -> Answer:
        return Answer(question.check, outcome, score, question.points, message[:MESSAGE])

    score, message = 1.0, ""
    end = time.monotonic() + session.deadlines.question
    for number in range(ROUNDS):
        try:
            child = session.child()
            if number == 0:  # running the cells again is not this question's fault
                end = time.monotonic() + session.deadlines.question
            challenge = check.challenge(draw_seed(secret, digest, name, number))
            request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
            reply = child.ask(request, min(end, session.end) - time.monotonic())
        except ChildFault as fault:
            return answer(Outcome.STUDENT_FAULT, 0.0, f"While this was tried, {fault}.")
        except _GaveUp as error:
            return answer(Outcome.STUDENT_FAULT, 0.0, str(error))
        found = _reach_verdict(check, challenge, reply, session)
        if found.score < score:
            lost = answer(Outcome.SCORE, float(found.score), found.message)
            return _name_mistake(lost, assignment.module, challenge, reply, session)
        message = found.message
    return answer(Outcome.SCORE, score, message)


def _name_mistake(
    lost: Answer, lesson: str, challenge: dict, reply: dict, session: _Session
) -> Answer:
    """Add to a lost answer which known mistake gives it; the student's time stands still meanwhile."""
    begun = time.monotonic()
    found = diagnose(lesson, lost.check, challenge, reply)
    session.end += time.monotonic() - begun
    if found is None:
        return lost
    message = f"{lost.message[: MESSAGE - len(found.sentence) - 1]} {found.sentence}"
    return replace(lost, message=message, bug=found.bug, family=found.family)


def _reach_verdict(check: Check, challenge: dict, reply: dict, session: _Session):
    """Decide on a reply, which may hold anything."""
    error = reply.get("error")
    if error is not None:
        return failed(_explain(error, check, session))
    try:
        with np.errstate(all="ignore"):
            return check.decide(challenge, reply["evidence"], reply.get("broken"))
    except Exception as error:
        # Verdicts expect what right and usual wrong answers give; a student may give anything.
        kind = type(error).__name__
        return failed(f"What your functions gave cannot be compared ({kind}: {error!s:.300}).")


def _explain(error: object, check: Check, session: _Session) -> str:
    kind, words, where = _fields(error)
    if kind == "Missing":
        return " ".join([words, *session.cells_that_define(check.needs)])
    if kind == "NotImplementedError":
        return "Not written yet: the code stops with NotImplementedError."
    if kind == "WireError":
        return f"What your functions gave is no plain number, text or array: {words}."
    return f"Your code stopped{f' {where},' if where else ''} with {kind}: {words}"


def _fields(error: object) -> list[str]:
    """Read kind, words and place of an error record, which may be made up, as strings."""
    record = error if type(error) is dict else {}
    return [str(record.get(name, ""))[:MESSAGE] for name in ("kind", "words", "where")]


@dataclass
class _Session:
    """The student processes of one submission, one at a time, each with all cells run."""

    start: Start
    cells: tuple[CodeCell, ...]
    deadlines: Deadlines
    end: float = 0.0
    reports: dict[int, str] = field(default_factory=dict)  # what went wrong, by cell
    dead: set[int] = field(default_factory=set)  # cells that are not run again
    outputs: list[str] = field(default_factory=list)
    current: Child | None = None

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.deadlines.submission

    def child(self) -> Child:
        """Return a living process in which the cells have run.

        Raises:
            _GaveUp: too many cells that end the process, or no time left.
            InfraError: no process can be started.
        """
        while self.current is None or not self.current.alive:
            self.close()
            if time.monotonic() > self.end:
                raise _GaveUp(
                    f"The {self.deadlines.submission:g} seconds for this notebook were used up."
                )
            self.current = self._start()
            self._run_cells(self.current)
        return self.current

    def _start(self) -> Child:
        for attempt in range(STARTS):
            try:
                return self.start()
            except InfraError:
                if attempt == STARTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _run_cells(self, child: Child) -> None:
        for cell in self.cells:
            if cell.number in self.dead:
                continue
            seconds = min(self.deadlines.cell, self.end - time.monotonic())
            try:
                error = child.ask({"cell": cell.source}, seconds).get("error")
            except ChildFault as fault:
                self.reports[cell.number] = f"Cell {cell.number}: {fault}. It is left out."
                self.dead.add(cell.number)
                if len(self.dead) > DEAD_CELLS:
                    raise _GaveUp(" ".join(self.cell_reports())) from fault
                return
            if error is not None:
                kind, words, _ = _fields(error)
                self.reports.setdefault(
                    cell.number,
                    f"Cell {cell.number} stopped with {kind}{': ' if words else ''}{words}",
                )

    def cells_that_define(self, names: tuple[str, ...]) -> list[str]:
        """Return the reports of cells that stopped and should have defined one of these names."""
        pattern = re.compile(rf"^(?:def|class)\s+(?:{'|'.join(names)})\b", re.MULTILINE)
        broken = (
            c.number for c in self.cells if c.number in self.reports if pattern.search(c.source)
        )
        return [self.reports[number] for number in broken]

    def cell_reports(self) -> tuple[str, ...]:
        return tuple(self.reports[number] for number in sorted(self.reports))

    def output(self) -> str:
        """Return what the processes of this session wrote, one after another, cut."""
        text = "\n".join(filter(None, self.outputs))
        return text if len(text) <= OUTPUT else f"{text[:OUTPUT]}\n… {len(text) - OUTPUT:,} more"

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
            self.outputs.append(self.current.output)
            self.current = None
