"""Ask lost questions again where something else than the answer itself may be at fault.

* Where a function has several definitions, one of them counts (`one_definition.py`).
* A question that is lost through another cell's mistake is asked with that cell put right
  (`follow_through.py`).
* A broken house rule costs the points of one question: every check that calls the function notices it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import replace

from autograder.assignment import Question
from autograder.examiner import Attempt, Examiner, read_broken
from autograder.follow_through import cells_to_replace, replace_cells, sentence
from autograder.lessons import find
from autograder.one_definition import (
    Definition,
    Definitions,
    Try,
    choose,
    conflicts,
    worth_comparing,
)
from autograder.result import Answer
from autograder.session import MESSAGE, Budget, GaveUp, Session, Start
from course.checks.rules import Broken

APART = "At no point in your notebook are all the definitions that count in place together."
RULE_ONCE = "Credited: right but for a broken house rule, which has already cost {}."


class SecondChances:
    """Asks the questions of an examiner again.

    Args:
        examiner: has asked them.
        start: starts a student process, from a view of the lesson.
    """

    def __init__(self, examiner: Examiner, start: Start) -> None:
        self.examiner, self.start = examiner, start
        self._definitions = Definitions(examiner.cells, examiner.assignment.given)
        self._counting: dict[str, Definition] = {}

    def decide_by_one_definition(
        self, session: Session, attempts: dict[str, Attempt]
    ) -> dict[str, Attempt]:
        """Let one definition of each function count, see `one_definition.py`. Where questions that passed
        have met several, all that call the function are asked with each of them."""
        questions = {question.check: question for question in self.examiner.assignment.questions}
        tried = {(name, attempt.n_cells): attempt for name, attempt in attempts.items()}

        def tries() -> list[Try]:
            return [
                Try(name, one.answer.points, self._met(questions[name], session, n_cells), n_cells)
                for (name, n_cells), one in tried.items()
            ]

        several = conflicts(tries())
        points = sum(attempt.answer.points for attempt in attempts.values())
        again = Session(self.start, session.cells, session.deadlines, session.budget)
        with closing(again), suppress(GaveUp):
            for n_cells in sorted(worth_comparing(tries(), several), reverse=True):
                if choose(tries())[1] == points:
                    break
                for question in questions.values():
                    met = self._met(question, session, n_cells)
                    known = any(t.question == question.check and t.met == met for t in tries())
                    if several & set(met) and not known:
                        attempt = self.examiner.ask(again, n_cells, question)
                        tried[question.check, n_cells] = replace(attempt, n_cells=n_cells)
        self._counting, _ = choose(tries())
        best = dict(attempts)
        for name, old in attempts.items():
            agreeing = [t for t in tries() if t.question == name and t.agrees_with(self._counting)]
            counts = max(agreeing, key=lambda one: one.points, default=None)
            if old.answer.points > (counts.points if counts else 0):
                new = (
                    tried[name, counts.n_cells]
                    if counts
                    else self.examiner.fault(questions[name], APART)
                )
                best[name] = self._explain_choice(questions[name], new, several)
            elif counts and counts.points > 0:
                best[name] = tried[name, counts.n_cells]
        return best

    def _explain_choice(
        self, question: Question, attempt: Attempt, several: Collection[str]
    ) -> Attempt:
        """Say why another definition than the one at a question's test cell has decided it."""
        names = sorted(several & set(self._needs(question)))
        cells = sorted({self._counting[name].cell for name in names})
        words = (
            f"There are several definitions of {' and '.join(names)}. All questions about a function are "
            "decided by the one that earns the most points, here that of cell "
            f"{' and '.join(map(str, cells))}. {attempt.answer.message}"
        )
        return replace(attempt, answer=replace(attempt.answer, message=words[:MESSAGE]))

    def _met(self, question: Question, session: Session, n_cells: int) -> dict[str, Definition]:
        """Return which definitions a question meets that is asked after so many cells of a session."""
        number = session.cells[n_cells - 1].number if n_cells else 0
        return self._definitions.met(self._needs(question), number)

    def _needs(self, question: Question) -> tuple[str, ...]:
        return find(self.examiner.name_of(question)).needs

    def charge_rules_once(
        self, session: Session, attempts: dict[str, Attempt]
    ) -> dict[str, Attempt]:
        """Ask lost questions again whose broken house rules another lost question has broken, too, and
        credit what passes but for these: a rule costs the fewest points that it can."""
        charged: Broken = []
        by: list[str] = []  # the question that each of them has cost
        credited = dict(attempts)
        again = Session(self.start, session.cells, session.deadlines, session.budget)
        with closing(again), suppress(GaveUp):
            for question in sorted(self.examiner.assignment.questions, key=lambda one: one.points):
                attempt = attempts[question.check]
                broken = read_broken((attempt.reply or {}).get("broken")) or []
                if broken and all(one in charged for one in broken):
                    new = self.examiner.ask(
                        again, attempt.n_cells, question, recognize=False, excused=charged
                    )
                    if new.answer.score > attempt.answer.score:
                        cost = by[charged.index(broken[0])]
                        answer = replace(new.answer, message=RULE_ONCE.format(cost), credited=True)
                        credited[question.check] = Attempt(answer)
                new = [one for one in broken if one not in charged]
                charged, by = charged + new, by + [question.check] * len(new)
        return credited

    def follow_through(self, session: Session, attempts: dict[str, Attempt]) -> dict[str, Attempt]:
        """Ask lost questions again with other cells put right, and credit what passes. This gets time
        of its own: code that is credited here may hang in the student's own notebook."""
        budget = Budget(max(session.budget.seconds, session.deadlines.submission / 2))
        lost = [q for q in self.examiner.assignment.questions if not attempts[q.check].is_full]
        sessions: dict[frozenset[str], Session] = {}
        credited = dict(attempts)
        try:
            for question in list(lost):
                names = cells_to_replace(self.examiner.assignment, question, lost, session.cells)
                if not names:
                    continue
                if names not in sessions:
                    cells = replace_cells(
                        self.examiner.assignment, session.cells, names, session.seconds
                    )
                    sessions[names] = Session(self.start, cells, session.deadlines, budget)
                answer = attempts[question.check].answer
                better = self._credit(sessions[names], question, names, answer)
                if better is not answer:
                    credited[question.check] = Attempt(better)
                    lost.remove(question)
        finally:
            for other in sessions.values():
                other.close()
        return credited

    def _credit(
        self, session: Session, question: Question, names: frozenset[str], answer: Answer
    ) -> Answer:
        """Return the answer with these cells replaced if it is better, else the given one. The question
        is asked at its first test cell, and at the end. Nothing that such a process says or prints
        is passed on: it has seen reference answers."""
        places = [
            n_cells for n_cells, other in self.examiner.schedule(session.cells) if other == question
        ]
        replaced = frozenset().union(*(self.examiner.assignment.answers[name] for name in names))
        for n_cells in dict.fromkeys((places[0], places[-1])):
            if n_cells != places[0] and not self.examiner.may_differ(
                session.cells, question, places[0], n_cells
            ):
                break
            met = self._met(question, session, n_cells)
            own = {name: one for name, one in met.items() if name not in replaced}
            if any(self._counting.get(name, one) != one for name, one in own.items()):
                continue  # another definition counts
            try:
                new = self.examiner.ask(session, n_cells, question, recognize=False).answer
            except GaveUp:
                return answer
            if new.score > answer.score:
                self._counting.update(own)
                return replace(new, message=sentence(names)[:MESSAGE], credited=True)
        return answer
