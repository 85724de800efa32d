"""Check the cache of rows as a container: what goes in comes back, a full one refuses, it goes back.

What rows have to look like is asked where they come back. A full cache, and one that went back, must
return what a new one returns that is fed the same tokens at once, however its rows look; and something
of every token.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks import cache_operations
from course.checks.cache_contract import Axes, in_words, wrong_long, wrong_series
from course.checks.cache_operations import (
    LONG_FORM,
    PLACES,
    Handling,
    Operation,
    append_to_long,
    draw_operations,
    draw_returns,
    follow,
    list_series,
    run_series,
    series_form,
    with_the_same_at_once,
)
from course.checks.caches import feed_parts
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words as kind_in_words
from course.checks.recorder import given
from course.model.config import GPTConfig

RANK, ROPE = 5, 4


def draw_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw the rows of n tokens, (L, B, n, rank + R)."""
    return rng.normal(size=(3, 2, n, RANK + ROPE)).astype(np.float32)


def handle(student: SimpleNamespace, series: Challenge) -> Handling:
    """Say how this lesson's cache is made and fed for rows (L, B, n, rank + R)."""
    rows, dtype = series["rows"], getattr(torch, series["dtype"])
    L, B = rows.shape[:2]
    config = GPTConfig(30, L, 24, 4, 4, 40, max_seq_len=8192)

    def make(places: int) -> Any:
        return student.LatentKVCache(config, B, places, RANK, ROPE, dtype=dtype)

    def parts(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents (L, B, T, rank) and keys (L, B, 1, T, R)."""
        block = rows[:, :, tokens]
        return given(block[..., :RANK], dtype), given(block[:, :, None, :, RANK:], dtype)

    feed = partial(feed_parts, names=("latents", "keys"), copied=_copied)
    return Handling(make, parts, _copied, feed)


def _copied(got: Any) -> np.ndarray | str:
    return got.detach().clone().numpy() if isinstance(got, torch.Tensor) else kind_in_words(got)


def _place(index: tuple[int, ...]) -> str:
    row, token, number = index
    part = f"{number} of the latent" if number < RANK else f"{number - RANK} of the key"
    return f"batch row {row}, token {token}, number {part}, rank {RANK}, R {ROPE}"


def _ask(got: np.ndarray, want: np.ndarray) -> str:
    if (np.concatenate([got[..., ROPE:], got[..., :ROPE]], axis=-1) == want).all():
        return "Both parts are there. In which order?"
    return ""


ROWS = Axes(("B", "S", "rank + R"), _place, _ask)

# --- what goes in comes back ----------------------------------------------------------------------


def long_rows(n: int) -> np.ndarray:
    """Count up the rows of one layer and two texts, (1, 2, S, rank + R): no two numbers are equal."""
    return np.arange(2 * n * (RANK + ROPE), dtype=np.float32).reshape(1, 2, n, RANK + ROPE)


def draw_blocks(seed: int) -> Challenge:
    """Draw blocks for two texts, and in the other dtype for one."""
    challenge = draw_returns(seed, draw_rows)
    series = challenge["series"][1]
    series["rows"] = series["rows"][:, :1]
    return challenge


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append block after block, in each dtype; then one token to each of two long texts."""
    n = challenge["long"]
    long = append_to_long(n, n + 7, handle(student, {"rows": long_rows(n), "dtype": "float32"}))
    return {**run_series(handle, student, challenge), **long}


@check(
    "LatentKVCache",
    draw=draw_blocks,
    probe=probe_returns,
    evidence=lambda challenge: {**series_form(challenge), **LONG_FORM},
)
def rows_come_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    n = challenge["long"]
    wrong = wrong_series(challenge, evidence, ROWS)
    if wrong := wrong or wrong_long(n, n + 7, evidence, long_rows(n)[0]):
        return failed(wrong)
    return passed(
        f"Blocks of {challenge['split']} tokens come back as [latent | rotated key], in every layer, "
        f"uncopied."
    )


# --- full, and back -------------------------------------------------------------------------------


def feed_alone(cache: Any, parts: Iterable[torch.Tensor]) -> list[Any]:
    """Append the parts of a block to every layer and advance; return copies of what came back. Whether
    the parts stay as they are is asked where rows come back."""
    latents, keys = parts
    returned = [
        cache.append(layer, *rows) for layer, rows in enumerate(zip(latents, keys, strict=True))
    ]
    cache.advance(latents.shape[-2])
    return list(map(_copied, returned))


def probe_alone(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run every series, blocks fed by `feed_alone`."""
    return run_series(lambda *given: handle(*given)._replace(feed=feed_alone), student, challenge)


def lost_token(challenge: Challenge, evidence: Evidence) -> str | None:
    """Say of which token that is held no number came back in any layer. A cache that keeps nothing always
    returns the same."""
    for series, records in zip(challenge["series"], evidence["series"], strict=True):
        operations = series["operations"]
        for step, (expected, _, tokens) in enumerate(follow(operations)):
            name, number, _ = operations[step]
            if name != "feed" or number or expected != "returned":
                continue
            returned = [r.ravel() for r in records[step]["returned"] if isinstance(r, np.ndarray)]
            numbers = np.concatenate([np.zeros(0), *returned])
            for place, token in enumerate(tokens):
                if not np.isin(series["rows"][:, :, token], numbers).any():
                    done = in_words(operations[: step + 1], records, 0)
                    case = f"A cache of {operations[0][2]} places{done}"
                    return (
                        f"{case}: of token {place}, one of {len(tokens)} that are held, no number came "
                        f"back. What does append write, and what does it return?"
                    )
    return None


def draw_full(seed: int) -> Challenge:
    """Draw caches that are filled with blocks of which many do not fit; at first exactly full, and one
    more. A pass that ends after its first layer counts for nothing."""
    rng = np.random.default_rng(seed)
    blocks = ([*range(5)], [*range(5, 10)], [*range(6, 10)], [9])
    filled: list[Operation] = [("new", 0, PLACES), *(("feed", 0, tokens) for tokens in blocks)]
    filled.insert(3, ("start", 0, [1, 2]))
    drawn = draw_operations(rng, 28, ["feed"] * 6 + ["new"])
    return {"series": list_series(draw_rows(rng, 10), *map(with_the_same_at_once, (filled, drawn)))}


@check("LatentKVCache", draw=draw_full, probe=probe_alone, evidence=series_form)
def full_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    wrong = wrong_series(challenge, evidence, None) or lost_token(challenge, evidence)
    return (
        failed(wrong)
        if wrong
        else passed("It fills to the last place; a refused append changes nothing.")
    )


def draw_back(seed: int) -> Challenge:
    """Draw operations that go back and on again, and beside each block the same tokens at once."""
    challenge = cache_operations.draw_back(seed, draw_rows)
    challenge["series"][0]["operations"].insert(2, ("start", 0, [1, 2]))
    for series in challenge["series"]:
        series["operations"] = with_the_same_at_once(series["operations"])
    return challenge


@check("LatentKVCache", draw=draw_back, probe=probe_alone, evidence=series_form)
def can_go_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    wrong = wrong_series(challenge, evidence, None) or lost_token(challenge, evidence)
    praise = "truncate(n) keeps the first n tokens, reset() none, and both can be built on."
    return failed(wrong) if wrong else passed(praise)
