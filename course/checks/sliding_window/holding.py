"""Check the rows that a cache with a window holds: which they are, and that each is what was given."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.cache_contract import NEARLY, ROUNDED, missing, wrong_operation
from course.checks.cache_operations import (
    Handling,
    Operation,
    follow,
    run,
    run_series,
    series_form,
)
from course.checks.caches import feed_parts, stored_numbers
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.model.config import GPTConfig

CONFIG = GPTConfig(30, 2, 24, 4, 2, 40, max_seq_len=512)  # L = 2, G = 2, D = 6


def draw_rows(
    rng: np.random.Generator, n_tokens: int, batch: int = 3, dtype: str = "float32"
) -> np.ndarray:
    """Draw keys and values that come from no token, (L, 2, B, G, n, D)."""
    shape = (CONFIG.n_layers, 2, batch, CONFIG.n_kv_heads, n_tokens, CONFIG.head_dim)
    return rng.normal(size=shape).astype(dtype)


def handle(student: SimpleNamespace, case: Challenge) -> Handling:
    """Say how this lesson's cache is made and fed for a case: its window, sinks and rows."""
    rows, options = case["rows"], {"n_sinks": case["n_sinks"]} if case["n_sinks"] else {}
    dtype = getattr(torch, rows.dtype.name)
    if rows.dtype != np.float32:
        options["dtype"] = dtype

    def make(max_len: int) -> Any:
        return student.WindowedKVCache(CONFIG, rows.shape[2], max_len, case["window"], **options)

    def feed(cache: Any, parts: Iterable[torch.Tensor]) -> list[np.ndarray]:
        """Ask for places before the rows that they are of; of a full cache nobody asks for any."""
        k, v = parts
        full = len(cache) >= case.get("max_len", CONFIG.max_seq_len)
        numbers = [] if full else [np.asarray(cache.places(k.shape[-2]))]
        return [*numbers, *feed_parts(cache, (k, v))]

    return Handling(make, lambda new: given(rows[..., new, :].swapaxes(0, 1), dtype), feed=feed)


def wrong_case(
    case: Challenge,
    operations: list[Operation],
    records: list[Evidence],
    any_order: bool = False,
    **more: Any,
) -> str | None:
    """Say which operation on the cache of a case came out wrong first.

    Args:
        any_order: the rows may come in another order than their numbers.
        more: see `wrong_operation`.
    """

    def wrong_rows(step: int, tokens: list[int]) -> str | None:
        (name, _, new), returned = operations[step], records[step]["returned"]
        if wrong := missing(returned, CONFIG.n_layers + (name == "feed")):
            return wrong
        if name == "feed":
            seen = in_order(case, returned, tokens) if any_order else returned
            return wrong_read(case, seen, tokens, len(new))
        expected = case["rows"][..., new, :]
        last = [rows[..., -len(new) :, :] for rows in returned]
        if not all(map(np.array_equal, last, expected)):
            return "what was appended is not the last that came back. Where is it written?"
        return None

    words = f"Window {case['window']}, {case['n_sinks']} sinks, max_len {operations[0][2]}"
    return wrong_operation(words, operations, records, wrong_rows, **more)


