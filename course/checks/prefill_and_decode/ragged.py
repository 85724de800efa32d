"""Check ragged batches: pads on the left, seen by nobody, counted by no position."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, outcome, uncached
from course.checks.drawing import build_model, draw_model
from course.checks.passes import (
    ARRAY_OR_WORDS,
    as_array,
    largest_difference,
    new_cache,
)
from course.checks.recorder import given

V, PAD = 50, 0


def draw_lengths(rng: np.random.Generator) -> list[int]:
    """Draw three lengths, all different, the longest not first."""
    longest = int(rng.integers(5, 8))
    others = rng.choice(np.arange(1, longest - 1), 2, replace=False).tolist()
    return [others[0], longest, others[1]]


def draw_alike(rng: np.random.Generator, length: int) -> list[np.ndarray]:
    """Draw four prompts of one length: two that are equal, side by side; one that differs from them in
    its last token; and the first again."""
    prompt = rng.integers(1, V, length)
    other = prompt.copy()
    other[-1] = (prompt[-1] + int(rng.integers(1, V))) % V
    return [prompt, prompt.copy(), other, prompt.copy()]


def draw_with_pads(rng: np.random.Generator) -> Challenge:
    """Draw prompts of different lengths in which `pad_id` is a token like any other: at the beginning of
    one, in the middle of another, and all of a third."""
    pad_id, (short, longest, other) = int(rng.integers(1, V)), draw_lengths(rng)
    prompts = [rng.integers(0, V, n) for n in (short, longest, other)]
    prompts[0][:] = prompts[1][0] = prompts[1][longest // 2] = pad_id
    return {"prompts": prompts, "pad_id": pad_id}


# --- pad_prompts ---------------------------------------------------------------------------------


def draw_prompts(seed: int) -> Challenge:
    """Draw batches of prompts: ragged; some alike; a single one; some in which the id that fills up is a
    token; many short ones; and a long one beside a short one."""
    rng = np.random.default_rng(seed)
    ragged = [rng.integers(1, V, n) for n in draw_lengths(rng)]
    many = [rng.integers(1, V, n) for n in rng.integers(1, 4, 70)]
    long = [rng.integers(1, V, n) for n in (int(rng.integers(1030, 1100)), 2)]
    return {
        "batches": [
            {"prompts": ragged, "pad_id": PAD},
            {"prompts": draw_alike(rng, 4), "pad_id": PAD},
            {"prompts": [rng.integers(1, V, 3)], "pad_id": PAD},
            draw_with_pads(rng),
            {"prompts": many, "pad_id": PAD},
            {"prompts": long, "pad_id": int(rng.integers(1, V))},
        ]
    }


NO_PROMPTS = {
    "No prompts at all": [],
    "A prompt without tokens": [torch.tensor([1, 2]), torch.zeros(0, dtype=torch.int64)],
    "A prompt (1, P)": [torch.tensor([[1, 2]])],
    "A prompt of float32": [torch.tensor([1.0, 2.0])],
}


def probe_padding(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Pad every batch; then write over its prompts, and read the batch again. Offer what are no
    prompts."""
    padded, later = [], []
    for batch in challenge["batches"]:
        prompts = [torch.tensor(prompt) for prompt in batch["prompts"]]
        result = student.pad_prompts(prompts, batch["pad_id"])
        if not isinstance(result, tuple) or len(result) != 2:
            kind = type(result).__name__
            raise TypeError(f"pad_prompts gave a {kind}, wanted is a tuple: tokens and n_pads")
        padded.append(tuple(map(as_array, result)))
        for prompt in prompts:
            prompt.fill_(V)
        later.append(as_array(result[0]))
    refused = [
        outcome(lambda case=case: student.pad_prompts(case, PAD)) for case in NO_PROMPTS.values()
    ]
    return {"padded": padded, "later": later, "refused": refused}


def padding_form(challenge: Challenge) -> Evidence:
    n = len(challenge["batches"])
    return {
        "padded": [[ARRAY_OR_WORDS] * 2] * n,
        "later": [ARRAY_OR_WORDS] * n,
        "refused": [str] * len(NO_PROMPTS),
    }


