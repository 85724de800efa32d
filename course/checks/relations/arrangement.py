"""Relations of arrays as wholes: the right numbers, arranged in another way or given for another call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from course.checks.relations.pairs import Pair, near
from course.checks.relations.words import Relation, axis_name, capitalized, listed, slice_name

SMALLEST = 3
"""Numbers that an array must have: fewer agree by chance."""
LARGEST = 4_000_000
"""Comparisons that are made for one axis of one array."""


def arrangement(pairs: list[Pair]) -> list[Relation]:
    """Say how the wrong arrays of a field are arranged; [] where nothing is known of all of them."""
    wrong = [p for p in pairs if p.differs]
    if all(p.expected.ndim and min(p.expected.size, p.got.size) >= SMALLEST for p in wrong):
        for say in (_reordered_axes, _other_length, _swapped, _moved_along):
            if relation := _of_all(wrong, say):
                return [relation]
    return _of_other_cases(pairs, wrong)


def _of_all(wrong: list[Pair], say: Callable[[Pair], Relation | None]) -> Relation | None:
    """Return what is said of every wrong pair; where it differs with their sizes, what is said of the
    first of them."""
    said = list(dict.fromkeys(map(say, wrong)))
    if None in said:
        return None
    first = said[0]
    if len(said) == 1:
        return first
    words = f"In the first wrong result: {first.words[:1].lower()}{first.words[1:]}"
    return Relation(words, first.question)


def _reordered_axes(pair: Pair) -> Relation | None:
    expected, got = pair.expected, pair.got
    if expected.shape == got.shape or expected.size != got.size or not _telling(expected):
        return None
    for order in permutations(range(expected.ndim)):
        turned = expected.transpose(order)
        if turned.shape == got.shape and near(turned, got).all():
            words = f"The right numbers, with their axes in another order: axes {listed(order)}."
            return Relation(words, "Which view or transpose comes last?")
    if near(expected.ravel(), got.ravel()).all():
        if expected.squeeze().shape == got.squeeze().shape:
            amount = "missing" if got.ndim < expected.ndim else "too many"
            words = f"The right numbers, but an axis of size 1 is {amount}."
            return Relation(words, "Which of your lines adds or drops an axis?")
        words = "The right numbers in the right order, in another shape."
        return Relation(words, "Which axes should the result have?")
    return None


def _other_length(pair: Pair) -> Relation | None:
    """Compare arrays that differ in the size of one axis: more or fewer, at the front or the end."""
    expected, got = pair.expected, pair.got
    if expected.ndim != got.ndim:
        return None
    axes = [a for a in range(expected.ndim) if expected.shape[a] != got.shape[a]]
    if len(axes) != 1 or not min(expected.size, got.size):
        return None
    (axis,) = axes
    short, long = sorted((expected, got), key=lambda array: array.shape[axis])
    n = short.shape[axis]
    count = long.shape[axis] - n
    ends = {"last": (0, n), "first": (count, count + n)}
    for end, (start, stop) in ends.items():
        if near(long.take(range(start, stop), axis), short).all():
            which = f"The {end} {count if count > 1 else 'one'} along {axis_name(pair, axis)}"
            verb, what = "are" if count > 1 else "is", "too many" if long is got else "missing"
            where = {"last": "end", "first": "begin"}[end]
            question = f"Where should your slice, or your loop, {where}?"
            if pair.is_list or n == 1:  # of passes, for example; or one in the place of all
                question = ""
            return Relation(f"{which} {verb} {what}; all others are right.", question)
    return None


def _swapped(pair: Pair) -> Relation | None:
    expected, got = pair.expected, pair.got
    if expected.shape != got.shape or not _telling(expected):
        return None
    for a in range(expected.ndim):
        for b in range(a + 1, expected.ndim):
            same_size = expected.shape[a] == expected.shape[b] > 1
            if same_size and near(expected.swapaxes(a, b), got).all():
                axes = f"{axis_name(pair, a)} and {axis_name(pair, b)}"
                words = f"The right numbers, transposed: {axes} exchanged."
                return Relation(words, "Which of your lines takes one axis for the other?")
    return None


def _moved_along(pair: Pair) -> Relation | None:
    """Find, along one axis, whose slices the slices are."""
    expected, got = pair.expected, pair.got
    if expected.shape != got.shape:
        return None
    for axis, size in enumerate(expected.shape):
        if not 2 <= size <= 128 or expected.size * size > LARGEST:
            continue
        owners = _owners(expected, got, axis)
        if owners is None:
            continue
        if relation := _word_owners(owners, pair, axis):
            return relation
    return None


def _owners(expected: np.ndarray, got: np.ndarray, axis: int) -> list[int] | None:
    """Return for each slice of `got` along an axis the number of the expected slice that it is, of equal
    ones its own, or else one that is nobody's yet; None where one is nobody's, or where it cannot be
    told."""
    rows = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (expected, got)]
    if rows[0].shape[1] < SMALLEST and expected.dtype.kind != "f":
        return None
    alike = np.stack([near(rows[0], row).all(axis=1) for row in rows[1]])  # (of got, of expected)
    if not alike.any(axis=1).all():
        return None
    own = np.diag(alike)
    owners = [number if right else -1 for number, right in enumerate(own.tolist())]
    for number in np.flatnonzero(~own).tolist():
        candidates = np.flatnonzero(alike[number]).tolist()
        if len(candidates) > 1 and len(np.unique(rows[1][number])) < SMALLEST:
            return None
        owners[number] = next((n for n in candidates if n not in owners), candidates[0])
    return owners


SIDES = {
    (0, 0): ("The values are the keys.", "Which of your lines stores the values?"),
    (1, 1): ("The keys are the values.", "Which of your lines stores the keys?"),
    (1, 0): ("Keys and values are exchanged.", "In which order do you store and return them?"),
}
"""What is said of keys and values, slices 0 and 1 of an axis, by the numbers that each has."""


def _word_owners(owners: list[int], pair: Pair, axis: int) -> Relation | None:
    n, name = len(owners), slice_name(pair, axis)
    if owners == list(range(n)):
        return None
    if pair.axes[axis : axis + 1] == "k":
        return Relation(*SIDES[tuple(owners)]) if tuple(owners) in SIDES else None
    if sorted(owners) == list(range(n)):
        if owners == list(range(n))[::-1]:
            words = f"The right numbers, in reverse order along {axis_name(pair, axis)}."
            return Relation(words, "From which end do you begin?")
        for shift in range(1, n):
            if owners == [(i - shift) % n for i in range(n)] and n > 2:
                words = f"The right numbers, rolled by {shift} along {axis_name(pair, axis)}."
                by_one = shift in (1, n - 1)
                return Relation(words, "Which number do you begin to count with?" * by_one)
        words = f"The right numbers, in the order {listed(owners)} along {axis_name(pair, axis)}."
        return Relation(words, "Which reshape, or which index, decides about their order?")
    others = {owner for number, owner in enumerate(owners) if owner != number}
    if len(others) == 1:
        (owner,) = others
        where = [number for number in range(n) if owners[number] != number]
        plural = len(where) > 1
        subject = capitalized(f"{name}{'s' * plural} {listed(where)}")
        words = f"{subject} {'have' if plural else 'has'} the numbers of {name} {owner}."
        asked = (
            "" if pair.is_list else f"Which index is {owner} in your code, whatever it should be?"
        )
        return Relation(words, asked)
    along = axis_name(pair, axis)
    words = f"Along {along}, numbers stand where others belong: 0 to {n - 1} hold {listed(owners)}."
    return Relation(words, "With which index do you read each of them?")


def _of_other_cases(pairs: list[Pair], wrong: list[Pair]) -> list[Relation]:
    """Say that each wrong result is that of the call before, or of the first."""
    if any(len(p.case) != 1 for p in pairs) or len({p.expected.tobytes() for p in wrong}) < 2:
        return []
    right = {p.case[0]: p.expected for p in pairs}
    offsets = {"the call before it": lambda n: n - 1, "the call after it": lambda n: n + 1}
    offsets["the first call"] = lambda n: 0
    if any(p.got.shape != p.expected.shape or p.got.size < SMALLEST for p in wrong):
        return []  # few numbers are alike by luck
    for whose, other in offsets.items():
        if all(_is_of(p.got, right.get(other(p.case[0]))) for p in wrong):
            question = "What does your function keep from one call to the next?"
            return [Relation(f"Each wrong result is the right one of {whose}.", question)]
    return []


def _is_of(got: np.ndarray, expected: np.ndarray | None) -> bool:
    return expected is not None and got.shape == expected.shape and bool(near(expected, got).all())


def _telling(array: np.ndarray) -> bool:
    """Tell whether numbers differ enough that to find them again says something."""
    return len(np.unique(array)) > 2 or array.dtype.kind == "b"
