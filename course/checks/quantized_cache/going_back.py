"""Check that refusals leave no trace in a quantized cache, and that truncate and reset go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.caches import feed
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.quantized_cache.reading import (
    ENDING,
    LAYERS,
    SAME,
    Array,
    Coded,
    describe,
    draw_rows,
    join_layers,
    new_cache,
    run_until_refused,
    wrong_read,
)
from course.checks.recorder import given

ATTEMPTS = ("too many", "NaN", "infinity", "NaN value", "in between", "one more")
"""The appends that a cache must refuse, in their order."""


def draw_refusals(seed: int) -> Challenge:
    """Draw a cache that is half full, and what it must refuse: too much, and what is no number."""
    rng = np.random.default_rng(seed)
    group, window = [(3, 2), (4, 1)][seed % 2]
    n, room = window + 2 * group - 1, group + 1
    case = {"bits": 8, "group": group, "window": window, "held": n, "room": room}
    case["abandoned"] = int(rng.integers(2, room))
    return {**case, "rows": draw_rows(rng, n + room), "others": draw_rows(rng, 2 * room)}


def probe_refusals(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Try what must be refused; append what is never advanced; append one token more than is advanced,
    with something refused in between; then fill the cache, and try once more."""
    rows, others = challenge["rows"], challenge["others"]
    held, room, abandoned = (challenge[name] for name in ("held", "room", "abandoned"))
    cache = new_cache(student, challenge, held + room)
    feed(cache, rows[..., :held, :])
    came = {"too many": outcome(lambda: cache.append(0, *of_layer(others, 0, room + 1)))}
    for name, kind, value in (
        ("NaN", 0, np.nan),
        ("infinity", 0, np.inf),
        ("NaN value", 1, np.nan),
    ):
        bad = of_layer(others, 0, abandoned)
        bad[kind, 1, 0, -1, 3] = value
        came[name] = outcome(lambda bad=bad: cache.append(0, *bad))
    cache.append(0, *of_layer(others, 0, abandoned))  # and the forward pass goes no further
    length = len(cache)
    block = np.concatenate([rows[..., held:-1, :], others[..., :1, :]], axis=4)  # (…, room, D)

    def append_more_than_counts() -> list[Array]:
        reads = append_everywhere(cache, block)
        cache.advance(0)
        came["in between"] = outcome(lambda: cache.append(0, *of_layer(others, 0, room + 1)))
        cache.advance(room - 1)
        return reads

    steps = (append_more_than_counts, lambda: feed(cache, rows[..., -1:, :]))
    reads, ending = run_until_refused(steps, Exception)
    came["one more"] = outcome(lambda: cache.append(0, *of_layer(others, 0, 1)))
    return {
        "came": {"in between": "", **came},
        "lengths": [length, len(cache)],
        "reads": reads,
    } | ending


def of_layer(rows: Array, layer: int, n: int) -> Tensor:
    """The first n tokens of one layer, keys and values (2, B, G, n, D), in memory of their own."""
    return given(rows[:, layer, ..., :n, :])


def append_everywhere(cache: Any, block: Array) -> list[Array]:
    """Append a block (2, L, B, G, T, D) to every layer, and do not advance; what each gave back."""
    returned = [cache.append(i, *of_layer(block, i, block.shape[4])) for i in range(block.shape[1])]
    return [torch.stack([part.detach().clone() for part in pair]).numpy() for pair in returned]


def evidence_of_refusals(challenge: Challenge) -> Any:
    """The form of what `probe_refusals` records."""
    came = dict.fromkeys(ATTEMPTS, str)
    return {"came": came, "lengths": [int, int], "reads": Each(LAYERS), **ENDING}


@check("QuantizedKVCache", draw=draw_refusals, probe=probe_refusals, evidence=evidence_of_refusals)
def a_refusal_changes_nothing(challenge: Challenge, evidence: Evidence, truth: Coded) -> Verdict:
    """Each attempt is refused by its exception, and what fits goes in as if there had been none."""
    held, room = challenge["held"], challenge["room"]
    n, case = (
        held + room,
        f"{describe(challenge)}: a cache of {held + room} places with {held} tokens",
    )
    attempts = (
        (f"{room + 1} more", "CacheFull"),
        ("a key that is NaN", "ValueError"),
        ("a key that is infinite", "ValueError"),
        ("a value that is NaN", "ValueError"),
        (f"{room + 1} more after {room} that fit and are not advanced", "CacheFull"),
        (f"one more, after {room} that fit", "CacheFull"),
    )
    for name, (asked, wanted) in zip(ATTEMPTS, attempts, strict=True):
        if name == "in between" and len(evidence["reads"]) < 2:
            return failed(
                f"{case}; some appends were refused, one was never advanced. Then {room} tokens that "
                f"fit; advance(0), which does nothing; advance({room - 1}), which counts all but the "
                f"last; and one more: {evidence['error']}: {evidence['stopped']}. What did an "
                f"append leave behind that did not count?"
            )
        if (came := evidence["came"][name]) != wanted:
            return failed(f"{case}, append {asked}: {came}, wanted is {wanted}. {ask_when(came)}")
    if evidence["lengths"] != [held, n]:
        return failed(
            f"{case}, refused {room + 1} more: len(cache) is {evidence['lengths'][0]}; and {room} later "
            f"{evidence['lengths'][1]}. Wanted are {held} and {n}. Which method counts?"
        )
    if problem := wrong_after_refusals(challenge, evidence["reads"], truth):
        return failed(f"{case}; {problem}")
    return passed("What is refused, or never advanced, leaves no trace.")


