"""Check the bytes of rows: by formula, by the cache's own count, and as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import DTYPES
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.weighing import WEIGHT, dtype_name, weigh, wrong_bytes, wrong_weight
from course.model.cache import CacheFull
from course.model.config import GPTConfig


def draw_sizes(seed: int) -> Challenge:
    """Draw layers, rank, R, tokens, batch and bytes of a number: of caches small enough to allocate; and
    of a long one, one of no tokens and one of a byte a number, for the formula alone."""
    rng = np.random.default_rng(seed)
    cases = []
    for n_bytes in [*DTYPES.values(), 4]:
        rank, d_rope = int(rng.integers(7, 12)), 2 * int(rng.integers(1, 4))
        tokens, batch, layers = rng.integers((5, 2, 2), (40, 5, 6)).tolist()
        cases.append([layers, rank, d_rope, tokens, batch, n_bytes])
    cases[-1][3:5] = 1, 1
    layers, _, d_rope, *_, n_bytes = cases[0]
    long = [layers, 512, d_rope, int(rng.integers(5_000, 200_000)), 70, n_bytes]
    empty, codes = [*cases[1][:3], 0, *cases[1][4:]], [*cases[1][:5], 1]
    return {"cases": cases, "formula": [*cases, long, empty, codes]}


# --- by formula -----------------------------------------------------------------------------------


def probe_formula(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute the bytes of each case, and by default."""
    formula = [
        [plain(student.latent_cache_bytes(*sizes)) for sizes in (case, case[:4])]
        for case in challenge["formula"]
    ]
    return {"formula": formula}


def formula_form(challenge: Challenge) -> Evidence:
    return {"formula": [[NUMBER_OR_WORDS] * 2] * len(challenge["formula"])}


@check("latent_cache_bytes", draw=draw_sizes, probe=probe_formula, evidence=formula_form)
def bytes_of_rows(challenge: Challenge, evidence: Evidence, truth: Callable[..., int]) -> Verdict:
    """Compare the formula, and its defaults, with `truth`."""
    for case, results in zip(challenge["formula"], evidence["formula"], strict=True):
        for which, sizes, got in zip(("", " by default"), (case, case[:4]), results, strict=True):
            right, question = truth(*sizes), "Which size is missing, or too small?"
            if not isinstance(got, str) and got > right:
                question = "Which factor is one too many, or too large?"
            if wrong := wrong_bytes(got, right, question):
                return failed(f"{describe(*sizes)} latent_cache_bytes{which} {wrong}")
    return passed("Rows of all layers, tokens and texts are counted, byte for byte.")


# --- as they are stored ---------------------------------------------------------------------------


def probe_caches(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Weigh a cache of each case."""
    return {"cases": [weigh_cache(student, *case) for case in challenge["cases"]]}


def weigh_cache(
    student: SimpleNamespace, layers: int, rank: int, d_rope: int, T: int, B: int, n_bytes: int
) -> Evidence:
    """Make a cache, fill it in two blocks, and weigh it; see whether the first block comes back."""
    dtype = getattr(torch, dtype_name(n_bytes))
    config = GPTConfig(40, layers, 24, 4, 4, 64)
    make = partial(student.LatentKVCache, config, B, T, rank, d_rope, dtype=dtype)
    first, kept = 1 + rank / 64 + T / 8, []  # exact in float16

    def fill(cache: Any) -> None:
        for n, number in ((T - T // 3, first), (T // 3, 1.0))[: min(T, 2)]:
            for layer in range(layers):
                c, k_rope = torch.ones(B, n, rank), torch.ones(B, 1, n, d_rope)
                block = (c * number).to(dtype), (k_rope * number).to(dtype)
                try:
                    returned = cache.append(layer, *block)
                except CacheFull as error:
                    held = 0 if number == first else T - n
                    error.args = (f"{error} ({T} places, {held} held, {n} more for layer {layer})",)
                    raise
                if number != first:
                    kept.append(isinstance(returned, torch.Tensor) and first in returned)
            cache.advance(n)

    return {**weigh(make, fill), "kept": all(kept)}


def caches_form(challenge: Challenge) -> Evidence:
    return {"cases": [{**WEIGHT, "kept": bool}] * len(challenge["cases"])}


@check("LatentKVCache", draw=draw_sizes, probe=probe_caches, evidence=caches_form)
def bytes_match_the_rows(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., int]
) -> Verdict:
    """Compare what is stored, and what nbytes() says, with `truth`."""
    for case, weight in zip(challenge["cases"], evidence["cases"], strict=True):
        if wrong := wrong_weight(weight, truth(*case)):
            return failed(f"{describe(*case)} {wrong}")
        if not weight["kept"]:
            return failed(
                f"{describe(*case)} so many bytes are kept, and no number of the first block that was "
                f"appended comes back with the last. What does append write, and return?"
            )
    return passed("nbytes() and the rows really stored are what is needed, byte for byte.")


def describe(
    layers: int, rank: int, d_rope: int, tokens: int, batch: int = 1, n_bytes: int = 2
) -> str:
    """Say the sizes of a case; the defaults are those of latent_cache_bytes."""
    return (
        f"L={layers}, rank {rank}, R {d_rope}, {tokens:,} tokens, batch {batch}, "
        f"{dtype_name(n_bytes)}:"
    )
