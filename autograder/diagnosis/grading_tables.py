"""Write the tables of docs/grading.md: what one mistake costs, and which kinds each museum holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median

from autograder.assignment import Assignment, read_assignment
from autograder.diagnosis.rounds import LESSONS, Round
from autograder.follow_through import cells_to_replace
from autograder.lessons.exhibits import KINDS, Bug, bugs_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "grading.md"


def with_tables(page: str, rounds: list[Round]) -> str:
    """Bring the tables of docs/grading.md up to date: each stands between two comments."""
    for name, table in (("costs", costs_table(rounds)), ("kinds", kinds_table())):
        begin, end = f"<!-- {name}: written by `autograder museum` -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{FILE}: no table between {begin!r} and {end!r}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def costs_table(rounds: list[Round]) -> str:
    """Write what the single mistakes of the museum cost of 10 points, by lesson."""
    lines = [
        "| lesson | mistakes | without follow-through | with it |",
        "|---|---|---|---|",
    ]
    for lesson, folder in LESSONS.items():
        played = [one for one in rounds if one.lesson == lesson]
        costs = [points_lost(lesson, bug, played) for bug in bugs_of(lesson)]
        without, with_it = zip(*costs, strict=True)
        lines.append(
            f"| {folder} | {len(costs)} | {median(without):g}, {max(without):g} | "
            f"{median(with_it):g}, {max(with_it):g} |"
        )
    return "\n".join(lines)


def points_lost(lesson: str, bug: Bug, rounds: list[Round]) -> tuple[float, float]:
    """Return the points that a mistake costs at the most, without follow-through and with it."""
    asked = assignment_of(lesson)
    caught = {played.check for played in rounds if any(bug is other for other, _ in played.caught)}
    lost = [question for question in asked.questions if question.check in caught]
    wrong = {name for name, defined in asked.answers.items() if defined & set(bug.answer)}
    own = [q for q in lost if not wrong <= cells_to_replace(asked, q, lost, ())]
    return sum(q.points for q in lost), sum(q.points for q in own)


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
