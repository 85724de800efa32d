"""Check what is computed with latents in place of keys and values: scores, and their means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Array, Place

TOLERANCE = 1e-4
"""For numbers of order 1 in float32: right answers stay within 1e-5 of float64."""


def draw_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Draw queries, matrices, rows and masks; smallest first. Sizes differ, so that a mixed-up axis
    shows; then four in float64, with scores of thousands, a single query, and scores far below 0; no
    mask for several queries, and a scale below 0; and rows of which a query sees the last alone."""
    sizes = [
        (1, 1, 1, 2, 3, 2, 1),
        (1, 3, 1, 4, 5, 2, 7),
        (2, 3, 4, 6, 5, 4, 7),
        (3, 2, 5, 4, 1, 2, 6),
    ]
    sizes += [sizes[2], sizes[2], (2, 3, 1, 6, 5, 4, 7)]
    attended = []
    for number, (B, H, T, D, rank, R, S) in enumerate(sizes):
        dtype = "float64" if number >= 4 else "float32"
        q_nope, up_k = rng.normal(size=(B, H, T, D)), rng.normal(size=(H * D, rank))
        yield call("absorb", q_nope.astype(dtype), up_k.astype(dtype), dtype=dtype)
        q = rng.normal(size=(B, H, T, rank + R)) * (5000 if number == 5 else 1.5)
        rows, scale = rng.normal(size=(B, S, rank + R)), float(rng.uniform(0.2, 0.6))
        masks = [_draw_mask(rng, [(T, S), (B, 1, T, S), (B, H, T, S)][number % 3])]
        arrays = q.astype(dtype), rows.astype(dtype)
        arguments = *arrays, rank, scale, *masks[: number >= 2]
        attended.append(call("attend_latent", *arguments, dtype=dtype))
    yield from attended
    yield _draw_low(rng)
    late = _draw_mask(rng, (3, 2, 70))
    late[:, 0, :66], late[:, 0, -1] = False, True
    for (B, H, T, rank, R, S), scale, mask in (
        ((3, 3, 4, 7, 0, 9), -0.4, ()),
        ((3, 3, 2, 5, 4, 70), 0.4, (late,)),
    ):
        q, rows = (rng.normal(size=(*front, rank + R)) for front in ((B, H, T), (B, S)))
        arrays = q.astype("float32"), rows.astype("float32")
        yield call("attend_latent", *arrays, rank, scale, *mask, dtype="float32")


def _draw_low(rng: np.random.Generator) -> Case:
    """Draw queries of which each sees one row, and scores that are all below -10¹²."""
    q, rows = np.zeros((2, 3, 4, 9)), rng.normal(size=(2, 7, 9))
    q[..., 0], rows[..., 0] = -4e12, rng.uniform(1.5, 3, (2, 7))
    mask = rng.integers(0, 7, (2, 1, 4, 1)) == np.arange(7)
    return call("attend_latent", q, rows, 5, 0.25, mask, dtype="float64")


def _draw_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    mask = rng.random(shape) < 0.6
    seen, hidden = rng.permutation(shape[-1])[[0, -1]]
    mask[..., hidden], mask[..., seen] = False, True
    return mask


def describe(case: Case) -> str:
    """Say the sizes of a call."""
    first, second, *others = case["arguments"]
    B, H, T, width = first.shape
    if not others:
        return f"absorb with B={B}, H={H}, T={T}, D={width}, rank {second.shape[1]}:"
    rank, scale, *masks = others
    mask = f"a mask {masks[0].shape}" if masks else "no mask"
    return (
        f"attend_latent with B={B}, H={H}, T={T}, S={second.shape[1]}, rank {rank} of {width}, scale "
        f"{scale:.2g}, {mask}:"
    )


@check_calls(
    "absorb",
    "attend_latent",
    draw=draw_cases,
    describe=describe,
    shape_question="Which axis counts heads, which tokens, and is one of size 1 missing?",
    praise="Queries meet latents as they would meet keys, and every head reads the same rows.",
    tolerance=TOLERANCE,
)
def absorbed_scores_are_the_scores(
    case: Case, result: Array, expected: Array, place: Place
) -> Words:
    """Tell where the first difference is; the cases before this one agree."""
    first, second, *others = case["arguments"]
    row, head, token, _ = place
    delta = np.abs(result[row, head, token].astype(float) - expected[row, head, token]).max()
    sentence = (
        f"first at batch row {row}, head {head}, query {token} it differs from what is computed head "
        f"by head (max |Δ| {delta:.2g}, tolerance {TOLERANCE:g})."
    )
    if not others:
        which = "Which rows of up_k are those of head 1, and which number of a key is each?"
        one_head = (
            "All rows of up_k are of one head here. Which of its axes counts the D numbers of a key, "
            "which one is left, and is the result scaled?"
        )
        texts = "Which head's rows of up_k does each query meet, in every text?"
        return sentence, ((first.shape[1] == 1, one_head), (len(first) > 1, texts), (True, which))
    shares = "Whose query is this, where may it look, and what do its shares add up to?"
    score = (
        "Which numbers of a row are in a score, what is it multiplied by, and over which axis do shares "
        "add up to 1?"
    )
    large = (
        "Scores are thousands here. Which of your numbers are too large, or all 0 for some query?"
    )
    unmasked = (
        "There is no mask. Which rows does each query see, and by what are scores multiplied?"
    )
    many = (
        "There are 70 rows, of which some queries see the last ones alone. Which rows does your code "
        "read, and how does it take a mask of three axes?"
    )
    low = (
        "All scores are below -10¹² here. Which score does a hidden row get, and is another lower?"
    )
    one_row = "There is one row. Is its share 1 in your code, and which of its numbers come back?"
    return sentence, (
        (second.shape[1] == 1, one_row),
        (second.shape[1] == 70, many),
        (len(others) == 2 and others[1] < 0, unmasked),
        (len(others) == 2, score),
        ((first <= 0).all(), low),
        (np.abs(first).max() > 100, large),
        (True, f"With one token and no mask it agrees. {shares}"),
    )
