"""Write text of students and points as cells of a table that spreadsheets and platforms read."""

from __future__ import annotations

from autograder.classroom.wording import one_line

_FORMULA = tuple("=+-@＝＋－＠")


def no_formula(text: str) -> str:
    """Write a text for a cell of a spreadsheet, which would compute what begins with "="."""
    text = one_line(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def number(value: float) -> str:
    """Write points as learning platforms read them, with the five decimals that Moodle keeps at most."""
    return f"{value:.5f}".rstrip("0").rstrip(".")
