"""Parts that are merged: two, then several in any order; and what merging leaves as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import one_each
from course.checks.split_read.recording import (
    FIELDS,
    PART,
    RECORD,
    Numbers,
    Truth,
    make_part,
    plain,
    record,
    record_part,
    unwatched,
    wrong_output,
    wrong_part,
)

QUESTIONS = {
    "same top": {
        "top": "Both parts have the same tops. What is the top of the whole, for each query by itself?",
        "total": "Both parts have the same tops. What is the sum of all weights, of a and b together?",
        "out": "Both parts have the same tops. What is the sum of all weighted values?",
    },
    "two": {
        "top": "Parts with equal tops agree. Which top has the whole, for each query by itself?",
        "total": "Parts with equal tops agree. By what did a part count its weights, and by what does "
        "the whole?",
        "out": "Top and total are right. Are the values counted by the same top as the weights?",
    },
    "far": dict.fromkeys(
        FIELDS,
        "Parts around 0 agree. These tops are far below 0, and one is 300 below the other. What do you "
        "count from, and what is left of a part so far below another, even of very many keys?",
    ),
    "tree": dict.fromkeys(
        FIELDS,
        "Merging two agrees. What does your merge assume about a part that was merged before?",
    ),
}
"""Ends the message of a case in which a field is wrong, by what is new in the case."""
STILL = ("a", "b")


def draw_part(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], spread: float = 2.0
) -> Numbers:
    """Draw the numbers of a part, (B, H, T, D), as float32: a total is at least 1, for the largest score
    adds 1."""
    one = (*sizes[:3], 1)
    drawn = {
        "out": rng.normal(0, 2, sizes),
        "top": rng.normal(0, spread, one),
        "total": rng.uniform(1, 6, one),
    }
    return {name: numbers.astype(np.float32) for name, numbers in drawn.items()}


def draw_tree(rng: np.random.Generator, n: int) -> list[list[int]]:
    """Draw an order of merging n parts: which two of those that are left, first and second."""
    return [rng.permutation(left)[:2].tolist() for left in range(n, 1, -1)]


def merge_by(tree: list[list[int]], parts: list[Any], merge: Any) -> Any:
    """Merge parts in the order of a tree; what two became stands last among those left."""
    left = list(parts)
    for i, j in tree:
        whole = merge(left[i], left[j])
        left = [part for place, part in enumerate(left) if place not in (i, j)] + [whole]
    return left[0]


def draw_orders(seed: int) -> Challenge:
    """Draw two parts with equal tops, two with others, both orders; one alone; then trees of parts."""
    rng = np.random.default_rng(seed)
    sizes = (2, 3, int(rng.integers(2, 4)), 4)
    pair = [draw_part(rng, sizes) for _ in range(2)]
    far = [{**part, "top": part["top"] - np.float32(1e5)} for part in pair]
    many = {name: far[1][name] * np.float32(1e8) for name in ("out", "total")}
    far[1] = {"top": far[1]["top"] - np.float32(300), **many}
    level = [pair[0], {**pair[1], "top": pair[0]["top"]}]
    drawn = [
        ("same top", level, [[0, 1]], "float32"),
        ("two", pair, [[0, 1]], "float32"),
        ("two", pair, [[1, 0]], "float32"),
        ("two", [draw_part(rng, (1, 1, 1, 1)) for _ in range(2)], [[0, 1]], "float32"),
        ("two", [draw_part(rng, (1, 2, 3, 4)) for _ in range(2)], [[1, 0]], "float64"),
    ]
    drawn += [("far", far, [[0, 1]], "float32"), ("far", far, [[1, 0]], "float32")]
    for n in (3, 3, *rng.integers(4, 10, 4).tolist()):
        shape = tuple(int(size) for size in rng.integers(1, 4, 4))
        parts = [draw_part(rng, shape) for _ in range(n)]
        drawn.append(("tree", parts, draw_tree(rng, n), "float32"))
    names = ("stage", "parts", "tree", "dtype")
    return {"cases": [dict(zip(names, case, strict=True)) for case in drawn]}


def probe_orders(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Merge each case's parts in its order; finish the whole, and the first part alone."""
    merge, finish = unwatched(student.merge), unwatched(student.finish)
    wholes, finished, alone = [], [], []
    for case in challenge["cases"]:
        made = [make_part(part, case["dtype"]) for part in case["parts"]]
        alone.append(record(finish(make_part(case["parts"][0], case["dtype"]))))
        whole = merge_by(case["tree"], made, merge)
        wholes.append(record_part(whole))
        finished.append(record(finish(whole)))
    return {"alone": alone, "wholes": wholes, "finished": finished}


