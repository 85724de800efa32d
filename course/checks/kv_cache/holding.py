"""Check the cache as a container: what goes in comes back, a full one refuses, it can go back.

So do the rows of a cache that grows by `torch.cat`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, takewhile
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.cache_contract import Axes, wrong_long, wrong_series
from course.checks.cache_operations import (
    LONG_FORM,
    PLACES,
    Handling,
    Operation,
    append_to_long,
    draw_back,
    draw_operations,
    draw_returns,
    list_series,
    run_series,
    series_form,
)
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.model.config import GPTConfig


def draw_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw keys and values of n tokens, (L, 2, B, G, n, D)."""
    return rng.normal(size=(3, 2, 3, 2, n, 6)).astype(np.float32)


def handle(student: SimpleNamespace, series: Challenge, grows: bool = False) -> Handling:
    """Say how this lesson's caches are made and fed for rows (L, 2, B, G, n, D)."""
    rows, dtype = series["rows"], getattr(torch, series["dtype"])
    L, _, B, G, _, D = rows.shape
    config = GPTConfig(30, L, 2 * G * D, 2 * G, G, 40, max_seq_len=8192)

    def make(places: int | None) -> object:
        if grows:
            return student.GrowingKVCache(config, batch=B, dtype=dtype)
        return student.KVCache(config, batch=B, max_len=places, dtype=dtype)

    return Handling(make, lambda tokens: given(rows[..., tokens, :].swapaxes(0, 1), dtype))


def _place(index: tuple[int, ...]) -> str:
    kind, row, head, token, _ = index
    return f"batch row {row}, KV head {head}, token {token} of the {('keys', 'values')[kind]}"


def _ask(got: np.ndarray, want: np.ndarray) -> str:
    if (got[0] == want[1]).all():
        return "These are the values where keys should be. Which line stores or returns the keys?"
    if (got[1] == want[0]).all():
        return "These are the keys where values should be. Which line stores or returns the values?"
    return ""


KEYS_AND_VALUES = Axes(("B", "G", "S", "D"), _place, _ask)

# --- what goes in comes back ----------------------------------------------------------------------


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append block after block, of each dtype; then a long text to a cache of more places, so that what
    is held is a part of the storage."""
    n = challenge["long"]
    long = append_to_long(n, n + 9, handle(student, {"rows": long_rows(n), "dtype": "float32"}))
    return {**run_series(handle, student, challenge), **long}


def long_rows(n: int) -> np.ndarray:
    """Count up keys and values of one layer and row, (1, 2, 1, 2, S, 8): no two are equal."""
    keys = np.arange(16 * n, dtype=np.float32).reshape(1, 1, 2, n, 8)
    return np.stack([keys, -keys - 1], axis=1)


@check(
    "KVCache",
    draw=partial(draw_returns, draw_rows=draw_rows),
    probe=probe_returns,
    evidence=lambda challenge: {**series_form(challenge), **LONG_FORM},
)
def cache_returns_what_it_was_given(challenge: Challenge, evidence: Evidence) -> Verdict:
    n = challenge["long"]
    wrong = wrong_series(challenge, evidence, KEYS_AND_VALUES)
    if wrong := wrong or wrong_long(n, n + 9, evidence, long_rows(n)[0]):
        return failed(wrong)
    return passed(
        f"Blocks of {challenge['split']} tokens come back whole and in order, in every layer, and no "
        f"older row is copied."
    )


@check(
    "GrowingKVCache",
    draw=partial(draw_returns, draw_rows=draw_rows, places=None),
    probe=partial(run_series, partial(handle, grows=True)),
    evidence=series_form,
)
def growing_cache_returns_everything(challenge: Challenge, evidence: Evidence) -> Verdict:
    if wrong := wrong_series(challenge, evidence, KEYS_AND_VALUES, "A cache that grows"):
        return failed(wrong)
    split = challenge["split"]
    return passed(f"Blocks of {split} tokens come back whole and in order, in every layer.")


# --- full, and back -------------------------------------------------------------------------------


def draw_full(seed: int) -> Challenge:
    """Draw a cache that is filled to its last place; one in which a token is pending when another
    block is refused, and is never advanced; operations of which many do not fit; a block of which not
    all tokens count; and the smallest cache, of one place for one row."""
    rng = np.random.default_rng(seed)
    rows = draw_rows(rng, 10)
    nearly: list[Operation] = [("new", 0, PLACES), ("feed", 0, [*range(7)])]
    too_many, one_more = [7, 8, 9], ("feed", 0, [5])
    filled = [*nearly, ("feed", 0, too_many), ("feed", 0, [7, 8]), one_more]
    filled += [("truncate", 0, 8), ("feed", 0, [9]), one_more]
    begun = [*nearly, ("append", 0, [5]), ("start", 0, too_many), ("feed", 0, [7, 8])]
    drawn = draw_operations(rng, 32, ["feed"] * 4 + ["truncate"] * 2)
    smallest: list[Operation] = [("new", 0, 1), ("feed", 0, [0]), ("feed", 0, [1])]
    fewer = [*nearly[:1], ("append", 0, [0, 1, 2]), ("advance", 0, 2), ("feed", 0, [3, 4])]
    series = list_series(rows, filled, begun, drawn, fewer) + list_series(rows[:, :, :1], smallest)
    return {"series": series}


@check("KVCache", draw=draw_full, probe=partial(run_series, handle), evidence=series_form)
def full_cache_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    wrong = wrong_series(challenge, evidence, KEYS_AND_VALUES)
    praise = "A full cache refuses with CacheFull and holds exactly what it held."
    return failed(wrong) if wrong else passed(praise)


def draw_going_back(seed: int) -> Challenge:
    """Draw caches that go back, of float32, and one of float64 that goes back to nothing."""
    challenge = draw_back(seed, draw_rows=draw_rows)
    operations = [
        ("new", 0, PLACES),
        ("feed", 0, [0, 1, 2]),
        ("reset", 0, None),
        ("feed", 0, [3, 4]),
    ]
    wide = {**challenge["series"][0], "operations": operations, "dtype": "float64"}
    return {**challenge, "series": [*challenge["series"], wide]}


def begins_wide(series: Challenge, records: list[Evidence]) -> bool:
    """Tell whether all that is returned before the first reset is float64, as it was given."""
    steps = zip(series["operations"], records, strict=True)
    before = takewhile(lambda step: step[0][0] != "reset", steps)
    returned = chain.from_iterable(record["returned"] for _, record in before)
    return all(getattr(rows, "dtype", np.float64) == np.float64 for rows in returned)


@check(
    "KVCache",
    draw=draw_going_back,
    probe=partial(run_series, handle),
    evidence=series_form,
)
def cache_can_go_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    # Who returns float32 before anything is reset is told so by cache_returns_what_it_was_given.
    pairs = zip(challenge["series"], evidence["series"], strict=True)
    asked = [pair for pair in pairs if pair[0]["dtype"] == "float32" or begins_wide(*pair)]
    series, records = ([pair[n] for pair in asked] for n in (0, 1))
    wrong = wrong_series({**challenge, "series": series}, {"series": records}, KEYS_AND_VALUES)
    keep = challenge["keep"]
    praise = f"truncate({keep}) keeps {keep} tokens, reset() none, and both can be built on."
    return failed(wrong) if wrong else passed(praise)
