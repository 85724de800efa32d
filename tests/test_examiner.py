"""What the examiner reads of a reply, in which a student's process may say anything."""

import pytest

from autograder.examiner import MOST_BROKEN, read_broken

ONE = {"rule": "argument", "function": "f", "what": "x"}


@pytest.mark.parametrize("broken", [[], [ONE], [ONE] * MOST_BROKEN])
def test_broken_rules_are_read(broken):
    assert read_broken(broken) is broken


@pytest.mark.parametrize("broken", [None, "none", 7, ONE, (ONE,), [ONE] * (MOST_BROKEN + 1)])
def test_of_anything_else_none_are_read(broken):
    assert read_broken(broken) is None
