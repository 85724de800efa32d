"""No attack gains a point, sees what it should not, breaks anything or lives on.

The attacks stand in `tests/attacks/`, a file each; here they are handed in.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from attacks.attack import Attack, find_attacks
from attacks.bait import Bait, answer_lines, hidden_lines, lines_in, processes_that_know
from confined import needs_bubblewrap
from patience import PATIENCE
from submissions import SECRET, Desk

from autograder.judge import grade_one
from autograder.result import Outcome, Result
from autograder.sandbox import command, submission_view
from autograder.sandbox.child import Child
from autograder.sandbox.launch import sandboxed
from autograder.session import Deadlines
from lessons import COURSE

pytestmark = needs_bubblewrap
ATTACKS = find_attacks()
FIRST = {attack.path.parent.name: attack for attack in reversed(ATTACKS)}
"""Of each family one attack, which is tried every day."""
DEADLINES = Deadlines(cell=15, question=10, submission=120)
LIMITS = command.Limits(memory=1536 * command.MIB, total_memory=2048 * command.MIB)
FAMILIES = {"in_process", "host", "control_flow", "notebook", "file", "honest"}


@dataclass(frozen=True)
class Judged:
    """What came of one attack."""

    result: Result
    harm: list[str]
    left: list[str]

    @property
    def report(self) -> str:
        """Every word that somebody will read."""
        result = self.result
        messages = (answer.message for answer in result.answers)
        return "\n".join([result.reason, *messages, *result.cells, result.output])


class Court:
    """Judges attacks one by one, each in a folder and a sandbox of its own."""

    def __init__(self, place: Path) -> None:
        self.place, self.bait, self.desks = place, Bait(place / "bait"), {}
        self.copies = place / "copies"
        self.copies.mkdir()
        for folder in {attack.folder for attack in ATTACKS}:
            self.desks[folder] = Desk(folder, place / folder)
            let_read(self.desks[folder].view)

    def judge(self, attack: Attack) -> Judged:
        desk = self.desks[attack.folder]
        submitted = desk.place / attack.name
        submitted.mkdir()
        attack.hand_in(submitted, self.bait.facts)
        copy = submission_view.lay_out(submitted, self.copies / str(ATTACKS.index(attack)))

        def start() -> Child:
            return sandboxed(command.popen, desk.view, desk.lesson.module, copy, LIMITS)

        notebook = submitted / desk.lesson.student.name
        result = grade_one(notebook, desk.assignment, start, SECRET, DEADLINES)
        return Judged(result, self.bait.harm(), processes_that_know(copy))


def let_read(folder: Path) -> None:
    """The sandbox's user is nobody, who must be able to read what it is shown."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            os.chmod(path, 0o755 if path.is_dir() else 0o644)


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    court = Court(tmp_path_factory.mktemp("court"))
    yield court
    court.bait.close()


@pytest.fixture(scope="module")
def judged(request, court):
    """The attacks of this run, two at a time."""
    wanted = {item.callspec.params["attack"] for item in request.session.items if by_attack(item)}
    with ThreadPoolExecutor(2) as pool:
        yield {attack: pool.submit(court.judge, attack) for attack in ATTACKS if attack in wanted}


def by_attack(item: pytest.Item) -> bool:
    return hasattr(item, "callspec") and "attack" in item.callspec.params


def test_there_are_attacks_of_every_family():
    assert {attack.path.parent.name for attack in ATTACKS} == FAMILIES
    assert len(ATTACKS) >= 45
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            attack, id=attack.name, marks=[pytest.mark.slow] * (attack not in FIRST.values())
        )
        for attack in ATTACKS
    ],
)
def test_an_attack_gets_what_it_deserves_and_nothing_else(judged, court, attack):
    got = judged[attack].result(timeout=PATIENCE)
    least, most = attack.points
    assert least <= got.result.points <= most, got
    assert got.result.outcome == Outcome(attack.expected.get("state", "SCORE")), got
    assert attack.expected.get("says", "") in got.report, got
    stops = attack.expected.get("stops")
    assert (stops in "\n".join(got.result.cells)) if stops else not unexpected(got), got

    assert (got.harm, got.left) == ([], [])
    assert court.bait.seen(got.report) == []
    assert "GOT" not in got.report, got.report
    desk = court.desks[attack.folder]
    assert lines_in(got.report, hidden_lines(desk.view)) == []
    if not attack.solved:
        assert lines_in(got.report, answer_lines(COURSE.read(attack.folder))) == []


def unexpected(judged: Judged) -> list[str]:
    """Cells that stopped, those aside that wait for an answer."""
    return [cell for cell in judged.result.cells if "NotImplementedError" not in cell]
