"""Tell what work has to get by what is known of it, without judging it.

Known are the points of each question, that variants are right, which checks a mistake of the museum
loses (`museum.json`), and the rule of docs/grading.md: a question is credited that was lost for
another cell's mistake alone. That file was written from a few challenges of each check, so of a mistake
that depends on what is drawn, "always" and never mean: as far as it was tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autograder.assignment import Assignment, Question
from autograder.diagnosis.catches import ALWAYS, catches_of
from autograder.follow_through import cells_to_replace, own_cells
from autograder.lasting_state import may_keep_state
from autograder.lessons import find
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import Bug
from autograder.lessons.reach import within_reach
from autograder.one_mistake import MOST
from course.checks.check import Check


@dataclass(frozen=True)
class Points:
    """Points that work gets, before any penalty: exactly so many where both are the same."""

    at_least: float
    at_most: float


def full_points(assignment: Assignment) -> Points:
    """Return the points of right work."""
    most = _sum(assignment.questions)
    return Points(most, most)


def points_with_bug(assignment: Assignment, bug: Bug) -> Points:
    """Return the points of right answers beside one mistake of the museum.

    What the mistake always loses is lost, and credited where other questions tell that its cell is at
    fault. May be lost: what it loses sometimes, its own check, and where it keeps state from call to
    call every question about its cell: the museum asks each in a process of its own, the judge all in
    one. Where it is recognised it costs at most MOST points.
    """
    lost = catches_of(assignment.module).get(bug.name, {})
    wrong = {name for name, defined in assignment.answers.items() if defined & set(bug.answer)}
    named = bug.check.partition(".")[2]
    cells = answer_cells(assignment.module, bug.answer)
    names = {
        name for question in assignment.questions for name in _check(assignment, question).needs
    }
    stays = wrong if bug.family == "state" and may_keep_state(cells, [], names) else set()
    maybe = [
        question
        for question in assignment.questions
        if question.check in lost
        or question.check == named
        or own_cells(assignment, question) & stays
    ]
    surely = [
        question
        for question in maybe
        if lost.get(question.check) == ALWAYS
        and not wrong & cells_to_replace(assignment, question, maybe, ())
    ]
    credited = [
        question
        for question in maybe
        if wrong <= cells_to_replace(assignment, question, [*surely, question], ())
    ]
    most = _sum(assignment.questions)
    at_risk = _sum(question for question in maybe if question not in credited)
    return Points(most - at_risk, most - min(MOST, _sum(surely)))


def points_without(assignment: Assignment, left: Collection[str]) -> Points:
    """Return the points of right answers where some cells are as they were given out, or never return.

    Args:
        left: their names.
    """
    of_cells = {question: own_cells(assignment, question) for question in assignment.questions}
    told = set().union(*of_cells.values())  # about which a question is lost
    right = [question for question, cells in of_cells.items() if not cells & set(left)]
    untold = set().union(*(assignment.answers[name] for name in left if name not in told))
    sure = [question for question in right if not _reached(assignment, question) & untold]
    return Points(_sum(sure), _sum(right))


def _reached(assignment: Assignment, question: Question) -> frozenset[str]:
    return within_reach(assignment.module, _check(assignment, question).needs)


def _check(assignment: Assignment, question: Question) -> Check:
    return find(f"{assignment.module}.{question.check}")


def _sum(questions: Iterable[Question]) -> float:
    return float(sum(question.points for question in questions))
