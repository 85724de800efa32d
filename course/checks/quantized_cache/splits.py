"""Check that a text leaves the same codes in a quantized cache, however it is cut into blocks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.caches import feed
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.drawing import draw_split
from course.checks.quantized_cache.reading import (
    FED,
    KEPT,
    SAME,
    Array,
    Coded,
    count_kept,
    describe,
    draw_rows,
    feed_split,
    join_layers,
    new_cache,
    wrong_feeding,
    wrong_kept,
    wrong_read,
)
from course.checks.recording import first_place
from course.measure.allocations import watch_new_tensors

FEW, MANY = 2, 24
"""Groups that are codes when the numbers are counted that a step makes."""


def draw_splits(seed: int) -> Challenge:
    """Draw a text, and three ways to cut it up: whole, token by token, and drawn; and one token more."""
    rng = np.random.default_rng(seed)
    group, window = [(4, 3), (3, 3), (5, 2), (3, 1)][seed % 4]
    n = window + 2 * group + int(rng.integers(0, group))
    case = {"bits": 8, "group": group, "window": window}
    splits = [[n], [1] * n, draw_split(rng, n)]
    rows = draw_rows(rng, n + 1, spread=0.7)
    window = int(rng.integers(1, 4))
    long = {"group": 2, "window": window, "rows": draw_rows(rng, window + 2 * MANY + 2, batch=1)}
    return {**case, "rows": rows, "splits": splits, "long": [{**long, "bits": n} for n in (8, 4)]}


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the text in each split, and one token more to read what is kept; count the numbers that a step
    makes, and what is kept of a text."""
    rows = challenge["rows"]
    caches = [new_cache(student, challenge, rows.shape[4]) for _ in challenge["splits"]]
    splits = zip(caches, challenge["splits"], strict=True)
    fed = [feed_split(cache, rows, [*split, 1]) for cache, split in splits]
    growth = [growth_of(student, case) for case in challenge["long"]]
    return {"splits": fed, "growth": growth, "kept": count_kept(student)}


def growth_of(student: SimpleNamespace, case: Challenge) -> list[int]:
    """Tell how many times as many numbers two advances make where MANY groups are codes. Who cannot pack
    small codes, or has not begun to, is told so elsewhere."""
    try:
        few, many = (count_made(student, case, groups) for groups in (FEW, MANY))
    except Exception:
        if case["bits"] == 8:
            raise
        return [1, 1]
    return [round(b / max(1, a)) for a, b in zip(few, many, strict=True)]


def count_made(student: SimpleNamespace, case: Challenge, groups: int) -> list[int]:
    """Count the numbers that two advances by one token make, of which the second completes a group; so
    many groups are codes before."""
    rows, n = case["rows"], case["window"] + 2 * groups
    cache = new_cache(student, case, n + 2)
    feed(cache, rows[..., :n, :])
    made = []
    for token in (n, n + 1):
        k, v = torch.from_numpy(rows[..., token : token + 1, :].copy())
        for layer in range(len(k)):
            cache.append(layer, k[layer], v[layer])
        with watch_new_tensors() as new:
            cache.advance(1)
        made.append(sum(t.numbers for t in new.tensors if t.made_by != "elsewhere"))
    return made


def splits_form(challenge: Challenge) -> Evidence:
    return {"splits": [FED] * len(challenge["splits"]), "growth": [[int, int]] * 2, "kept": KEPT}


