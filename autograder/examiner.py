"""Put the questions of a lesson to one submission.

* A question is asked where the run reaches its test cell. If points are lost it is asked again after
  later cells of the student that may change the answer. The best attempt counts.
* This side draws each challenge only then, treats the reply as a claim, and compares it with the oracle.
  A probe that kills or hangs the process costs that question alone.

Where something else than the answer may be at fault, `second_chances.py` asks a lost question again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from autograder.assignment import Assignment, CodeCell, Question
from autograder.challenges import Challenges
from autograder.diagnosis.known_replies import KnownReplies
from autograder.diagnosis.recognize import NOT_BEGUN, kind_of_error
from autograder.fewer_operations import about_fewer_operations
from autograder.lasting_state import may_keep_state
from autograder.lessons import find
from autograder.needed_cells import may_change, needed_cells, reach
from autograder.result import Answer, Outcome
from autograder.sandbox.child import Child, ChildFault, MachineBusy
from autograder.session import MESSAGE, GaveUp, Session, fields_of
from course.checks.check import Challenge, Check, Verdict, failed, stopped_with
from course.checks.rules import Broken

MISSING_NAME = ("NameError", "AttributeError")
"""Exceptions that say that a name is missing, which another cell may define."""
EXPLANATION_SECONDS = 10.0
"""The time for each further challenge, by which a mistake is recognised and its smallest case found."""
MOST_BROKEN = 50
"""The most broken house rules that a reply may list for one of them to be excused."""
MAX_TEST_CELLS = 3
"""How often a lost question is asked at its test cells; it is asked at the end as well."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a question, and for a lost one what the diagnosis needs.

    Attributes:
        answer: the outcome and the points.
        challenge, reply: the challenge that lost it, and the reply to that.
        specimen: the reply to the challenge that is the same for every submission.
        n_cells: how many cells had run when the question was asked.
    """

    answer: Answer
    challenge: Challenge | None = None
    reply: dict | None = None
    specimen: dict | None = None
    n_cells: int = 0

    @property
    def is_full(self) -> bool:
        return self.answer.score == 1


class Examiner:
    """Puts the questions of a lesson to one submission.

    Args:
        assignment: what the lesson asks.
        digest: of the file; challenges are drawn from it and from the secret.
        secret: the grader's.
        known: the replies of the museum's bugs of the lesson.
        cells: all code cells of the submission.

    Attributes:
        needed: the same cells; of a cell of the lesson that no answer needs, only the imports are left.
    """

    def __init__(
        self,
        assignment: Assignment,
        digest: str,
        secret: bytes,
        known: KnownReplies,
        cells: tuple[CodeCell, ...],
    ) -> None:
        self.assignment, self.known, self.cells = assignment, known, cells
        checks = [find(self.name_of(question)) for question in assignment.questions]
        called = {name for check in checks for name in check.needs}
        self.needed = needed_cells(cells, assignment.given, called)
        student = [cell.source for cell in cells if cell.source.strip() not in assignment.given]
        lesson = [cell.source for cell in self.needed if cell.source not in student]
        self._keeps_state = may_keep_state(student, lesson, called)
        self._challenges = Challenges(digest, secret)

    def name_of(self, question: Question) -> str:
        """Return the name of a question's check as `find` knows it."""
        return f"{self.assignment.module}.{question.check}"

    def may_gain_from_all_cells(self, session: Session, attempts: dict[str, Attempt]) -> bool:
        """Tell whether a lost question might pass where the cells that were left out have run as well."""
        lost = [attempt for attempt in attempts.values() if not attempt.is_full]
        if not lost or self.needed == self.cells:
            return False
        texts = [f"{attempt.answer.message} {attempt.reply}" for attempt in lost]
        errors = " ".join([*texts, *session.reports()])
        return self._keeps_state or any(kind in errors for kind in MISSING_NAME)

    def ask_all(self, session: Session) -> dict[str, Attempt]:
        """Ask every question at its test cells, and at the end those that have not passed.

        Returns:
            The best attempt at each question, by the name of its check.

        Raises:
            GaveUp: the submission ended before anything was asked.
        """
        best: dict[str, Attempt] = {}
        self._ask_while_points_are_lost(session, best)
        return best

    def ask_lost(self, session: Session, before: dict[str, Attempt]) -> dict[str, Attempt]:
        """Ask the lost questions in another session, in which all cells run; return the best attempts.

        * The attempt with more points counts.
        * Of two with the same points the new one counts, if it was judged: one that only ran out of
          time says less than the old one.
        """
        best = {name: attempt for name, attempt in before.items() if attempt.is_full}
        with suppress(GaveUp):
            self._ask_while_points_are_lost(session, best)
        for name, old in before.items():
            new = best.get(name, old)
            if new.answer.score < old.answer.score or new.answer.outcome != Outcome.SCORE:
                new = old
            best[name] = new
        return best

    def _ask_while_points_are_lost(self, session: Session, best: dict[str, Attempt]) -> None:
        """Add the best attempts to `best`; raises as `ask_all`."""
        times: Counter[str] = Counter()
        last: dict[str, int] = {}
        schedule = self.schedule(session.cells)
        for number, (n_cells, question) in enumerate(schedule, start=1):
            name = question.check
            if name in last and not self.may_differ(session.cells, question, last[name], n_cells):
                continue
            used_up = times[name] >= MAX_TEST_CELLS and n_cells < len(session.cells)
            if used_up or (name in best and best[name].is_full):
                continue
            last[name] = n_cells
            times[name] += 1
            try:
                prepare = partial(self._draw_ahead, schedule[number:])
                new = self.ask(session, n_cells, question, prepare)
            except GaveUp as error:
                if not best:
                    raise
                new = self.fault(question, str(error))
            new = replace(new, n_cells=n_cells)
            if name not in best or new.answer.score > best[name].answer.score:
                best[name] = new  # of two with the same points the earlier one counts

    def may_differ(
        self, cells: tuple[CodeCell, ...], question: Question, before: int, n_cells: int
    ) -> bool:
        """Tell whether the student's cells between two places may change what a question needs.

        The lesson's own cells do not count: at its test cell a question meets the state that the
        student had at home.
        """
        given = self.assignment.given
        between = [cell for cell in cells[before:n_cells] if cell.source.strip() not in given]
        return may_change(between, reach(cells, find(self.name_of(question)).needs))

    def schedule(self, cells: tuple[CodeCell, ...]) -> list[tuple[int, Question]]:
        """List after how many cells to ask which question: at its test cells, and after all cells
        unless nothing runs between its last test cell and the end."""
        questions = {question.check: question for question in self.assignment.questions}
        at_tests = [(n, questions[cell.asks]) for n, cell in enumerate(cells, 1) if cell.asks]
        last = max((n for n, cell in enumerate(cells, 1) if cell.source), default=0)
        settled = {question.check for n, question in at_tests if n >= last}
        rest = [question for name, question in questions.items() if name not in settled]
        return at_tests + [(len(cells), question) for question in rest]

    def _draw_ahead(self, schedule: list[tuple[int, Question]]) -> None:
        """Draw the first challenge of the next question, if one is left."""
        for _, question in schedule[:1]:
            self._challenges.draw_ahead(self.name_of(question))

    def ask(
        self,
        session: Session,
        n_cells: int,
        question: Question,
        prepare: Callable[[], None] = lambda: None,
        recognize: bool = True,
        excused: Broken = (),
    ) -> Attempt:
        """Ask one question with ROUNDS new challenges, until one is lost.

        Args:
            n_cells: how many cells have run before.
            prepare: called while the process works on the last challenge.
            recognize: whether to gather what the diagnosis needs where the question is lost.
            excused: the broken house rules that cost nothing here.

        Raises:
            GaveUp: the process could not be given the first challenge.
        """
        name = self.name_of(question)
        check, numbers = find(name), self._challenges.numbers(name)
        score, message = 1.0, ""
        for number in numbers:
            try:
                child = session.child(n_cells)
                challenge = self._challenges.draw(name, number)
                request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
                more = partial(self._challenges.draw_ahead, name, number + 1)
                reply = session.ask(
                    child,
                    request,
                    session.deadlines.question,
                    meanwhile=more if number < numbers[-1] else prepare,
                )
            except ChildFault as fault:
                return self.fault(question, f"While this was tried, {fault}.")
            verdict = _reach_verdict(check, challenge, reply, session, excused)
            if verdict.score < score:
                answer = replace(_answer(question, verdict), challenge=number)
                lost = Attempt(answer, challenge, reply)
                return self._explained(child, check, lost) if recognize else lost
            message = verdict.message
        return Attempt(_answer(question, Verdict(score, message)))

    def _explained(self, child: Child, check: Check, lost: Attempt) -> Attempt:
        """Add the reply to the challenge that is the same for everyone, where there is a mistake to
        recognise, and let the message speak of the smallest case."""
        if kind_of_error(lost.reply) in NOT_BEGUN:
            return lost
        challenge = self.known.challenge(check.name)
        request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
        with suppress(ChildFault, MachineBusy):
            lost = replace(lost, specimen=child.ask(request, EXPLANATION_SECONDS))
        if not kind_of_error(lost.reply):
            case = (self.assignment.module, check, lost.challenge, lost.answer.message)
            message = about_fewer_operations(child, *case, EXPLANATION_SECONDS)
            lost = replace(lost, answer=replace(lost.answer, message=message[:MESSAGE]))
        return lost

    def fault(self, question: Question, why: str) -> Attempt:
        fault = Outcome.STUDENT_FAULT
        return Attempt(Answer(question.check, fault, 0.0, question.points, why[:MESSAGE]))