def wrong_read(case: Challenge, seen: list[np.ndarray], held: list[int], T: int) -> str | None:
    """Say what is wrong with one read.

    Args:
        seen: what `places` said before, and what each layer returned.
        held: which of the case's rows is each token of the text so far, the T new ones behind.
        T: new tokens.
    """
    rows, n, (numbers, *returned) = case["rows"], len(held) - T, seen
    if wrong := _wrong_numbers(case, numbers, n, T):
        return wrong
    expected = rows[..., [held[i] for i in numbers], :]  # (L, 2, B, G, R, D)
    for layer, (got, want) in enumerate(zip(returned, expected, strict=True)):
        if got.shape != want.shape:
            return (
                f"layer {layer} returned keys and values of shape {got.shape[1:]}, and places names "
                f"{len(numbers)} tokens: {want.shape[1:]}. Do both tell of the same rows?"
            )
        if got.dtype != want.dtype:
            return f"layer {layer} returned {got.dtype} from a {want.dtype} cache."
        for kind, _, _, r, _ in np.argwhere(got != want)[:1]:
            token, name = int(numbers[r]), ("keys", "values")[kind]
            agree = np.flatnonzero((got == want)[kind, :, :, r].all(axis=(1, 2)))
            if len(agree):
                return (
                    f"layer {layer} returned other {name} for token {token} than were stored, but those "
                    f"of batch row {agree[0]} agree. Where does each row of a batch lie?"
                )
            return f"layer {layer} returned other {name} for token {token} than were stored. " + (
                _whose(got[kind, :, :, r], rows, kind, held, token, layer)
            )
    return None


def came_in_another_order(
    case: Challenge, operations: list[Operation], records: list[Evidence]
) -> bool:
    """Tell whether the right rows came in another order than their numbers while tokens were only fed.
    That costs the question about the ring, and no other."""
    n = sum(1 for _ in takewhile(lambda one: one[0] in ("new", "feed"), operations))
    fed = (case, operations[:n], records[:n])
    return bool(wrong_case(*fed)) and not wrong_case(*fed, any_order=True)


def in_order(case: Challenge, seen: list[np.ndarray], held: list[int]) -> list[np.ndarray]:
    """Return what was seen of one read with the rows of each layer in the order of their numbers; a row
    that is not there leaves its place as it is. The arguments are those of `wrong_read`."""
    numbers, *returned = seen
    if numbers.dtype != np.int64 or not np.isin(numbers, range(len(held))).all():
        return seen
    wanted = case["rows"][..., [held[i] for i in numbers], :]  # (L, 2, B, G, R, D)
    ordered = []
    for got, want in zip(returned, wanted, strict=True):
        if got.shape == want.shape:
            same = (got[..., None, :, :] == want[..., :, None, :]).all(axis=(0, 1, 2, 5))
            got = got[..., [np.argmax(row) if row.any() else r for r, row in enumerate(same)], :]
        ordered.append(got)
    return [numbers, *ordered]


def wrong_text(stored: int, row: int, n: int, window: int, n_sinks: int) -> str | None:
    """Say that a cache keeps the rows of all n tokens of a text. Room that is never written to is asked
    elsewhere.

    Args:
        stored: floats other than 0 that the cache keeps.
        row: numbers of the keys and values of one token, in all layers.
    """
    most = min(n, n_sinks + window)
    if n == most or stored <= (n + most) / 2 * row:
        return None
    return (
        f"What came back is right, but after {n} tokens your cache keeps {stored:,} numbers, and the "
        f"keys and values of one token are {row:,}. Which rows can no later token see, and where do they "
        f"lie?"
    )


def _wrong_numbers(case: Challenge, numbers: np.ndarray, n: int, T: int) -> str | None:
    """Say what is wrong with the numbers of the rows that came back: n tokens are held, T are new."""
    window, n_sinks = case["window"], case["n_sinks"]
    if numbers.ndim != 1 or numbers.dtype != np.int64:
        return f"places({T}) is {numbers.dtype} of shape {numbers.shape}, wanted is int64 (R,)."
    new, old = numbers[len(numbers) - T :].tolist(), numbers[: len(numbers) - T].tolist()
    words = f"asked before that append, places({T}) says {_in_words(numbers)}"
    if new != list(range(n, n + T)):
        return (
            f"{words}. The last must be the new ones, {n} … {n + T - 1}. Where do positions go on?"
        )
    if any(not 0 <= token < n for token in old):
        return f"{words}, but len(cache) is {n} then. Which places were never written to, or taken back?"
    if len(set(old)) < len(old):
        return f"{words}: a token stands there twice."
    needed = [t for t in range(n) if t < n_sinks or t > n - window]
    gone = [token for token in needed if token not in old]
    if gone:
        what = "a sink" if gone[0] < n_sinks else "in its window"
        return (
            f"{words}. Token {gone[0]} is missing, and for token {n} it is {what}. "
            f"Who overwrote it, or was it never stored?"
        )
    return None


