"""Check which tokens of a quantized cache are codes, and along which axis they were rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.kv_cache.container import feed
from course.checks.quantized_cache.reading import (
    ENDING,
    LAYERS,
    Array,
    Coded,
    describe,
    describe_refusal,
    draw_rows,
    dtype_of,
    join_layers,
    new_cache,
    run_until_refused,
    wrong_read,
)
from course.checks.quantized_cache.rounding import rounding_of, widest_step
from course.checks.recorder import given


def draw_groups(seed: int) -> Challenge:
    """Draw caches with groups and windows that fit into each other and that do not, of one text or more,
    in each dtype; each with a prompt that ends just where a group is complete, or one token earlier, and
    more blocks. And a cache by default, and one whose text is shorter than a group."""
    rng = np.random.default_rng(seed)
    cases = []
    for group, window, batch, dtype in (
        (4, 4, 3, "float32"),
        (5, 3, 1, "float16"),
        (3, 0, 3, "float64"),
        (1, 2, 2, "float32"),
    ):
        first = window + int(rng.integers(1, 4)) * group - len(cases) % 2 * (group > 1)
        split = [first, group, 2 * group, 1]
        size = 0.25 if dtype == "float16" else 1  # so that reads in all styles are near each other
        rows = (size * draw_rows(rng, sum(split), batch=batch)).astype(dtype)
        cases.append({"bits": 8, "group": group, "window": window, "split": split, "rows": rows})
    for group, window, split in ((64, 32, [150, 1, 64]), (90, 3, [20, 1])):
        split[0] += int(rng.integers(0, 9))
        rows = draw_rows(rng, sum(split), batch=1) / np.float32(1000)
        case = {"bits": 8, "group": group, "window": window, "split": split, "rows": rows}
        cases.append({**case, "by default": group == 64})
    return {"cases": cases}


def feed_side_by_side(caches: list[Any], block: Array) -> tuple[list[Array], bool]:
    """Feed a block (2, L, B, G, T, D) to the first cache, and layer by layer between that its negative to
    the others.

    Returns:
        What each layer of the first gave back, and whether the block is as it was.
    """
    blocks = [given(block if number == 0 else -block) for number in range(len(caches))]
    returned = []
    for layer in range(block.shape[1]):
        for number, cache in enumerate(caches):
            k, v = blocks[number][:, layer]
            pair = cache.append(layer, k, v)
            if number == 0:
                returned.append(torch.stack([part.detach().clone() for part in pair]).numpy())
    for cache in caches:
        cache.advance(block.shape[4])
    return returned, bool((blocks[0].numpy() == block).all())


def probe_groups(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count no tokens, then feed each case block by block, up to the first block that is refused; the
    first case with a second cache beside it."""
    results = []
    for number, case in enumerate(challenge["cases"]):
        beside = 2 if number == 0 else 1
        caches = [new_cache(student, case, sum(case["split"])) for _ in range(beside)]
        none = outcome(lambda caches=caches: caches[0].advance(0))
        before = len(caches[0])
        fed, ending = run_until_refused(steps_of(caches, case))
        lengths = [before, *(length for *_, length in fed)]
        reads, kept = [read for read, _, _ in fed], [same for _, same, _ in fed]
        results.append({"none": none, "reads": reads, "kept": kept, "lengths": lengths, **ending})
    return {"results": results}


def steps_of(caches: list[Any], case: Challenge) -> Iterator[Callable[[], Any]]:
    """Make the steps that feed a case; each returns what came back, whether the block is as it was, and
    the first cache's length then."""
    done = 0
    for n in case["split"]:
        block = case["rows"][..., done : done + n, :]
        yield lambda block=block: (*feed_side_by_side(caches, block), len(caches[0]))
        done += n


def evidence_of_groups(challenge: Challenge) -> Any:
    """The form of what `probe_groups` records."""
    each = {"reads": Each(LAYERS), "kept": Each(bool), "lengths": Each(int)}
    return {"results": [{"none": str, **each, **ENDING}] * len(challenge["cases"])}


