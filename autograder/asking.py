"""Ask the questions of a lesson about one submission.

A question is asked when the run reaches its test cell, and again behind later cells that the student
wrote if points were lost and these may change the answer; the better answer counts. This side draws each
challenge then and there, sends it, takes what comes back for a claim, and compares it with the oracle. A
question whose probe kills or hangs the process costs that question. What is lost for the mistake of
another cell is asked again with that cell put right (`follow_through.py`).
"""

from __future__ import annotations

import time
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
from autograder.follow_through import cells_to_replace, replace_cells, sentence
from autograder.lasting_state import may_keep_state
from autograder.lessons import find
from autograder.needed_cells import may_change, needed_cells, reach
from autograder.result import Answer, Outcome
from autograder.sandbox.child import Child, ChildFault
from autograder.session import MESSAGE, GaveUp, Session, Start, fields_of
from course.checks.check import Challenge, Check, Verdict, failed

NOT_FOUND = ("NameError", "AttributeError")
"""Exceptions that say that something was not there, which another cell may have made."""
NAMING = 10.0
"""Seconds for the challenge of which a mistake is recognised."""
PLACES = 3
"""Test cells of one question at which it is asked, while points are lost; and then at the end."""


@dataclass(frozen=True)
class Asked:
    """A question as it was answered at one place, with what the diagnosis needs of a lost one: the
    challenge and the reply that lost it, and the reply to the challenge that is the same for everyone."""

    answer: Answer
    challenge: Challenge | None = None
    reply: dict | None = None
    specimen: dict | None = None