def _in_words(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:16].tolist()))
    return f"[{shown}{', …' if len(numbers) > 16 else ''}]"


def _whose(
    got: np.ndarray, both: np.ndarray, kind: int, held: list[int], place: int, layer: int
) -> str:
    """Ask a question by whose rows these are.

    Args:
        got: (B, G, D).
        both: keys and values, (L, 2, B, G, n, D).
        place: the token whose row was wanted.
    """
    rows = both[:, kind]  # (L, B, G, n, D)
    if np.array_equal(got, both[layer, 1 - kind, :, :, held[place]]):
        wanted, other = ("keys", "values")[kind], ("values", "keys")[kind]
        return f"They are its {other}. Which of the two do you store as {wanted}?"
    for token, row in enumerate(held):
        if np.array_equal(got, rows[layer, :, :, row]):
            return f"They are those of token {token}. Which numbers belong to which rows?"
        if np.array_equal(got, -rows[layer, :, :, row]):
            return "Another cache was given those. What do two caches share?"
        if any(np.array_equal(got, other[:, :, row]) for other in rows):
            return "They are those of another layer."
    if np.allclose(got, rows[layer, :, :, held[place]], rtol=NEARLY, atol=0):
        return ROUNDED
    if not got.any():
        return "They are zeros. Were they written?"
    if any(np.array_equal(got, row) for row in np.moveaxis(rows[layer], -2, 0)):
        return "They were appended, and do not count. Which pending rows does advance(n) take?"
    return "Into which place is a row written, and when?"


# --- one token after another ---------------------------------------------------------------------


def draw_ring(seed: int) -> Challenge:
    """Draw windows with sinks and without, one larger than the text, one of a single token; each with a
    first block that fits the window, and then single tokens for more than two rounds. Another cache, one
    token ahead, is fed the negatives in turns."""
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
        # Room for a token more: whether the last one fits is another check's question.
        operations = [("new", 0, n + 1), ("new", 1, n + 2), ("feed", 1, [n])]
        for block in ([*range(first)], *([i] for i in range(first, n))):
            operations += [("feed", 0, block), ("feed", 1, [n + i for i in block])]
        cases.append(
            {"window": window, "n_sinks": n_sinks, "operations": operations}
            | {"rows": np.concatenate([rows, -rows], axis=-2)}
        )
    return {"series": cases}


