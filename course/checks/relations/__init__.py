"""Say what is true of wrong numbers, whoever made the mistake.

    relations_between(expected, got)  ->  [Relation("The wrong numbers are 0.25 × …", "Which …?"), …]

Both are evidence of one probe on one challenge: of the reference answer, and of a student's. Their
numbers are paired place by place (`pairs`), and a relation is said only if it holds for *all* numbers
of a field that differ: of their values (`values`), of how an array is arranged (`arrangement`), of the
arguments of the calls (`arguments`, `inputs`), of where they lie and in which calls (`places`), and of
what was refused (`refusals`). Each could have failed: nothing is said of a single number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.checks.relations.arguments import (
    is_step,
    off_by_a_product,
    right_for_other_arguments,
    which_calls_are_right,
)
from course.checks.relations.arrangement import arrangement
from course.checks.relations.calls import Calls
from course.checks.relations.inputs import about_inputs
from course.checks.relations.pairs import Pair, fields_of, wrong_fields
from course.checks.relations.places import places
from course.checks.relations.refusals import is_outcome, refusals
from course.checks.relations.values import values
from course.checks.relations.words import Relation
from course.checks.shrinking import lists_of_operations

MOST = 2
"""Sentences about one reply."""


def relations_between(expected: Any, got: Any, calls: Calls | None = None) -> list[Relation]:
    """List what is true of the first field in which a reply differs and of which anything is known, most
    telling first.

    Args:
        calls: the calls of the challenge, where each case is one.
    """
    wrong = list(wrong_fields(expected, got, calls))
    for pairs, some_stopped in wrong:
        said = relations_of(pairs, calls, some_stopped)
        if is_outcome(pairs):  # where another thing was refused, the rest follows from it
            return said[:MOST]
        if said:
            of_each = [relations_of(p, calls, s) for p, s in wrong if not _are_texts(p)]
            first, *others = said[:MOST]
            others = [one for one in others if all(one in each for each in of_each)]
            if not all(first in each for each in of_each):
                # What the check asks about may be another field, and so may the mistake.
                if pairs[0].is_list or not pairs[0].expected.ndim:  # few numbers, alike by luck
                    return []
                return [Relation(first.words, among="some of the numbers that differ"), *others]
            if first.words.startswith(("Right", "Wrong")) and _some_are_right(expected, got, calls):
                first = first._replace(among="the numbers that differ")
            return [first, *others]
    return []


def _some_are_right(expected: Any, got: Any, calls: Calls | None) -> bool:
    """Tell whether the numbers of some field are all as expected."""
    fields = fields_of(expected, got, calls).values()
    return any(not _are_texts(pairs) and not any(p.differs for p in pairs) for pairs in fields)


def _are_identical(pair: Pair) -> bool:
    return np.array_equal(pair.expected, pair.got, equal_nan=True)


def _are_texts(pairs: list[Pair]) -> bool:
    return isinstance(pairs[0].expected, str)


def relations_of(pairs: list[Pair], calls: Calls | None, some_stopped: bool) -> list[Relation]:
    """List all that is true of the pairs of one field, most telling first.

    Where some calls stopped, it is not said which are right."""
    if is_outcome(pairs):
        # Of operations on a cache, those behind the first that differs are left out.
        return refusals(pairs, not (calls and lists_of_operations(calls.challenge)))
    if _are_texts(pairs):
        return []
    about = values(pairs) or arrangement(pairs)
    where = [] if some_stopped else _where(pairs, calls)
    if calls is None:
        return [*about, *where]
    others = right_for_other_arguments(pairs, calls)
    product = [] if about else off_by_a_product(pairs, calls)
    if any(is_step(one) for one in others) and product:  # which of the two it is, nobody can tell
        others = [one._replace(question="") for one in others]
    elif others:
        product = []
    return [*others, *(about or about_inputs(pairs, calls)), *product, *where]


def _where(pairs: list[Pair], calls: Calls | None) -> list[Relation]:
    """Say which calls, or which parts of their results, are right; nothing where float16 hides that."""
    right = [p for p in pairs if not p.differs]
    if any(p.expected.dtype == np.float16 and not _are_identical(p) for p in right):
        return []
    return (which_calls_are_right(pairs, calls) if calls else []) or places(pairs)
