"""Masks of every shape: values say which keys a query read, so a message can say it, too."""

from __future__ import annotations

import operator

import numpy as np

from course.checks.attention_cases import MASKS, draw_case, draw_mask, sizes_text
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.gqa.attention import Truth, level, probe_attention, wrong_queries
from course.checks.recording import RECORD, one_each, wrong_form

PLURALS = {"row": "rows", "head": "heads", "query": "queries"}
SUM_TOLERANCE = 1e-3
"""By which the shares of a query may miss 1."""
LOW = (-1e3, -1e5)
"""Numbers below which all scores of a case are, also those of keys that may be seen."""
Place = tuple[int, int, int]
"""Row of the batch, head, and number of a query."""
WIDTH = 8
"""D of all heads here: a value is 1 at the number of its key, and so an output is a row of shares."""


def draw_masked(seed: int) -> Challenge:
    """Draw a small case without a mask and with one, (T, S); then masks of each shape, for one query,
    one row, one head a group, sharp scores, scores far below 0, every type, and two masks for the same
    sizes."""
    rng = np.random.default_rng(seed)
    T, S = 3, int(rng.integers(4, 8))
    drawn = [((2, 4, 2, T, 4), "(T, S)"), *(((2, 4, 2, T, S), name) for name in MASKS)]
    drawn += [((2, 4, 2, 1, S), "(B, 1, 1, S)"), ((1, 4, 2, T, S), "(T, S)")]
    drawn += [((2, 3, 3, T, S), "(B, H, T, S)"), ((2, 4, 2, T, S), "(T, S)")]
    drawn += [((2, 2, 1, T, S), "(H, T, S)")]  # as many rows as heads
    cases = [
        {**draw_case(rng, sizes, draw_mask(rng, sizes, name), WIDTH), "name": name}
        for sizes, name in drawn
    ]
    cases = [{**cases[0], "mask": None, "name": "none"}, *cases]
    cases.append(with_sharp_scores(rng, draw_case(rng, (2, 4, 2, T, S), D=WIDTH)))
    cases += [with_low_scores(rng, (2, 4, 2, T, S), low) for low in LOW]
    for dtype in ("float16", "bfloat16", "float64"):
        case = draw_case(rng, (1, 4, 2, T, 6), draw_pairs(rng, T), WIDTH)
        cases.append({**level(rng, case, dtype), "name": "(T, S)"})
    return {"cases": [with_values_that_say_their_key(case) for case in cases]}


def with_sharp_scores(rng: np.random.Generator, case: Challenge) -> Challenge:
    """Show each query one key, among scores so far apart that the hidden ones are often far higher."""
    (B, _, T, _), S = case["q"].shape, case["k"].shape[2]
    mask = rng.integers(0, S, (B, 1, T, 1)) == np.arange(S)
    return {**case, "q": 8 * case["q"], "mask": mask, "name": "(B, 1, T, S)"}


def with_low_scores(
    rng: np.random.Generator, sizes: tuple[int, int, int, int, int], low: float
) -> Challenge:
    """Draw a case in which each query is shown one key, and all scores are below that number."""
    case = with_sharp_scores(rng, draw_case(rng, sizes, D=WIDTH))
    q, k = np.zeros_like(case["q"]), case["k"].copy()
    q[..., 0] = low * np.sqrt(WIDTH)
    k[..., 0] = rng.uniform(1.5, 3, k.shape[:-1])
    return {**case, "q": q, "k": k, "low": low}


def draw_pairs(rng: np.random.Generator, T: int) -> np.ndarray:
    """Draw a mask (T, 6) that shows each query two keys."""
    return np.stack([rng.permutation([True, True, False, False, False, False]) for _ in range(T)])


def with_values_that_say_their_key(case: Challenge) -> Challenge:
    """Make value number s of every head 1 at place s, and 0 elsewhere."""
    B, G, S, D = case["v"].shape
    return {**case, "v": np.broadcast_to(np.eye(S, D, dtype=np.float32), (B, G, S, D)).copy()}


