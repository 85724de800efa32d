"""Judge one submission: run its cells in a student process, ask every question, decide here.

The student's cells run in a process that knows nothing (`student.py`). A question is asked when the
run reaches its test cell, and once more at the end if points were lost; the better answer counts. Cells
of the lesson on which no answer rests run only where points are lost without them. This
side draws each challenge then and there, sends it, takes what comes back for a claim, and compares it
with the oracle. A question whose probe kills or hangs the process costs that question. What is lost for
the mistake of another cell is asked again with that cell put right (`follow_through.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from autograder.assignment import Assignment, BadSubmission, CodeCell, Question, read_submission
from autograder.diagnosis.recognize import diagnose
from autograder.follow_through import cells_to_replace, replace_cells, sentence
from autograder.lessons import find
from autograder.needed_cells import needed_cells
from autograder.sandbox.child import ChildFault, InfraError
from autograder.session import MESSAGE, Deadlines, GaveUp, Session, Start, fields_of
from course.checks.check import Challenge, Check, Verdict, failed

ROUNDS = 3
"""Challenges for each question; all must be met."""
PLACES = 3
"""Test cells of one question at which it is asked, while points are lost; and then at the end."""


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
    `family` say which mistake of the museum was recognised, if any; `credited` says that it was earned
    with another cell put right."""

    check: str
    outcome: Outcome
    score: float
    max_points: float
    message: str
    bug: str = ""
    family: str = ""
    credited: bool = False

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
        skipped: how many of the lesson's own cells, on which no answer rests, did not run.
        seconds: that its parts took.
    """

    lesson: str
    outcome: Outcome
    reason: str
    submission: str
    answers: tuple[Answer, ...]
    cells: tuple[str, ...] = ()
    output: str = ""
    skipped: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def points(self) -> float:
        return sum(answer.points for answer in self.answers)


@dataclass(frozen=True)
class Asked:
    """A question as it was answered at one place, with what the diagnosis needs of a lost one."""

    answer: Answer
    challenge: Challenge | None = None
    reply: dict | None = None


def grade_one(
    notebook: Path,
    assignment: Assignment,
    start: Start,
    secret: bytes,
    deadlines: Deadlines | None = None,
    follow_through: bool = True,
) -> Result:
    """Judge one submission. Never raises; the same file and secret give the same grade.

    Args:
        notebook: the file as it was handed in.
        assignment: what the lesson asks.
        start: starts a student process, from a view of that lesson.
        secret: the grader's, from which seeds are made.
        deadlines: what to wait for at most.
        follow_through: whether what is lost for another cell's mistake is asked again.
    """
    digest = ""
    try:
        digest, cells = read_submission(notebook, assignment)
        judging, seconds = _Judging(assignment, digest, secret), {}
        session = Session(start, needed_cells(cells, assignment.given), deadlines or Deadlines())
        with _timed(seconds, "cells and questions"), closing(session):
            asked = judging.ask_all(session)
        if session.cells != cells and not all(map(_is_full, asked.values())):
            whole = Session(start, cells, session.deadlines, session.end)
            with _timed(seconds, "again, with all cells"), closing(whole):
                session, asked = whole, judging.ask_again(whole, asked)
        if follow_through:
            with _timed(seconds, "follow-through"):
                asked = judging.follow_through(session, start, asked)
        with _timed(seconds, "names of mistakes"):
            answers = _name_mistakes(assignment, asked)
        result = _result(assignment, Outcome.SCORE, "", digest, answers, session)
        skipped = sum(a != b for a, b in zip(session.cells, cells, strict=True))
        return replace(result, skipped=skipped, seconds=seconds)
    except BadSubmission as error:
        return _without_score(assignment, Outcome.STUDENT_FAULT, str(error), digest)
    except GaveUp as error:  # before anything could be asked
        return _without_score(assignment, Outcome.STUDENT_FAULT, str(error), digest, session)
    except InfraError as error:
        return _without_score(assignment, Outcome.INFRA_ERROR, str(error), digest)
    except Exception:  # whatever it is, it is ours, and no student may get a zero for it
        reason = f"the judge itself failed:\n{traceback.format_exc(limit=-5)}"
        return _without_score(assignment, Outcome.INFRA_ERROR, reason, digest)


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[part] = round(time.perf_counter() - begun, 3)


def _without_score(
    assignment: Assignment,
    outcome: Outcome,
    reason: str,
    digest: str,
    session: Session | None = None,
) -> Result:
    reason = reason[:MESSAGE]
    answers = (Answer(q.check, outcome, 0.0, q.points, reason) for q in assignment.questions)
    return _result(assignment, outcome, reason, digest, answers, session)


def _result(assignment, outcome, reason, digest, answers, session) -> Result:
    cells, output = (session.reports(), session.output()) if session else ((), "")
    return Result(assignment.module, outcome, reason, digest, tuple(answers), cells, output)


def draw_seed(secret: bytes, digest: str, check: str, number: int) -> int:
    """Draw the seed of one challenge, 0 … 2⁶² - 1: an HMAC that nobody without the secret can
    compute, and that is the same in every retry."""
    text = f"{digest}:{check}:{number}".encode()
    return int.from_bytes(hmac.digest(secret, text, hashlib.sha256)[:8], "big") >> 2


@dataclass
class _Judging:
    """Asks the questions of a lesson about one submission."""

    assignment: Assignment
    digest: str
    secret: bytes
    _times: Counter[str] = field(default_factory=Counter)  # that each question was asked

    def ask_all(self, session: Session) -> dict[str, Asked]:
        """Ask every question where the student tested, and what is not right then at the end.

        Raises:
            GaveUp: the submission ended before anything was asked.
        """
        asked: dict[str, Asked] = {}
        self._ask_where_points_are_lost(session, asked)
        return asked

    def ask_again(self, session: Session, before: dict[str, Asked]) -> dict[str, Asked]:
        """Ask lost questions in another session; the better answer of each counts, and of two that are
        worth the same the new one, unless it tells of the time alone."""
        asked = {name: found for name, found in before.items() if _is_full(found)}
        with suppress(GaveUp):
            self._ask_where_points_are_lost(session, asked)
        for name, found in before.items():
            new = asked.get(name, found)
            if new.answer.score < found.answer.score or new.answer.outcome != Outcome.SCORE:
                new = found
            asked[name] = new
        return asked

    def _ask_where_points_are_lost(self, session: Session, asked: dict[str, Asked]) -> None:
        """Add answers to `asked`; raises as `ask_all`."""
        times: Counter[str] = Counter()
        for place, question in self._places(session.cells):
            name = question.check
            left = times[name] < PLACES or place == len(session.cells)
            if left and not _is_full(asked.get(name)):
                try:
                    found = self._ask(session, place, question)
                except GaveUp as error:
                    if not asked:
                        raise
                    found = self._fault(question, str(error))
                asked[name] = _better(asked.get(name), found)
                times[name] += 1

    def _places(self, cells: tuple[CodeCell, ...]) -> list[tuple[int, Question]]:
        """List where to ask what: behind how many cells. Behind all of them, everything, unless
        nothing has run since it was asked last."""
        questions = {question.check: question for question in self.assignment.questions}
        there = [(n, questions[cell.asks]) for n, cell in enumerate(cells, 1) if cell.asks]
        last = max((n for n, cell in enumerate(cells, 1) if cell.source), default=0)
        settled = {question.check for n, question in there if n >= last}
        return there + [
            (len(cells), q) for q in self.assignment.questions if q.check not in settled
        ]

    def follow_through(
        self, session: Session, start: Start, asked: dict[str, Asked]
    ) -> dict[str, Asked]:
        """Ask lost questions again with other cells put right; what passes is credited."""
        by_name = {question.check: question for question in self.assignment.questions}
        lost = [question for name, question in by_name.items() if not _is_full(asked[name])]
        sessions: dict[frozenset[str], Session] = {}
        credited = dict(asked)
        try:
            for question in list(lost):
                names = cells_to_replace(self.assignment, question, lost, session.cells)
                if not names:
                    continue
                if names not in sessions:
                    cells = replace_cells(self.assignment, session.cells, names, session.seconds)
                    sessions[names] = Session(start, cells, session.deadlines, session.end)
                answer = asked[question.check].answer
                better = self._credit(sessions[names], question, names, answer)
                if better is not answer:
                    credited[question.check] = Asked(better)
                    lost.remove(question)
        finally:
            for other in sessions.values():
                other.close()
        return credited

    def _credit(
        self, session: Session, question: Question, names: frozenset[str], answer: Answer
    ) -> Answer:
        """Ask where the student tested first, and at the end, with these cells replaced. Nothing that
        such a process says or prints goes on: it has seen reference answers."""
        places = [place for place, other in self._places(session.cells) if other == question]
        for place in dict.fromkeys((places[0], places[-1])):
            try:
                found = self._ask(session, place, question).answer
            except (GaveUp, InfraError):
                return answer
            if found.score > answer.score:
                words = f"{sentence(names)} As it stands: {answer.message}"
                return replace(found, message=words[:MESSAGE], credited=True)
        return answer

    def _ask(self, session: Session, place: int, question: Question) -> Asked:
        """Ask one question with ROUNDS challenges, until one is lost; each time other ones.

        Args:
            place: behind how many cells.

        Raises:
            GaveUp: the first challenge could not be put to it.
        """
        name = f"{self.assignment.module}.{question.check}"
        check = find(name)
        score, message = 1.0, ""
        time_number = self._times[name]
        self._times[name] += 1
        end = time.monotonic() + session.deadlines.question
        for number in range(ROUNDS):
            try:
                child = session.child(place)
                if number == 0:  # running the cells is not this question's fault
                    end = time.monotonic() + session.deadlines.question
                seed = draw_seed(self.secret, self.digest, name, ROUNDS * time_number + number)
                challenge = check.challenge(seed)
                request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
                reply = child.ask(request, min(end, session.end) - time.monotonic())
            except ChildFault as fault:
                return self._fault(question, f"While this was tried, {fault}.")
            found = _reach_verdict(check, challenge, reply, session)
            if found.score < score:
                return Asked(_answer(question, found), challenge, reply)
            message = found.message
        return Asked(_answer(question, Verdict(score, message)))

    def _fault(self, question: Question, why: str) -> Asked:
        fault = Outcome.STUDENT_FAULT
        return Asked(Answer(question.check, fault, 0.0, question.points, why[:MESSAGE]))


def _answer(question: Question, verdict: Verdict) -> Answer:
    words, score = verdict.message[:MESSAGE], float(verdict.score)
    return Answer(question.check, Outcome.SCORE, score, question.points, words)


def _is_full(asked: Asked | None) -> bool:
    return asked is not None and asked.answer.score == 1


def _better(first: Asked | None, second: Asked) -> Asked:
    """Choose the answer that counts; of two that are worth the same, the one where the student tested."""
    return second if first is None or second.answer.score > first.answer.score else first


def _name_mistakes(assignment: Assignment, asked: dict[str, Asked]) -> list[Answer]:
    """Add to lost answers which known mistake gives them: one that passes what the student passed."""
    passed = {
        name for name, found in asked.items() if _is_full(found) and not found.answer.credited
    }
    answers = []
    for question in assignment.questions:
        found = asked[question.check]
        answer = found.answer
        if found.reply is not None and (
            known := diagnose(
                assignment.module, question.check, found.challenge, found.reply, passed
            )
        ):
            message = f"{answer.message[: MESSAGE - len(known.sentence) - 1]} {known.sentence}"
            answer = replace(answer, message=message, bug=known.bug, family=known.family)
        answers.append(answer)
    return answers


def _reach_verdict(check: Check, challenge: Challenge, reply: dict, session: Session) -> Verdict:
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


def _explain(error: object, check: Check, session: Session) -> str:
    kind, words, where = fields_of(error)
    if kind == "Missing":
        return " ".join([words, *session.reports_of_cells_that_define(check.needs)])
    if kind == "NotImplementedError":
        return "Not written yet: the code stops with NotImplementedError."
    if kind == "WireError":
        return f"What your functions gave is no plain number, text or array: {words}."
    return f"Your code stopped{f' {where},' if where else ''} with {kind}: {words}"
