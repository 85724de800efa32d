"""Compare logits and tokens with trusted ones, and say where the first difference is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from course.checks.check import Challenge
from course.checks.drawing import build_model
from course.checks.tolerance import TOLERANCE
from course.model.cache import CacheFull

Truth = Callable[[Challenge, np.ndarray], np.ndarray]
"""Computes the logits (B, T, V) of tokens (B, T) by the challenge's model, without a cache."""


def uncached(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the logits by the model's own forward pass over all tokens; the visible checks' truth."""
    return build_model(challenge)(torch.from_numpy(tokens)).numpy()


def outcome(call: Callable[[], Any]) -> str:
    """Run a call and return "returned" or the exception's name; NotImplementedError passes through."""
    try:
        call()
    except NotImplementedError:
        raise
    except CacheFull:
        return "CacheFull"
    except Exception as error:
        return type(error).__name__
    return "returned"


WHICH_EXCEPTION = "By which exception does a caller learn that there is no room?"
HOW_MUCH_ROOM = "How many places are left, how many are needed, and when do you look?"
WHICH_LINE = "Which of your lines stops, and what was it given?"
"""Questions about an outcome: ValueError in the place of CacheFull; no CacheFull; any other exception."""


def outcome_in_words(outcome: str) -> str:
    """Return "a result" or the exception's name, as it reads behind "wanted is" and "came to"."""
    return "a result" if outcome == "returned" else outcome


NO_PLACE = -1
"""The place of a difference that is one of shape, not of a token."""


class Difference(str):
    """A message about the first wrong token.

    Attributes:
        call: number of the chunk, from 0.
        place: number of the token in its chunk, from 0; NO_PLACE where a shape is wrong.
    """

    call: int
    place: int


def first_difference(
    chunks: list[np.ndarray],
    expected: np.ndarray,
    split: list[int],
    tolerance: float = TOLERANCE,
) -> Difference | None:
    """Find the first token whose output differs, or None.

    Args:
        chunks: outputs (B, T_i, ·), one for each call.
        expected: (B, T, ·), of all tokens at once.
        split: the T_i.
        tolerance: largest difference of two numbers that count as equal.
    """
    done = 0
    for call, (got, n) in enumerate(zip(chunks, split, strict=True)):
        want = expected[:, done : done + n]
        where = f"Chunks of {split}: "
        if got.shape != want.shape:
            text = f"{where}chunk {call + 1} gave shape {got.shape}, wanted is {want.shape}."
            return _difference(text, call, NO_PLACE)
        delta = np.abs(got.astype(np.float64) - want).max(axis=-1)  # (B, T_i)
        delta[~np.isfinite(delta)] = np.inf
        bad = delta > tolerance
        if bad.any():
            place = int(np.flatnonzero(bad.any(axis=0))[0])
            row = int(np.flatnonzero(bad[:, place])[0])
            text = (
                f"{where}token {done + place}, number {place + 1} of chunk {call + 1}, differs from "
                f"the uncached one (batch row {row}, max |Δ| {delta[row, place]:.2g}, tolerance "
                f"{tolerance:g})."
            )
            return _difference(text, call, place)
        done += n
    return None


def _difference(text: str, call: int, place: int) -> Difference:
    difference = Difference(text)
    difference.call, difference.place = call, place
    return difference


def question_about(split: list[int], wrong: Difference) -> str:
    """Ask the one question that points at the usual mistake behind this first difference."""
    if wrong.place == NO_PLACE:
        return "Does every token that was fed, in every row, get its own output?"
    if wrong.call == 0 and wrong.place == 0:
        return "Nothing was cached yet. Does one token alone agree with lesson 01's layer?"
    if wrong.call == 0:
        return (
            "Which keys may each query of the first chunk see, and at which position does it stand?"
        )
    if split[wrong.call] > 1:
        return (
            "Which keys may each query of a later chunk see, and at which positions does it stand?"
        )
    return (
        "Everything before agrees. At which position does this token stand, and what does it see?"
    )


class WrongChoice(NamedTuple):
    """A new token that was not the likeliest.

    Attributes:
        row: of the batch.
        step: number of the new token, from 0.
        likeliest: the token with the highest logit.
        lead: how much higher its logit is.
    """

    row: int
    step: int
    likeliest: int
    lead: float


def first_wrong_choice(
    logits: np.ndarray, tokens: np.ndarray, n_prompt: int, tolerance: float = TOLERANCE
) -> WrongChoice | None:
    """Find the first new token, over steps and then rows, that was not the likeliest; or None.

    The logits are those of the text as it was written, so one wrong choice is one mistake and not a
    different story from there on; and where two tokens nearly tie, either may be chosen.

    Args:
        logits: (B, T, V), of `tokens`.
        tokens: (B, T), prompt and new tokens.
        n_prompt: tokens of the prompt.
        tolerance: by how much another logit may lead.
    """
    before = logits[:, n_prompt - 1 : -1]  # (B, n_new, V): what may follow, at each step
    chosen = np.take_along_axis(before, tokens[:, n_prompt:, None], axis=2)[:, :, 0]  # (B, n_new)
    lead = (before.max(axis=2) - chosen).T  # (n_new, B)
    wrong = np.argwhere(lead > tolerance)
    if not len(wrong):
        return None
    step, row = wrong[0].tolist()
    return WrongChoice(row, step, int(before[row, step].argmax()), float(lead[step, row]))