def _answer(question: Question, verdict: Verdict) -> Answer:
    message, score = verdict.message[:MESSAGE], float(verdict.score)
    return Answer(question.check, Outcome.SCORE, score, question.points, message)


def read_broken(broken: object) -> Broken | None:
    """Return which house rules a reply says were broken; None where it says anything else, such as a
    million of them."""
    return broken if type(broken) is list and len(broken) <= MOST_BROKEN else None


def _reach_verdict(
    check: Check, challenge: Challenge, reply: dict, session: Session, excused: Broken = ()
) -> Verdict:
    """Compare a reply, which may hold anything, with the truth."""
    error = reply.get("error")
    if error is not None:
        return failed(_explain(error, check, session))
    try:
        with np.errstate(all="ignore"):
            broken = reply.get("broken")
            if excused and (few := read_broken(broken)):
                broken = [one for one in few if one not in excused]
            return check.decide(challenge, reply["evidence"], broken)
    except Exception as error:
        # Verdicts expect what right and usual wrong answers give; a student may give anything.
        kind = type(error).__name__
        return failed(f"What your functions returned cannot be compared ({kind}: {error!s:.300}).")


def _explain(error: object, check: Check, session: Session) -> str:
    kind, words, where = fields_of(error)
    if kind == "Missing":
        return " ".join([words, *session.reports_of_cells_that_define(check.needs)])
    if kind == "NotImplementedError":
        return "Not written yet: the code stops with NotImplementedError."
    if kind == "WireError":
        return (
            f"Your functions returned something other than a plain number, text or array: {words}."
        )
    return stopped_with(kind, words, where)