def ask_when(came: str) -> str:
    """Ask about an append that was not refused as it should be."""
    if came == "returned":
        return "When do you look, and at what?"
    return "Which exceptions does the docstring name?"


def wrong_after_refusals(
    challenge: Challenge, reads: list[list[Array]], truth: Coded
) -> str | None:
    """Say what is wrong with the two reads after refusals: with one token more than is advanced, and with
    a full cache."""
    rows, held, room = challenge["rows"], challenge["held"], challenge["room"]
    sizes, n = (challenge["group"], challenge["window"]), held + room
    more = np.concatenate([rows[..., :-1, :], challenge["others"][..., :1, :]], axis=4)
    if problem := wrong_read(challenge, more, reads[0], truth(*sizes, held)):
        return (
            f"some appends were refused, one was never advanced. Then, with {n} tokens: {problem} (If "
            f"groups_and_a_window passes: what did an append leave behind that did not count?)"
        )
    if problem := wrong_read(challenge, rows, reads[1], truth(*sizes, n - 1)):
        return (
            f"{room} were appended to every layer, {room + 1} refused, and advance({room - 1}) counts "
            f"the first of those {room}. Then, with {n} tokens: {problem} (If groups_and_a_window "
            f"passes: which tokens were pending, and which of them count?)"
        )
    return None


def draw_ways_back(seed: int) -> Challenge:
    """Draw a text; a length within the window to go back to, one inside a group, and other tokens."""
    rng = np.random.default_rng(seed)
    group, window = [(4, 3), (5, 2), (3, 4)][seed % 3]
    n = window + 3 * group
    case = {"bits": 8, "group": group, "window": window, "held": n}
    near = n - int(rng.integers(1, window + 1))
    far = group + int(rng.integers(1, group))  # the first group stays whole, the second is cut
    rows, others = draw_rows(rng, n), draw_rows(rng, n + group + 1)
    return {**case, "near": near, "far": far, "rows": rows, "others": others}


