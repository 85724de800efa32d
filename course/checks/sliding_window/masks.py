"""Check which rows a token may see through a window, and in which place its own row lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course.checks.calls import Case, Words, call, check_calls, run_call
from course.checks.recording import Array, Place


def draw_windows(rng: np.random.Generator) -> Iterator[Case]:
    """Draw numbers of new tokens and of rows, in the order of the text and in any other. Token 0 is in
    none of them, for sinks have their own check."""
    first, far = int(rng.integers(10, 20)), int(rng.integers(5_000, 6_000))
    new, rows = np.arange(first, first + 4), np.arange(first - 6, first + 4)
    yield call("window_mask", np.array([6]), np.arange(1, 7), 3)
    for places in (rows, rng.permutation(rows)):
        yield call("window_mask", new, places, int(rng.integers(2, 6)))
    yield call("window_mask", new[:3], np.arange(first - 3, first + 3), 1)
    yield call("window_mask", np.arange(1, 5), np.arange(1, 5), 2**20)
    rows = rng.permutation(np.arange(far - 1300, far + 2))
    yield call("window_mask", np.arange(far, far + 2), rows, 1200)
    yield call("window_mask", new[[3, 0]], np.arange(first - 4, first + 4), 4)
    yield call("window_mask", np.arange(3), np.arange(3), 0, refuses="ValueError")


def draw_sinks(rng: np.random.Generator) -> Iterator[Case]:
    """Draw windows of 3 and more with sinks: first tokens all at once, later ones, rows in any order; at
    last no sinks, by the signature's own number of them."""
    yield call("window_mask", np.arange(4), np.arange(4), 5, 3)
    for n_sinks in (1, int(rng.integers(2, 5))):
        window, T = int(rng.integers(3, 6)), int(rng.integers(2, 5))
        new = np.arange(T) + n_sinks + window + int(rng.integers(3, 9))
        held = np.concatenate([np.arange(n_sinks + 1), np.arange(new[0] - window, new[-1] + 1)])
        yield call("window_mask", new, rng.permutation(held), window, n_sinks)
    everything = np.arange(12)  # more sinks than window
    yield call("window_mask", everything, rng.permutation(everything), 3, 4)
    yield call("window_mask", everything[-2:], everything, 3)


def in_words(case: Case) -> str:
    """Say window, sinks and the tokens that are given last: rows of a mask, or tokens to place."""
    *arrays, (window, n_sinks) = _parts(case)
    tokens = ", ".join(map(str, arrays[-1][:10].tolist())) + (", …" if len(arrays[-1]) > 10 else "")
    kind = "rows of tokens" if len(arrays) > 1 else "tokens"
    return f"Window {window:,}, {n_sinks} sinks, {kind} {tokens}:"


def _parts(case: Case) -> tuple[Any, ...]:
    """Return the arrays of a call, then (window, sinks), which are 0 where the call names none."""
    arrays = [a for a in case["arguments"] if isinstance(a, np.ndarray)]
    window, *n_sinks = case["arguments"][len(arrays) :]
    return *arrays, (window, *(n_sinks or [0]))


def _pair(case: Case, result: Array, place: Place) -> tuple[int, int, str]:
    """Return the token and the row of a place in a mask, and say whether the one sees the other."""
    token, row = (int(numbers[at]) for numbers, at in zip(case["arguments"], place, strict=False))
    sees = "sees" if result[place] else "does not see"
    return token, row, f"token {token:,} {sees} token {row:,}."


@check_calls(
    "window_mask",
    draw=draw_windows,
    describe=in_words,
    shape_question="Which side counts new tokens?",
    praise="Every token sees itself and the window - 1 tokens before it, in any order of rows.",
)
def mask_counts_itself(case: Case, result: Array, expected: Array, place: Place) -> Words:
    token, row, sentence = _pair(case, result, place)
    _, rows, (window, _) = _parts(case)
    which = f"That is one more than the window. Which {window:,} tokens are in it?"
    by_number = "Are rows told apart by their place, or by their token's number?"
    return sentence, (
        (row >= token and (np.diff(rows) < 0).any(), by_number),
        (row == token, "That is the token itself. Does the window count it?"),
        (row > token, "That one comes later. Which condition hides it?"),
        (token - row == window, which),
        (
            True,
            f"Which numbers do you subtract, and which differences are in a window of {window:,}?",
        ),
    )


