"""Check the rows that a cache with a window holds: which they are, and that each is what was given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import feed
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.recorder import given
from course.model.config import GPTConfig

CONFIG = GPTConfig(30, 2, 24, 4, 2, 40, max_seq_len=512)  # L = 2, G = 2, D = 6
READ = {"numbers": np.ndarray, "returned": [np.ndarray] * CONFIG.n_layers, "length": int}
"""The form of one read: what `places` said, what each layer returned, (2, B, G, R, D), and len before."""


def draw_rows(
    rng: np.random.Generator, n_tokens: int, batch: int = 3, dtype: str = "float32"
) -> np.ndarray:
    """Draw keys and values that come from no token, (2, L, B, G, n, D)."""
    shape = (2, CONFIG.n_layers, batch, CONFIG.n_kv_heads, n_tokens, CONFIG.head_dim)
    return rng.normal(size=shape).astype(dtype)


def new_cache(student: SimpleNamespace, case: Challenge, max_len: int) -> Any:
    """Make the student's cache of a case's window and sinks, for the batch and dtype of its rows."""
    options = {"n_sinks": case["n_sinks"]} if case["n_sinks"] else {}
    if case["rows"].dtype != np.float32:
        options["dtype"] = getattr(torch, case["rows"].dtype.name)
    return student.WindowedKVCache(
        CONFIG, case["rows"].shape[2], max_len, case["window"], **options
    )


def read(cache: Any, rows: np.ndarray) -> Evidence:
    """Feed a block of rows, and note what came back, with the numbers that `places` gave before."""
    length, T = len(cache), rows.shape[4]
    numbers = np.asarray(cache.places(T))
    returned = feed(cache, rows, getattr(torch, rows.dtype.name))
    return {"numbers": numbers, "returned": returned, "length": length}


def wrong_read(case: Challenge, seen: Evidence, held: list[int], T: int) -> str | None:
    """Say what is wrong with one read.

    Args:
        seen: what `read` noted.
        held: which of the case's rows is each token of the text so far, and of the T new ones behind.
        T: new tokens.
    """
    rows, numbers, n = case["rows"], seen["numbers"], len(held) - T
    if seen["length"] != n:
        return f"{n} tokens were fed and len(cache) is {seen['length']}. Where does the next one stand?"
    if wrong := _wrong_numbers(case, numbers, n, T):
        return wrong
    wanted = rows[..., [held[i] for i in numbers], :]  # (2, L, B, G, R, D)
    for layer, got in enumerate(seen["returned"]):
        want = wanted[:, layer]
        if got.shape != want.shape:
            return (
                f"layer {layer} returned keys and values of shape {got.shape[1:]}, and places names "
                f"{len(numbers)} tokens: {want.shape[1:]}. Do both tell of the same rows?"
            )
        if got.dtype != want.dtype:
            return f"layer {layer} returned {got.dtype} from a {want.dtype} cache."
        for kind, _, _, r, _ in np.argwhere(got != want)[:1]:
            token, name = int(numbers[r]), ("keys", "values")[kind]
            return f"layer {layer} returned other {name} for token {token} than were stored. " + (
                _whose(case, got[kind, :, :, r], rows[kind], held, layer)
            )
    return None


def _wrong_numbers(case: Challenge, numbers: np.ndarray, n: int, T: int) -> str | None:
    """Say what is wrong with the numbers of the rows that came back: n tokens are held, T are new."""
    window, n_sinks = case["window"], case["n_sinks"]
    if numbers.ndim != 1 or numbers.dtype != np.int64:
        return f"places({T}) is {numbers.dtype} of shape {numbers.shape}, wanted is int64 (R,)."
    new, old = numbers[len(numbers) - T :].tolist(), numbers[: len(numbers) - T].tolist()
    said = f"places({T}) says {_in_words(numbers)}"
    if new != list(range(n, n + T)):
        return (
            f"{said}. The last must be the new ones, {n} … {n + T - 1}. Where do positions go on?"
        )
    if any(not 0 <= token < n for token in old):
        return f"{said}, where tokens 0 … {n - 1} were fed. Which places has nobody written to?"
    if len(set(old)) < len(old):
        return f"{said}: a token stands there twice."
    needed = [t for t in range(n) if t < n_sinks or t > n - window]
    gone = [token for token in needed if token not in old]
    if gone:
        what = "a sink" if gone[0] < n_sinks else "in its window"
        return (
            f"{said}. Token {gone[0]} is missing, and for token {n} it is {what}. "
            f"Who overwrote it, or was it never stored?"
        )
    return None


def _in_words(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:16].tolist()))
    return f"[{shown}{', …' if len(numbers) > 16 else ''}]"


def _whose(case: Challenge, got: np.ndarray, rows: np.ndarray, held: list[int], layer: int) -> str:
    """Ask a question by whose rows these are.

    Args:
        got: (B, G, D).
        rows: keys or values, (L, B, G, n, D).
    """
    for token, row in enumerate(held):
        if np.array_equal(got, rows[layer, :, :, row]):
            return f"They are those of token {token}. Which numbers belong to which rows?"
        if np.array_equal(got, -rows[layer, :, :, row]):
            return "Another cache was given those. What do two caches share?"
        if any(np.array_equal(got, other[:, :, row]) for other in rows):
            return "They are those of another layer."
    if not got.any():
        return "They are zeros. Were they written?"
    return "Into which place is a row written, and when?"


# --- one token after another ---------------------------------------------------------------------


def draw_ring(seed: int) -> Challenge:
    """Draw windows with sinks and without, one larger than the text, one of a single token; each with a
    first block that fits the window, and then single tokens for more than two rounds."""
    rng = np.random.default_rng(seed)
    cases = []
    for window, n_sinks, batch, dtype in (
        (int(rng.integers(3, 6)), 0, 3, "float32"),
        (int(rng.integers(2, 6)), int(rng.integers(1, 4)), 2, "float64"),
        (1, 2, 1, "float32"),
        (40, 1, 2, "float32"),
    ):
        n = 2 * window + n_sinks + 5 if window < 40 else 9
        rows = draw_rows(rng, n, batch, dtype)
        first = int(rng.integers(1, min(window, 5) + 1))
        cases.append({"window": window, "n_sinks": n_sinks, "rows": rows, "first": first})
    return {"cases": cases}


def probe_ring(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed each case's rows to one cache and, in turns, their negatives to another, which is one token
    ahead."""
    return {"reads": [_feed_in_turns(student, case) for case in challenge["cases"]]}


