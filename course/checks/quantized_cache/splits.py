"""Check that a text leaves the same codes in a quantized cache, however it is cut into blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.drawing import draw_split
from course.checks.quantized_cache.reading import (
    ENDING,
    LAYERS,
    SAME,
    Array,
    describe,
    describe_refusal,
    draw_rows,
    feed_blocks,
    join_layers,
    n_groups,
    new_cache,
    run_until_refused,
    wrong_read,
)


def draw_splits(seed: int) -> Challenge:
    """Draw a text, and three ways to cut it up: whole, token by token, and drawn; and one token more."""
    rng = np.random.default_rng(seed)
    group, window = [(4, 3), (3, 3), (5, 2), (3, 1)][seed % 4]
    n = window + 3 * group + int(rng.integers(0, group))
    case = {"bits": 8, "group": group, "window": window}
    splits = [[n], [1] * n, draw_split(rng, n)]
    return {**case, "rows": draw_rows(rng, n + 1, spread=0.7), "splits": splits}


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the text in each split, and one token more to read what is kept. A split that was refused
    leaves no reads."""
    rows, results = challenge["rows"], []
    for split, n_reads in zip(challenge["splits"], reads_wanted(challenge), strict=True):
        cache = new_cache(student, challenge, rows.shape[4])
        fed, ending = run_until_refused(feed_blocks(cache, rows, [*split, 1]))
        reads = [] if ending["refused_with"] else [read for read, _ in fed]
        results.append({"reads": reads[-n_reads:], **ending})
    return {"results": results}


def reads_wanted(challenge: Challenge) -> list[int]:
    """Count the last reads that are judged: of the single tokens all, of the other splits one."""
    _, tokens, _ = challenge["splits"]
    return [1, len(tokens) + 1, 1]


def evidence_of_splits(challenge: Challenge) -> Any:
    """The form of what `probe_splits` records."""
    return {"results": [{"reads": Each(LAYERS), **ENDING}] * len(challenge["splits"])}


def judge_splits(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Every split leaves the numbers of the whole text, and no number changes once it is rounded.

    Args:
        tolerance: as a part of the largest number.
    """
    n = challenge["rows"].shape[4] - 1
    results, wanted = evidence["results"], reads_wanted(challenge)
    for split, result, n_reads in zip(challenge["splits"], results, wanted, strict=True):
        if len(result["reads"]) < n_reads:
            return failed(
                f"{describe(challenge)}, a cache of {n + 1} places, blocks of {split} and one token "
                f"more: {describe_refusal(result)}"
            )
    near = tolerance * float(np.abs(challenge["rows"]).max())
    reads = [result["reads"] for result in results]
    problem = wrong_ends(challenge, [read[-1] for read in reads], near)
    problem = problem or wrong_steps(challenge, reads[1], join_layers(reads[0][-1]), near)
    if problem:
        return failed(f"{describe(challenge)}{problem}")
    return passed(f"{n} tokens leave the same numbers, whole, one by one or in blocks.")


def wrong_ends(challenge: Challenge, reads: list[list[Array]], near: float) -> str | None:
    """Say which split leaves other numbers than the whole text.

    Args:
        reads: what was read after each split.
        near: largest difference of numbers that are the same.
    """
    rows, n = challenge["rows"], challenge["rows"].shape[4] - 1
    for split, layers in zip(challenge["splits"], reads, strict=True):
        if problem := wrong_read(
            challenge, rows, layers, n_groups(challenge, n) * challenge["group"]
        ):
            return f", {n} tokens in blocks of {split}: {problem}"
    whole, *others = (join_layers(layers) for layers in reads)
    for split, got in zip(challenge["splits"][1:], others, strict=True):
        bad = np.argwhere(~(np.abs(got - whole) <= near))
        if len(bad):
            kind, token = bad[0][0], bad[:, 4].min()
            return (
                f": the same {n} tokens in one block and in blocks of {split} left other numbers, the "
                f"first of them at token {token} ({('keys', 'values')[kind]}). What in your cache "
                f"depends on where a block ends?"
            )
    return None


def wrong_steps(
    challenge: Challenge, reads: list[list[Array]], whole: Array, near: float
) -> str | None:
    """Say which step, token by token, reads a rounded number otherwise than it is read at the end.

    Args:
        reads: what was read at each step.
        whole: what was read at the end, (2, L, B, G, S, D).
        near: largest difference of numbers that are the same.
    """
    for step, layers in enumerate(reads):
        held = n_groups(challenge, step) * challenge["group"]
        rows = challenge["rows"][..., : step + 1, :]
        if problem := wrong_read(challenge, rows, layers, held):
            return f", step {step + 1} token by token: {problem}"
        moved = np.abs(join_layers(layers)[..., :held, :] - whole[..., :held, :])
        if held and not (moved <= near).all():
            token = int(np.argwhere(~(moved <= near))[:, 4].min())
            return (
                f", token by token: with {step} tokens held, token {token} was read as other numbers "
                f"than at the end. How often is a number rounded in its life?"
            )
    return None


every_split_leaves_the_same = Check(
    "every_split_leaves_the_same",
    ("QuantizedKVCache",),
    draw_splits,
    probe_splits,
    judge_splits,
    evidence=evidence_of_splits,
    tolerance=SAME,
)