@check(
    "grouped_attention",
    draw=draw_masked,
    probe=probe_attention,
    evidence=one_each(out=RECORD),
)
def masks_reach_every_head(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    first = challenge["cases"][0]
    unmasked = evidence["out"][0]["numbers"] if first["mask"] is None else np.empty(0)
    earlier: list[np.ndarray] = []
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        where = f"{mask_text(case)} {sizes_text(case)}"
        if wrong := wrong_form(got, case["q"].shape, case["dtype"]):
            return failed(f"{where}: grouped_attention {wrong}")
        numbers, seen = got["numbers"], mask_of(case)
        bad, delta = wrong_queries(numbers, truth(case), tolerance)
        if len(bad):
            row, head, query = at = tuple(bad[0].tolist())
            if case["mask"] is None:
                asked = "Does grouped_equals_repeated pass?"
            elif numbers.shape == unmasked.shape and np.allclose(numbers, unmasked):
                asked = (
                    "With this mask and without one, your function returns the same. Where does the "
                    "mask meet the scores, and is what comes of it kept?"
                )
            elif not np.isfinite(numbers[at]).all():
                asked = "Its shares are no numbers. Where is −∞ multiplied by 0, or 0 divided by 0?"
            elif "low" in case:
                asked = (
                    f"All scores are below {case['low']:,.0f} here, and the key that it may see should "
                    "get the whole weight. Which score does a hidden key get, and is any other lower?"
                )
            else:
                asked = ask_about_shares(numbers[..., : seen.shape[3]], seen, at, earlier)
            return failed(
                f"{where}: query {query} of head {head} differs (batch row {row}, max |Δ| "
                f"{delta[at]:.2g}, tolerance {tolerance:g}). {asked}"
            )
        if case["mask"] is not None:
            earlier.append(seen)
    return passed(f"What is hidden stays hidden in every head, in masks of {len(MASKS)} shapes.")


def mask_text(case: Challenge) -> str:
    """Write "A mask of shape (3, 4), (T, S)."."""
    if case["mask"] is None:
        return "No mask."
    return f"A mask of shape {case['mask'].shape}, {case['name']}."


def mask_of(case: Challenge) -> np.ndarray:
    """Write the mask of a case out, (B, H, T, S); all True where there is none."""
    (B, H, T, _), S = case["q"].shape, case["k"].shape[2]
    return np.broadcast_to(True if case["mask"] is None else case["mask"], (B, H, T, S))


def ask_about_shares(
    shares: np.ndarray, seen: np.ndarray, at: Place, earlier: list[np.ndarray]
) -> str:
    """Say what is wrong about what the queries gave to the keys, and ask for the cause.

    Args:
        shares: that came back, (B, H, T, S).
        seen: which keys the mask shows, (B, H, T, S).
        at: row, head and number of the first query that differs.
        earlier: the masks of the cases before.
    """
    looked = (shares > 0) | ~np.isfinite(shares)
    own, visible = shares[at], seen[at]
    if (looked == ~seen).all():
        return "It looks at hidden keys, and at none that it may see. Which value means: may look?"
    if abs(own.sum() - 1) > SUM_TOLERANCE:
        return (
            f"Its shares add up to {own.sum():.3g}, not to 1. Is a key hidden before scores become "
            "weights, or after?"
        )
    if any(mask.shape == looked.shape and (looked == mask).all() for mask in earlier):
        return "It is what the mask of an earlier call showed. What is kept from call to call?"
    if (looked == seen).all():
        return (
            "It sees the right keys, and weighs them wrongly. Is grouped_equals_repeated passed, and "
            "does the mask change a score that it does not hide?"
        )
    return whose_mask(looked, seen, at) or ask_about_key(own, visible)


def whose_mask(looked: np.ndarray, seen: np.ndarray, at: Place) -> str:
    """Say for whom the mask shows just the keys that were looked at, and ask about that axis; "" where
    that is nobody."""
    for axis, name in enumerate(("row", "head", "query")):
        for number in range(seen.shape[axis]):
            if (looked == seen.take([number], axis=axis)).all():
                return (
                    f"Everybody sees what the mask shows to {name} {number}. Where does the mask "
                    f"lose its axis of {PLURALS[name]}?"
                )
    same = np.argwhere((seen == looked[at]).all(axis=3)).tolist()
    if not same or list(at) in same:
        return ""
    row, head, query = min(same, key=lambda place: sum(map(operator.ne, place, at)))
    return (
        f"It sees what the mask shows to query {query} of head {head} in row {row}. In which order do "
        "rows, heads and queries stand in your scores, and in which in the mask that meets them?"
    )


def ask_about_key(own: np.ndarray, visible: np.ndarray) -> str:
    """Name a key (S,) that has a share and should not, or the other way round."""
    hidden = np.where(visible, 0, own)
    if (own > 0).all():
        return (
            "It gives a share to every key, hidden or not. Does your code look at the mask in this call, "
            "and which score becomes a share of exactly 0?"
        )
    if hidden.max() > 0:
        return (
            f"Key {hidden.argmax()} is hidden from it and has {hidden.max():.2g} of its weight. "
            "Which score becomes a share of exactly 0?"
        )
    key = int(np.flatnonzero(visible & (own == 0))[0])
    return f"It may see key {key}, and gives it nothing. What else hides keys, beside this mask?"
