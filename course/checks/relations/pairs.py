"""Pair the numbers of two pieces of evidence, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.checks.relations.calls import Calls

TOLERANCE = 1e-4
"""The largest difference of equal numbers; of numbers above 1, a part of them."""
HALF_TOLERANCE = 4e-3
"""The same in float16."""
COUNT_TOLERANCE = 1e-12
"""The same of single whole numbers, which count something."""
CONTAINERS = ("array", "numbers", "value")
"""Names under which a field keeps its numbers; the field is called by the name above."""
SPOKEN = ("words", "message", "error")
"""Texts of a student's own: they decide nothing."""
RETURNED = "returned"
"""What evidence says of a call that gave a result."""
NOTHING = "nothing"
"""The same of a call that gave none."""
IN_WORDS = " in words"
"""Behind the name of a field whose values are texts."""
AXES = {
    "b": {2: "NS", 3: "BNS", 4: "BHNS"},
    "i": {2: "BT"},
    "f": {3: "BT", 4: "BHT", 5: "kBGr"},
}
"""What is counted along the first axes of an array, by its kind and number of axes, in all lessons; "k"
are keys and values, "r" what a cache returns: a ring's rows are not in the order of the text. "N" are the
rows of a mask, or the tokens of a chunk: the first of them need not be the text's."""
OWN_AXES = {
    **dict.fromkeys(("codes", "scale", "zero", "back", "pairs", "chosen", "weights"), ""),
    **dict.fromkeys(("least", "largest", "scores", ".kept*.keys", ".kept*.values"), "BG"),
    ".results*.out": "BH",
    "state": "BH",
}
"""The same for the arrays of some fields, by name or path; "" where nothing of the kind is counted."""


@dataclass(frozen=True)
class Pair:
    """What was expected at one place of the evidence, and what came.

    Attributes:
        field: the path to it, with * for the number of a case.
        case: the numbers of the case.
        expected, got: arrays, numbers among them; or texts.
        is_list: whether they came as a list of numbers, whose only axis counts anything.
    """

    field: str
    case: tuple[int, ...]
    expected: Any
    got: Any
    is_list: bool = False

    @property
    def differs(self) -> bool:
        if isinstance(self.expected, str):
            return self.expected != self.got
        return self.expected.shape != self.got.shape or bool(self.wrong.any())

    @property
    def wrong(self) -> np.ndarray:
        """Where the numbers of two arrays of one shape differ."""
        return ~near(self.expected, self.got)

    @property
    def axes(self) -> str:
        """The letters of the first axes; "" where they have none."""
        if self.is_list:
            return ""
        for name in (self.field, self.field.rpartition(".")[2].rstrip("*")):
            if name in OWN_AXES:
                return OWN_AXES[name]
        letters = AXES.get(self.expected.dtype.kind, {}).get(self.expected.ndim, "")
        in_chunks = self.field.endswith("*") and self.field.count("*") > 1  # of each case
        return letters.replace("T", "N") if in_chunks else letters


def near(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Tell which numbers of two arrays, broadcast against each other, count as equal."""
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return a == b
    tolerance = HALF_TOLERANCE if np.float16 in (a.dtype, b.dtype) else TOLERANCE
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        if x.ndim == 0 and x == np.round(x):  # a count, whatever its type
            tolerance = COUNT_TOLERANCE
        return np.isclose(y, x, rtol=tolerance, atol=tolerance, equal_nan=True)


def is_right_for(pair: Pair, words: str, changed: Callable[[], Any], calls: Calls) -> bool:
    """Tell whether what came at one place is right for a changed case.

    Args:
        words: name the change.
        changed: makes the changed case.
    """
    right = calls.right_for((pair.field, pair.case[0], words), changed)
    if right is None or right.shape != pair.got.shape:
        return False
    size = float(np.abs(right).max(initial=0)) if right.dtype.kind == "f" else 1.0
    # Small numbers are equal as parts of the largest.
    scale = 1 / size if 0 < size < 1 else 1.0
    return bool(near(scale * right, scale * pair.got).all())


def wrong_fields(
    expected: Any, got: Any, calls: Calls | None = None
) -> Iterator[tuple[list[Pair], bool]]:
    """Return the pairs of each field that differs somewhere, right ones among them, and whether some
    calls stopped, so that nothing is known of their numbers."""
    fields = fields_of(expected, got, calls)
    stopped = (pair for name in fields for pair in fields.get(name + IN_WORDS, ()))
    some_stopped = any(pair.differs for pair in stopped)
    for pairs in fields.values():
        if any(p.differs for p in pairs):
            yield pairs, some_stopped


def fields_of(expected: Any, got: Any, calls: Calls | None = None) -> dict[str, list[Pair]]:
    """Pair two pieces of evidence, field by field. A list of numbers, one for each of the calls, is taken
    apart."""
    fields: dict[str, list[Pair]] = {}
    for pair in pairs_of(expected, got):
        n = 0 if calls is None or pair.case else len(calls.cases_of(pair.field))
        split = n > 0 and not isinstance(pair.expected, str) and pair.expected.ndim == 1
        if split and len(pair.expected) == len(pair.got) == n:
            parts = zip(pair.expected, pair.got, strict=True)
            each = [Pair(f"{pair.field}*", (i,), *map(np.asarray, p)) for i, p in enumerate(parts)]
        else:
            each = [pair]
        for one in each:
            fields.setdefault(one.field, []).append(one)
    return fields


def pairs_of(
    expected: Any, got: Any, field: str = "", case: tuple[int, ...] = ()
) -> Iterator[Pair]:
    """Walk two pieces of evidence side by side, as far as they have the same form."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in expected:
            if name in got and name not in SPOKEN:
                below = field if name in CONTAINERS else f"{field}.{name}"
                yield from pairs_of(expected[name], got[name], below, case)
    elif isinstance(expected, str) and isinstance(got, str):
        yield Pair(f"{field}{IN_WORDS}", case, expected, got)
    elif (numbers := as_numbers(expected)) is not None:
        if (others := as_numbers(got)) is not None:
            yield Pair(field, case, numbers, others, not isinstance(expected, np.ndarray))
        elif got is None or isinstance(got, str):  # what came in the place of a result
            yield Pair(f"{field}{IN_WORDS}", case, RETURNED, got or NOTHING)
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        for number, pair in enumerate(zip(expected, got, strict=False)):
            yield from pairs_of(*pair, f"{field}*", (*case, number))


def as_numbers(value: Any) -> np.ndarray | None:
    """Turn a number, an array, or a list of numbers into an array; anything else into None."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else None
    if isinstance(value, bool | int | float | np.generic):
        return _array(value)
    plain = isinstance(value, list | tuple) and all(type(v) in (int, float) for v in value)
    return _array(value) if plain and value else None


def _array(value: Any) -> np.ndarray | None:
    array = np.asarray(value)
    return array if array.dtype.kind in "biuf" else None  # whole numbers beyond 64 bits are objects
