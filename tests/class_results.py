"""What the judge found in a class of lesson 00, written down by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from autograder.assignment import read_assignment
from autograder.classroom.reporting.class_mistakes import Work
from autograder.classroom.roster import Student
from autograder.classroom.standing import Standing, State
from autograder.lessons.exhibits import bugs_of
from autograder.result import Answer, Outcome, Result
from lessons import COURSE

LESSON = COURSE.read("00-start")
ASSIGNMENT = read_assignment(LESSON.student)
CHECKS = [question.check for question in ASSIGNMENT.questions]
BUGS = bugs_of("start")
BUG = BUGS[0]
RIGHT = "def matmul_flops(m, k, n):\n    return 2 * m * k * n"
WRONG = "def matmul_flops(m, k, n):\n    return m * k * n"


def result(scores=(1, 1, 1, 1), submission="", **changes) -> Result:
    """What the judge found; questions after these scores are full. `changes` are of the first answer."""
    first, *others = [
        Answer(q.check, Outcome.SCORE, score, q.points, f"said of {q.check}")
        for q, score in zip_longest(ASSIGNMENT.questions, scores, fillvalue=1)
    ]
    seconds = {"cells and questions": 2.0, "follow-through": sum(scores) / 4}
    changed = (replace(first, **changes), *others)
    return Result("start", Outcome.SCORE, "", submission, changed, seconds=seconds)


def lost(message="lost", **changes) -> Result:
    return result((0, 1, 1, 1), message=message, **changes)


def graded(name: str, found: Result, section="", **more) -> Standing:
    student = name if isinstance(name, Student) else Student(name, section=section)
    return Standing(student, State.GRADED, "", 10, result=found, points=found.points, **more)


def made(name: str | Student, source: str, bug: str = BUG.name) -> Work:
    student = name if isinstance(name, Student) else Student(name)
    cell = next(c for c, names in ASSIGNMENT.answers.items() if set(names) & set(BUG.answer))
    return Work(student, {cell: source}, lost(bug=bug, family=BUG.family))