def probe_ways_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Go back three times, each time feeding other tokens up to n, and one more to read what is kept. The
    first time something was appended and not advanced; before, go to where the cache stands."""
    rows, others, n = challenge["rows"], challenge["others"], challenge["held"]
    cache = new_cache(student, challenge, n + challenge["group"] + 1)
    feed(cache, rows)
    refused = [outcome(lambda back=back: cache.truncate(back)) for back in (n + 1, -1)]
    cache.truncate(n)
    append_everywhere(cache, others[..., :1, :])
    lengths: list[int] = []
    after_pending = []

    def back(to: int) -> None:
        cache.truncate(to) if to else cache.reset()
        lengths.append(len(cache))
        if not after_pending:
            after_pending.append(outcome(lambda: cache.advance(1)))

    def steps() -> Iterable[Callable[[], Any]]:
        for to in (challenge["near"], challenge["far"], 0):
            yield lambda to=to: back(to)
            yield lambda to=to: feed(cache, others[..., to:n, :])
            yield lambda: feed(cache, others[..., n : n + 1, :])

    came, ending = run_until_refused(steps())
    reads = [read for read in came if read is not None]
    pending = next(iter(after_pending), "")
    kept = {"refused": refused, "pending": pending, "lengths": lengths, "reads": reads}
    return {**kept, **ending}


def evidence_of_ways_back(challenge: Challenge) -> Any:
    """The form of what `probe_ways_back` records."""
    kept = {"refused": [str, str], "pending": str, "lengths": Each(int), "reads": Each(LAYERS)}
    return {**kept, **ENDING}


@check(
    "QuantizedKVCache",
    draw=draw_ways_back,
    probe=probe_ways_back,
    evidence=evidence_of_ways_back,
    tolerance=SAME,
)
def quantized_cache_can_go_back(
    challenge: Challenge, evidence: Evidence, truth: Coded, tolerance: float
) -> Verdict:
    """What is kept is read as it was, what is forgotten never again.

    Args:
        tolerance: as a part of the largest number.
    """
    n, near, far = (challenge[name] for name in ("held", "near", "far"))
    case = f"{describe(challenge)}, {n} tokens"
    for back, came in zip((n + 1, -1), evidence["refused"], strict=True):
        if came != "ValueError":
            return failed(f"{case}: truncate({back}): {came}, wanted is ValueError.")
    for to, length in zip((near, far, 0), evidence["lengths"], strict=False):
        if length != to:
            call = f"truncate({to})" if to else "reset()"
            return failed(
                f"{case}, after {call}: len(cache) is {length}. Which tokens should stay?"
            )
    if evidence["pending"] == "returned":
        return failed(
            f"{case}, one more appended, truncate({near}), and advance(1) counted the appended one. What "
            f"should going back forget?"
        )
    if len(evidence["lengths"]) < 3 or len(evidence["reads"]) < 6:
        return failed(
            f"{case}, truncate({near}), truncate({far}), reset(), and tokens up to {n + 1} after each: "
            f"after {len(evidence['reads'])} blocks {evidence['error']}: {evidence['stopped']}. "
            f"What is still counted?"
        )
    codes = truth(challenge["group"], challenge["window"], n)
    if problem := wrong_reads(challenge, evidence["reads"], codes, tolerance):
        return failed(f"{case}{problem}")
    return passed(
        f"truncate({near}), truncate({far}) and reset() keep {near}, {far} and no tokens."
    )


def wrong_reads(
    challenge: Challenge, reads: list[list[Array]], codes: int, tolerance: float
) -> str | None:
    """Say what is wrong with the reads, two after each way back.

    Args:
        codes: how many of n tokens are codes.
        tolerance: as a part of the largest number.
    """
    rows, others = challenge["rows"], challenge["others"]
    n, near, far = (challenge[name] for name in ("held", "near", "far"))
    after_near, one_more, after_far, again, *after_reset = reads
    # Of the groups that were complete before, none is touched by going back within the window.
    first = np.concatenate([rows[..., :near, :], others[..., near : n + 1, :]], axis=4)
    for size, layers in ((n, after_near), (n + 1, one_more)):
        if problem := wrong_read(challenge, first[..., :size, :], layers, codes):
            return f", truncate({near}), other tokens up to {size}: {problem}"
    before = join_layers(one_more)
    if problem := wrong_after_far(
        challenge, before, after_far, again, codes, tolerance * float(np.abs(before).max())
    ):
        return f", then truncate({far}), which lies inside a group: {problem}"
    for size, layers, coded in zip((n, n + 1), after_reset, (0, codes), strict=True):
        if problem := wrong_read(challenge, others[..., :size, :], layers, coded):
            return f", reset(), and then {size} other tokens: {problem}"
    return None


def wrong_after_far(
    challenge: Challenge,
    before: Array,
    layers: list[Array],
    again: list[Array],
    codes: int,
    near: float,
) -> str | None:
    """Say what is wrong after going back into a group: its first tokens must be read as they were
    until it fills again, and those of whole groups for ever.

    Args:
        before: what was read before, (2, L, B, G, ·, D).
        layers, again: what was read with new tokens up to n, and with one more.
        codes: how many of n tokens are codes.
        near: largest difference of numbers that are the same.
    """
    others, n, far = challenge["others"], challenge["held"], challenge["far"]
    for size, kept, got in ((n, far, layers), (n + 1, challenge["group"], again)):
        if any(part.shape != others[:, 0, ..., :size, :].shape for part in got):
            return f"other shapes came back than those of {size} tokens. How many are left?"
        bad = np.argwhere(
            ~(np.abs(join_layers(got)[..., :kept, :] - before[..., :kept, :]) <= near)
        )
        if len(bad):
            return (
                f"with {size} tokens, token {bad[:, 4].min()} is read as other numbers than before, but "
                f"it was not forgotten. What is left of a group that is cut, and where is it?"
            )
    exact = (join_layers(layers)[..., far:, :] == others[..., far:n, :]).all()
    if not exact:
        return f"the tokens from {far} on, new ones, came back changed. Where are they written?"
    tail = join_layers(again)[..., codes:, :] == others[..., codes : n + 1, :]
    if not tail.all():
        return (
            f"of {n + 1} tokens the last {n + 1 - codes} should be exact. Which group comes next?"
        )
    error = np.abs(join_layers(again)[..., far:codes, :] - others[..., far:codes, :])
    if not (0 < error.max(initial=0) <= np.abs(others).max()):
        return f"tokens {far} to {codes - 1} were not rounded when their groups filled. Why not?"
    return None
