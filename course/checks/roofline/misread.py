"""Choose the question that ends a failure by the mistake that gives all of a student's numbers.

What a check compares with comes as an `Answer`: the right value, and the values of common misreadings,
each by a short name. Both come from the oracle; nothing is worked out here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Result(NamedTuple):
    """One case that was put to a student's function.

    Attributes:
        case: what was asked, in words.
        got: what came back.
        right: what is right.
        misread: what comes out of a misreading, by its name.
    """

    case: str
    got: Any
    right: Any
    misread: Mapping[str, Any]


Answer = dict[str, Any]
"""`right`, and `misread`: what comes out of each misreading, by its name."""


def first_wrong(
    results: list[Result], alike: Callable[[Any, Any], bool] = lambda a, b: a == b
) -> Result | None:
    """Return the first case whose answer is wrong; None where all are right."""
    return next((one for one in results if not alike(one.got, one.right)), None)


def question_about(
    results: list[Result],
    questions: Mapping[str, str],
    alike: Callable[[Any, Any], bool] = lambda a, b: a == b,
) -> str:
    """Choose the question of the misreading that gives every answer; "" where none does.

    It is told by those cases in which it is known what it gives. One case alone fits too many.
    """
    if len(results) < 2:
        return ""
    for name, question in questions.items():
        known = [one for one in results if name in one.misread]
        if known and all(alike(one.got, one.misread[name]) for one in known):
            return question
    return ""
