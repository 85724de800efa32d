"""Check ragged batches: pads on the left, seen by nobody, counted by no position."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model
from course.checks.prefill_and_decode.chunks import (
    ARRAY_OR_WORDS,
    B,
    as_array,
    largest_difference,
    new_cache,
)

PAD = 0


def draw_lengths(rng: np.random.Generator) -> list[int]:
    """Draw three lengths, all different, the longest not first."""
    longest = int(rng.integers(6, 9))
    others = rng.choice(np.arange(1, longest - 1), 2, replace=False).tolist()
    return [others[0], longest, others[1]]


# --- pad_prompts ---------------------------------------------------------------------------------


def draw_prompts(seed: int) -> Challenge:
    """Draw batches of prompts: ragged, all of one length, a single one; and one in which some prompts
    begin with the id that also fills up, where it is a token like any other."""
    rng = np.random.default_rng(seed)
    batches = []
    for lengths in (draw_lengths(rng), [4, 4], [3]):
        prompts = [rng.integers(1, 50, n) for n in lengths]
        batches.append({"prompts": prompts, "pad_id": PAD})
    pad_id = int(rng.integers(1, 50))
    begins_with_it = [rng.integers(0, 50, n) for n in draw_lengths(rng)]
    begins_with_it[1][0] = begins_with_it[2][0] = pad_id
    return {"batches": [*batches, {"prompts": begins_with_it, "pad_id": pad_id}]}


def probe_padding(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Pad every batch, and look at its prompts again."""
    padded, after = [], []
    for batch in challenge["batches"]:
        prompts = [torch.from_numpy(prompt.copy()) for prompt in batch["prompts"]]
        result = student.pad_prompts(prompts, batch["pad_id"])
        if not isinstance(result, tuple) or len(result) != 2:
            kind = type(result).__name__
            raise TypeError(f"pad_prompts gave a {kind}, wanted is a tuple: tokens and n_pads")
        padded.append(tuple(map(as_array, result)))
        after.append([prompt.numpy() for prompt in prompts])
    return {"padded": padded, "after": after}


def padding_form(challenge: Challenge) -> Evidence:
    batches = challenge["batches"]
    return {
        "padded": [[ARRAY_OR_WORDS] * 2 for _ in batches],
        "after": [[np.ndarray] * len(batch["prompts"]) for batch in batches],
    }


def judge_padding(challenge: Challenge, evidence: Evidence) -> Verdict:
    for batch, (tokens, n_pads), after in zip(
        challenge["batches"], evidence["padded"], evidence["after"], strict=True
    ):
        prompts, pad_id = batch["prompts"], batch["pad_id"]
        lengths = [len(prompt) for prompt in prompts]
        case, T = f"Prompts of {lengths} tokens, pad_id {pad_id}", max(lengths)
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
                return failed(
                    f"{case}: row {row} is {tokens[row].tolist()}, made of {prompt.tolist()}. In "
                    f"which column must the last token of every prompt stand, so that one step "
                    f"serves all?"
                )
            if n_pads[row] != pads:
                return failed(
                    f"{case}: row {row} is {tokens[row].tolist()}, and its n_pads is "
                    f"{n_pads[row]}; {pads} of these were put there by you. How do you tell a pad "
                    f"from a token?"
                )
        for got, prompt in zip(after, prompts, strict=True):
            if got.shape != prompt.shape or (got != prompt).any():
                return failed(f"{case}: your function changed the prompts that it was given.")
    return passed("Every prompt ends in the last column, and the pads before it are counted.")


pads_stand_on_the_left = Check(
    "pads_stand_on_the_left",
    ("pad_prompts",),
    draw_prompts,
    probe_padding,
    judge_padding,
    evidence=padding_form,
)

# --- ragged_mask and ragged_positions ------------------------------------------------------------


