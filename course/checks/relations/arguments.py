"""Relations of calls: results that are right for other arguments, and which calls are right.

matmul_flops(2, 3, 4) gave 16, matmul_flops(5, 1, 7) gave 70: the right results for k = 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from course.checks.relations.calls import Calls, Size, with_values
from course.checks.relations.pairs import Pair, is_right_for
from course.checks.relations.words import Relation

FEWEST = 2
"""Wrong results that must agree; of formulas with several sizes in them, one more."""
COEFFICIENTS = {1.0: "", 2.0: "2 · ", 0.5: "½ · ", 4.0: "4 · ", 3.0: "3 · ", 8.0: "8 · "}
MOST_FACTORS = 5
EQUALS = (("n_heads", "n_kv_heads"), ("H", "G"))
"""Sizes of which it counts whether they are the same."""
LUCK = 12
"""In how many ways as many right results could lie among the wrong ones, at the least: with fewer, some
size tells them apart by luck."""
STEP = re.compile(r"for \w+ (?=[-+=])")
"""How the words of a change of one size begin."""
Change = Callable[[Mapping[str, int]], Mapping[str, int]]
"""Makes new sizes of the sizes of a case, both by name."""


def right_for_other_arguments(pairs: list[Pair], calls: Calls) -> list[Relation]:
    """Say with which other arguments every wrong result of a field would be right; [] where nothing is
    known, or where another argument, or another value of this one, would explain them as well."""
    wrong, cases = _wrong_calls(pairs, calls)
    sizes = [{size.name: size for size in calls.sizes_of(case) if size.path} for case in cases]
    names = [name for name in sizes[0] if all(name in s for s in sizes)] if sizes else []
    is_call = all(isinstance(case, Mapping) and "arguments" in case for case in cases)
    if (
        calls.answer is None
        or not names
        or not (is_call or all(p.expected.ndim == 0 for p in wrong))
    ):
        return []
    varied = [name for name in names if len({s[name].value for s in sizes}) > 1]
    said = []
    for words, question, change in changes(
        names, varied, {n: sizes[0][n].path[:-1] for n in names}
    ):
        if all(
            _fits(*each, words, change, calls) for each in zip(wrong, cases, sizes, strict=True)
        ):
            said.append((words, question))
    if not said:
        return []
    words, question = said[0]
    if STEP.match(words) and any(STEP.match(other) for other, _ in said[1:]):
        return []
    return [Relation(f"The wrong results are the right ones {words}.", question)]


def is_step(relation: Relation) -> bool:
    """Tell whether a relation says that results are right for one more of a size, or one less."""
    return bool(re.search(r"for \w+ [-+] 1\.$", relation.words))


def _wrong_calls(pairs: list[Pair], calls: Calls) -> tuple[list[Pair], list[Any]]:
    """List the wrong results of a field with their cases; none where too few agree to tell anything."""
    cases = calls.cases_of(pairs[0].field)
    wrong = [p for p in pairs if p.differs and p.case and p.case[0] < len(cases)]
    if len(wrong) < FEWEST or len({p.got.tobytes() for p in wrong}) < 2:
        return [], []
    return wrong, [cases[p.case[0]] for p in wrong]


def changes(
    names: Sequence[str], varied: Sequence[str], groups: Mapping[str, Any]
) -> Iterator[tuple[str, str, Change]]:
    """List changes of sizes, each with its words and a question.

    Args:
        varied: the sizes that are not always the same.
        groups: sizes of one group stand beside each other, and may be exchanged by mistake.
    """
    for name in names:
        missing = f"Where should {name} enter?"
        yield f"for {name} - 1", "Which one is left out?", lambda v, name=name: {name: v[name] - 1}
        yield f"for {name} + 1", "Which one is too many?", lambda v, name=name: {name: v[name] + 1}
        yield f"for {name} = 0", missing, lambda v, name=name: {name: 0}
        yield f"for {name} = 1", missing, lambda v, name=name: {name: 1}
    for a, b in combinations(varied, 2):
        if groups[a] == groups[b]:
            where = f"Where does {a} belong, and where {b}?"
            yield f"with {a} and {b} exchanged", where, lambda v, a=a, b=b: {a: v[b], b: v[a]}
            yield f"with {b} in the place of {a}", where, lambda v, a=a, b=b: {a: v[b]}
            yield f"with {a} in the place of {b}", where, lambda v, a=a, b=b: {b: v[a]}


def off_by_a_product(pairs: list[Pair], calls: Calls) -> list[Relation]:
    """Say by which product of sizes all wrong numbers of a field are too large or too small, or are
    multiplied; [] where nothing is known."""
    wrong, cases = _wrong_calls(pairs, calls)
    if not wrong or any(p.expected.ndim or p.expected.shape != p.got.shape for p in wrong):
        return []
    sizes = [calls.values_of(case) for case in cases]
    names = [name for name in sizes[0] if all(s.get(name, 0) > 0 for s in sizes)]
    if len(wrong) <= FEWEST or not names:
        return []
    got = np.array([float(p.got) for p in wrong])
    expected = np.array([float(p.expected) for p in wrong])
    columns = {name: np.array([float(s[name]) for s in sizes]) for name in names}
    if expected.all() and (words := _product(got / expected, columns, most=2)):
        words = f"The wrong results are the right ones times {words}."
        return [Relation(words, "Which factor does not belong?")]
    if got.all() and (words := _product(expected / got, columns, most=2)):
        words = f"The wrong results are the right ones divided by {words}."
        return [Relation(words, "Which factor is missing?")]
    terms = {
        "large": "Which term does not belong?",
        "small": "Which term is missing, or rounded away?",
    }
    for (amount, question), sign in zip(terms.items(), (1, -1), strict=True):
        if words := _product(sign * (got - expected), columns, most=MOST_FACTORS):
            return [Relation(f"The wrong results are too {amount} by {words}.", question)]
    return []


def _product(numbers: np.ndarray, columns: Mapping[str, np.ndarray], most: int) -> str:
    """Name the product of few sizes, one of them perhaps less 1, that these numbers are; "" where they
    are none."""
    if len(set(numbers)) <= FEWEST or (numbers <= 0).any():
        return ""
    varied = {name: column for name, column in columns.items() if len(set(column)) > 1}
    for count in range(1, most + 1):
        for names in combinations(varied, count):
            if (words := _as_multiple(numbers, [varied[n] for n in names])) is not None:
                return words + " · ".join(names)
        for less, column in varied.items():
            others = [name for name in varied if name != less] if (column > 1).all() else []
            for names in combinations(others, count - 1):
                factors = [column - 1, *(varied[n] for n in names)]
                if count < most and (words := _as_multiple(numbers, factors)) is not None:
                    return words + " · ".join([f"({less} - 1)", *names])
    return ""


def _as_multiple(numbers: np.ndarray, factors: list[np.ndarray]) -> str | None:
    """Return the words of the coefficient by which these numbers are the product; "" stands for none
    needed, None for no such coefficient."""
    ratios = numbers / np.prod(factors, axis=0)
    if np.ptp(ratios) > 1e-9 * abs(ratios[0]):
        return None
    return next((words for c, words in COEFFICIENTS.items() if abs(ratios[0] / c - 1) < 1e-9), None)


def which_calls_are_right(pairs: list[Pair], calls: Calls) -> list[Relation]:
    """Name the size of which 0 or 1 tells the right results of a field from the wrong ones. Where several
    do, that is the luck of the draw; and so it would be of another value, since nobody asked for those
    beside it."""
    cases = calls.cases_of(pairs[0].field)
    known = [p for p in pairs if p.case and p.case[0] < len(cases)]
    sizes = [calls.values_of(cases[p.case[0]]) for p in known]
    names = [name for name in (sizes[0] if sizes else ()) if all(name in s for s in sizes)]
    n_wrong = sum(p.differs for p in known)
    if n_wrong < FEWEST or is_luck(n_wrong, len(known)):
        return []
    found = []
    for name in names:
        good = [s[name] for p, s in zip(known, sizes, strict=True) if not p.differs]
        bad = [s[name] for p, s in zip(known, sizes, strict=True) if p.differs]
        found += filter(None, [_told_apart(name, good, bad)])
    masked = [has_mask(cases[p.case[0]]) for p in known]
    if masked == [p.differs for p in known] and len(set(masked)) == 2:
        found.append("Right without a mask, wrong with one.")
    for a, b in EQUALS:
        same = [s[a] == s[b] for s in sizes] if a in names and b in names else []
        if same == [not p.differs for p in known] and len(set(same)) == 2:
            found.append(f"Right where {a} = {b}, wrong otherwise.")
    return [Relation(found[0])] if len(found) == 1 else []


def has_mask(case: Any) -> bool:
    return isinstance(case, Mapping) and case.get("mask") is not None


def is_luck(n_wrong: int, n: int) -> bool:
    """Tell whether so few are wrong, or right, that some size will tell them from the others."""
    return math.comb(n, n_wrong) < LUCK


def _told_apart(name: str, good: list[int], bad: list[int]) -> str:
    """Say how 0 or 1 of a size tells right from wrong; "" if it does not."""
    if not good or not bad or set(good) & set(bad):
        return ""
    for some, others, words in (
        (good, bad, "Right for {} = {}, wrong otherwise."),
        (bad, good, "Wrong for {} = {}, right otherwise."),
    ):
        value = some[0]
        # Of other values than these two, it is the luck of the draw that no other was wrong, or right.
        if value in (0, 1) and len(set(some)) == 1 and len(set(others)) > 1:
            return words.format(name, value)
    if len(bad) > 1 and set(good) == {0, 1} and min(bad) > 1:
        return f"Right for {name} = 0 and 1, wrong for more."
    return ""


def _fits(
    pair: Pair, case: Any, sizes: Mapping[str, Size], words: str, change: Change, calls: Calls
) -> bool:
    values = {name: size.value for name, size in sizes.items()}
    new = change(values)
    if all(values[name] == value for name, value in new.items()):
        return False

    def changed() -> Any:
        return with_values(case, {sizes[name].path: value for name, value in new.items()})

    return is_right_for(pair, words, changed, calls)
