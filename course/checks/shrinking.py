"""Make a challenge smaller as long as a check fails on it: the smallest case tells a student most."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from course.checks.check import Challenge

Place = tuple[Any, ...]
"""Keys that lead to a list in a challenge."""


def shrink(challenge: Challenge, fails: Callable[[Challenge], bool], tries: int) -> Challenge:
    """Leave out cases and operations while the check fails.

    Args:
        fails: tells whether the check still fails. A challenge from which too much was left out, so that
            right functions fail it as well, must not count.
        tries: how often `fails` may be called; if that was not enough, more is left than is needed.
    """
    shrinking = _Shrinking(challenge, fails, tries)
    of_operations = lists_of_operations(challenge)
    for place in lists_of_cases(challenge):
        if place not in of_operations:
            shrinking.keep_one(place)
    for place in lists_of_operations(shrinking.smallest):
        shrinking.drop_last(place)
        shrinking.drop_others(place)
    return shrinking.smallest


def lists_of_cases(challenge: Challenge) -> list[Place]:
    """List where a challenge has several cases."""
    return [(key,) for key, value in challenge.items() if _is_list_of(value, (dict, list, tuple))]


def lists_of_operations(value: Any, place: Place = ()) -> list[Place]:
    """List where there are operations: lists or tuples that begin with a name."""
    if isinstance(value, dict):
        items = value.items()
    elif _is_list_of(value, (list, tuple)) and all(v and isinstance(v[0], str) for v in value):
        return [place]
    else:
        items = enumerate(value) if _is_list_of(value, (dict, list, tuple)) else ()
    return [found for key, item in items for found in lists_of_operations(item, (*place, key))]


class _Shrinking:
    """The smallest challenge so far that fails."""

    def __init__(
        self, challenge: Challenge, fails: Callable[[Challenge], bool], tries: int
    ) -> None:
        self.smallest, self._fails, self._tries = challenge, fails, tries

    def keep_one(self, place: Place) -> None:
        """Keep the first item that fails alone."""
        items = self._items(place)
        if len(items) > 1:
            any(self._fails_with(place, [item]) for item in items)

    def drop_last(self, place: Place) -> None:
        """Keep the shortest beginning that fails: a verdict names the first operation that went wrong."""
        items = self._items(place)
        low, high = 1, len(items)
        while low < high:
            middle = (low + high) // 2
            if self._fails_with(place, items[:middle]):
                high = middle
            else:
                low = middle + 1

    def drop_others(self, place: Place) -> None:
        """Leave out halves, quarters, …, single items that are not needed."""
        size = len(self._items(place)) // 2
        while size:
            first = 0
            while first < len(items := self._items(place)):
                if not self._fails_with(place, items[:first] + items[first + size :]):
                    first += size
            size //= 2

    def _items(self, place: Place) -> list[Any]:
        value: Any = self.smallest
        for key in place:
            value = value[key]
        return list(value)

    def _fails_with(self, place: Place, items: list[Any]) -> bool:
        """Tell whether the check fails with these items in the place of the list; then keep them."""
        if not items or not self._tries:
            return False
        self._tries -= 1
        smaller = _replaced(self.smallest, place, items)
        if fails := self._fails(smaller):
            self.smallest = smaller
        return fails


def _is_list_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(v, kinds) for v in value)
    )


def _replaced(value: Any, place: Place, items: list[Any]) -> Any:
    """Copy a challenge with another list at one place; all else is shared."""
    if not place:
        return items
    changed, (key, *below) = copy(value), place
    changed = list(changed) if isinstance(changed, tuple) else changed
    changed[key] = _replaced(value[key], tuple(below), items)
    return changed
