"""State the kinds of students: what each hands in, and how they have to stand then."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autograder.classroom.simulation.known_points import (
    Points,
    full_points,
    points_with_bug,
    points_without,
)
from autograder.classroom.simulation.material import (
    Material,
    add_cell,
    in_format_3,
    looping,
    to_bytes,
)
from autograder.classroom.standing import State
from autograder.follow_through import own_cells
from autograder.lessons.exhibits import variants_of


@dataclass(frozen=True)
class Work:
    """What a student hands in.

    Attributes:
        files: by their names in the student's folder; None where there is no folder.
        state: how the student has to stand when the class is graded.
        points: what the gradebook has to show; None without a grade.
        bug: the museum's name of the mistake, if one was put in.
        then: what the same student hands in later, when the first was graded.
    """

    files: Mapping[str, bytes] | None
    state: State
    points: Points | None = None
    bug: str = ""
    then: Work | None = None


@dataclass(frozen=True)
class Desk:
    """Where one student sits.

    Attributes:
        lesson: what is worked on.
        author: the student's name.
        draw: for what this student happens to do.
    """

    lesson: Material
    author: str
    draw: random.Random

    @property
    def file(self) -> str:
        """The name that the notebook has to have."""
        return self.lesson.released.name

    @property
    def full(self) -> Points:
        """All points of the lesson."""
        return full_points(self.lesson.assignment)

    def solved(self) -> dict:
        """Write the notebook with every answer."""
        return self.lesson.notebook(self.lesson.answers(), self.author)

    def graded(self, notebook: dict, points: Points, bug: str = "") -> Work:
        """Hand in a notebook under its right name."""
        return Work({self.file: to_bytes(notebook)}, State.GRADED, points, bug)

    def solved_beside(self, cell: str, printed: str = "") -> Work:
        """Hand in every answer, and a cell of one's own that costs no points."""
        return self.graded(add_cell(self.solved(), cell, printed), self.full)

    def ungradable(self, files: Mapping[str, bytes]) -> Work:
        """Hand in what cannot be judged."""
        return Work(files, State.UNGRADABLE)


def solved(desk: Desk) -> Work:
    """Has every answer."""
    return desk.graded(desk.solved(), desk.full)


def known_mistake(desk: Desk) -> Work:
    """Has every answer, and one of the museum's mistakes in it."""
    bug = desk.draw.choice(desk.lesson.bugs)
    notebook = desk.lesson.notebook(desk.lesson.answers(bug.answer), desk.author)
    return desk.graded(notebook, points_with_bug(desk.lesson.assignment, bug), bug.name)


def never_handed_in(desk: Desk) -> Work:
    """Stands in the roster alone."""
    return Work(None, State.MISSING)


def other_style(desk: Desk) -> Work:
    """Has every answer, written in another way than the lesson's own."""
    variant = desk.draw.choice(variants_of(desk.lesson.module))
    answers = desk.lesson.answers(variant.answer)
    return desk.graded(desk.lesson.notebook(answers, desk.author), desk.full)


def wrong_name(desk: Desk) -> Work:
    """Has every answer, in a file that a browser saved as its second."""
    return desk.ungradable({f"{desk.lesson.module} (1).ipynb": to_bytes(desk.solved())})


def untouched(desk: Desk) -> Work:
    """Hands in the lesson as it was given out."""
    notebook = desk.lesson.notebook({}, desk.author)
    return Work({desk.file: to_bytes(notebook)}, State.UNTOUCHED, Points(0, 0))


def handed_in_twice(desk: Desk) -> Work:
    """Hands in half of it, and then all."""
    first, second = half_solved(desk), solved(desk)
    return Work(first.files, first.state, first.points, then=second)


def half_solved(desk: Desk) -> Work:
    """Has some answers; the others are as they were given out."""
    names = sorted(desk.lesson.assignment.answers)
    left = desk.draw.sample(names, desk.draw.randrange(1, len(names)))
    answers = {name: a for name, a in desk.lesson.answers().items() if name not in left}
    notebook = desk.lesson.notebook(answers, desk.author)
    return desk.graded(notebook, points_without(desk.lesson.assignment, left))


def broken_file(desk: Desk) -> Work:
    """Has every answer, in a file that was cut off on its way."""
    data = to_bytes(desk.solved())
    return desk.ungradable({desk.file: data[: len(data) // 2]})


def loop_in_own_cell(desk: Desk) -> Work:
    """Has every answer, and a cell beside them that never ends."""
    return desk.solved_beside("tokens = 0\nwhile True:\n    tokens += 1")


def loop_in_an_answer(desk: Desk) -> Work:
    """Has every answer but one, which never returns."""
    assignment = desk.lesson.assignment
    told = set().union(*(own_cells(assignment, question) for question in assignment.questions))
    name = desk.draw.choice(sorted(told))
    answers = desk.lesson.answers() | {name: looping(assignment.stubs[name])}
    return desk.graded(
        desk.lesson.notebook(answers, desk.author), points_without(assignment, [name])
    )


def empty_file(desk: Desk) -> Work:
    """Hands in a file without a byte."""
    return desk.ungradable({desk.file: b""})


def no_notebook(desk: Desk) -> Work:
    """Has a folder with something else in it."""
    return desk.ungradable({"notes.txt": b"I could not open the notebook, sorry!\n"})


def another_lesson(desk: Desk) -> Work:
    """Hands in another lesson's answers under this one's name."""
    other = desk.lesson.stranger()
    notebook = other.notebook(other.answers(), desk.author)
    return desk.ungradable({desk.file: to_bytes(notebook)})


def exit_in_a_cell(desk: Desk) -> Work:
    """Has every answer, and a cell that ends the process."""
    return desk.solved_beside("import os\n\nos._exit(0)")


def much_output(desk: Desk) -> Work:
    """Has every answer, and a cell that prints and holds far more than anybody reads."""
    printed = "still training …\n" * 50_000
    return desk.solved_beside("for _ in range(300_000):\n    print('still training …')", printed)


def byte_order_mark(desk: Desk) -> Work:
    """Has every answer, in a file that an editor put a mark in front of."""
    return Work({desk.file: b"\xef\xbb\xbf" + to_bytes(desk.solved())}, State.GRADED, desk.full)


def old_format(desk: Desk) -> Work:
    """Has every answer, in the notebook format of ten years ago."""
    return desk.graded(in_format_3(desk.solved()), desk.full)


def deep_file(desk: Desk) -> Work:
    """Hands in JSON so deep that whoever reads it falls in."""
    return desk.ungradable({desk.file: b'{"cells": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"})


Kind = Callable[[Desk], Work]
KINDS: dict[Kind, int] = {
    solved: 40,
    known_mistake: 60,
    never_handed_in: 5,
    other_style: 20,
    wrong_name: 4,
    untouched: 4,
    handed_in_twice: 5,
    half_solved: 20,
    broken_file: 2,
    loop_in_own_cell: 2,
    loop_in_an_answer: 2,
    empty_file: 2,
    no_notebook: 2,
    another_lesson: 2,
    exit_in_a_cell: 2,
    much_output: 1,
    byte_order_mark: 2,
    old_format: 1,
    deep_file: 1,
}
"""How often each kind is drawn. A small class has the first ones, one of each."""


def name_of(kind: Kind) -> str:
    """Return the name of a kind in words."""
    return kind.__name__.replace("_", " ")


def draw_kinds(count: int, draw: random.Random) -> list[Kind]:
    """Draw what kinds of students a class has: one of each as far as it goes, then by their weights."""
    first = list(KINDS)[:count]
    return first + draw.choices(list(KINDS), list(KINDS.values()), k=count - len(first))
