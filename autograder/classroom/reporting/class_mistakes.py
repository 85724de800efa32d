"""Find what a class did not understand: its mistakes by frequency, with an example that names nobody."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from autograder.assignment import Assignment
from autograder.classroom.reporting.class_figures import kind_of
from autograder.classroom.reporting.written_answers import without_comments, without_names
from autograder.classroom.roster import Student
from autograder.follow_through import own_cells
from autograder.lessons.assembly import by_grade_id
from autograder.lessons.exhibits import FAMILIES, Bug
from autograder.result import Answer, Result

LONGEST_EXAMPLE, LONGEST_MESSAGE = 3_000, 300
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_LIST = re.compile(r"#(?:, #)+")


@dataclass(frozen=True)
class Work:
    """What a student handed in.

    Attributes:
        student: whose it is.
        written: the answers, by the cell's name; see `written_answers`.
        result: what the judge found; None where that is not known.
        notebook, feedback: the addresses of the file and of its feedback page; "" where there is none.
        odd: what is worth a look, see `odd_in`.
    """

    student: Student
    written: Mapping[str, str]
    result: Result | None = None
    notebook: str = ""
    feedback: str = ""
    odd: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A mistake that the judge recognised.

    Attributes:
        words: what it is.
        students: those who made it, by their ids.
        checks: the questions that it cost.
        points: that it cost all of them.
        example: what differs from the reference answer in an answer in which it was made, or "" where
            none can be shown.
    """

    words: str
    students: Mapping[str, Student]
    checks: tuple[str, ...]
    points: float
    example: str = ""


def class_mistakes(
    works: Iterable[Work], assignment: Assignment, bugs: Sequence[Bug]
) -> list[Mistake]:
    """Find the recognised mistakes, those of most students first.

    Args:
        works: with results.
        assignment: what the lesson asks.
        bugs: the museum's of the lesson.
    """
    made: dict[tuple[str, str], list[tuple[Work, Answer]]] = defaultdict(list)
    for work in works:
        for answer in work.result.answers:
            if answer.family:
                made[answer.bug, answer.family].append((work, answer))
    known = {bug.name: bug for bug in bugs}
    mistakes = [
        _mistake(known.get(bug), family, where, assignment) for (bug, family), where in made.items()
    ]
    return sorted(
        mistakes, key=lambda mistake: (-len(mistake.students), -mistake.points, mistake.words)
    )


def _mistake(
    bug: Bug | None, family: str, where: list[tuple[Work, Answer]], assignment: Assignment
) -> Mistake:
    lost = {answer.check for _, answer in where}
    return Mistake(
        words=bug.mistake if bug else f"one of several mistakes about {FAMILIES[family]}",
        students={work.student.id: work.student for work, _ in where},
        checks=tuple(q.check for q in assignment.questions if q.check in lost),
        points=sum(answer.max_points - answer.points for _, answer in where),
        example=_example(bug, where, assignment),
    )


def _example(bug: Bug | None, where: list[tuple[Work, Answer]], assignment: Assignment) -> str:
    """Find the shortest answer cell with a mistake that can be shown without telling whose it is."""
    references = by_grade_id(assignment.module, {})
    examples = [
        differing_lines(shown, without_comments(references[cell]) or "")
        for work, answer in where
        for cell in _cells_of(bug, answer, assignment)
        if (shown := without_comments(work.written.get(cell, "")))
        and len(shown) <= LONGEST_EXAMPLE
        and without_names(shown, work.student) == shown
    ]
    return min(filter(None, examples), key=lambda shown: (len(shown), shown), default="")


def differing_lines(written: str, reference: str) -> str:
    """Return the lines of an answer that are not in the reference, with one around them; "…" stands
    for others."""
    lines = written.splitlines()
    matcher = SequenceMatcher(a=reference.splitlines(), b=lines, autojunk=False)
    near: set[int] = set()
    for kind, _, _, begin, end in matcher.get_opcodes():
        if kind != "equal":
            near |= set(range(max(0, begin - 1), min(len(lines), end + 1)))
    # The line that begins a function or class says where the others are.
    near |= {n for n in range(len(lines)) if near and re.match(r"\s*(def|class) ", lines[n])}
    shown = []
    for number in sorted(near):
        if number - 1 not in near and number:
            shown.append(re.match(r"\s*", lines[number])[0] + "…")
        shown.append(lines[number])
    return "\n".join([*shown, *(["…"] if near and max(near) < len(lines) - 1 else [])])


def _cells_of(bug: Bug | None, answer: Answer, assignment: Assignment) -> set[str]:
    """Name the answer cells in which a mistake was made."""
    wrong = set(bug.answer) if bug else set()
    cells = {name for name, defined in assignment.answers.items() if defined & wrong}
    (question,) = (q for q in assignment.questions if q.check == answer.check)
    return cells or own_cells(assignment, question)


@dataclass(frozen=True)
class LostGroup:
    """Answers to one question that were lost with the same message, numbers aside, in which no known
    mistake was recognised; and how many."""

    check: str
    message: str
    students: int


def lost_without_mistake(works: Iterable[Work], assignment: Assignment) -> list[LostGroup]:
    """Group lost answers of which no mistake is known, the largest groups first."""
    order = [question.check for question in assignment.questions]
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for work in works:
        for answer in work.result.answers:
            if kind_of(answer) in ("lost", "part") and not answer.family:
                message = _without_numbers(answer.message, work.student)
                groups[answer.check, message].add(work.student.id)
    lost_groups = [LostGroup(*key, len(students)) for key, students in groups.items()]
    return sorted(
        lost_groups, key=lambda group: (-group.students, order.index(group.check), group.message)
    )


def _without_numbers(message: str, student: Student) -> str:
    """Make messages alike that differ in numbers, and leave out what tells whose it is."""
    words = without_names(message[: 2 * LONGEST_MESSAGE], student)
    text = _LIST.sub("#, …", _NUMBERS.sub("#", " ".join(words.split())))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"