@check("pad_prompts", draw=draw_prompts, probe=probe_padding, evidence=padding_form)
def pads_stand_on_the_left(challenge: Challenge, evidence: Evidence) -> Verdict:
    for batch, (tokens, n_pads), later in zip(
        challenge["batches"], evidence["padded"], evidence["later"], strict=True
    ):
        prompts, pad_id = batch["prompts"], batch["pad_id"]
        lengths = [len(prompt) for prompt in prompts]
        T, said = max(lengths), str(lengths) if len(lengths) < 9 else f"1 to {max(lengths)}"
        case = f"{len(prompts)} prompt{'s' * (len(prompts) > 1)} of {said} tokens, pad_id {pad_id}"
        for name, got, shape in (
            ("tokens", tokens, (len(prompts), T)),
            ("n_pads", n_pads, (len(prompts),)),
        ):
            if isinstance(got, str) or got.shape != shape or got.dtype != np.int64:
                kind = got if isinstance(got, str) else f"{got.dtype} of shape {got.shape}"
                return failed(f"{case}: {name} is {kind}, wanted is int64 of shape {shape}.")
        for row, prompt in enumerate(prompts):
            pads = T - len(prompt)
            if (tokens[row, :pads] != pad_id).any() or (tokens[row, pads:] != prompt).any():
                made = f"row {row} is {_short(tokens[row])}, made of {_short(prompt)}"
                question = _about_row(tokens[row], row, prompts, pad_id)
                if (tokens == tokens[0]).all() and len({tuple(p) for p in prompts}) > 1:
                    question = "All rows came out alike. Does each have memory of its own?"
                return failed(f"{case}: {made}. {question}")
            if n_pads[row] != pads:
                return failed(
                    f"{case}: row {row} is {_short(tokens[row])}, and its n_pads is "
                    f"{n_pads[row]}; {pads} of these were put there by you. "
                    f"{_about_count(int(n_pads[row]), len(prompt), pad_id in prompt)}"
                )
        if isinstance(later, str) or later.shape != tokens.shape or (later != tokens).any():
            return failed(
                f"{case}: when the caller later writes something else into a prompt, the batch is "
                f"changed, too. In whose memory does it lie?"
            )
    for what, came in zip(NO_PROMPTS, evidence["refused"], strict=True):
        if came != "ValueError":
            return failed(
                f"{what}: {came}, wanted is ValueError, as the line above the gap has it."
            )
    return passed("Every prompt ends in the last column, and the pads before it are counted.")


def _short(row: np.ndarray) -> str:
    """Write a row of ids; of a long one, its end."""
    return str(row.tolist()) if len(row) <= 12 else f"[…, {str(row[-9:].tolist())[1:]}"


def _about_row(got: np.ndarray, row: int, prompts: list[np.ndarray], pad_id: int) -> str:
    """Ask the question that points at the usual mistake behind a wrong row."""
    prompt = prompts[row]
    n, pads = len(prompt), len(got) - len(prompt)
    changed = got[pads:] != prompt
    if not changed.any():
        return "With which id are pads filled up?"
    if (changed == (prompt == pad_id)).all():
        return "What has become of the tokens whose id is pad_id?"
    if (got[:n] == prompt).all():
        return "In which column must the last token of every prompt stand, so that one step serves all?"
    for number, other in enumerate(prompts):
        if number != row and (got[len(got) - len(other) :] == other).all():
            return f"That is prompt {number}. In which order do the rows come out?"
    return "Which tokens of the prompt stand there, and in which order?"


def _about_count(n_pads: int, length: int, holds_pad_id: bool) -> str:
    if holds_pad_id:
        return "How do you tell a pad from a token?"
    if n_pads == length:
        return f"{n_pads} is the number of its tokens. What is to be counted?"
    return "How long is the row, and how many tokens has the prompt?"


# --- ragged_mask and ragged_positions ------------------------------------------------------------


def draw_ragged_sizes(seed: int) -> Challenge:
    """Draw (T, S) of a prefill, of steps and of chunks between, and pads for each of three rows; then
    rows without pads, with equally many, a single one, and a chunk that holds nothing but pads of a
    row, of one place, too; last, sizes that are larger than most."""
    rng = np.random.default_rng(seed)

    def three() -> list[int]:
        return rng.permutation([0, *rng.choice(np.arange(1, 5), 2, replace=False)]).tolist()

    drawn = (int(rng.integers(2, 5)), 9)
    cases = [(T, S, three()) for T, S in ((5, 5), (1, 6), (2, 6), (2, 6), (4, 7), drawn)]
    cases[3] = (2, 6, [(n + 1) % 5 for n in cases[2][2]])  # the same sizes, other pads
    pads = int(rng.integers(1, 4))
    cases += [(3, 5, [0, 0]), (3, 5, [pads, pads]), (2, 6, [pads]), (1, 1, [0])]
    cases += [(4, 4, [int(rng.integers(5, 9)), 0, 2]), (1, 1, [pads, 0])]
    wide, T = int(rng.integers(4100, 4200)), int(rng.integers(130, 140))
    cases += [(1, wide, [int(rng.integers(1000, 4000)), 1]), (T, T + 5, [int(rng.integers(9, 99))])]
    return {"cases": [{"n_new": T, "n_visible": S, "n_pads": pads} for T, S, pads in cases]}


