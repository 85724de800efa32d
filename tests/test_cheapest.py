"""No point is given for less than the property: the cheapest wrong functions get next to nothing."""

from contextlib import closing

import pytest
from confined import needs_bubblewrap
from submissions import ORDER

from autograder.cheapest import (
    FILE,
    TOGETHER,
    cheats_of,
    forgeable_table,
    most_of,
    points_in,
    rows_of,
)
from autograder.lessons import hidden_checks
from autograder.sandbox.launch import Launcher


@pytest.mark.parametrize("lesson", ORDER)
def test_the_question_was_put_to_every_check(lesson):
    assert {cheat.check for cheat in cheats_of(lesson)} == set(hidden_checks(lesson))


@pytest.mark.sampled
@needs_bubblewrap
@pytest.mark.parametrize("lesson", ORDER)
def test_the_cheapest_wrong_functions_get_what_the_table_says(lesson):
    with closing(Launcher(lesson)) as launcher:
        rows = rows_of(lesson, launcher.start_for)
    assert [row for row in rows if points_in(row) > most_of(row)] == []
    known = FILE.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in known] == [], "autograder cheapest writes the table"
    assert TOGETHER in rows[-1]


def test_the_questions_without_a_truth_are_named():
    assert forgeable_table() in FILE.read_text(encoding="utf-8")