@check("QuantizedKVCache", draw=draw_groups, probe=probe_groups, evidence=evidence_of_groups)
def groups_and_a_window(challenge: Challenge, evidence: Evidence, truth: Coded) -> Verdict:
    """Complete groups come back rounded, all other tokens exactly, after every block."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        if problem := wrong_counts(case, result):
            return failed(f"{describe(case)}{problem}")
        split, done = case["split"], 0
        if len(result["kept"]) != len(split) or not all(result["kept"]):
            return failed(
                f"{describe(case)}: append changed the keys or values that it was given; the forward "
                f"pass still needs them. Which of your lines writes into them?"
            )
        for call, (n, layers) in enumerate(zip(split, result["reads"], strict=True)):
            rows = case["rows"][..., : done + n, :]
            problem = wrong_read(case, rows, layers, truth(case["group"], case["window"], done))
            if problem:
                fed = f"after blocks of {split[:call]} appending {n}" if call else f"appending {n}"
                return failed(f"{describe(case)}, {fed}: {problem}")
            done += n
    return passed("Complete groups come back rounded, the window and what is new exactly.")


def wrong_counts(case: Challenge, result: Evidence) -> str | None:
    """Say which block was refused, or what was counted wrong, if anything."""
    split = case["split"]
    if result["none"] != "returned":
        return (
            f", advance(0) on a new cache: {result['none']}. To count no tokens is allowed, and there "
            f"is nothing to do. What do you read that nobody appended?"
        )
    if len(result["reads"]) < len(split):
        return (
            f", a cache of {sum(split)} places and blocks of {split}: block "
            f"{len(result['reads']) + 1} was refused. {describe_refusal(result)}"
        )
    if result["lengths"] != [sum(split[:i]) for i in range(len(split) + 1)]:
        return (
            f", blocks of {split}: len(cache) went {result['lengths']}. Which method counts, and how "
            f"often is it called?"
        )
    return None


def draw_outliers(seed: int) -> Challenge:
    """Draw caches of 2, 4 and 8 bits; channels, groups and tokens differ in size by powers of ten."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, window, dtype in (
        (2, 7, 1, "float32"),
        (4, 6, 2, "float64"),
        (8, 1, 1, "float32"),
        (8, 5, 3, "float32"),
    ):
        groups = 3 if group > 1 else 6
        case = {"bits": bits, "group": group, "window": window, "groups": groups}
        rows = draw_rows(rng, groups * group + window + 1, spread=1.5).astype(dtype)
        cases.append({**case, "rows": rows})
    return {"cases": cases}


def probe_outliers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed everything but the last token in one block; then that one, to read what is kept."""
    reads = []
    for case in challenge["cases"]:
        rows, dtype = case["rows"], dtype_of(case["rows"])
        cache = new_cache(student, case, rows.shape[4])
        feed(cache, rows[..., :-1, :], dtype)
        reads.append(feed(cache, rows[..., -1:, :], dtype))
    return {"reads": reads}


def evidence_of_outliers(challenge: Challenge) -> Any:
    """The form of what `probe_outliers` records."""
    return {"reads": [LAYERS] * len(challenge["cases"])}


@check("QuantizedKVCache", draw=draw_outliers, probe=probe_outliers, evidence=evidence_of_outliers)
def keys_by_channel_values_by_token(challenge: Challenge, evidence: Evidence) -> Verdict:
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
    smallest = torch.finfo(dtype_of(was)).tiny
    most = np.maximum(widest_step(was, bits, axis, was.dtype.name), smallest)
    largest = np.abs(was).max(axis=axis, keepdims=True)
    error = np.abs(got.astype(float) - was)
    bad = np.argwhere(~(error <= most / 2 + rounding_of(largest, was.dtype.name)))
    if len(bad):
        at = tuple(bad[0].tolist())
        step = np.broadcast_to(most, was.shape)[at]
        return (
            f"layer {at[0]}, batch row {at[1]}, KV head {at[2]}, group {at[3]}: {was[at]:.4g} (token "
            f"{at[4]} of the group, channel {at[5]}) came back as {got[at]:.4g}, off by "
            f"{error[at] / step:.3g} of the widest step that {names} in this group need. "
            f"{ask_about_steps(bad, was, bits)}"
        )
    lines = np.sort(np.moveaxis(got, axis, -1), axis=-1)
    levels = int(((lines[..., 1:] != lines[..., :-1]).sum(axis=-1) + 1).max())
    if levels > 2**bits:
        return f"{names} came back with {levels} different numbers in a group; how can they?"
    return None


def ask_about_steps(bad: Array, was: Array, bits: int) -> str:
    """Ask whose step the wrong numbers have.

    Args:
        bad: places (L, B, G, groups, group, D) of all that are wrong.
    """
    rows, groups = set(bad[:, 1].tolist()), set(bad[:, 3].tolist())
    if rows == set(range(1, was.shape[1])):
        return "In batch row 0 every number is right. Which rows shared a step?"
    if len(groups) < was.shape[3]:
        return f"Groups {sorted(groups)} are wrong, the others right. Which groups shared a step?"
    return "Which numbers shared a step with it? (Do the checks of sections 1 and 2 pass?)"
