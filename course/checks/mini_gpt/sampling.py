"""Check tokens that are drawn: how often each, whether draws can be repeated, and which are left out."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.mini_gpt.outputs import OUTPUT, call, form_error, one_output_each
from course.checks.recorder import given
from course.checks.recording import Array

VARIATION = 0.09
"""Largest total variation between drawn and expected frequencies. The expected one of 3,000 fair
draws over 8 tokens is at most 0.026, and by McDiarmid's inequality they pass 0.09 with a probability
below 1e-10; every bug of the museum that changes frequencies passes 0.13 somewhere."""
DRAWS = 3_000


Truth = Callable[[list[float], dict[str, Any]], dict[str, Array]]
"""Gives, for one row of logits and the settings of a draw, the probabilities (V,) of its tokens:
"right", and those of known mistakes, by name; see QUESTIONS."""
QUESTIONS = {
    "temperature unused": "Where does the temperature enter?",
    "softmax twice": "How often does a logit go through the softmax, and when is it divided?",
    "temperature multiplied": "What does a {size} temperature do to the distances between logits?",
    "all alike": "Is the likeliest of the kept tokens drawn more often than the others?",
    "top_k unused": "What does top_k={top_k} leave out?",
    "one more": "How many tokens does top_k={top_k} keep?",
    "one less": "How many tokens does top_k={top_k} keep?",
    "the least likely": "From which end are the kept tokens taken?",
    "zero for the others": "What logit has a token that was dropped when the softmax comes?",
}
"""What is asked where frequencies are those of a known mistake."""


# --- cases, and what was drawn -------------------------------------------------------------------


def draw_case(kinds: Array, seed: int, rows: int = DRAWS, **settings: Any) -> dict[str, Any]:
    """Make a case of `probe_draws`."""
    return {
        "kinds": kinds,
        "rows": rows,
        "seed": seed,
        "used": False,
        "global_seed": 0,
        "settings": settings,
    }


def probe_draws(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call sample_next on each case.

    A case holds kinds of rows (K, V), which are given `rows` times in turn; the settings of the draw;
    the seed of its generator, and whether that was used before; and the seed of torch's own numbers,
    which must make no difference.
    """
    outputs = []
    with torch.random.fork_rng(devices=[]):
        for case in challenge["cases"]:
            torch.manual_seed(case["global_seed"])
            generator = torch.Generator().manual_seed(case["seed"])
            if case["used"]:
                torch.rand(1000, generator=generator)
            outputs.append(
                call(student.sample_next, logits_of(case), **case["settings"], generator=generator)
            )
    return {"outputs": outputs}


def logits_of(case: Challenge) -> Tensor:
    """Make the logits of a case, (rows · K, V): rows 0, K, 2K … are of kind 0."""
    return given(np.tile(case["kinds"], (case["rows"], 1)))


def judge_draws(case: dict[str, Any], out: Evidence, truth: Truth) -> Verdict | None:
    """Compare the draws of one case with the probabilities of each kind of row; None if they agree."""
    kinds, V = case["kinds"], case["kinds"].shape[1]
    at = setting(case)
    if error := wrong_tokens(case, out):
        return failed(error)
    for kind, logits in enumerate(kinds):
        likely = truth(logits.tolist(), case["settings"])
        counts = np.bincount(out["array"][kind :: len(kinds)], minlength=V)
        expected, drawn = likely["right"], counts / counts.sum()
        never = np.flatnonzero((expected == 0) & (counts > 0)).tolist()
        variation = distance(drawn, expected)
        if not never and variation <= VARIATION:
            continue
        question = question_about(case, kind, drawn, likely)
        if never:
            place = 1 + int((logits > logits[never[0]]).sum())
            return failed(
                f"At {at} token {never[0]} was drawn {counts[never[0]]:,} times, though its "
                f"logit is only number {place} of its row. {question}"
            )
        worst = int(np.abs(drawn - expected).argmax())
        return failed(
            f"At {at} token {worst} (logit {logits[worst]:.2g}, the row's best "
            f"{logits.max():.2g}) came up in {drawn[worst]:.0%} of {counts.sum():,} draws; its "
            f"probability is {expected[worst]:.0%} (total variation {variation:.2f}, at most "
            f"{VARIATION:g}). {question}"
        )
    return None


def distance(drawn: Array, expected: Array) -> float:
    """Compute the total variation between two distributions, 0 … 1."""
    return 0.5 * float(np.abs(drawn - expected).sum())


