"""Relations of inputs: results that are right for other arrays than those that were given.

causal_attention(q, k, v) gave, in every call, what is right for causal_attention(q, k, k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from course.checks.relations.calls import Calls, Path, with_values
from course.checks.relations.pairs import Pair, is_right_for
from course.checks.relations.words import Relation

FEWEST = 3
"""Different numbers that must agree: two results of 0 are right for much else."""
MOST = 120
"""Changes that are tried: each asks the right function."""
LARGEST = 20_000
"""Numbers of an array that is still changed."""
FACTORS = {
    "√D": lambda d: d**0.5,
    "1/√D": lambda d: d**-0.5,
    "D": float,
    "1/D": lambda d: 1 / d,
    "2": lambda d: 2.0,
    "½": lambda d: 0.5,
}
"""By which floating-point arrays are multiplied; D is the size of the last axis."""
Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Makes other inputs of the inputs of a case, both by name."""


def about_inputs(pairs: list[Pair], calls: Calls) -> list[Relation]:
    """Say for which other inputs every wrong result of a field would be right; [] if none is known."""
    cases = calls.cases_of(pairs[0].field)
    wrong = [p for p in pairs if p.differs and p.case and p.case[0] < len(cases)]
    different = {number for p in wrong for number in np.unique(p.got).tolist()}
    masks = any(p.expected.ndim and p.expected.dtype == bool for p in wrong)
    if calls.answer is None or (len(different) < FEWEST and not masks):
        return []
    inputs = [dict(calls.inputs_of(cases[p.case[0]])) for p in wrong]
    if any(each.keys() != inputs[0].keys() for each in inputs):
        return []
    for number, (words, question, change) in enumerate(_changes(inputs)):
        if number == MOST:
            break
        if all(
            _fits(pair, cases[pair.case[0]], each, words, change, calls)
            for pair, each in zip(wrong, inputs, strict=True)
        ):
            return [Relation(f"The wrong results are the right ones {words}.", question)]
    return []


def _changes(inputs: list[dict[str, tuple[Path, Any]]]) -> Iterator[tuple[str, str, Change]]:
    """List changes of inputs that apply to every case, each with its words and a question."""
    values = {name: [each[name][1] for each in inputs] for name in inputs[0]}
    for name, given in values.items():
        if any(isinstance(value, np.ndarray) and value.dtype.kind == "b" for value in given):
            yield from _changes_of_mask(name)
        elif all(isinstance(value, float) for value in given):
            yield from _changes_of_number(name)
    arrays = [n for n, given in values.items() if all(_is_array(value) for value in given)]
    for a, b in combinations(arrays, 2):
        if all(x.shape == y.shape for x, y in zip(values[a], values[b], strict=True)):
            where = f"Which of your lines reads {a}, and which {b}?"
            yield f"with {b} in the place of {a}", where, lambda v, a=a, b=b: {a: v[b]}
            yield f"with {a} in the place of {b}", where, lambda v, a=a, b=b: {b: v[a]}
            yield f"with {a} and {b} exchanged", where, lambda v, a=a, b=b: {a: v[b], b: v[a]}
    for name in arrays:
        yield from _changes_of_array(name, values[name])


def _changes_of_mask(name: str) -> Iterator[tuple[str, str, Change]]:
    question = "Where is it used, and does True say that a key is seen?"
    yield f"without {name}", question, lambda v: {name: None}
    yield f"with {name} inverted", question, lambda v: {name: ~v[name]}


def _changes_of_number(name: str) -> Iterator[tuple[str, str, Change]]:
    question = f"Where does {name} enter?"
    yield f"for a much larger {name}", question, lambda v: {name: 1e6 * v[name]}  # a limit
    yield f"for {name} = 1", question, lambda v: {name: 1.0}
    yield f"for 1 / {name}", question, lambda v: {name: 1 / v[name]}
    yield f"for {name}²", question, lambda v: {name: v[name] ** 2}


def _changes_of_array(name: str, given: list[np.ndarray]) -> Iterator[tuple[str, str, Change]]:
    if given[0].dtype.kind == "i":
        begin = "From which number do you count?"
        yield f"for {name} + 1", begin, lambda v: {name: v[name] + 1}
        yield f"for {name} - 1", begin, lambda v: {name: v[name] - 1}
        return
    if all(a.ndim > 1 for a in given):
        for words, factor in FACTORS.items():
            size = " (D is the size of its last axis)" if "D" in words else ""
            yield (
                f"for {words} · {name}{size}",
                "Which factor is missing, or there twice?",
                lambda v, factor=factor: {name: _scaled(v[name], factor(v[name].shape[-1]))},
            )
    if all(a.ndim == 2 and a.shape[0] == a.shape[1] for a in given):
        missing = f"Where is {name} applied?"
        yield (
            f"for {name} = 1, which changes nothing",
            missing,
            lambda v: {name: _identity(v[name])},
        )
    if all(a.ndim == 1 for a in given):
        yield (
            f"for {name} = 1",
            f"Where is {name} applied?",
            lambda v: {name: np.ones_like(v[name])},
        )


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    return (array * factor).astype(array.dtype)


def _identity(array: np.ndarray) -> np.ndarray:
    return np.eye(len(array), dtype=array.dtype)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fi" and 1 < value.size <= LARGEST


def _fits(
    pair: Pair,
    case: Any,
    inputs: Mapping[str, tuple[Path, Any]],
    words: str,
    change: Change,
    calls: Calls,
) -> bool:
    """Tell whether a wrong result is right for a case whose inputs are changed."""

    def changed() -> Any:
        new = change({name: value for name, (_, value) in inputs.items()})
        return with_values(case, {inputs[name][0]: value for name, value in new.items()})

    return is_right_for(pair, words, changed, calls)
