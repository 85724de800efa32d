"""No point is given for less than the property: the cheapest wrong functions get next to nothing."""

import pickle
from contextlib import closing

import pytest
from confined import needs_bubblewrap
from submissions import ORDER, fork_server

from autograder.cheapest import (
    FILE,
    TOGETHER,
    Cheat,
    cheats_of,
    forgeable_table,
    judge_cheats,
    most_of,
    points_in,
    rows_of,
)
from autograder.lessons import hidden_checks
from autograder.sandbox.launch import Launcher

REPLAY = """
import gc, pickle

known = pickle.loads({evidence!r})
for thing in gc.get_objects():
    if type(thing) is dict and thing.keys() >= known.keys() and all(map(callable, thing.values())):
        for check in known:
            thing[check] = lambda names, needs, challenge, check=check: (known[check], [])
"""
"""A cell that puts what a right answer once replied in the place of every probe."""


@pytest.mark.parametrize("lesson", ORDER)
def test_the_question_was_put_to_every_check(lesson):
    assert {cheat.check for cheat in cheats_of(lesson)} == set(hidden_checks(lesson))


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize("lesson", ORDER)
def test_the_cheapest_wrong_functions_get_what_the_table_says(lesson):
    with closing(Launcher(lesson, server=fork_server())) as launcher:
        rows = rows_of(lesson, launcher.start_for)
    assert [row for row in rows if points_in(row) > most_of(row)] == []
    known = FILE.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in known] == [], "autograder cheapest writes the table"
    assert TOGETHER in rows[-1]


def test_the_questions_without_a_truth_are_named():
    assert forgeable_table() in FILE.read_text(encoding="utf-8")


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize("lesson", ORDER)
def test_replaced_probes_gain_only_where_the_judge_knows_no_truth(lesson, record, selection):
    checks, (seed,) = hidden_checks(lesson), selection.seeds(lesson, by_day=1, full=1)
    evidence = {
        name: record.ask(lesson, {}, check, seed)["evidence"] for name, check in checks.items()
    }
    cell = REPLAY.format(evidence=pickle.dumps(evidence))
    with closing(Launcher(lesson, server=fork_server())) as launcher:
        result = judge_cheats(lesson, [Cheat(next(iter(checks)), "", cell)], launcher.start_for)
    gained = {answer.check for answer in result.answers if answer.points}
    assert gained <= {name for name, check in checks.items() if check.truth is None}