def setting(case: dict[str, Any]) -> str:
    """Name the settings of a case."""
    temperature, top_k = case["settings"].get("temperature"), case["settings"].get("top_k")
    words = "the default temperature" if temperature is None else f"temperature {temperature:.2g}"
    return words + ("" if top_k is None else f", top_k {top_k}")


def wrong_tokens(case: dict[str, Any], out: Evidence) -> str | None:
    """Say what is wrong with the form of drawn tokens, or None."""
    rows, V = case["rows"] * len(case["kinds"]), case["kinds"].shape[1]
    if error := form_error(f"sample_next on {V} tokens, {setting(case)},", out, (rows,), "int64"):
        return error
    if out["array"].min() < 0 or out["array"].max() >= V:
        return f"At {setting(case)} a token outside 0 … {V - 1} was drawn. What is it the index of?"
    return None


def question_about(case: dict[str, Any], kind: int, drawn: Array, likely: dict[str, Array]) -> str:
    """Ask the one question that fits what is odd about the frequencies."""
    temperature, top_k = case["settings"].get("temperature"), case["settings"].get("top_k")
    size = "small" if (temperature or 1) < 1 else "large"
    if drawn.max() == 1 and likely["right"].max() < 1 and top_k is None:
        return "All these rows gave the same token. Is there a draw, and one for each row?"
    far = {name: distance(drawn, p) for name, p in likely.items() if name != "right"}
    nearest = min(far, key=lambda name: far[name], default="")
    if kind == 0 and nearest and far[nearest] <= min(VARIATION, distance(drawn, likely["right"])):
        return QUESTIONS[nearest].format(size=size, top_k=top_k)
    if kind > 0:
        return "Other rows agree. Does every row use its own logits?"
    if top_k is not None:
        return (
            f"Which tokens survive top_k={top_k} in this row, and is what you return a token or a place "
            f"among them?"
        )
    if temperature is None:
        return "Which temperature does the signature name?"
    if temperature == 1:
        return "Which numbers are the probabilities of the draw?"
    return QUESTIONS["temperature multiplied"].format(size=size)


# --- the temperature -----------------------------------------------------------------------------


def draw_temperatures(seed: int) -> Challenge:
    """Ask for many draws at four temperatures, from two kinds of rows in turn whose logits lie far from
    zero, the last with logits as close as the temperature is low, in float64; then for few draws, see
    `repeated_draws`. The number of rows differs, so that tokens drawn for one challenge, whose
    distributions are much like those of another, do not answer that one."""
    rng = np.random.default_rng(seed)
    kinds = draw_kinds(rng, (30.0, -30.0))
    temperatures = [float(t) for t in (rng.uniform(0.3, 0.6), 1.0, rng.uniform(1.8, 3.0))]
    low = float(rng.uniform(0.02, 0.06))
    rows = DRAWS + int(rng.integers(500))
    cases = [draw_case(kinds, seed, rows, temperature=t) for t in temperatures]
    cases.append(draw_case(low * kinds.astype(np.float64), seed, rows, temperature=low))
    return {"cases": cases + repeated_draws(kinds, seed)}


def draw_kinds(rng: np.random.Generator, offsets: tuple[float, ...]) -> Array:
    """Draw a kind of row (6,) for each offset, best logit first. So an answer that sorts and one that
    does not draw the same tokens from the same generator, and its mistakes are recognised."""
    base = np.array([2.5, 1.5, 0.5, 0.0, -0.5, -1.5])
    flat = np.array([0.9, 0.6, 0.3, 0.1, -0.2, -1.0])
    rows = [(base, flat)[i % 2] + rng.uniform(-0.05, 0.05, 6) for i in range(len(offsets))]
    return np.float32([row + offset for row, offset in zip(rows, offsets, strict=True)])


def repeated_draws(kinds: Array, seed: int) -> list[dict[str, Any]]:
    """Repeat a generator seed while torch's own seed differs; take another seed; use the generator
    before; and draw for one text alone."""
    first = draw_case(kinds, seed, rows=32, temperature=1.0)
    others = ({}, {"global_seed": 1}, {"seed": seed + 1}, {"used": True})
    alone = draw_case(kinds[:1], seed, rows=1, temperature=1.0)
    return [*({**first, **other} for other in others), alone]


