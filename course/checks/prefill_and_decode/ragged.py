"""Check ragged batches: pads on the left, seen by nobody, counted by no position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.calls import (
    Case,
    Words,
    call,
    call_text,
    check_calls,
    drawn,
    one_result_each,
    probe_calls,
)
from course.checks.check import Challenge, Check, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, uncached
from course.checks.counts import in_words
from course.checks.drawing import build_model, draw_model
from course.checks.passes import largest_difference, new_cache
from course.checks.recorder import given
from course.checks.recording import Array, Place, wrong_kind

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


def draw_prompts(rng: np.random.Generator) -> Iterator[Case]:
    """Draw batches of prompts: ragged; some alike; a single one; some in which the id that fills up is a
    token; many short ones; a long one beside a short one; some that begin with the id that fills up;
    some of large ids. Then what are no prompts."""
    lengths, pad_id = (int(rng.integers(1030, 1100)), 2), int(rng.integers(1, V))
    for prompts, pad in (
        ([rng.integers(1, V, n) for n in draw_lengths(rng)], PAD),
        (draw_alike(rng, 4), PAD),
        ([rng.integers(1, V, 3)], PAD),
        draw_with_pads(rng).values(),
        ([rng.integers(1, V, n) for n in rng.integers(1, 4, 70)], PAD),
        ([rng.integers(1, V, n) for n in lengths], pad_id),
        ([np.array([PAD, 5]), np.array([PAD, PAD, 7]), np.array([PAD])], PAD),
        ([np.array([128_255, 2**40 + 1]), np.array([7])], PAD),
    ):
        for part in PARTS:
            yield call("pad_prompts", prompts, pad, part)
    two, question = np.array([1, 2]), "Does the line above the gap stand where it stood?"
    for none, prompts in (
        ("No prompts at all", []),
        ("A prompt without tokens", [two, two[:0]]),
        ("A prompt (1, P)", [two[None]]),
        ("A prompt of float32", [two.astype(np.float32)]),
        ("A prompt of int32", [two.astype(np.int32)]),
    ):
        none_of = {"refuses": "ValueError", "question": question, "none": none}
        yield call("pad_prompts", prompts, PAD, "tokens", **none_of)


PARTS = ("tokens", "n_pads")
"""What pad_prompts returns."""


def run_padding(pad_prompts: Callable[..., Any], case: Case) -> Any:
    """Pad a batch and write V over its prompts; return the part of the result that the case names."""
    prompts, pad_id, part = case["arguments"]
    tensors = [torch.tensor(prompt) for prompt in prompts]
    result = pad_prompts(tensors, pad_id)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"pad_prompts gave {in_words(result)}, wanted is a tuple: tokens and n_pads"
        )
    for tensor in tensors:
        tensor.fill_(V)
    return result[PARTS.index(part)]


def describe_batch(case: Case) -> str:
    """Write down the sizes of a batch, or why it is none."""
    prompts, pad_id, part = case["arguments"]
    if none := case.get("none"):
        return f"{none}: pad_prompts"
    lengths = [len(prompt) for prompt in prompts]
    sizes = str(lengths) if len(lengths) < 9 else f"1 to {max(lengths)}"
    plural = "s" * (len(prompts) > 1)
    return (
        f"{len(prompts)} prompt{plural} of {sizes} tokens, pad_id {pad_id}: as {part} pad_prompts"
    )


@check_calls(
    "pad_prompts",
    draw=draw_prompts,
    run=run_padding,
    describe=describe_batch,
    shape_question="The axes of tokens are B T, that of n_pads is B.",
    praise="Every prompt ends in the last column, and the pads before it are counted.",
)
def pads_stand_on_the_left(case: Case, result: Array, expected: Array, place: Place) -> Words:
    (prompts, pad_id, part), row = case["arguments"], place[0]
    prompt, got, right = prompts[row], result[row], expected[row]
    if part == "n_pads":
        return f"gave {got} for row {row}; {right} of its places were put there by you.", (
            (pad_id in prompt, "How do you tell a pad from a token?"),
            (got == len(prompt), f"{got} is the number of its tokens. What is to be counted?"),
            (True, "How long is the row, and how many tokens has the prompt?"),
        )
    lent = (
        "The caller later wrote something else into a prompt, and the batch is changed, too. In whose "
        "memory does it lie?"
    )
    same = (result == result[0]).all() and len({tuple(p) for p in prompts}) > 1
    return f"gave {_short(got)} in row {row}, made of {_short(prompt)}.", (
        ((result == V).any(), lent),
        (
            same,
            "All rows came out alike. Into which is each prompt written, and has each its memory?",
        ),
        (True, _about_row(got, row, prompts, pad_id)),
    )


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


# --- ragged_mask and ragged_positions ------------------------------------------------------------


def draw_ragged_sizes(function: str, rng: np.random.Generator) -> Iterator[Case]:
    """Draw (T, S) of a prefill, of steps and of chunks between, and pads for each of three rows; then
    rows without pads, with equally many, a single one, and a chunk that holds nothing but pads of a
    row, of one place, too; last, sizes that are larger than most."""
    sizes = ((5, 5), (2, 6), (1, 6), (4, 7), (int(rng.integers(2, 5)), 9))
    for T, S in sizes:
        pads = rng.permutation([0, *rng.choice(np.arange(1, 5), 2, replace=False)]).tolist()
        yield call(function, T, S, pads)
        if (T, S) == (2, 6):  # the same sizes, other pads
            yield call(function, T, S, [(n + 1) % 5 for n in pads])
    pads, more = int(rng.integers(1, 4)), int(rng.integers(5, 9))
    wide, T = int(rng.integers(4100, 4200)), int(rng.integers(130, 140))
    for case in (
        (3, 5, [0, 0]),
        (3, 5, [pads, pads]),
        (2, 6, [pads]),
        (1, 1, [0]),
        (4, 4, [more, 0, 2]),
        (1, 1, [pads, 0]),
        (1, wide, [int(rng.integers(1000, 4000)), 1]),
        (T, T + 5, [int(rng.integers(9, 99))]),
    ):
        yield call(function, *case)


def run_ragged(function: Callable[..., Any], case: Case) -> Any:
    """Call a function on a case; where a row has nothing but pads, an error is described in words."""
    T, S, pads = case["arguments"]
    try:
        return function(T, S, torch.tensor(pads))
    except Exception as error:
        if max(pads) < S:
            raise
        return f"stopped by {type(error).__name__}"


def check_ragged(
    function: str, kind: type, axes: str, praise: str
) -> Callable[[Callable[[str, int, int, int, Any], str | None]], Check]:
    """Make a check of a rule for what `function` says of one place of one row; the check gets the
    rule's name. The rule is told where that is, the place, the pads of its row and all places; it gives
    None, or what is wrong and a question.

    Args:
        kind: of the numbers.
        axes: of a result.
    """

    def made(rule: Callable[[str, int, int, int, Any], str | None]) -> Check:
        def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
            for case, result in zip(challenge["cases"], evidence["results"], strict=True):
                T, S, pads = case["arguments"]
                sizes = {"B": len(pads), "1": 1, "T": T, "S": S}
                right = np.zeros([sizes[axis] for axis in axes.split()], kind)
                if wrong := wrong_kind(result, right, shape_question=f"The axes are {axes}."):
                    early = (
                        "One row has nothing but pads so far. What do your lines look for there?"
                    )
                    return failed(f"{call_text(case)} {wrong} {early * (max(pads) >= S)}".rstrip())
                for row, n in enumerate(pads):
                    for place, value in enumerate(result["value"][row].reshape(T, -1), S - T):
                        where = f"{call_text(case)}: in row {row}, with {n} pads, place {place}"
                        if wrong := rule(where, place, n, S, value):
                            return failed(wrong)
            return passed(praise)

        draw, probe = partial(draw_ragged_sizes, function), partial(probe_calls, run=run_ragged)
        return Check(
            rule.__name__, (function,), drawn(draw), probe, verdict, evidence=one_result_each
        )

    return made


@check_ragged(
    "ragged_mask",
    bool,
    "B 1 T S",
    "Every token sees its own row's tokens up to itself, and no pad.",
)
def pads_are_never_seen(where: str, place: int, pads: int, S: int, seen: np.ndarray) -> str | None:
    case = f"{where} sees {_drawn(seen)}."
    visible, others = seen[pads : place + 1], np.concatenate([seen[:pads], seen[place + 1 :]])
    if place < pads:
        if seen.any():
            return None  # what a pad sees is open
        return f"{case} It is a pad, and sees nothing. What is the softmax over nothing?"
    if not visible.any() and len(others) and others.all():
        return f"{case} Does True hide a place, or show it?"
    if not visible.any():
        return (
            f"{case} The new places are the last ones of all {S}. Where does your triangle end, and may "
            f"a token see itself?"
        )
    if seen[:pads].any():
        return f"{case} Which of these places hold no token?"
    if seen[place + 1 :].any():
        return f"{case} Which of these come after it?"
    return None if visible.all() else f"{case} Which tokens of its own text does it miss?"


def _drawn(seen: np.ndarray) -> str:
    """Draw a row of a mask; of a wide one, name what may be seen."""
    if len(seen) <= 20:
        return "".join("x" if s else "." for s in seen) + " (x: may look)"
    places = np.flatnonzero(seen)
    if not len(places):
        return "nothing"
    return f"{len(places)} of {len(seen)} places, first {places[0]} and last {places[-1]}"


@check_ragged(
    "ragged_positions",
    np.int64,
    "B T",
    "Token i of every row has position i, in a prefill, in a chunk and in a step.",
)
def positions_count_own_tokens(
    where: str, place: int, pads: int, S: int, value: np.ndarray
) -> str | None:
    position = value.item()
    if place >= pads and position != place - pads:
        question = "How many tokens of its own text come before it, cached ones included?"
        if position == place and pads:
            question = (
                f"{place} places come before it, in all chunks. How many of them hold a token?"
            )
        elif position == place - pads + 1:
            question = "From which number on are positions counted?"
        return f"{where} has position {position}, wanted is {place - pads}. {question}"
    if not 0 <= position < S:
        table = f"Is there a row {position} in a rotary table of {S}?"
        return f"{where}, a pad, has position {position}. {table}"
    return None


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
            f"{case} Its prompt agrees. Do the three checks above pass? If so, what may these places "
            f"see, and at which positions do they stand?"
        )
    return f"{case} Do the three checks above pass?"
