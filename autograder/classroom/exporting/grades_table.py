"""Write everyone's state and points as grades.csv: one line per student and lesson."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import UTC

from autograder.classroom.exporting.table_cells import no_formula, number
from autograder.classroom.standing import Standing

COLUMNS = (
    *("id", "last_name", "first_name", "email", "section", "lesson"),
    *("state", "score", "points", "penalty", "most", "handed_in", "seconds_late", "reason"),
)


def grades_table(lines: Iterable[tuple[str, Standing]]) -> bytes:
    """Write the table in UTF-8.

    Args:
        lines: each with a lesson's name.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for lesson, standing in lines:
        table.writerow(_line(lesson, standing))
    return text.getvalue().encode("utf-8", "replace")


def _line(lesson: str, standing: Standing) -> list[str]:
    """Write one line. Without a grade its numbers are blank: nobody gets a zero by accident."""
    student, graded = standing.student, standing.score is not None
    handed_in = standing.handed_in
    return [
        *map(no_formula, (student.id, student.last_name, student.first_name)),
        *map(no_formula, (student.email, student.section, lesson)),
        standing.state,
        number(standing.score) if graded else "",
        number(standing.points) if graded else "",
        number(standing.penalty) if graded else "",
        number(standing.most),
        handed_in.replace(tzinfo=UTC).isoformat() if handed_in else "",
        number(standing.seconds_late) if handed_in else "",
        no_formula(standing.reason),
    ]
