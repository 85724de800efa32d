"""Check which tokens of a quantized cache are codes, and along which axis they were rounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.comparing import outcome
from course.checks.kv_cache.container import feed
from course.checks.quantized_cache.reading import (
    ENDING,
    LAYERS,
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
from course.checks.quantized_cache.rounding import rounding_of, widest_step


def draw_groups(seed: int) -> Challenge:
    """Draw caches with groups and windows that fit into each other and that do not; each with a prompt
    that ends just where a group is complete, or one token earlier, and more blocks."""
    rng = np.random.default_rng(seed)
    cases = []
    for group, window in ((4, 4), (5, 3), (3, 0), (1, 2)):
        first = window + int(rng.integers(1, 4)) * group - len(cases) % 2 * (group > 1)
        split = [first, group, 2 * group, 1]
        case = {"bits": 8, "group": group, "window": window, "split": split}
        cases.append({**case, "rows": draw_rows(rng, sum(split))})
    return {"cases": cases}


def probe_groups(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count no tokens, then feed each case block by block, up to the first block that is refused."""
    results = []
    for case in challenge["cases"]:
        cache = new_cache(student, case, sum(case["split"]))
        none = outcome(lambda cache=cache: cache.advance(0))
        before = len(cache)
        fed, ending = run_until_refused(feed_blocks(cache, case["rows"], case["split"]))
        lengths = [before, *(length for _, length in fed)]
        reads = [read for read, _ in fed]
        results.append({"none": none, "reads": reads, "lengths": lengths, **ending})
    return {"results": results}


def evidence_of_groups(challenge: Challenge) -> Any:
    """The form of what `probe_groups` records."""
    result = {"none": str, "reads": Each(LAYERS), "lengths": Each(int), **ENDING}
    return {"results": [result] * len(challenge["cases"])}


def judge_groups(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Complete groups come back rounded, all other tokens exactly, after every block."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        split, done = case["split"], 0
        if result["none"] != "returned":
            return failed(
                f"{describe(case)}, advance(0) on a new cache: {result['none']}. To count no tokens is "
                f"allowed, and there is nothing to do. What do you read that nobody appended?"
            )
        if len(result["reads"]) < len(split):
            return failed(
                f"{describe(case)}, a cache of {sum(split)} places and blocks of {split}: block "
                f"{len(result['reads']) + 1} was refused. {describe_refusal(result)}"
            )
        if result["lengths"] != [sum(split[:i]) for i in range(len(split) + 1)]:
            return failed(
                f"{describe(case)}, blocks of {split}: len(cache) went {result['lengths']}. Which method "
                f"counts, and how often is it called?"
            )
        for call, (n, layers) in enumerate(zip(split, result["reads"], strict=True)):
            rows = case["rows"][..., : done + n, :]
            problem = wrong_read(case, rows, layers, n_groups(case, done) * case["group"])
            if problem:
                fed = f"after blocks of {split[:call]} appending {n}" if call else f"appending {n}"
                return failed(f"{describe(case)}, {fed}: {problem}")
            done += n
    return passed("Complete groups come back rounded, the window and what is new exactly.")


groups_and_a_window = Check(
    "groups_and_a_window",
    ("QuantizedKVCache",),
    draw_groups,
    probe_groups,
    judge_groups,
    evidence=evidence_of_groups,
)


def draw_outliers(seed: int) -> Challenge:
    """Draw caches of 2, 4 and 8 bits; channels, groups and tokens differ in size by powers of ten."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, window in ((2, 7, 1), (4, 6, 2), (8, 1, 1), (8, 5, 3)):
        groups = 3 if group > 1 else 6
        case = {"bits": bits, "group": group, "window": window, "groups": groups}
        cases.append({**case, "rows": draw_rows(rng, groups * group + window + 1, spread=1.5)})
    return {"cases": cases}


def probe_outliers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed everything but the last token in one block; then that one, to read what is kept."""
    reads = []
    for case in challenge["cases"]:
        cache = new_cache(student, case, case["rows"].shape[4])
        feed(cache, case["rows"][..., :-1, :])
        reads.append(feed(cache, case["rows"][..., -1:, :]))
    return {"reads": reads}


def evidence_of_outliers(challenge: Challenge) -> Any:
    """The form of what `probe_outliers` records."""
    return {"reads": [LAYERS] * len(challenge["cases"])}


def judge_outliers(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Keys were rounded along the tokens of a group, values along the channels."""
    for case, layers in zip(challenge["cases"], evidence["reads"], strict=True):
        rows, group = case["rows"], case["group"]
        if problem := wrong_read(case, rows, layers, n := case["groups"] * group):
            return failed(f"{describe(case)}: {problem} (Does groups_and_a_window pass?)")
        grouped = (*rows.shape[:4], case["groups"], group, rows.shape[5])
        was = rows[..., :n, :].reshape(grouped)  # (2, L, B, G, groups, group, D)
        got = join_layers(layers)[..., :n, :].reshape(grouped)
        for kind, axis, names in ((0, -2, "a channel's keys"), (1, -1, "a token's values")):
            if problem := wrong_rounding(was[kind], got[kind], case["bits"], axis, names):
                return failed(f"{describe(case)}: {problem}")
    return passed("Each channel of a group has its step for keys, and each token for values.")


def wrong_rounding(was: Array, got: Array, bits: int, axis: int, names: str) -> str | None:
    """Find the first vector along `axis` that was not rounded by a step of its own.

    Args:
        was, got: (L, B, G, groups, group, D).
        names: what such a vector holds.
    """
    most = widest_step(was, bits, axis)
    largest = np.abs(was).max(axis=axis, keepdims=True)
    error = np.abs(got.astype(float) - was)
    bad = np.argwhere(~(error <= most / 2 + rounding_of(largest)))
    if len(bad):
        at = tuple(bad[0].tolist())
        step = np.broadcast_to(most, was.shape)[at]
        return (
            f"layer {at[0]}, batch row {at[1]}, KV head {at[2]}, group {at[3]}: {was[at]:.4g} (token "
            f"{at[4]} of the group, channel {at[5]}) came back as {got[at]:.4g}, off by "
            f"{error[at] / step:.3g} of the widest step that {names} in this group need. Which numbers "
            f"shared a step with it?"
        )
    lines = np.moveaxis(got, axis, -1).reshape(-1, got.shape[axis])
    most_levels = max(len(np.unique(line)) for line in lines)
    if most_levels > 2**bits:
        return f"{names} came back with {most_levels} different numbers in a group; how can they?"
    return None


keys_by_channel_values_by_token = Check(
    "keys_by_channel_values_by_token",
    ("QuantizedKVCache",),
    draw_outliers,
    probe_outliers,
    judge_outliers,
    evidence=evidence_of_outliers,
)
