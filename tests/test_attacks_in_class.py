"""All attacks and some honest work, handed in as one class and graded by one `nbgrader autograde`.

`test_attacks.py` judges each attack alone, started cold; this is the way in which they would come,
started warm. Whatever one of them does, the next student must not notice.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from attacks.attack import Attack, find_attacks
from attacks.bait import Bait, answer_lines, hidden_lines, lines_in, processes_that_know
from confined import needs_bubblewrap
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from submissions import ORDER, short

from autograder.authoring.source import POINTS
from autograder.sandbox.library_view import lay_out
from lessons import COURSE

pytestmark = [needs_bubblewrap, pytest.mark.slow]
ATTACKS = find_attacks()
FOLDERS = sorted({attack.folder for attack in ATTACKS})
SECONDS = ("--Judge.cell_seconds=5", "--Judge.question_seconds=4", "--Judge.submission_seconds=40")
EVERY = 8
"""After so many attacks comes an honest student."""


class Class:
    """One lesson's attackers with honest students between them, graded."""

    def __init__(self, folder: str, place: Path, bait: Bait) -> None:
        self.attacks = [attack for attack in ATTACKS if attack.folder == folder]
        self.course = CourseFolder.lay_out(COURSE.read(folder), place)
        self.bait = bait
        self.honest = self._hand_in()
        submitted = place / "grading" / "submitted"
        before = hashes(submitted)
        mounted = place / "mounted"  # by this name, processes that live on are known
        mounted.mkdir()
        self.done = self.course.autograde(*SECONDS, environment={"TMPDIR": str(mounted)})
        after = hashes(submitted)
        self.changed = [path for path, was in before.items() if after.get(path) != was]
        self.left = processes_that_know(mounted)

    def _hand_in(self) -> list[str]:
        """In the order of their names, which is that of grading. Returns the honest ones."""
        lesson, honest = self.course.lesson, []
        work = short(lesson)
        for number in range(0, len(self.attacks), EVERY):
            honest.append(f"{number:03}-honest")
            self.course.hand_in(honest[-1], work)
        facts = self.bait.facts | {
            "gradebook": str(self.course.place / "grading" / "gradebook.db"),
            "other": str(self.course.submitted(honest[0])),
        }
        for number, attack in enumerate(self.attacks):
            attack.hand_in(self.course.submitted(self.student(attack, number)).parent, facts)
        return honest

    def student(self, attack: Attack, number: int | None = None) -> str:
        number = self.attacks.index(attack) if number is None else number
        return f"{number:03}-{attack.name}"

    def points(self, student: str) -> float:
        """From the gradebook; 0 where there is nothing in it."""
        return sum((self.course.points(student) or {}).values())

    def shown(self, attack: Attack) -> str:
        """What the judge wrote into the notebook that formgrader and feedback show: its report at
        the top, and under each graded cell points and a message."""
        if not self.course.graded_place(self.student(attack)).exists():
            return ""
        notebook = self.course.graded(self.student(attack))
        graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
        return "\n".join([notebook.cells[0].source, *(str(cell.outputs) for cell in graded)])


def hashes(folder: Path) -> dict[Path, str]:
    """Of every regular file in it. A link may lead where only root may look."""
    files = [path for path in folder.rglob("*") if not path.is_symlink() and path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def bait(tmp_path_factory):
    bait = Bait(tmp_path_factory.mktemp("bait"))
    yield bait
    bait.close()


@pytest.fixture(scope="module", params=FOLDERS)
def graded(request, tmp_path_factory, bait) -> Class:
    return Class(request.param, tmp_path_factory.mktemp("class"), bait)


def test_honest_students_between_attackers_get_all_points(graded):
    got = {student: graded.points(student) for student in graded.honest}
    assert set(got.values()) == {POINTS}, (got, graded.done.stderr[-3000:])


def test_no_attack_gets_more_or_less_than_it_deserves(graded):
    got = {attack.name: graded.points(graded.student(attack)) for attack in graded.attacks}
    deserved = {attack.name: attack.points for attack in graded.attacks}
    wrong = {
        name: (points, deserved[name])
        for name, points in got.items()
        if not deserved[name][0] <= points <= deserved[name][1]
    }
    assert wrong == {}


def test_the_machine_is_never_blamed_and_who_cannot_be_graded_is_told(graded):
    log = graded.done.stderr
    assert "INFRA_ERROR" not in log
    absent = {
        graded.student(attack)
        for attack in graded.attacks
        if not os.path.lexists(graded.course.submitted(graded.student(attack)))
    }
    for student in absent:
        assert re.search(rf"{student}/\S+: no (notebook|start\.ipynb) was handed in", log), log
    # nbgrader itself ends a submission in which it knows no file with a traceback, and goes on.
    assert set(re.findall(r"error processing assignment '.*' for student '(.*)'", log)) <= absent


def test_the_gradebook_holds_who_handed_in_and_nobody_else(graded):
    place = graded.course.place / "grading"
    with Gradebook(f"sqlite:///{place / 'gradebook.db'}") as gradebook:
        known = {student.id for student in gradebook.students}
    assert known <= {path.name for path in (place / "submitted").iterdir()}


def test_nothing_outside_was_touched_and_nothing_lives_on(graded):
    assert (graded.changed, graded.left, graded.bait.harm()) == ([], [], [])


def test_no_attack_saw_a_hidden_test_an_answer_or_anything_private(graded, tmp_path):
    hidden = hidden_lines(lay_out(tmp_path / "view", graded.course.lesson.module, ORDER))
    answers = answer_lines(graded.course.lesson)
    for attack in graded.attacks:
        shown = graded.shown(attack)
        assert "GOT" not in shown, attack.name
        assert graded.bait.seen(shown) == [], attack.name
        assert lines_in(shown, hidden) == [], attack.name
        if not attack.solved:
            assert lines_in(shown, answers) == [], attack.name