def of_sinks(new: Array, rows: Array, window: int, n_sinks: int = 0) -> Array:
    """Mark the pairs that tell of sinks, (T, R): their columns, and each token's view of itself, of one
    that is just inside the window, and of the token behind the sinks, long after it. The window's edge
    has its own check."""
    behind = (rows == n_sinks) & (new[:, None] > n_sinks + window + 1)
    inside = rows == new[:, None] - (window - 2)
    return (rows < n_sinks) | (rows == new[:, None]) | inside | behind


def run_for_sinks(function: Callable[..., Any], case: Case) -> Any:
    """Make the mask of a case, with False for all pairs but those that tell of sinks."""
    mask, pairs = run_call(function, case), torch.from_numpy(of_sinks(*case["arguments"]))
    good = isinstance(mask, torch.Tensor) and (mask.dtype, mask.shape) == (torch.bool, pairs.shape)
    return mask & pairs if good else mask


@check_calls(
    "window_mask",
    draw=draw_sinks,
    run=run_for_sinks,
    describe=in_words,
    shape_question="Which side counts new tokens?",
    praise="Sinks are seen from every later token, and from none before them.",
)
def sinks_are_no_future(case: Case, result: Array, expected: Array, place: Place) -> Words:
    token, row, sentence = _pair(case, result, place)
    *_, (window, n_sinks) = _parts(case)
    return sentence, (
        (row > token, "That is a sink, and it comes later. From which tokens is a sink seen?"),
        (row == token, "Does mask_counts_itself pass? A token sees itself, with sinks too."),
        (row == n_sinks, "It is no sink and not in the window. Which condition lets it through?"),
        (row > n_sinks, f"Is a window of {window} any shorter where there are sinks?"),
        (True, "That is a sink. When is it hidden?"),
    )


def draw_places(rng: np.random.Generator) -> Iterator[Case]:
    """Draw numbers of tokens over several rounds, in any order, for rings with sinks and without; the
    first by the signature's own number of sinks."""
    window = int(rng.integers(3, 6))
    yield call("place_of", np.arange(3 * window), window)
    for n_sinks in (1, int(rng.integers(2, 5))):
        window = int(rng.integers(3, 8))
        yield call("place_of", rng.permutation(np.arange(n_sinks + 3 * window)), window, n_sinks)
    yield call("place_of", np.arange(6), 1, 2)
    yield call("place_of", rng.integers(10_000, 10**9, 5), int(rng.integers(1000, 5000)), 4)
    yield call("place_of", np.arange(0), 3, 2)


@check_calls(
    "place_of",
    draw=draw_places,
    describe=in_words,
    shape_question="One place for each token?",
    praise="Sinks keep their places, and the ring behind them goes round.",
)
def one_place_each(case: Case, result: Array, expected: Array, place: Place) -> Words:
    tokens, (window, n_sinks) = _parts(case)
    first = min(np.flatnonzero(result != expected), key=lambda i: tokens[i])
    token, at, room = int(tokens[first]), int(result[first]), n_sinks + window
    division = "Which number is the remainder of a division by?"
    ring = (
        f"The ring has the {window:,} places from {n_sinks} on, and token {n_sinks} belongs in the "
        f"first. How many tokens came into the ring before this one?"
    )
    return f"token {token:,} lies in place {at:,}.", (
        (not 0 <= at < room, f"There are {room:,} places, from 0 on. {division}"),
        (token >= n_sinks > at, "A sink lies there. Where does the ring begin?"),
        (token < n_sinks, "It is a sink. Which places do sinks have?"),
        (True, ring),
    )
