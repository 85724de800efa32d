"""Check which tokens of a quantized cache are codes, and along which axis they were rounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import feed
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.quantized_cache.reading import (
    FED,
    KEPT,
    LAYERS,
    Array,
    Coded,
    count_kept,
    describe,
    draw_rows,
    dtype_of,
    feed_split,
    join_layers,
    new_cache,
    wrong_feeding,
    wrong_kept,
    wrong_read,
)
from course.checks.quantized_cache.rounding import rounding_of, widest_step
from course.checks.recording import first_place


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


class Pair:
    """Two caches side by side: what the first is fed, the second gets with the other sign."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first)

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> Any:
        returned = self.first.append(layer, k, v)
        self.second.append(layer, -k, -v)
        return returned

    def advance(self, n: int) -> None:
        self.first.advance(n)
        self.second.advance(n)


def probe_groups(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count no tokens, then feed each case block by block, the first with a second cache beside; count
    what is kept of a text."""
    results = []
    for number, case in enumerate(challenge["cases"]):
        cache, beside = (new_cache(student, case, sum(case["split"])) for _ in range(2))
        none = outcome(lambda cache=cache: cache.advance(0))
        pair = cache if number else Pair(cache, beside)
        results.append({"none": none, **feed_split(pair, case["rows"], case["split"])})
    return {"cases": results, "kept": count_kept(student)}


def groups_form(challenge: Challenge) -> Evidence:
    return {"cases": [{"none": str, **FED}] * len(challenge["cases"]), "kept": KEPT}


@check("QuantizedKVCache", draw=draw_groups, probe=probe_groups, evidence=groups_form)
def groups_and_a_window(challenge: Challenge, evidence: Evidence, truth: Coded) -> Verdict:
    """Complete groups come back rounded, all other tokens exactly, after every block; and a cache that
    keeps all tokens as they came has no groups."""
    for case, result in zip(challenge["cases"], evidence["cases"], strict=True):
        if result["none"] != "returned":
            return failed(
                f"{describe(case)}, advance(0) on a new cache: {result['none']}. To count no tokens is "
                f"allowed, and there is nothing to do. What do you read that nobody appended?"
            )
        if wrong := wrong_feeding(case, case["split"], result):
            return failed(wrong)
        done, fed = 0, ""
        for n, layers in zip(case["split"], result["reads"], strict=True):
            rows, coded = (
                case["rows"][..., : done + n, :],
                truth(case["group"], case["window"], done),
            )
            if wrong := wrong_read(case, rows, layers, coded):
                return failed(f"{describe(case)},{fed} appending {n}: {wrong}")
            done, fed = done + n, f" with {done + n} tokens held,"
    if wrong := wrong_kept(evidence["kept"]):
        return failed(wrong)
    return passed("Complete groups come back rounded, the window and what is new exactly.")


def draw_outliers(seed: int) -> Challenge:
    """Draw caches of 2, 4 and 8 bits; channels, groups and tokens differ in size by powers of ten."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, window, dtype, groups in (
        (2, 7, 1, "float32", 3),
        (4, 6, 2, "float64", 3),
        (8, 1, 1, "float32", 6),
        (8, 5, 3, "float32", 3),
    ):
        rows = draw_rows(rng, groups * group + window + 1, spread=1.5).astype(dtype)
        sizes = {"bits": bits, "group": group, "window": window, "groups": groups}
        cases.append({**sizes, "rows": rows})
    return {"cases": cases}


def probe_outliers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed everything but the last token in one block; then that one, to read what is kept. Count what is
    kept of a text."""
    reads = []
    for case in challenge["cases"]:
        rows, dtype = case["rows"], dtype_of(case["rows"])
        cache = new_cache(student, case, rows.shape[4])
        feed(cache, rows[..., :-1, :], dtype)
        reads.append(feed(cache, rows[..., -1:, :], dtype))
    return {"reads": reads, "kept": count_kept(student)}


def outliers_form(challenge: Challenge) -> Evidence:
    return {"reads": [LAYERS] * len(challenge["cases"]), "kept": KEPT}


@check("QuantizedKVCache", draw=draw_outliers, probe=probe_outliers, evidence=outliers_form)
def keys_by_channel_values_by_token(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Keys were rounded along the tokens of a group, values along the channels."""
    for case, layers in zip(challenge["cases"], evidence["reads"], strict=True):
        rows, sizes = case["rows"], (case["groups"], case["group"])
        if wrong := wrong_read(case, rows, layers, n := np.prod(sizes)):
            return failed(f"{describe(case)}: {wrong} (Does groups_and_a_window pass?)")
        was, got = (
            part[..., :n, :].reshape(*rows.shape[:4], *sizes, -1)
            for part in (rows, join_layers(layers))
        )  # (2, L, B, G, groups, group, D) each
        for kind, axis, names in ((0, -2, "a channel's keys"), (1, -1, "a token's values")):
            if wrong := wrong_rounding(was[kind], got[kind], case["bits"], axis, names):
                return failed(f"{describe(case)}: {wrong}")
    if wrong := wrong_kept(evidence["kept"]):
        return failed(wrong)
    return passed("Each channel of a group has its step for keys, and each token for values.")


def wrong_rounding(was: Array, got: Array, bits: int, axis: int, names: str) -> str | None:
    """Find the first vector along `axis` that was not rounded by a step of its own.

    Args:
        was, got: (L, B, G, groups, group, D).
        names: what such a vector holds.
    """
    widest = widest_step(was, bits, axis, was.dtype.name)
    rounding = rounding_of(np.abs(was).max(axis=axis, keepdims=True), was.dtype.name)
    error = np.abs(got.astype(float) - was)
    bad = ~(error <= widest / 2 + rounding)
    if at := first_place(bad):
        layer, row, head, group, token, channel = at
        step = np.broadcast_to(widest, was.shape)[at]
        return (
            f"layer {layer}, batch row {row}, KV head {head}, group {group}: {was[at]:.4g} (token "
            f"{token} of the group, channel {channel}) came back as {got[at]:.4g}, off by "
            f"{error[at] / step:.3g} of the widest step that {names} in this group need. "
            f"{_ask_about_steps(bad)}"
        )
    lines = np.sort(got, axis=axis)
    levels = 1 + (np.diff(lines, axis=axis) != 0).sum(axis=axis).max()
    if levels > 2**bits:
        return f"{names} came back with {levels} different numbers in a group; how can they?"
    return None


def _ask_about_steps(bad: Array) -> str:
    """Ask whose step the wrong numbers (L, B, G, groups, group, D) have."""
    _, rows, _, groups, *_ = (sorted({*places.tolist()}) for places in np.nonzero(bad))
    if rows == list(range(1, bad.shape[1])):
        return "In batch row 0 every number is right. Which rows shared a step?"
    if len(groups) < bad.shape[3]:
        return f"Groups {groups} are wrong, the others right. Which groups shared a step?"
    return "If the checks of sections 1 and 2 pass: which numbers shared a step with it?"
