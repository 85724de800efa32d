"""The words of the axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course.checks.relations.pairs import Pair

SINGULAR = {
    "B": "batch row",
    "H": "head",
    "G": "KV head",
    "T": "token",
    "S": "key",
    "k": "side",
}
"""What is counted along an axis. Side 0 of "k" are keys, side 1 are values."""


def slice_name(pair: Pair, axis: int) -> str:
    """Name what one slice along an axis is: "head"; "number" of a list."""
    if letter := pair.axes[axis : axis + 1]:
        return SINGULAR[letter]
    return "number" if pair.expected.ndim == 1 else f"slice of axis {axis}, number"


def axis_name(pair: Pair, axis: int) -> str:
    """Name an axis, "the axis of heads"."""
    letter = pair.axes[axis : axis + 1]
    if letter and letter != "k":
        return f"the axis of {SINGULAR[letter]}s"
    return "the list" if pair.expected.ndim == 1 else f"axis {axis}"


def listed(numbers: Iterable[int], most: int = 8) -> str:
    """Write "0, 1 and 2", of many numbers the first."""
    numbers = list(numbers)
    if len(numbers) > most:
        return f"{', '.join(map(str, numbers[:most]))}, …"
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def capitalized(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]
