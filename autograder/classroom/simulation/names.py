"""Draw the students of a simulated class, with the names that make trouble in sheets and folders."""

from __future__ import annotations

import csv
import io
import random
import unicodedata
from collections.abc import Sequence

from autograder.classroom.roster import COLUMNS, EXTENSION, Student

TELLING = (
    ("Wei", "Zhang"),
    ("James", "Lee, Jr."),
    ("Wei", "Zhang"),
    ("Zoë", "Åström"),
    ("Sinéad", "O'Neil"),
    ("José Luis", "García Márquez"),
    ("Nguyễn", "Thị Minh Khai"),
    ("明", "李"),
    ('Alexandra "Alex"', "van der Berg-Smith"),
)
"""Two who share a name, commas, quotes, accents, and letters that no id is made of."""
FIRST = ("Ada", "Amir", "Chidi", "Elena", "Fatima", "Grace", "Hiroshi", "Ines", "Jonas", "Katya")
FIRST += ("Liam", "Maya", "Noor", "Omar", "Priya", "Rosa", "Sven", "Tomás", "Uma", "Yusuf")
LAST = (
    "Abebe",
    "Becker",
    "Chen",
    "Dubois",
    "Eriksen",
    "Fischer",
    "Gupta",
    "Haddad",
    "Ito",
    "Jones",
)
LAST += (
    "Kowalski",
    "Lopez",
    "Müller",
    "Novák",
    "Okafor",
    "Patel",
    "Rossi",
    "Sato",
    "Thomas",
    "Yılmaz",
)
SECTIONS = ("Tuesday", "Thursday, 10 am", "")
EXTENDED = 10
"""One student in so many has an extension of two days."""


def draw_students(count: int, draw: random.Random) -> list[Student]:
    """Draw a class, in the order of its roster."""
    platform_ids = draw.sample(range(10_000, 10_000 + 10 * count), count)
    students = []
    for number, platform_id in enumerate(platform_ids, start=1):
        known = number <= len(TELLING)
        first, last = TELLING[number - 1] if known else (draw.choice(FIRST), draw.choice(LAST))
        name = f"{_letters(last) or 'student'}{number:03}"
        section = draw.choice(SECTIONS)
        email = f"{name}@example.edu"
        students.append(Student(name, first, last, email, str(platform_id), section))
    draw.shuffle(students)
    return students


def _letters(name: str) -> str:
    """Write a name as a university's account does: ASCII letters in lower case, a few of them."""
    plain = unicodedata.normalize("NFKD", name.partition(",")[0])
    return "".join(c for c in plain if c.isascii() and c.isalpha()).lower()[:8]


def roster_text(students: Sequence[Student], lesson: str, draw: random.Random) -> str:
    """Write `roster.csv`."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*COLUMNS, f"{EXTENSION} {lesson}"])
    for student in students:
        values = [getattr(student, name) for name in COLUMNS]
        writer.writerow([*values, "2" if draw.randrange(EXTENDED) == 0 else ""])
    return file.getvalue()
