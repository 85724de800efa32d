"""Write what others named, such as files and students, in lines of a terminal."""

from __future__ import annotations

LONGEST = 300


def one_line(text: str) -> str:
    """Leave out what could steer a terminal: part of it may be a student's."""
    return "".join(filter(str.isprintable, " ".join(text.split())))[:LONGEST]
