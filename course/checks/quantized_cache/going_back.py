"""Check that refusals leave no trace in a quantized cache, and that truncate and reset go back."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np

from course.checks.cache_contract import missing, wrong_operation
from course.checks.cache_operations import Handling, Operation, follow, run_series, series_form
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.quantized_cache.reading import (
    CONFIG,
    SAME,
    WAITING,
    Array,
    Coded,
    describe,
    draw_rows,
    join_layers,
    new_cache,
    wrong_read,
)
from course.checks.recorder import given


def handle(student: SimpleNamespace, case: Challenge) -> Handling:
    """Say how this lesson's cache is made and fed for a case, of rows (2, L, B, G, n, D)."""
    return Handling(
        partial(new_cache, student, case), lambda tokens: given(case["rows"][..., tokens, :])
    )


# --- what is refused, or never advanced -----------------------------------------------------------


def draw_refusals(seed: int) -> Challenge:
    """Draw a cache that is half full, and what it must refuse: too much, and what is no number.

    One block is appended and never advanced, one counts but for its last token, with calls of all kinds
    refused in between, and that token is forgotten; then the cache is filled, and refuses once more.
    """
    rng = np.random.default_rng(seed)
    group, window = [(3, 2), (4, 1)][seed % 2]
    held, room = window + 2 * group - 1, group + 1
    n, abandoned = held + room, int(rng.integers(2, room))
    rows, others = draw_rows(rng, n), draw_rows(rng, 2 * room)
    bad = [others[..., :abandoned, :].copy() for _ in range(3)]
    for block, kind, value in zip(bad, (0, 0, 1), (np.nan, np.inf, np.nan), strict=True):
        block[kind, :, 1, 0, -1, 3] = value
    too_many, wrong = range(n, n + room + 1), n + 2 * room
    operations: list[Operation] = [("new", 0, n), ("feed", 0, [*range(held)])]
    operations += [("start", 0, [*too_many])]
    operations += [
        ("start", 0, [*range(first, first + abandoned)])
        for first in (wrong, wrong + abandoned, wrong + 2 * abandoned, n)
    ]
    operations += [("append", 0, [*range(held, n - 1), n]), ("advance", 0, 0)]
    operations += [("truncate", 0, held + 1), ("advance", 0, room + 1)]
    operations += [("start", 0, [*too_many]), ("advance", 0, room - 1), ("advance", 0, 1)]
    operations += [("feed", 0, [n - 1]), ("feed", 0, [n])]
    case = {"bits": 8, "group": group, "window": window, "operations": operations}
    return {"series": [{**case, "rows": np.concatenate([rows, others, *bad], axis=4)}]}


@check(
    "QuantizedKVCache",
    draw=draw_refusals,
    probe=partial(run_series, handle),
    evidence=series_form,
)
def a_refusal_changes_nothing(challenge: Challenge, evidence: Evidence, truth: Coded) -> Verdict:
    """Each attempt is refused by its exception, and what fits goes in as if there had been none."""
    [case], [records] = challenge["series"], evidence["series"]
    rows, operations = case["rows"], case["operations"]
    finite = np.isfinite(rows).all(axis=(0, 1, 2, 3, 5))  # of each token
    outcomes = [
        "ValueError" if name == "start" and not finite[what].all() else expected
        for (name, _, what), (expected, _, _) in zip(operations, follow(operations), strict=True)
    ]

    def wrong_rows(step: int, tokens: list[int]) -> str | None:
        before = len(tokens) - len(operations[step][2])
        codes = truth(case["group"], case["window"], before) if before else 0
        returned = records[step]["returned"]
        problem = missing(returned, CONFIG.n_layers) or wrong_read(
            case, rows[..., tokens, :], returned, codes
        )
        return problem and (
            f"then, with {len(tokens)} tokens: {problem.removesuffix(WAITING).rstrip()} If "
            f"groups_and_a_window passes: which of the pending tokens does advance take, and what is "
            f"left of an append that was refused, or of which not all tokens were advanced?"
        )

    name = f"{describe(case)}: a cache of {operations[0][2]} places"
    if wrong := wrong_operation(name, operations, records, wrong_rows, outcomes, _ask):
        return failed(wrong)
    return passed("What is refused, or never advanced, leaves no trace.")


def _ask(name: str, what: object, held: int, expected: str) -> str:
    bad = expected == "ValueError" and name == "start"
    return "One of their keys or values is NaN or infinite. When do you look?" if bad else ""


# --- back, and on again ---------------------------------------------------------------------------