def call_for_each(function: str) -> Callable[[SimpleNamespace, Challenge], Evidence]:
    """Make a probe that calls the student's function of that name on every case."""

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        call = getattr(student, function)
        return {"results": [_result(call, case) for case in challenge["cases"]]}

    return probe


def _result(call: Callable[..., Any], case: Challenge) -> np.ndarray | str:
    """Call a function on a case; where a row has nothing but pads, an error is described in words."""
    try:
        return as_array(call(case["n_new"], case["n_visible"], torch.tensor(case["n_pads"])))
    except Exception as error:
        if not _pads_alone(case):
            raise
        return f"stopped by {type(error).__name__}"


def _pads_alone(case: Challenge) -> bool:
    """Tell whether a row of a case has no token yet."""
    return max(case["n_pads"]) >= case["n_visible"]


def _about_early_chunk(case: Challenge) -> str:
    """Ask a question where a row has no token yet; else nothing."""
    if not _pads_alone(case):
        return ""
    return " One row has nothing but pads so far. What do your lines look for there?"


def results_form(challenge: Challenge) -> Evidence:
    return {"results": [ARRAY_OR_WORDS] * len(challenge["cases"])}


@check(
    "ragged_mask", draw=draw_ragged_sizes, probe=call_for_each("ragged_mask"), evidence=results_form
)
def pads_are_never_seen(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, mask in zip(challenge["cases"], evidence["results"], strict=True):
        T, S, pads = case["n_new"], case["n_visible"], case["n_pads"]
        call, shape = f"ragged_mask({T}, {S}, {pads})", (len(pads), 1, T, S)
        if isinstance(mask, str) or mask.shape != shape or mask.dtype != bool:
            kind = mask if isinstance(mask, str) else f"{mask.dtype} of shape {mask.shape}"
            return failed(
                f"{call} is {kind}, wanted is bool of shape (B, 1, T, S) = {shape}."
                + _about_early_chunk(case)
            )
        for row, n in enumerate(pads):
            for own in range(S - T, S):
                problem = _wrong_mask_row(call, row, n, own, mask[row, 0, own - (S - T)])
                if problem:
                    return problem
    return passed("Every token sees its own row's tokens up to itself, and no pad.")


def _wrong_mask_row(call: str, row: int, n: int, own: int, seen: np.ndarray) -> Verdict | None:
    case = f"{call}: in row {row}, with {n} pads, place {own} sees {_drawn(seen)}."
    if own < n:
        if seen.any():
            return None  # what a pad sees is open
        return failed(f"{case} It is a pad, and sees nothing. What is the softmax over nothing?")
    others = np.concatenate([seen[:n], seen[own + 1 :]])
    if not seen[n : own + 1].any() and len(others) and others.all():
        return failed(f"{case} Does True hide a place, or show it?")
    if not seen[n : own + 1].any():
        return failed(
            f"{case} The new places are the last ones of all {len(seen)}. Where does your triangle end, "
            f"and may a token see itself?"
        )
    if seen[:n].any():
        return failed(f"{case} Which of these places hold no token?")
    if seen[own + 1 :].any():
        return failed(f"{case} Which of these come after it?")
    if not seen[n : own + 1].all():
        return failed(f"{case} Which tokens of its own text does it miss?")
    return None


def _drawn(seen: np.ndarray) -> str:
    """Draw a row of a mask; of a wide one, name what may be seen."""
    if len(seen) <= 20:
        return "".join("x" if s else "." for s in seen) + " (x: may look)"
    places = np.flatnonzero(seen)
    if not len(places):
        return "nothing"
    return f"{len(places)} of {len(seen)} places, first {places[0]} and last {places[-1]}"


@check(
    "ragged_positions",
    draw=draw_ragged_sizes,
    probe=call_for_each("ragged_positions"),
    evidence=results_form,
)
def positions_count_own_tokens(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["results"], strict=True):
        T, S, pads = case["n_new"], case["n_visible"], case["n_pads"]
        call = f"ragged_positions({T}, {S}, {pads})"
        if isinstance(got, str) or got.shape != (len(pads), T) or got.dtype != np.int64:
            kind = got if isinstance(got, str) else f"{got.dtype} of shape {got.shape}"
            return failed(
                f"{call} is {kind}, wanted is int64 of shape (B, T) = {(len(pads), T)}."
                + _about_early_chunk(case)
            )
        for row, n in enumerate(pads):
            for place, position in zip(range(S - T, S), got[row].tolist(), strict=True):
                where = f"{call}: in row {row}, with {n} pads, place {place}"
                if place >= n and position != place - n:
                    return failed(
                        f"{where} has position {position}, wanted is {place - n}. "
                        f"{_about_position(T, place, n, position)}"
                    )
                if not 0 <= position < S:
                    return failed(
                        f"{where}, a pad, has position {position}. Is there a row {position} in a "
                        f"rotary table of {S}?"
                    )
    return passed("Token i of every row has position i, in a prefill, in a chunk and in a step.")


def _about_position(T: int, place: int, n: int, position: int) -> str:
    if position == place and n:
        return f"{place} is its place in the row. How many of the places before it hold a token?"
    if position == place - n + 1:
        return "From which number on are positions counted?"
    return "How many tokens of its own text come before it, cached ones included?"


# --- the whole batch -----------------------------------------------------------------------------


def draw_ragged_texts(seed: int) -> Challenge:
    """Draw a model, and batches for it: prompts of different lengths that hold the id of pads, some that
    are alike, and a single one. Each with the tokens that follow in two chunks, (B, 3)."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2)
    alike = {"prompts": draw_alike(rng, 2)[1:], "pad_id": PAD}
    single = {"prompts": [rng.integers(1, V, 2)], "pad_id": PAD}
    batches = [draw_with_pads(rng), alike, single]
    for batch in batches:
        batch["next"] = rng.integers(1, V, (len(batch["prompts"]), 3))
    return {**model, "batches": batches}


STEPS = (1, 2)
"""Tokens that follow a prompt: of a step, and of a chunk after it."""


def probe_ragged(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed each batch of padded prompts, and then a step and a chunk of what follows."""
    model, logits = build_model(challenge), []
    for batch in challenge["batches"]:
        prompts = [torch.tensor(prompt) for prompt in batch["prompts"]]
        tokens, n_pads = student.pad_prompts(prompts, batch["pad_id"])
        following = given(batch["next"])
        cache = new_cache(challenge, len(prompts), tokens.shape[1] + sum(STEPS))
        parts = [student.forward_ragged(model, tokens, n_pads, cache)]
        for part in following.split(STEPS, dim=1):
            parts.append(student.forward_ragged(model, part, n_pads, cache))
        logits.append([part.numpy() for part in parts])
    return {"logits": logits}


def ragged_form(challenge: Challenge) -> Evidence:
    return {"logits": [[np.ndarray] * (1 + len(STEPS)) for _ in challenge["batches"]]}


@check(
    "pad_prompts",
    "forward_ragged",
    draw=draw_ragged_texts,
    probe=probe_ragged,
    evidence=ragged_form,
    truth=uncached,
)
def each_row_equals_itself_alone(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every row's tokens with those of the row alone."""
    for batch, parts in zip(challenge["batches"], evidence["logits"], strict=True):
        prompts, n_words = batch["prompts"], challenge["config"]["vocab_size"]
        lengths = [len(prompt) for prompt in prompts]
        T, rows = max(lengths), len(prompts)
        shapes = [part.shape for part in parts]
        if shapes != [(rows, n, n_words) for n in (T, *STEPS)]:
            return failed(f"Prompts of {lengths} tokens, then {STEPS} more: logits of {shapes}.")
        logits = np.concatenate(parts, axis=1)  # (B, T + 3, V)
        for row in sorted(range(rows), key=lambda row: -lengths[row]):
            text = np.concatenate([prompts[row], batch["next"][row]])
            wanted = truth(challenge, text[None])[0]  # (P + 3, V)
            for i, want in enumerate(wanted):
                got = logits[row, T - lengths[row] + i]
                _, delta = largest_difference(got[None], want[None])
                if delta > tolerance:
                    return failed(_say_where(lengths, row, i, delta, got, tolerance))
    return passed("Long and short prompts in one batch: every row equals itself alone.")


def _say_where(
    lengths: list[int], row: int, i: int, delta: float, got: np.ndarray, tolerance: float
) -> str:
    after = i - lengths[row]
    where = f"token {i} of the prompt"
    if after >= 0:
        where = "the step after it" if after < STEPS[0] else "the chunk after that"
    pads = max(lengths) - lengths[row]
    case = (
        f"Prompts of {lengths} tokens in one batch. Row {row}, with {pads} pads, differs from itself "
        f"alone at {where} (max |Δ| {delta:.2g}, tolerance {tolerance:g})."
    )
    if np.isnan(got).any():
        return f"{case} These are NaN. What is the softmax over nothing, and who reads the result?"
    if after >= 0 and pads:
        return (
            f"{case} Its prompt agrees. For these places: what may they see, and how far is their "
            f"position from the one before?"
        )
    return f"{case} Do the three checks above pass?"
