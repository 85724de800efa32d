"""Write the tables of docs/grading.md: what one mistake costs, and which kinds each museum holds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from statistics import median

from autograder.assignment import Assignment, read_assignment
from autograder.diagnosis.catches import Catches, catches_of
from autograder.follow_through import cells_to_replace
from autograder.lessons import lesson_folders
from autograder.lessons.exhibits import KINDS, Bug, bugs_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "grading.md"
LESSONS = lesson_folders()


def with_tables(page: str) -> str:
    """Bring the tables of docs/grading.md up to date: each stands between two comments."""
    for name, table in (("costs", costs_table()), ("kinds", kinds_table())):
        page = replace_table(page, name, table)
    return page


def replace_table(page: str, name: str, table: str) -> str:
    """Replace a table, which stands between two comments with its name.

    Raises:
        ValueError: these comments are not there.
    """
    parts = re.split(rf"(<!-- {name}: .*? -->\n|<!-- end of {name} -->)", page)
    if len(parts) != 5:
        raise ValueError(f"{FILE}: no table between two comments about {name!r}")
    return "".join([*parts[:2], table, "\n", *parts[3:]])


def costs_table() -> str:
    """Write what the single mistakes of the museum cost of 10 points, by lesson."""
    lines = [
        "| lesson | mistakes | without follow-through | with it |",
        "|---|---|---|---|",
    ]
    for lesson, folder in LESSONS.items():
        costs = [points_lost(lesson, bug) for bug in bugs_of(lesson)]
        without, with_it = zip(*costs, strict=True)
        lines.append(
            f"| {folder} | {len(costs)} | {median(without):g}, {max(without):g} | "
            f"{median(with_it):g}, {max(with_it):g} |"
        )
    return "\n".join(lines)


def points_lost(lesson: str, bug: Bug) -> tuple[float, float]:
    """Return the points that a mistake costs at the most, without follow-through and with it."""
    catches = catches_of(lesson)
    credited = credited_checks(lesson, bug, catches)
    lost = [q for q in assignment_of(lesson).questions if q.check in catches.get(bug.name, {})]
    return sum(q.points for q in lost), sum(q.points for q in lost if q.check not in credited)


def credited_checks(lesson: str, bug: Bug, catches: Catches) -> set[str]:
    """Name the checks that catch a bug and that follow-through credits, since the bug stands in another
    cell than theirs."""
    assignment = assignment_of(lesson)
    lost = [
        question for question in assignment.questions if question.check in catches.get(bug.name, {})
    ]
    wrong = {name for name, defined in assignment.answers.items() if defined & set(bug.answer)}
    return {q.check for q in lost if wrong <= cells_to_replace(assignment, q, lost, ())}


@cache
def assignment_of(lesson: str) -> Assignment:
    """Read what a lesson asks, as it is released."""
    return read_assignment(ROOT / "lessons" / LESSONS[lesson] / f"{lesson}.ipynb")


def kinds_table() -> str:
    """Write how many wrong answers the museum holds of each kind, by lesson."""
    numbers = [folder[:2] for folder in LESSONS.values()]
    lines = [f"| | {' | '.join(numbers)} |", f"|---|{'---|' * len(numbers)}"]
    for kind, sentence in KINDS.items():
        counts = [sum(bug.kind == kind for bug in bugs_of(lesson)) for lesson in LESSONS]
        lines.append(f"| {sentence} | {' | '.join(str(n or '') for n in counts)} |")
    return "\n".join(lines)