def draw_ways_back(seed: int) -> Challenge:
    """Draw a text; a length within the window to go back to, one inside a group, and other tokens.

    The cache gives up its last token, as after a rejected draft. Then three times it goes back, is fed
    other tokens up to n, and one more to read what is kept. The first time one token comes alone: then
    more groups are codes than a new cache would have. Going back also forgets what was appended and not
    advanced, wherever it goes. The window is longer than a group: what is kept of it may fill one more.
    """
    rng = np.random.default_rng(seed)
    group, window = [(4, 5), (5, 6), (3, 4)][seed % 3]
    n = window + 3 * group
    near = n - int(rng.integers(2, window + 1))
    far = group + int(rng.integers(1, group))  # the first group stays whole, the second is cut
    rows, others = draw_rows(rng, n), draw_rows(rng, n + group + 1)
    operations: list[Operation] = [("new", 0, n + group + 1), ("feed", 0, [*range(n)])]
    operations += [("truncate", 0, back) for back in (n + 1, -1, n, n - 1)]
    operations += [("feed", 0, [2 * n - 1])]
    for back in (n, near):
        operations += [("append", 0, [n]), ("truncate", 0, back), ("advance", 0, 1)]
    home = [("append", 0, [n]), ("reset", 0, None), ("advance", 0, 1)]
    operations += [("feed", 0, [n + near])]
    for back, others_from in ((), near + 1), ([("truncate", 0, far)], far), (home, 0):
        operations += [*back, ("feed", 0, [*range(n + others_from, 2 * n)]), ("feed", 0, [2 * n])]
    case = {"bits": 8, "group": group, "window": window, "held": n, "near": near, "far": far}
    rows = np.concatenate([rows, others], axis=4)
    return {"series": [{**case, "rows": rows, "operations": operations}]}


@check(
    "QuantizedKVCache",
    draw=draw_ways_back,
    probe=partial(run_series, handle),
    evidence=series_form,
    tolerance=SAME,
)
def quantized_cache_can_go_back(
    challenge: Challenge, evidence: Evidence, truth: Coded, tolerance: float
) -> Verdict:
    """What is kept is read as it was, what is forgotten never again.

    Args:
        tolerance: as a part of the largest number.
    """
    [case], [records] = challenge["series"], evidence["series"]
    n, near, far = (case[name] for name in ("held", "near", "far"))
    operations, codes = case["operations"], truth(case["group"], case["window"], n)
    fed = [step for step, (name, _, _) in enumerate(operations) if name == "feed"]
    at_first, _, _, _, one_more, after_far, again, after_reset, _ = fed

    def wrong_rows(step: int, tokens: list[int]) -> str | None:
        if wrong := missing(records[step]["returned"], CONFIG.n_layers):
            return wrong
        if step == after_far:  # judged with what is read next
            return None
        if step == again:
            reads = [records[number]["returned"] for number in (one_more, after_far, again)]
            return wrong_after_far(case, join_layers(reads[0]), *reads[1:], codes, tolerance)
        # Of the groups that were complete before, none is touched by going back within the window.
        coded = 0 if step in (at_first, after_reset) else codes
        wrong = wrong_read(case, case["rows"][..., tokens, :], records[step]["returned"], coded)
        return wrong and f"{wrong} (Does groups_and_a_window pass?)"

    if wrong := wrong_operation(describe(case), operations, records, wrong_rows):
        return failed(wrong)
    return passed(
        f"truncate({near}), truncate({far}) and reset() keep {near}, {far} and no tokens."
    )


def wrong_after_far(
    case: Challenge,
    before: Array,
    layers: list[Array],
    again: list[Array],
    codes: int,
    tolerance: float,
) -> str | None:
    """Say what is wrong after going back into a group: its first tokens must be read as they were
    until it fills again, and those of whole groups for ever.

    Args:
        before: what was read before, (2, L, B, G, ·, D).
        layers, again: what was read with new tokens up to n, and with one more.
        codes: how many of n tokens are codes.
        tolerance: as a part of the largest number.
    """
    n, far = case["held"], case["far"]
    others, near = case["rows"][..., n:, :], tolerance * float(np.abs(before).max())
    for size, kept, got in ((n, far, layers), (n + 1, case["group"], again)):
        if any(part.shape != others[:, 0, ..., :size, :].shape for part in got):
            return f"other shapes came back than those of {size} tokens. How many are left?"
        bad = np.argwhere(
            ~(np.abs(join_layers(got)[..., :kept, :] - before[..., :kept, :]) <= near)
        )
        if len(bad):
            token = bad[:, 4].min()
            kinds = sorted(set(bad[bad[:, 4] == token, 0].tolist()))
            names = " and ".join(("keys", "values")[kind] for kind in kinds)
            return (
                f"with {size} tokens, {names} of token {token} are read as other numbers than before, "
                f"but it was not forgotten. What is left of a group that is cut, and where is it?"
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