def _feed_in_turns(student: SimpleNamespace, case: Challenge) -> list[Evidence]:
    n, dtype = case["rows"].shape[4], getattr(torch, case["rows"].dtype.name)
    cache, other, reads = new_cache(student, case, n), new_cache(student, case, n + 1), []
    feed(other, -case["rows"][..., :1, :], dtype)
    for start, end in blocks_of(case):
        block = case["rows"][..., start:end, :]
        reads.append(read(cache, block))
        feed(other, -block, dtype)
    return reads


def blocks_of(case: Challenge) -> list[tuple[int, int]]:
    """List where the blocks of a case begin and end: its first one, then token by token."""
    n, first = case["rows"].shape[4], case["first"]
    return [(0, first), *((i, i + 1) for i in range(first, n))]


def ring_form(challenge: Challenge) -> Evidence:
    return {"reads": [[READ] * len(blocks_of(case)) for case in challenge["cases"]]}


@check("WindowedKVCache", draw=draw_ring, probe=probe_ring, evidence=ring_form)
def gone_is_gone_kept_is_kept(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Every row that comes back is the one of its number, and none that is needed is missing."""
    for case, reads in zip(challenge["cases"], evidence["reads"], strict=True):
        for (start, end), seen in zip(blocks_of(case), reads, strict=True):
            if wrong := wrong_read(case, seen, list(range(end)), end - start):
                fed = f"after a block of {case['first']} and single tokens, {start} in all"
                return failed(f"{describe(case)}, {fed}: {wrong}")
    return passed("Sinks and the last tokens come back as they were stored, round after round.")


def describe(case: Challenge) -> str:
    """Say the sizes of a case."""
    return f"Window {case['window']}, {case['n_sinks']} sinks"


# --- append without advance ----------------------------------------------------------------------


def draw_unfinished(seed: int) -> Challenge:
    """Draw a ring that is full, and blocks of which some are never advanced."""
    rng = np.random.default_rng(seed)
    window, n_sinks = int(rng.integers(3, 6)), int(rng.integers(0, 3))
    n = n_sinks + window + int(rng.integers(1, 3))
    return {"window": window, "n_sinks": n_sinks, "rows": draw_rows(rng, n + 6), "held": n}


def probe_unfinished(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed single tokens; append three tokens that are never advanced, once to all layers and once to the
    first alone; then feed two others, and after them one more."""
    rows, n = challenge["rows"], challenge["held"]
    cache = new_cache(student, challenge, n + 9)
    for i in range(n):
        feed(cache, rows[..., i : i + 1, :])
    k, v = given(rows[..., n : n + 3, :])
    first = [cache.append(layer, k[layer], v[layer]) for layer in range(len(k))]
    before = [torch.stack(pair).clone() for pair in first]
    length = len(cache)
    outcome(lambda: cache.append(0, k[0] + 1, v[0] + 1))
    second = read(cache, rows[..., n + 3 : n + 5, :])
    moved = not all(torch.equal(torch.stack(p), b) for p, b in zip(first, before, strict=True))
    third = read(cache, rows[..., n + 5 :, :])
    return {"length": length, "moved": moved, "second": second, "third": third}


@check(
    "WindowedKVCache",
    draw=draw_unfinished,
    probe=probe_unfinished,
    evidence=lambda challenge: {"length": int, "moved": bool, "second": READ, "third": READ},
)
def append_alone_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    """What was appended and never advanced leaves no trace."""
    n = challenge["held"]
    case = f"{describe(challenge)}, {n} tokens held; 3 more are appended, and never advanced"
    if evidence["length"] != n:
        return failed(f"{case}: len(cache) is {evidence['length']}. Which method counts?")
    held = [*range(n), n + 3, n + 4]
    if wrong := wrong_read(challenge, evidence["second"], held, 2):
        return failed(f"{case}. Then 2 others come: {wrong}")
    if evidence["moved"]:
        return failed(
            f"{case}. Then 2 others come, and the rows that append returned before are others now. "
            f"In whose memory does a result lie?"
        )
    if wrong := wrong_read(challenge, evidence["third"], [*held, n + 5], 1):
        return failed(f"{case}. Then 2 others come, and 1 more: {wrong}")
    return passed("What is appended and never advanced leaves no trace.")