@check(
    "merge",
    "finish",
    draw=draw_orders,
    probe=probe_orders,
    evidence=one_each(alone=RECORD, wholes=PART, finished=RECORD),
)
def any_cut_any_order(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare one part that is finished, what was merged, and that, finished."""
    seen = (evidence[name] for name in ("alone", "wholes", "finished"))
    for case, alone, whole, finished in zip(challenge["cases"], *seen, strict=True):
        expected, dtype = truth(case), case["dtype"]
        question = "Nothing was merged yet. What makes a mean of a weighted sum?"
        if wrong := wrong_output(alone, expected["alone"], dtype, tolerance, question):
            return failed(f"One part alone: finish {wrong}")
        if wrong := wrong_part(
            whole, expected["whole"], dtype, tolerance, QUESTIONS[case["stage"]]
        ):
            return failed(f"{case_text(case)}: merge {wrong}")
        question = "Merging agrees, and so does finishing one part. What does finish count on?"
        if wrong := wrong_output(finished, expected["finished"], dtype, tolerance, question):
            return failed(f"{case_text(case)}: finish {wrong}")
    return passed("Two parts or nine, in any order: the same whole.")


def case_text(case: Challenge) -> str:
    """Write which parts are merged in which order."""
    if len(case["parts"]) > 2:
        return f"{len(case['parts'])} parts, merged two at a time in the order {case['tree']}"
    first, second = (case["parts"][number] for number in case["tree"][0])
    tops, totals = (
        " and ".join(plain(part[name].flat[0]) for part in (first, second))
        for name in ("top", "total")
    )
    return f"Two parts (of the first query: tops {tops}, totals {totals})"


def draw_three(seed: int) -> Challenge:
    """Draw three parts of one shape."""
    rng = np.random.default_rng(seed)
    return {"parts": [draw_part(rng, (2, 2, 3, 4)) for _ in range(3)]}


def probe_stay(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Merge and finish; look at what was given, and at the first results, after further calls."""
    merge, finish = unwatched(student.merge), unwatched(student.finish)
    a, b, c = map(make_part, challenge["parts"])
    whole = merge(a, b)
    after_merge = [record_part(part) for part in (a, b)]
    first = record_part(whole)
    merge(c, a), merge(b, c)
    done = finish(whole)
    output = record(done)
    alone = record(finish(c))
    later = record_part(whole)
    return {
        "after_merge": after_merge,
        "after_more": [record_part(part) for part in (a, b, c)],
        "first": first,
        "later": later,
        "output": output,
        "output_later": record(done),
        "alone": alone,
    }


STAY = {"after_merge": [PART] * 2, "after_more": [PART] * 3, "first": PART, "later": PART}
STAY = {**STAY, "output": RECORD, "output_later": RECORD, "alone": RECORD}


def changed(got: Any, before: Numbers) -> str | None:
    """Name the first field of a part that is not what it was; None where all are."""
    for name in FIELDS:
        numbers = got[name]["numbers"]
        if numbers.shape != before[name].shape or not np.array_equal(numbers, before[name]):
            return name
    return None


@check("merge", "finish", draw=draw_three, probe=probe_stay, evidence=lambda _: STAY)
def inputs_stay(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare parts with what they were; that finish returns a result at all, for a part alone."""
    drawn = challenge["parts"]
    first = {name: evidence["first"][name]["numbers"] for name in FIELDS}
    if any(first[name].shape != drawn[0][name].shape for name in FIELDS):
        return failed(
            "merge gave a part of another shape than those it was given. Which axis is lost?"
        )
    for name, got, before in zip(STILL, evidence["after_merge"], drawn, strict=False):
        if field := changed(got, before):
            return failed(
                f"After merge(a, b), {name}.{field} is another than before. Another query, or another "
                f"order of merging, still needs {name}. Which of your lines writes into it?"
            )
    for name, got, before in zip("abc", evidence["after_more"], drawn, strict=True):
        if field := changed(got, before):
            return failed(
                f"After merge(c, a), merge(b, c) and finish(c), {name}.{field} is another than before. "
                f"Which of your lines writes into what it was given?"
            )
    if field := changed(evidence["later"], first):
        return failed(
            f"A part that merge returned has another {field} after finish and further merges. Who "
            f"writes into it?"
        )
    output, again = (evidence[name]["numbers"] for name in ("output", "output_later"))
    if output.shape != drawn[0]["out"].shape or not np.isfinite(output).all():
        return failed("finish gave no output (B, H, T, D) of finite numbers. What do you return?")
    if not np.array_equal(output, again):
        return failed(
            "What finish returned is another after finish(c). In whose memory does it lie?"
        )
    if not all(np.isfinite(first[name]).all() for name in FIELDS):
        return failed("merge(a, b) gave a part of no numbers. Does any_cut_any_order pass?")
    for name, other, given_part in zip(STILL, "ba", drawn, strict=False):
        if not changed(evidence["first"], given_part):
            return failed(f"merge(a, b) gave just {name}. What became of {other}?")
    question = "Only a right result is looked at: does any_cut_any_order pass?"
    expected = truth({"parts": [drawn[2]]})["alone"]
    if wrong := wrong_output(evidence["alone"], expected, "float32", tolerance, question):
        return failed(f"One part alone: finish {wrong}")
    return passed("Parts stay what they were, and so does what is made of them.")
