"""Relations of places: which rows, heads, tokens and calls are right, and which are not."""

from __future__ import annotations

from functools import partial

import numpy as np

from course.checks.relations.arguments import is_luck
from course.checks.relations.pairs import Pair
from course.checks.relations.words import (
    SINGULAR,
    Relation,
    capitalized,
    listed,
    slice_name,
    uncapitalized,
)

FEW = 4
"""Places that are still listed."""
FEWEST = 2
"""Results from which on it is no chance that they have something in common."""


def places(pairs: list[Pair]) -> list[Relation]:
    """Say where the numbers of a field are wrong, if that is only in a part of it."""
    wrong, right = [p for p in pairs if p.differs], [p for p in pairs if not p.differs]
    if not all(p.expected.shape == p.got.shape for p in wrong):
        return []
    sentences = (_along_axes(wrong, right), _by_sizes(wrong, right))
    return [Relation(words) for words in sentences if words]


def _along_axes(wrong: list[Pair], right: list[Pair]) -> str:
    """Name the axis along which only some slices are wrong, the same for every wrong array. Where nothing
    says what is counted along it, a student would not know which numbers are meant."""
    if len({p.expected.ndim for p in wrong}) != 1:
        return ""
    for axis in range(min(len(p.axes) for p in wrong)):
        # Which tokens of a single text are wrong depends on that text.
        one_text = wrong[0].axes[axis] in "TNSr" and len(wrong) < FEWEST
        if one_text and wrong[0].expected.dtype.kind == "b":
            continue  # of a single mask, which may be of rows in any order
        for word in (partial(_word_slices, one_text=one_text), _word_last_slice):
            said = {word(pair, axis) for pair in wrong}
            if len(said) == 1 and (sentence := said.pop()):
                return _where_it_holds(wrong, right, axis, sentence)
    return ""


def _where_it_holds(wrong: list[Pair], right: list[Pair], axis: int, sentence: str) -> str:
    """Say of which rows, or results, a sentence about slices is true, if others are right altogether."""
    if axis > 0 and any(p.axes[:1] == "B" and not all(map(np.any, p.wrong)) for p in wrong):
        which = "row"
    elif any(max(p.expected.shape[axis : axis + 1], default=0) > 1 for p in right):
        which = "result"
    else:
        return sentence
    return f"Where a {which} differs, {uncapitalized(sentence)}"


def _word_last_slice(pair: Pair, axis: int) -> str:
    """Say that the last slice alone is right, or wrong, wherever it lies."""
    others = tuple(a for a in range(pair.expected.ndim) if a != axis)
    wrong = pair.wrong.any(axis=others).tolist()
    name = slice_name(pair, axis)
    if len(wrong) < 2:
        return ""
    if all(wrong[:-1]) and not wrong[-1]:
        return f"The last {name} is right, the others are not."
    return "" if any(wrong[:-1]) else f"Only the last {name} is wrong."


def _word_slices(pair: Pair, axis: int, one_text: bool) -> str:
    """Say which slices alone are right, or wrong, if they are few or stand at the end.

    Of the tokens of one text, only a single one is named."""
    size = pair.expected.shape[axis]
    others = tuple(a for a in range(pair.expected.ndim) if a != axis)
    wrong = np.flatnonzero(pair.wrong.any(axis=others)).tolist()
    if size < 2 or len(wrong) == size:
        return ""
    if pair.axes[axis : axis + 1] == "k":
        return (
            "Keys are right, values are not." if wrong == [1] else "Values are right, keys are not."
        )
    name = slice_name(pair, axis)
    right = [n for n in range(size) if n not in wrong]
    begins = right == list(range(len(right)))
    if begins and min(len(right), len(wrong)) > 1 and not one_text:
        return f"Right up to {name} {right[-1]}, wrong from {name} {wrong[0]} on."
    few = 1 if one_text else FEW
    if len(right) <= len(wrong) and len(right) <= few:
        return capitalized(f"{_subject(name, right)} right, the others are not.")
    if len(wrong) <= few:
        return f"Only {_subject(name, wrong)} wrong."
    return ""


def _subject(name: str, numbers: list[int]) -> str:
    return f"{name}s {listed(numbers)} are" if len(numbers) > 1 else f"{name} {numbers[0]} is"


def _by_sizes(wrong: list[Pair], right: list[Pair]) -> str:
    """Name the axis whose size, or the type, tells right results from wrong ones."""
    if (
        min(len(right), len(wrong)) < FEWEST
        or len({(p.expected.ndim, p.axes) for p in wrong + right}) != 1
    ):
        return ""
    sizes = [
        tuple({p.expected.shape[axis] for p in part} for part in (right, wrong))
        for axis in range(wrong[0].expected.ndim)
    ]
    telling = [axis for axis, (good, bad) in enumerate(sizes) if not good & bad]
    axes = "" if is_luck(len(wrong), len(wrong + right)) else wrong[0].axes
    for axis, letter in enumerate(axes):
        if letter == "k" or telling != [axis]:  # two that tell the same may both be chance
            continue
        (good, bad), name = sizes[axis], SINGULAR[letter]
        if good == {1} and min(bad) > 1:
            return f"Right for a single {name}, wrong for several {name}s."
        if bad == {1} and min(good) > 1:
            return f"Right for several {name}s, wrong for a single {name}."
    good, bad = ({p.expected.dtype.name for p in part} for part in (right, wrong))
    if len(good) == 1 and not good & bad:
        return f"Right in {good.pop()}, wrong in {' and '.join(sorted(bad))}."
    return ""