class Asking:
    """Asks the questions of a lesson about one submission.

    Args:
        assignment: what the lesson asks.
        digest: of the file, of which challenges are drawn.
        secret: the grader's, of which as well.
        known: what the museum's bugs of the lesson reply.
        cells: of the submission, all of them.

    Attributes:
        needed: the same cells, but those of the lesson that no answer needs with their imports alone.
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
        names = map(self._name, assignment.questions)
        asked = {name for check in map(find, names) for name in check.needs}
        self.needed = needed_cells(cells, assignment.given, asked)
        own = [cell.source for cell in cells if cell.source.strip() not in assignment.given]
        of_lesson = [cell.source for cell in self.needed if cell.source not in own]
        self._keeps_state = may_keep_state(own, of_lesson, asked)
        self._challenges = Challenges(digest, secret)

    def _name(self, question: Question) -> str:
        """Name a question's check as `find` knows it."""
        return f"{self.assignment.module}.{question.check}"

    def may_differ_behind_all_cells(self, session: Session, asked: dict[str, Asked]) -> bool:
        """Tell whether a lost question might not be lost where the left out cells have run as well."""
        lost = [found for found in asked.values() if not is_full(found)]
        if not lost or self.needed == self.cells:
            return False
        words = " ".join(
            [*(f"{found.answer.message} {found.reply}" for found in lost), *session.reports()]
        )
        return self._keeps_state or any(kind in words for kind in NOT_FOUND)

    def ask_all(self, session: Session) -> dict[str, Asked]:
        """Ask every question where the student tested, and what is not right then at the end.

        Raises:
            GaveUp: the submission ended before anything was asked.
        """
        asked: dict[str, Asked] = {}
        self._ask_where_points_are_lost(session, asked)
        return asked

    def ask_again(self, session: Session, before: dict[str, Asked]) -> dict[str, Asked]:
        """Ask lost questions in another session, in which all cells run in their order; the better answer
        of each counts, and of two that are worth the same the new one, unless it tells of the time alone.
        """
        asked = {name: found for name, found in before.items() if is_full(found)}
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
        last: dict[str, int] = {}
        places = self._places(session.cells)
        for number, (place, question) in enumerate(places, start=1):
            name = question.check
            left = times[name] < PLACES or place == len(session.cells)
            if name in last and not self._may_differ(session.cells, question, last[name], place):
                continue
            if left and not is_full(asked.get(name)):
                last[name] = place
                try:
                    prepare = partial(self._draw_ahead, places[number:])
                    found = self._ask(session, place, question, prepare)
                except GaveUp as error:
                    if not asked:
                        raise
                    found = self._fault(question, str(error))
                asked[name] = _better(asked.get(name), found)
                times[name] += 1

    def _may_differ(
        self, cells: tuple[CodeCell, ...], question: Question, before: int, place: int
    ) -> bool:
        """Tell whether cells between two places that the student wrote change what a question needs.

        The lesson's own need not be waited for: what a function remembers of the cells before it is there
        where the student tested, as it was at home.
        """
        between = [c for c in cells[before:place] if c.source.strip() not in self.assignment.given]
        return may_change(between, reach(cells, find(self._name(question)).needs))

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
        """Ask lost questions again with other cells put right; what passes is credited. This has time
        of its own, for what is credited here may hang where it stands."""
        end = max(session.end, time.monotonic() + session.deadlines.submission / 2)
        by_name = {question.check: question for question in self.assignment.questions}
        lost = [question for name, question in by_name.items() if not is_full(asked[name])]
        sessions: dict[frozenset[str], Session] = {}
        credited = dict(asked)
        try:
            for question in list(lost):
                names = cells_to_replace(self.assignment, question, lost, session.cells)
                if not names:
                    continue
                if names not in sessions:
                    cells = replace_cells(self.assignment, session.cells, names, session.seconds)
                    sessions[names] = Session(start, cells, session.deadlines, end)
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
            if place != places[0] and not self._may_differ(
                session.cells, question, places[0], place
            ):
                break
            try:
                found = self._ask(session, place, question, naming=False).answer
            except GaveUp:
                return answer
            if found.score > answer.score:
                words = f"{sentence(names)} As it stands: {answer.message}"
                return replace(found, message=words[:MESSAGE], credited=True)
        return answer

    def _draw_ahead(self, places: list[tuple[int, Question]]) -> None:
        """Draw the first challenge of what is asked next, if there is anything left."""
        for _, question in places[:1]:
            self._challenges.draw_ahead(self._name(question))

    def _ask(
        self,
        session: Session,
        place: int,
        question: Question,
        prepare: Callable[[], None] = lambda: None,
        naming: bool = True,
    ) -> Asked:
        """Ask one question with ROUNDS challenges, until one is lost; each time other ones.

        Args:
            place: behind how many cells.
            prepare: called while the process works on the last challenge.
            naming: whether the mistake is to be recognised where it is lost.

        Raises:
            GaveUp: the first challenge could not be put to it.
        """
        name = self._name(question)
        check, numbers = find(name), self._challenges.numbers(name)
        score, message = 1.0, ""
        end = time.monotonic() + session.deadlines.question
        for number in numbers:
            try:
                child = session.child(place)
                if number == numbers[0]:  # running the cells is not this question's fault
                    end = time.monotonic() + session.deadlines.question
                challenge = self._challenges.draw(name, number)
                request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
                more = partial(self._challenges.draw_ahead, name, number + 1)
                reply = child.ask(
                    request,
                    min(end, session.end) - time.monotonic(),
                    meanwhile=more if number < numbers[-1] else prepare,
                )
            except ChildFault as fault:
                return self._fault(question, f"While this was tried, {fault}.")
            found = _reach_verdict(check, challenge, reply, session)
            if found.score < score:
                lost = Asked(_answer(question, found), challenge, reply)
                end = min(end, session.end)
                return self._with_specimen(child, check, lost, end) if naming else lost
            message = found.message
        return Asked(_answer(question, Verdict(score, message)))

    def _with_specimen(self, child: Child, check: Check, lost: Asked, end: float) -> Asked:
        """Put the challenge that is the same for everyone, where there is a mistake to recognise."""
        if kind_of_error(lost.reply) in NOT_BEGUN:
            return lost
        challenge = self.known.challenge(check.name)
        request = {"probe": check.name, "needs": list(check.needs), "challenge": challenge}
        with suppress(ChildFault):
            reply = child.ask(request, min(NAMING, end - time.monotonic()))
            return replace(lost, specimen=reply)
        return lost

    def _fault(self, question: Question, why: str) -> Asked:
        fault = Outcome.STUDENT_FAULT
        return Asked(Answer(question.check, fault, 0.0, question.points, why[:MESSAGE]))


def _answer(question: Question, verdict: Verdict) -> Answer:
    words, score = verdict.message[:MESSAGE], float(verdict.score)
    return Answer(question.check, Outcome.SCORE, score, question.points, words)


def is_full(asked: Asked | None) -> bool:
    return asked is not None and asked.answer.score == 1


def _better(first: Asked | None, second: Asked) -> Asked:
    """Choose the answer that counts; of two that are worth the same, the one where the student tested."""
    return second if first is None or second.answer.score > first.answer.score else first


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