def draw_ragged_sizes(seed: int) -> Challenge:
    """Draw (T, S) of a prefill, of a step and of chunks between, and pads for each of three rows."""
    rng = np.random.default_rng(seed)
    cases = []
    for n_new, n_visible in ((5, 5), (1, 6), (2, 6), (4, 7), (int(rng.integers(2, 5)), 9)):
        pads = rng.permutation([0, *rng.integers(1, 5, 2).tolist()]).tolist()
        cases.append({"n_new": n_new, "n_visible": n_visible, "n_pads": pads})
    return {"cases": cases}


def call_for_each(function: str) -> Callable[[SimpleNamespace, Challenge], Evidence]:
    """Make a probe that calls the student's function of that name on every case."""

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        call, results, after = getattr(student, function), [], []
        for case in challenge["cases"]:
            n_pads = torch.tensor(case["n_pads"])
            results.append(as_array(call(case["n_new"], case["n_visible"], n_pads)))
            after.append(n_pads.tolist())
        return {"results": results, "after": after}

    return probe


def results_form(challenge: Challenge) -> Evidence:
    cases = challenge["cases"]
    return {
        "results": [ARRAY_OR_WORDS] * len(cases),
        "after": [[int] * len(case["n_pads"]) for case in cases],
    }


def judge_mask(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, mask, after in zip(
        challenge["cases"], evidence["results"], evidence["after"], strict=True
    ):
        T, S, pads = case["n_new"], case["n_visible"], case["n_pads"]
        call = f"ragged_mask({T}, {S}, {pads})"
        shape = (len(pads), 1, T, S)
        if isinstance(mask, str) or mask.shape != shape or mask.dtype != bool:
            kind = mask if isinstance(mask, str) else f"{mask.dtype} of shape {mask.shape}"
            return failed(f"{call} is {kind}, wanted is bool of shape (B, 1, T, S) = {shape}.")
        for row, n in enumerate(pads):
            for own in range(max(n, S - T), S):  # a pad's own row of the mask may be anything
                problem = _wrong_mask_row(call, row, n, own, mask[row, 0, own - (S - T)])
                if problem:
                    return problem
        if after != pads:
            return failed(f"{call}: n_pads is {after} afterwards. Who else needs it?")
    return passed("Every token sees its own row's tokens up to itself, and no pad.")


def _wrong_mask_row(call: str, row: int, n: int, own: int, seen: np.ndarray) -> Verdict | None:
    drawn = "".join("x" if s else "." for s in seen)
    case = f"{call}: in row {row}, with {n} pads, place {own} sees {drawn} (x: may look)."
    if seen[:n].any():
        return failed(f"{case} Which of these places hold no token?")
    if seen[own + 1 :].any():
        return failed(f"{case} Which of these come after it?")
    if not seen[n : own + 1].all():
        return failed(f"{case} Which tokens of its own text does it miss?")
    return None


pads_are_never_seen = Check(
    "pads_are_never_seen",
    ("ragged_mask",),
    draw_ragged_sizes,
    call_for_each("ragged_mask"),
    judge_mask,
    evidence=results_form,
)


def judge_positions(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, got, after in zip(
        challenge["cases"], evidence["results"], evidence["after"], strict=True
    ):
        T, S, pads = case["n_new"], case["n_visible"], case["n_pads"]
        call = f"ragged_positions({T}, {S}, {pads})"
        if isinstance(got, str) or got.shape != (len(pads), T) or got.dtype != np.int64:
            kind = got if isinstance(got, str) else f"{got.dtype} of shape {got.shape}"
            return failed(f"{call} is {kind}, wanted is int64 of shape (B, T) = {(len(pads), T)}.")
        for row, n in enumerate(pads):
            for t, place in enumerate(range(S - T, S)):
                position = int(got[row, t])
                if place >= n and position != place - n:
                    return failed(
                        f"{call}: in row {row}, with {n} pads, place {place} has position "
                        f"{position}, wanted is {place - n}. How many tokens of its own text come "
                        f"before it?"
                    )
                if not 0 <= position < S:
                    return failed(
                        f"{call}: in row {row}, the pad at place {place} has position {position}. "
                        f"Is there a row {position} in the rotary table?"
                    )
        if after != pads:
            return failed(f"{call}: n_pads is {after} afterwards. Who else needs it?")
    return passed("Token i of every row has position i, in a prefill, in a chunk and in a step.")


positions_count_own_tokens = Check(
    "positions_count_own_tokens",
    ("ragged_positions",),
    draw_ragged_sizes,
    call_for_each("ragged_positions"),
    judge_positions,
    evidence=results_form,
)

# --- the whole batch -----------------------------------------------------------------------------


def draw_ragged_texts(seed: int) -> Challenge:
    """Draw a model, three prompts of different lengths, and 3 tokens that follow each, (3, 3)."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    prompts = [rng.integers(1, 50, n) for n in draw_lengths(rng)]
    return {**challenge, "prompts": prompts, "next": rng.integers(1, 50, (B, 3))}


def probe_ragged(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the padded prompts as one batch, and then step after step."""
    model = build_model(challenge)
    prompts = [torch.from_numpy(prompt.copy()) for prompt in challenge["prompts"]]
    tokens, n_pads = student.pad_prompts(prompts, PAD)
    following = torch.from_numpy(challenge["next"].copy())
    cache = new_cache(challenge, tokens.shape[1] + following.shape[1])
    logits = [student.forward_ragged(model, tokens, n_pads, cache)]
    for step in following.split(1, dim=1):
        logits.append(student.forward_ragged(model, step, n_pads, cache))
    return {"logits": [chunk.numpy() for chunk in logits]}


def ragged_form(challenge: Challenge) -> Evidence:
    return {"logits": [np.ndarray] * (1 + challenge["next"].shape[1])}


def judge_ragged(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every row's tokens with those of the row alone."""
    prompts, V = challenge["prompts"], challenge["config"]["vocab_size"]
    lengths = [len(prompt) for prompt in prompts]
    T, steps = max(lengths), challenge["next"].shape[1]
    shapes = [chunk.shape for chunk in evidence["logits"]]
    if shapes != [(B, T, V)] + [(B, 1, V)] * steps:
        return failed(f"Prompts of {lengths} tokens, then {steps} steps: logits of {shapes}.")
    logits = np.concatenate(evidence["logits"], axis=1)  # (B, T + steps, V)
    for row in sorted(range(B), key=lambda row: -lengths[row]):
        text = np.concatenate([prompts[row], challenge["next"][row]])
        wanted = truth(challenge, text[None])[0]  # (P + steps, V)
        for i, want in enumerate(wanted):
            got = logits[row, T - lengths[row] + i]
            _, delta = largest_difference(got[None], want[None])
            if delta > tolerance:
                return failed(_say_where(lengths, row, i, delta, got, tolerance))
    return passed(f"Prompts of {lengths} tokens in one batch: every row equals itself alone.")


def _say_where(
    lengths: list[int], row: int, i: int, delta: float, got: np.ndarray, tolerance: float
) -> str:
    step = i - lengths[row] + 1
    where = f"step {step}" if step > 0 else f"token {i} of the prompt"
    case = (
        f"Prompts of {lengths} tokens in one batch. Row {row}, with {max(lengths) - lengths[row]} "
        f"pads, differs from itself alone at {where} (max |Δ| {delta:.2g}, tolerance {tolerance:g})."
    )
    if np.isnan(got).any():
        return f"{case} These are NaN. What is the softmax over nothing, and who reads the result?"
    if step > 0 and lengths[row] < max(lengths):
        return (
            f"{case} Its prompt agrees. How far apart are this token's position and the one before?"
        )
    return f"{case} Do the three checks above pass?"


each_row_equals_itself_alone = Check(
    "each_row_equals_itself_alone",
    ("pad_prompts", "forward_ragged"),
    draw_ragged_texts,
    probe_ragged,
    judge_ragged,
    evidence=ragged_form,
    truth=uncached,
    tolerance=TOLERANCE,
)