def probe_sampling(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call sample_next on each case, twice in a row with one generator, and twice with the first one's
    logits alone."""
    outputs, again = probe_draws(student, challenge), challenge["cases"][-5]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(again["seed"])  # for who does not use the generator
        one = torch.Generator().manual_seed(again["seed"])
        in_a_row = [call(student.sample_next, logits_of(again), generator=one) for _ in range(2)]
        torch.manual_seed(challenge["cases"][0]["seed"])
        defaults = [call(student.sample_next, logits_of(challenge["cases"][0])) for _ in range(2)]
    return {**outputs, "in_a_row": in_a_row, "defaults": defaults}


def sampling_form(challenge: Challenge) -> Evidence:
    return {**one_output_each(challenge), **dict.fromkeys(("in_a_row", "defaults"), [OUTPUT] * 2)}


@check("sample_next", draw=draw_temperatures, probe=probe_sampling, evidence=sampling_form)
def sample_follows_temperature(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Judge the frequencies at each temperature, then whether draws can be repeated, and then the
    frequencies where logits alone are given."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    for case, out in zip(cases[:-5], outputs[:-5], strict=True):
        if wrong := judge_draws(case, out, truth):
            return wrong
    for case, out in zip(cases[-5:], outputs[-5:], strict=True):
        if error := wrong_tokens(case, out):
            return failed(error)
    if wrong := judge_repeats(*(out["array"] for out in outputs[-5:-1])):
        return wrong
    for out in evidence["in_a_row"]:
        if error := wrong_tokens(cases[-5], out):
            return failed(error)
    if np.array_equal(*(out["array"] for out in evidence["in_a_row"])):
        return failed(
            f"Two calls in a row with one generator gave the same {len(outputs[-5]['array'])} tokens. "
            "Does your draw move the generator that it was given, or a copy of it?"
        )
    alone = {**cases[0], "settings": {}}
    if wrong := judge_draws(alone, evidence["defaults"][0], truth):
        return wrong
    if error := wrong_tokens(alone, evidence["defaults"][1]):
        return failed(error)
    if np.array_equal(*(out["array"] for out in evidence["defaults"])):
        return failed(
            "Two calls without a generator gave the same tokens. Where do your random numbers come "
            "from when none is given?"
        )
    return passed("Draws follow softmax(logits / temperature) in every row, and can be repeated.")


def judge_repeats(first: Array, once_more: Array, other: Array, used: Array) -> Verdict | None:
    """Judge the tokens of a generator, of one with the same seed, of one with another seed, and of one
    that was used before; None where they are right."""
    if not np.array_equal(first, once_more):
        return failed(
            f"Two generators with the same seed gave different tokens in "
            f"{int((first != once_more).sum())} of {len(first)} rows. Where do your random numbers "
            "come from?"
        )
    if np.array_equal(first, other):
        return failed(
            f"Generators with different seeds gave the same {len(first)} tokens. "
            "Is anything drawn, and from the generator?"
        )
    if np.array_equal(first, used):
        return failed(
            f"A generator gave the same {len(first)} tokens fresh and after it had been used. What "
            "do you do with it before you draw?"
        )
    return None


# --- top_k ---------------------------------------------------------------------------------------


def draw_top_k(seed: int) -> Challenge:
    """Ask for many draws with few tokens kept, one and all of them, from two kinds of rows in turn; at
    temperature 1, so that a mistake with the temperature costs nothing here; then few draws, see
    `few_draws`; twice the same draws from generators of one seed; and some of a row in which two tokens
    tie for the last place. The pair are many draws at another temperature, without top_k and with it."""
    rng = np.random.default_rng(seed)
    base = np.linspace(2.0, -2.2, 8) + rng.uniform(-0.1, 0.1, 8)
    kinds = np.float32([rng.permutation(base) for _ in range(2)])
    kinds[1] += 10  # so that no row's edge is right for the other
    top_ks = (int(rng.integers(2, 4)), 1, int(rng.integers(4, 7)), 8)
    cases = [draw_case(kinds, seed, temperature=1.0, top_k=k) for k in top_ks]
    again = draw_case(kinds, seed, rows=32, temperature=1.0, top_k=4)
    cases += [*few_draws(rng, seed), again, {**again, "global_seed": 1}]
    cases.append(draw_case(np.float32([[1, 2, 0, 1]]), seed, rows=200, temperature=1.0, top_k=2))
    pair = [draw_case(kinds, seed, temperature=0.35, top_k=top_k) for top_k in (None, 3)]
    return {"cases": cases, "pair": pair}


def few_draws(rng: np.random.Generator, seed: int) -> list[dict[str, Any]]:
    """Make a case without top_k, of two kinds of rows in which one token is as good as sure; and one of
    64 equal rows of about 600 tokens, all nearly as likely, of which half are kept."""
    sure = rng.normal(size=(2, 8))
    sure[[0, 1], rng.choice(np.arange(1, 8), 2, replace=False)] += 60
    V = int(rng.integers(580, 640))
    many = rng.permutation(np.linspace(0.0, 1.0, V))[None]
    return [
        draw_case(np.float32(sure), seed, rows=32, temperature=1.0, top_k=None),
        draw_case(np.float32(many), seed, rows=64, temperature=1.0, top_k=V // 2),
    ]


def probe_top_k(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call sample_next on each case, and on the pair as it is, without the recorder: who writes into
    logits when the temperature is not 1 is told so in the check of the temperature."""
    unwatched = getattr(student.sample_next, "__wrapped__", student.sample_next)
    pair = probe_draws(SimpleNamespace(sample_next=unwatched), {"cases": challenge["pair"]})
    return {**probe_draws(student, challenge), "pair": pair["outputs"]}


def top_k_form(challenge: Challenge) -> Evidence:
    return {**one_output_each(challenge), "pair": [OUTPUT] * 2}


@check("sample_next", draw=draw_top_k, probe=probe_top_k, evidence=top_k_form)
def sample_stays_in_top_k(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Judge which tokens were drawn, and how often each."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    for case, out in zip(cases[:-4], outputs[:-4], strict=True):
        if wrong := judge_draws(case, out, truth):
            return wrong
    for case, out in zip(cases[-4:], outputs[-4:], strict=True):
        if error := wrong_tokens(case, out):
            return failed(error)
    first, once_more = (out["array"] for out in outputs[-3:-1])
    if not np.array_equal(first, once_more):
        return failed(
            f"At {setting(cases[-2])}, two generators with the same seed gave different tokens in "
            f"{int((first != once_more).sum())} of {len(first)} rows. Where do your random numbers come "
            f"from when top_k is given?"
        )
    case, out = cases[-4], outputs[-4]
    (logits,), top_k, tokens = case["kinds"], case["settings"]["top_k"], out["array"]
    better = (logits > logits[tokens][:, None]).sum(axis=1)  # tokens that are likelier, (rows,)
    if better.max() >= top_k or tokens.max() < len(logits) // 2:
        return failed(
            f"{len(logits)} tokens, top_k={top_k}: of {len(tokens)} draws {(better >= top_k).sum()} "
            f"are not among the likeliest {top_k}; the largest token drawn is {tokens.max()}. With "
            "few tokens all is right: what in your code is made for a certain number of them?"
        )
    return (
        judge_ties(outputs[-1]["array"])
        or judge_pair(*challenge["pair"], *evidence["pair"])
        or passed("Only the top_k likeliest tokens of each row are drawn, each in its proportion.")
    )


def judge_ties(tokens: Array) -> Verdict | None:
    """Judge the draws from logits 1, 2, 0, 1 with a top_k of 2: of the tokens that tie, one or both may
    be kept; None where it is so."""
    drawn = sorted(set(tokens.tolist()))
    if 2 not in drawn and drawn != [1]:
        return None
    return failed(
        f"Logits [1, 2, 0, 1], top_k=2: {len(tokens)} draws gave the tokens {drawn}. Tokens 0 and 3 tie "
        f"for the last place. Which of the tokens does your edge keep?"
    )


def judge_pair(
    plain: dict[str, Any], case: dict[str, Any], without: Evidence, out: Evidence
) -> Verdict | None:
    """Compare the draws of a case with the same code's draws without top_k, so that a mistake with the
    temperature costs nothing here; None where top_k leaves out the others and changes nothing else."""
    if error := wrong_tokens(plain, without) or wrong_tokens(case, out):
        return failed(error)
    kinds, top_k = case["kinds"], case["settings"]["top_k"]
    for kind, logits in enumerate(kinds):
        best = np.argsort(-logits)[:top_k]
        counts, alone = (
            np.bincount(drawn[kind :: len(kinds)], minlength=len(logits))
            for drawn in (out["array"], without["array"])
        )
        if others := counts.sum() - counts[best].sum():
            return failed(
                f"At {setting(case)} {others:,} of {counts.sum():,} draws are not among the likeliest "
                f"{top_k}; at temperature 1 all are. Where does the temperature decide about top_k?"
            )
        drawn, expected = (n[best] / max(1, n[best].sum()) for n in (counts, alone))
        if distance(drawn, expected) > VARIATION:
            return failed(
                f"At {setting(case)} the likeliest token came up in {drawn[0]:.0%} of the draws; of your "
                f"draws of these {top_k} without top_k, in {expected[0]:.0%}. What becomes of the "
                f"temperature when top_k is given?"
            )
    return None