def probe_ring(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run every series; count what its first cache keeps at the end."""
    series, stored = [], []
    for case in challenge["series"]:
        made, handling = [], handle(student, case)

        def make(max_len: int, made: list[Any] = made, handling: Handling = handling) -> Any:
            made.append(handling.make(max_len))
            return made[-1]

        series.append(run(case["operations"], handling._replace(make=make)))
        # In a window larger than the text some places are never written to: anything may stand there.
        stored.append(stored_numbers(made[0]) if made and case["window"] < 40 else 0)
    return {"series": series, "stored": stored}


def ring_form(challenge: Challenge) -> Evidence:
    return {**series_form(challenge), "stored": [int] * len(challenge["series"])}


@check("WindowedKVCache", draw=draw_ring, probe=probe_ring, evidence=ring_form)
def gone_is_gone_kept_is_kept(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Every row that comes back is the one of its number, none that is needed is missing, and those that
    are gone lie nowhere."""
    results = zip(challenge["series"], evidence["series"], evidence["stored"], strict=True)
    for case, records, stored in results:
        if wrong := wrong_case(case, case["operations"], records):
            return failed(wrong)
        (window, n_sinks), both = (case["window"], case["n_sinks"]), case["rows"].shape[4]
        row, n = case["rows"].size // both, both // 2  # the other half is another cache's
        if wrong := wrong_text(stored, row, n, window, n_sinks):
            return failed(f"Window {window}, {n_sinks} sinks. {wrong}")
    return passed("Sinks and the last tokens come back as they were stored, round after round.")


# --- append without advance ----------------------------------------------------------------------


def draw_unfinished(seed: int) -> Challenge:
    """Draw a ring that is full; three tokens that are appended to all layers and never advanced, others
    that are appended to the first layer alone; three of which only the first counts, and others that a
    truncate forgets; then two that count, after them one more, and a reset; a block that is longer than
    the window, of which two tokens do not count; blocks that fit, though not beside the pending one that
    they replace; and at the end another cache's pending token."""
    rng = np.random.default_rng(seed)
    window, n_sinks = int(rng.integers(3, 6)), int(rng.integers(0, 3))
    n = n_sinks + window + int(rng.integers(2, 4))  # the ring has begun its second round
    three, others, refused = [n, n + 1, n + 2], [n + 5, n + 4, n + 3], ("advance", 0, 1)
    operations = [("new", 0, n + 9), *(("feed", 0, [i]) for i in range(n))]
    operations += [("append", 0, others), ("start", 0, [n + 2, n, n + 1])]
    too_far, too_many = ("truncate", 0, n - 3), ("start", 0, [n + 1] * 12)
    operations += [("append", 0, three), too_far, too_many, ("advance", 0, 0), ("advance", 0, 1)]
    operations += [refused]
    operations += [("append", 0, others), ("truncate", 0, n + 1), refused]
    operations += [("feed", 0, [n + 3, n + 4]), ("feed", 0, [n + 5])]
    operations += [("append", 0, others), ("reset", 0, None), refused]
    operations += [("feed", 0, [i]) for i in range(n_sinks + 1)]
    # Of a block that is longer than the window, some tokens count: it ends with the last of these.
    operations += [
        ("append", 0, [*range(window + 3)]),
        ("advance", 0, window + 1),
        ("feed", 0, [n]),
    ]
    operations += [
        ("append", 0, [*range(5)]),
        ("append", 0, [*range(6)]),
        ("feed", 0, [n + 1, n + 2]),
    ]
    operations += [("append", 0, [3, 4]), ("new", 1, 9), ("append", 1, [0]), ("advance", 0, 1)]
    operations += [("feed", 0, [n + 3])]
    case = {"window": window, "n_sinks": n_sinks, "rows": draw_rows(rng, n + 6), "too_far": n - 3}
    return {"series": [{**case, "operations": operations}]}


def _ask_about_pending(name: str, size: Any, before: int, expected: str) -> str:
    if name == "truncate" and expected == "returned":
        return (
            f"The rows that token {size} needs should be there. Who wrote over them: advance(n), or an "
            f"append that was never advanced?"
        )
    return ""


@check(
    "WindowedKVCache",
    draw=draw_unfinished,
    probe=partial(run_series, handle),
    evidence=series_form,
)
def append_alone_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    """What was appended and never advanced leaves no trace."""
    [case], [records] = challenge["series"], evidence["series"]
    refused = case["operations"].index(("truncate", 0, case["too_far"]))
    others = [step for n, step in enumerate(case["operations"]) if n != refused]
    outcomes = [expected for expected, _, _ in follow(others)]
    outcomes.insert(refused, "ValueError")
    tried = (case, case["operations"], records)
    if wrong := wrong_case(
        *tried, came_in_another_order(*tried), outcomes=outcomes, question=_ask_about_pending
    ):
        return failed(f"{wrong} (What is appended counts from advance on, the rest for nothing.)")
    if any(record["moved"] for record in records):
        return failed(
            f"Window {case['window']}, {case['n_sinks']} sinks; tokens are appended, and never "
            f"advanced. Then others come, and the rows that append returned before are others now. In "
            f"whose memory does a result lie?"
        )
    return passed("What is appended and never advanced leaves no trace.")
