"""Decide all questions that rest on a function by the same definition of it.

A notebook may define a function several times: a first try, a better one, and later something else of
the same name. Each question is asked where the student tested. Without a rule, another variant before
each test would get points that no single function earns. So of each function one definition counts, the
one with which all questions that call it give the most points together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from autograder.assignment import CodeCell
from autograder.needed_cells import reach
from autograder.redefining import Redefining

MOST_VERSIONS = 4
"""How many definitions of one function are chosen from, those with the most points."""
MOST_CHOICES = 4096
"""How many choices for all functions together are compared."""


@dataclass(frozen=True)
class Definition:
    """What a function is after some cells: equal where the same code has made it.

    Attributes:
        sources: the student's cells that may have changed it, or what it calls; of equal ones the last.
        cell: the number of the last of them.
    """

    sources: tuple[str, ...]
    cell: int = field(compare=False)


@dataclass(frozen=True)
class Try:
    """A question that was asked after some cells.

    Attributes:
        question: the name of its check.
        points: that it earned there.
        met: the definition of each function that it calls.
        n_cells: how many cells had run.
    """

    question: str
    points: float
    met: Mapping[str, Definition] = field(hash=False)
    n_cells: int = 0

    def agrees_with(self, chosen: Mapping[str, Definition]) -> bool:
        return all(
            chosen.get(name, definition) == definition for name, definition in self.met.items()
        )


class Definitions:
    """Finds which definition of a function is there after some cells.

    Args:
        cells: the code cells of a submission.
        given: the sources of the lesson's own cells, which change no answer.
    """

    def __init__(self, cells: Sequence[CodeCell], given: Collection[str]) -> None:
        self._cells = cells
        self._student = [c for c in cells if c.source and c.source.strip() not in given]
        self._redefining = Redefining(cells)
        self._changing: dict[str, list[CodeCell]] = {}

    def met(self, names: Collection[str], number: float) -> dict[str, Definition]:
        """Return the definition of each of these functions behind the cell with this number."""
        return {name: self._definition(name, number) for name in names}

    def _definition(self, name: str, number: float) -> Definition:
        if name not in self._changing:
            names = reach(self._cells, [name])
            self._changing[name] = [
                cell for cell in self._student if self._redefining.may_redefine(cell.source, names)
            ]
        cells = [cell for cell in self._changing[name] if cell.number <= number]
        # Of a cell that is run again, the last time counts.
        sources = dict.fromkeys(cell.source.strip() for cell in reversed(cells))
        return Definition(tuple(sources), cells[-1].number if cells else 0)


def conflicts(tries: Collection[Try]) -> set[str]:
    """Return the functions that questions with points have met in different definitions."""
    definitions = _definitions(tries)
    return {name for name, found in definitions.items() if len(found) > 1}


def _definitions(tries: Collection[Try]) -> dict[str, dict[Definition, float]]:
    """Return each function's definitions with the points of the tries that met them."""
    found: dict[str, dict[Definition, float]] = defaultdict(lambda: defaultdict(float))
    for one in tries:
        for name, definition in one.met.items():
            if one.points > 0:
                found[name][definition] += one.points
    return found


def worth_comparing(tries: Collection[Try], names: Collection[str]) -> set[int]:
    """Return after how many cells to ask all questions that call one of these functions.

    These are all places where a definition earned points. Code that may change a class, such as
    `same = KVCache`, makes another definition of it; an honest notebook may have some between any two
    tests.
    """
    return {
        min(one.n_cells for one in tries if one.met.get(name) == definition)
        for name in names
        for definition in _definitions(tries)[name]
    }


def choose(tries: Collection[Try]) -> tuple[dict[str, Definition], float]:
    """Return of each function the definition with which all questions give the most points together, and
    these points; of equally good ones the earliest."""

    def total(chosen: Mapping[str, Definition]) -> float:
        best: dict[str, float] = defaultdict(float)
        for one in tries:
            if one.agrees_with(chosen):
                best[one.question] = max(best[one.question], one.points)
        return sum(best.values())

    chosen = max(_choices(tries), key=total)
    return chosen, total(chosen)


def _choices(tries: Collection[Try]) -> Iterator[dict[str, Definition]]:
    definitions = _definitions(tries)
    several = sum(len(found) > 1 for found in definitions.values())
    most = max(2, min(MOST_VERSIONS, int(MOST_CHOICES ** (1 / max(1, several)))))
    best = {
        name: sorted(points, key=lambda d: (-points[d], d.cell))[:most]
        for name, points in definitions.items()
    }
    for combination in product(*best.values()):
        yield dict(zip(best, combination, strict=True))