@check(
    "QuantizedKVCache",
    draw=draw_splits,
    probe=probe_splits,
    evidence=splits_form,
    tolerance=SAME,
)
def every_split_leaves_the_same(
    challenge: Challenge, evidence: Evidence, truth: Coded, tolerance: float
) -> Verdict:
    """Every split leaves the numbers of the whole text, no number changes once it is rounded, and no step
    goes through the codes that are there.

    Args:
        tolerance: as a part of the largest number.
    """
    n = challenge["rows"].shape[4] - 1
    for split, fed in zip(challenge["splits"], evidence["splits"], strict=True):
        if wrong := wrong_feeding(challenge, [*split, 1], fed):
            return failed(wrong)
    near = tolerance * float(np.abs(challenge["rows"]).max())
    sizes = challenge["group"], challenge["window"]
    coded = [truth(*sizes, step) for step in range(n + 1)]
    reads = [fed["reads"] for fed in evidence["splits"]]
    wrong = wrong_ends(challenge, [read[-1] for read in reads], coded[n], near)
    wrong = wrong or wrong_steps(challenge, reads[1], coded, near)
    if wrong := wrong or wrong_blocks(challenge, reads, coded):
        return failed(f"{describe(challenge)}{wrong}")
    for case, growth in zip(challenge["long"], evidence["growth"], strict=True):
        if wrong := wrong_work(growth):
            return failed(f"{describe(case)}: {wrong}")
    if wrong := wrong_kept(evidence["kept"]):
        return failed(wrong)
    return passed(f"{n} tokens leave the same numbers, whole, one by one or in blocks.")


def wrong_work(growth: list[int]) -> str | None:
    """Say whether a step makes more numbers where more groups are codes.

    Args:
        growth: how many times as many, of a step that completes no group and of one that does.
    """
    for kind, times in zip(("no group", "a group"), growth, strict=True):
        if times > 1:
            return (
                f"advance(1), which completes {kind}, makes about {times} times as many numbers when "
                f"{MANY} groups are codes as when {FEW} are. What does a step have to do with codes that "
                f"are there?"
            )
    return None


def wrong_ends(
    challenge: Challenge, reads: list[list[Array]], coded: int, near: float
) -> str | None:
    """Say which split leaves other numbers than the whole text.

    Args:
        reads: what was read after each split.
        coded: how many tokens are codes.
        near: largest difference of numbers that are the same.
    """
    rows, n = challenge["rows"], challenge["rows"].shape[4] - 1
    for split, layers in zip(challenge["splits"], reads, strict=True):
        if problem := wrong_read(challenge, rows, layers, coded):
            return f", {n} tokens in blocks of {split}: {problem}"
    whole, *others = (join_layers(layers) for layers in reads)
    for split, got in zip(challenge["splits"][1:], others, strict=True):
        bad = ~(np.abs(got - whole) <= near).all(axis=(1, 2, 3, 5))  # (2, S)
        if bad.any():
            kind, token = first_place(bad)[0], int(bad.any(axis=0).argmax())
            return (
                f": the same {n} tokens in one block and in blocks of {split} left other numbers, the "
                f"first of them at token {token} ({('keys', 'values')[kind]}). What in your cache "
                f"depends on where a block ends?"
            )
    return None


def wrong_blocks(
    challenge: Challenge, reads: list[list[list[Array]]], coded: list[int]
) -> str | None:
    """Say which block of which split is read wrongly.

    Args:
        reads: what was read at each block of each split.
        coded: how many tokens are codes when so many are held.
    """
    for split, read in zip(challenge["splits"], reads, strict=True):
        held = 0
        for number, (size, layers) in enumerate(zip([*split, 1], read, strict=True), start=1):
            rows = challenge["rows"][..., : held + size, :]
            if problem := wrong_read(challenge, rows, layers, coded[held]):
                return f", block {number} of {split}: {problem}"
            held += size
    return None


def wrong_steps(
    challenge: Challenge, reads: list[list[Array]], coded: list[int], near: float
) -> str | None:
    """Say which step, token by token, reads a rounded number otherwise than it is read at the end.

    Args:
        reads: what was read at each step.
        coded: how many tokens are codes at each.
        near: largest difference of numbers that are the same.
    """
    last = join_layers(reads[-1])  # (2, L, B, G, S, D)
    for step, (layers, held) in enumerate(zip(reads, coded, strict=True)):
        rows = challenge["rows"][..., : step + 1, :]
        if problem := wrong_read(challenge, rows, layers, held):
            return f", step {step + 1} token by token: {problem}"
        moved = np.abs(join_layers(layers)[..., :held, :] - last[..., :held, :])
        if at := first_place(~(moved <= near).all(axis=(0, 1, 2, 3, 5))):
            return (
                f", token by token: with {step} tokens held, token {at[0]} was read as other numbers "
                f"than at the end. How often is a number rounded in its life?"
            )
    return None
