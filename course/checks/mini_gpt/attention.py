"""Check attention: what a token sees, how it weighs, which heads share."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.mini_gpt.outputs import OUTPUT, call, form_error, gap, moved, one_output_each
from course.checks.mini_gpt.sizes import draw_sizes
from course.checks.ready_made import NoReadyMadeAttention
from course.checks.recorder import given
from course.checks.recording import Array

Case = tuple[Array, Array, Array]
"""Queries (B, H, T, D), keys and values (B, G, T, D)."""
Truth = Callable[[Case], Array]
"""Gives the output of the last token, (B, H, D). It sees every other, mask or no mask, so with it the
weights alone are judged."""


def draw_qkv(
    rng: np.random.Generator, B: int, H: int, G: int, T: int, D: int, dtype: str = "float32"
) -> Case:
    """Draw queries and keys sharp enough that weights differ, and values of size 1."""
    shapes = ((B, H, T, D), (B, G, T, D), (B, G, T, D))
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call causal_attention on each case, a (q, k, v), and again on the first; what is drawn at random
    in there is the same every time."""
    cases = [*challenge["cases"], challenge["cases"][0]]
    with (
        NoReadyMadeAttention("write the matrix products, the mask and the softmax out."),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(0)
        *outputs, again = (call(student.causal_attention, *map(given, case)) for case in cases)
    return {"outputs": outputs, "again": again}


def attention_form(challenge: Challenge) -> Evidence:
    return {**one_output_each(challenge), "again": OUTPUT}


def first_error(cases: list[Case], evidence: Evidence, tolerance: float) -> str | None:
    """Say that two equal calls gave different numbers, or what is wrong with the form of an output, or
    None."""
    once, again = evidence["outputs"][0]["array"], evidence["again"]["array"]
    if once is not None and once.shape == cases[0][0].shape and np.isfinite(once).all():
        alike = again is not None and once.shape == again.shape
        difference = gap(np.float64(once), np.float64(again)) if alike else np.inf
        if not difference <= tolerance:
            return (
                f"Two calls with the same q, k and v gave different numbers (max |Δ| {difference:.2g}, "
                f"tolerance {tolerance:g}). Which of your lines draws at random?"
            )
    errors = map(attention_error, evidence["outputs"], cases)
    return next(filter(None, errors), None)


def attention_error(out: Evidence, case: Case) -> str | None:
    """Say what is wrong with the form of an output, or None."""
    q, k, _ = case
    name = f"causal_attention on q {q.shape}, k and v {k.shape}, {q.dtype}"
    if out["array"] is not None and out["array"].shape == q.shape:
        nowhere = ~np.isfinite(out["array"])
        tokens = np.flatnonzero(nowhere.any(axis=(0, 1, 3))).tolist()
        T = q.shape[2]
        if tokens and len(tokens) < T:
            question = "What goes into the softmax of that row?"
            if tokens == [0]:
                question = "Token 0 has only itself to look at. Does a token see itself?"
            elif tokens == list(range(T - 1)):
                question = (
                    "Which tokens are left for them to see, and over which axis is the softmax?"
                )
            elif tokens == list(range(len(tokens))):
                question = "Which tokens are left for them to see, and which should be?"
            elif tokens == [T - 1]:
                question = "Which half of the square do you hide?"
            return f"{name}: the outputs of tokens {tokens} are no numbers. {question}"
        if tokens:
            question = "Is anything multiplied by −∞, or a whole row hidden?"
            if not q.any():
                question = (
                    "All scores are 0 here. Does your mask tell such a score from a hidden place?"
                )
            return f"{name}: no output is a number. {question}"
    error = form_error(name, out, q.shape, str(q.dtype))
    if error and q.shape[2] > LONG:
        words = error.removesuffix(" Which axis is where?").rstrip(".")
        return f"{words}. {MADE_FOR_A_LENGTH}"
    return error


LONG = 1000
MADE_FOR_A_LENGTH = "Short texts are right. What in your code is made for a certain length?"


# What a token sees


def draw_nudged_tokens(seed: int) -> Challenge:
    """Draw case 0, and case 1 + j with another key and value for token j; then `equal_scores`."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    q, k, v = draw_qkv(rng, **{**size, "G": size["H"]})
    cases = [(q, k, v)]
    for j in range(size["T"]):
        other_k, other_v = k.copy(), v.copy()
        other_k[:, :, j] += 5 * rng.normal(size=size["D"])
        other_v[:, :, j] += 100 * rng.choice([-1, 1], size=size["D"])
        cases.append((q, other_k, other_v))
    return {"cases": cases + equal_scores(rng)}


def equal_scores(rng: np.random.Generator) -> list[Case]:
    """Draw a short text, and one of more than 1,024 tokens, all of whose scores are 0."""
    drawn = [draw_qkv(rng, B=1, H=1, G=1, T=T, D=2) for T in (6, int(rng.integers(1030, 1100)))]
    return [(np.zeros_like(q), k, v) for q, k, v in drawn]


def judge_equal_scores(
    cases: list[Case], outputs: list[Evidence], tolerance: float
) -> Verdict | None:
    """Judge the last two cases; None where the long text is as right as the short one."""
    wrong = []
    for (_, _, v), out in zip(cases, outputs, strict=True):
        n_seen = np.arange(1, v.shape[2] + 1)[:, None]
        averages = np.cumsum(np.float64(v), axis=2) / n_seen  # (1, 1, T, D)
        wrong.append(moved(averages, out["array"], 2, tolerance))
    short, long = wrong
    if short or not long:
        return None
    return failed(
        f"{cases[1][0].shape[2]:,} tokens, all scores 0: each output is the plain average of what the "
        f"token sees. From token {long[0]:,} on that is wrong. {MADE_FOR_A_LENGTH}"
    )


def probe_nudged(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call causal_attention on each case, and on case 0 in bfloat16."""
    case = [torch.from_numpy(part).to(torch.bfloat16) for part in challenge["cases"][0]]
    wrong = other_dtype(lambda: student.causal_attention(*case), torch.bfloat16)
    return {**probe_attention(student, challenge), "in_bfloat16": wrong}


def other_dtype(call: Callable[[], Any], dtype: torch.dtype) -> str:
    """Say that a call mixes dtypes, or gives another one than it was given; "" where it does not."""
    try:
        result = call()
    except RuntimeError as error:
        if not re.search("scalar type|same dtype|dtypes must be", str(error)):
            raise
        return f"it stopped ({error!s:.100})"
    given_back = getattr(result, "dtype", dtype)
    return "" if given_back == dtype else f"the result is {given_back}"


@check(
    "causal_attention",
    draw=draw_nudged_tokens,
    probe=probe_nudged,
    evidence=lambda challenge: {**attention_form(challenge), "in_bfloat16": str},
)
def attention_sees_no_future(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge which outputs a nudged token moved: those from it on, and no others."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    if error := first_error(cases, evidence, tolerance):
        return failed(error)
    T = cases[0][0].shape[2]
    base, *others = [out["array"] for out in outputs[:-2]]
    reach = [moved(base, other, 2, tolerance) for other in others]
    for j, tokens in enumerate(reach):
        if tokens and tokens[0] < j:
            t = tokens[0]
            return failed(
                f"{T} tokens: a new key and value for token {j} moved the output of token {t} "
                f"(max |Δ| {gap(base[:, :, t], others[j][:, :, t]):.2g}, tolerance {tolerance:g}). "
                f"{question_about_the_future(reach, t)}"
            )
        if tokens != list(range(j, T)):
            t = next(t for t in range(j, T) if t not in tokens)
            question = f"Which tokens may token {t} see?"
            if t == 0:
                question = (
                    "Token 0 sees only itself, so its output is its value. Of what is yours made?"
                )
            return failed(
                f"{T} tokens: a new key and value for token {j} did not move the output of token "
                f"{t}. {question}"
            )
    if wrong := judge_equal_scores(cases[-2:], outputs[-2:], tolerance):
        return wrong
    if wrong := evidence["in_bfloat16"]:
        return failed(
            f"causal_attention was given bfloat16, and {wrong}. Which of your lines makes a tensor and "
            f"does not say of which dtype?"
        )
    return passed("Nudge token j: outputs from j on move, and nothing left of it does.")


def question_about_the_future(reach: list[list[int]], t: int) -> str:
    """Ask about the mask, or, where every token moves every other, about what hides."""
    T = len(reach)
    if all(tokens == list(range(T)) for tokens in reach):
        return (
            "Every token moves every other: what is a hidden pair's score, and over which axis is the "
            "softmax?"
        )
    return f"Which tokens may token {t} see?"


# How it weighs


def draw_softmax(seed: int) -> Challenge:
    """Draw case 0 with values that are all 1; case 1 with sharper weights; scores far from 0, in
    float64; and a token alone."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    q, k, v = draw_qkv(rng, **{**size, "G": size["H"]})
    alone = draw_qkv(rng, B=1, H=2, G=2, T=1, D=size["D"])
    far = far_scores(rng, size["T"], size["D"])
    return {"cases": [(q, k, np.ones_like(v)), (1.5 * q, 1.5 * k, v), far, alone]}


def far_scores(rng: np.random.Generator, T: int, D: int) -> Case:
    """Draw one row in float64 whose scores q · k / √D all lie near −150: only their distances count."""
    q, k, v = draw_qkv(rng, B=1, H=2, G=2, T=T, D=D, dtype="float64")
    q[..., 0], k[..., 0] = 10.0, -15.0 * np.sqrt(D)
    return q, k, v


@check("causal_attention", draw=draw_softmax, probe=probe_attention, evidence=attention_form)
def attention_weighs_by_softmax(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge whether weights add up to 1, then whether they are the softmax of q · k / √D, and last what
    far scores change."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    if error := first_error(cases, evidence, tolerance):
        return failed(error)
    if wrong := judge_sum(outputs[0]["array"], tolerance):
        return wrong
    near, far, alone = (out["array"] for out in outputs[1:])
    questions = (
        "By what is q · k divided, what else happens to scores or weights, and whose values do they "
        "weigh?",
        "All scores are near −150 here. Which differences does the softmax see?",
        "What is the softmax of one score?",
    )
    for case, output, question in zip(cases[1:], (near, far, alone), questions, strict=True):
        difference = np.abs(output[:, :, -1] - truth(case)).max(axis=-1)  # (B, H)
        if difference.max() > tolerance:
            b, h = np.argwhere(difference > tolerance)[0].tolist()
            T, D = case[0].shape[2:]
            if b > 0:
                question = "Row 0 agrees. Which axis of your tensors holds the batch?"
            return failed(
                f"Token {T - 1}, which sees all {T} tokens, row {b}, head {h}: max |Δ| "
                f"{difference[b, h]:.2g} from softmax attention (tolerance {tolerance:g}); head "
                f"width D = {D}. {question}"
            )
    own = [
        gap(out[:, :, 0], case[2][:, :, 0])
        for case, out in zip(cases[1:3], (near, far), strict=True)
    ]
    if own[0] <= tolerance < own[1]:
        return failed(
            "All scores are near −150 here, and token 0 is given more than its own value (max |Δ| "
            f"{own[1]:.2g}, tolerance {tolerance:g}); with scores near 0 it is not. "
            "How small is the score of a hidden pair?"
        )
    return passed("Weights of each query add up to 1 and are the softmax of q · k / √D.")


def judge_sum(ones: Array, tolerance: float) -> Verdict | None:
    """Judge the output where all values are 1; None where it is 1."""
    wrong = np.argwhere(np.abs(ones - 1) > tolerance)
    if not len(wrong):
        return None
    b, h, t, d = wrong[0].tolist()
    question = "What do the weights of one query add up to?"
    if np.ptp(ones[b, h, t]) > tolerance:  # no multiple of the values
        question = "Of which of the three tensors is the average taken?"
    return failed(
        f"All values are 1, so any average of them is 1; token {t} of head {h} gives "
        f"{ones[b, h, t, d]:.3g}. {question}"
    )


# Which heads share


def draw_groups(seed: int) -> Challenge:
    """Draw equal rows, with new numbers in one of them only, KV head by KV head; last, with G KV heads
    and with one, the same attention with the KV heads written out for each query head."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    row = int(rng.integers(size["B"]))
    q, k, v = (part.repeat(size["B"], axis=0) for part in draw_qkv(rng, **{**size, "B": 1}))
    owner = np.arange(size["H"]) // (size["H"] // size["G"])
    one = np.zeros(size["H"], int)
    cases = [
        *with_new_kv_heads(rng, q, k, v, row),
        (q, k[:, owner], v[:, owner]),
        (q, k[:, :1], v[:, :1]),
        (q, k[:, one], v[:, one]),
    ]
    return {"cases": cases, "row": row}


def with_new_kv_heads(
    rng: np.random.Generator, q: Array, k: Array, v: Array, row: int
) -> list[Case]:
    """Make the cases of `draw_groups`; in batch row `row` alone the new heads are new."""
    cases = [(q, k, v)]
    for g in range(k.shape[1]):
        other_k, other_v = k.copy(), v.copy()
        other_k[row, g] = 2 * rng.normal(size=k.shape[2:])
        other_v[row, g] += rng.choice([-3, 3], size=v.shape[2:])
        cases += [(q, other_k, v), (q, k, other_v)]
    return cases


@check("causal_attention", draw=draw_groups, probe=probe_attention, evidence=attention_form)
def query_heads_share_kv_heads(
    challenge: Challenge, evidence: Evidence, tolerance: float
) -> Verdict:
    """Judge which query heads share, that sharing changes nothing else, and that rows stay apart."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    if error := first_error(cases, evidence, tolerance):
        return failed(error)
    *heads, written_out, single, single_written_out = (out["array"] for out in outputs)
    H, G = cases[0][0].shape[1], cases[0][1].shape[1]
    if wrong := judge_moved_heads(heads, H, G, tolerance):
        return wrong
    for n, shared, full in ((G, heads[0], written_out), (1, single, single_written_out)):
        if (difference := gap(shared, full)) > tolerance:
            return failed(
                f"{H} query heads: KV heads shared ({n}), and the same ones written out for "
                f"each query head, give different outputs (max |Δ| {difference:.2g}, tolerance "
                f"{tolerance:g}). What else changes when heads share?"
            )
    rows = sorted({row for other in heads[1:] for row in moved(heads[0], other, 0, tolerance)})
    if rows != [challenge["row"]]:
        return failed(
            f"New numbers in batch row {challenge['row']} moved rows {rows}. "
            "Which axis holds the batch?"
        )
    return passed("Each KV head serves its own group of neighbouring query heads, and no other.")


def judge_moved_heads(outputs: list[Array], H: int, G: int, tolerance: float) -> Verdict | None:
    """Judge which query heads each new KV head moved: None where it is those of its group alone."""
    base, *others = outputs
    for i, other in enumerate(others):
        g, part = i // 2, ("keys", "values")[i % 2]
        heads = moved(base, other, 1, tolerance)
        expected = [h for h in range(H) if h // (H // G) == g]
        if heads != expected:
            odd = sorted(set(heads) ^ set(expected))[0]
            return failed(
                f"{H} query heads, {G} KV heads: new {part} in KV head {g} moved the outputs of "
                f"query heads {heads}; expected {expected}. Which KV head does query head {odd} read?"
            )
    return None
