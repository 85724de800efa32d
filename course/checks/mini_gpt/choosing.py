"""Challenges and verdicts for choosing a token: frequencies, repeatability, bad arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.mini_gpt.probes import TORCH_ERRORS, Array, form_error, stopped

VARIATION = 0.09
"""Largest total variation between drawn and expected frequencies. The expected one of 3,000 fair
draws over 8 tokens is at most 0.026, and by McDiarmid's inequality they pass 0.09 with a probability
below 1e-10; every bug of the museum that changes frequencies passes 0.13 somewhere."""
DRAWS = 3_000

# The likeliest token


def draw_logits(seed: int) -> Challenge:
    """Draw logits (4, 7), and the cases of `more_logits`."""
    rng = np.random.default_rng(seed)
    return {"cases": [rng.normal(size=(4, 7)).astype(np.float32), *more_logits(rng)]}


def more_logits(rng: np.random.Generator) -> list[Array]:
    """Draw logits of one row, all below 0; of rows whose best two lie 1e-9 apart, in float64; in
    float16; of many rows, equal in pairs; and of many tokens, in which rows differ only at the end, and
    by little."""
    V = int(rng.integers(6, 12))
    below = -20 - 5 * rng.random((1, V))
    close = rng.normal(size=(3, V))
    second, best = np.sort(rng.permutation(V)[:2])  # who rounds takes the first of the two
    close[:, best] = 5.0
    close[:, second] = 5.0 - 1e-9
    half = rng.permutation(2 * V).reshape(2, V) / 4
    many = np.repeat(rng.normal(size=(40, V)), 2, axis=0)
    long = np.repeat(100 * rng.normal(size=(1, int(rng.integers(4100, 4500)))), 3, axis=0)
    long[1:, -1] = long.max() + 0.01
    long[2, -2] = long.max() + 0.01
    return [
        below.astype(np.float32),
        close,
        half.astype(np.float16),
        many.astype(np.float32),
        long.astype(np.float32),
    ]


def judge_greedy(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Array], Array]
) -> Verdict:
    """Judge whether each row's token has the row's best logit."""
    for logits, out in zip(challenge["cases"], evidence["outputs"], strict=True):
        B, V = logits.shape
        if error := form_error(f"greedy_next on logits {(B, V)}", out, (B,), "int64"):
            return failed(error)
        likeliest = truth(logits)
        wrong = np.flatnonzero(out["array"] != likeliest).tolist()
        if wrong:
            b = wrong[0]
            return failed(
                f"Logits {(B, V)}, {logits.dtype}: {wrong_token(logits[b], b, out['array'][b])}, "
                f"while the best logit of the row is {logits[b, likeliest[b]]:.10g}. "
                f"{about_the_largest(logits, out['array'], likeliest)}"
            )
    return passed("The likeliest token of every row.")


def wrong_token(logits: Array, row: int, token: int) -> str:
    """Say what logit a token has."""
    V = len(logits)
    has = f"has {logits[token]:.10g}" if 0 <= token < V else f"is outside 0 … {V - 1}"
    return f"in row {row}, token {token} {has}"


def about_the_largest(logits: Array, tokens: Array, likeliest: Array) -> str:
    """Ask about the axis, or about how logits are compared where most rows are right."""
    if logits.shape[1] > 1000:
        return "Few tokens are right. Up to which token, and up to which logit, do you look?"
    if logits.dtype == np.float64:
        return "How many digits of the logits do you compare?"
    if (logits < 0).all():
        return "All logits are below 0 here. With what do you compare?"
    if len(tokens) > 1 and (tokens == tokens[0]).all():
        return "All rows got the same token. Does every row look at its own logits?"
    if (tokens == likeliest).mean() > 0.3:
        return "Some rows agree. Up to which row do you look?"
    return "Over which axis do you look for the largest?"


# A token by chance


TEMPERATURES = (0.5, 1.0, 2.0)
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


def draw_temperatures(seed: int) -> Challenge:
    """Ask for many draws at four temperatures, from two kinds of rows in turn, the last with logits as
    close as the temperature is low, in float64; then for few draws, see `repeated_draws`."""
    rng = np.random.default_rng(seed)
    kinds = draw_kinds(rng, (0.0, 0.0))
    cases = [draw_case(kinds, seed, temperature=t) for t in TEMPERATURES]
    cases.append(draw_case((0.04 * kinds).astype(np.float64), seed, temperature=0.04))
    return {"cases": cases + repeated_draws(kinds, seed)}


def draw_kinds(rng: np.random.Generator, offsets: tuple[float, ...]) -> Array:
    """Draw a kind of row (6,) for each offset, best logit first. So an answer that sorts and one that
    does not draw the same tokens from the same generator, and its mistakes are recognised."""
    base = np.array([2.5, 1.5, 0.5, 0.0, -0.5, -1.5])
    flat = np.array([0.9, 0.6, 0.3, 0.1, -0.2, -1.0])
    rows = [(base, flat)[i % 2] + rng.uniform(-0.05, 0.05, 6) for i in range(len(offsets))]
    return np.float32([row + offset for row, offset in zip(rows, offsets, strict=True)])


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


def repeated_draws(kinds: Array, seed: int) -> list[dict[str, Any]]:
    """Repeat a generator seed while torch's own seed differs; take another seed; use the generator
    before; and draw for one text alone."""
    first = draw_case(kinds, seed, rows=32, temperature=1.0)
    others = ({}, {"global_seed": 1}, {"seed": seed + 1}, {"used": True})
    alone = draw_case(kinds[:1], seed, rows=1, temperature=1.0)
    return [*({**first, **other} for other in others), alone]


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
        return f"Which tokens survive top_k={top_k}, and are they found for each row?"
    if temperature is None:
        return "Which temperature does the signature name?"
    if temperature == 1:
        return "Which numbers are the probabilities of the draw?"
    return QUESTIONS["temperature multiplied"].format(size=size)


def judge_temperatures(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
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


def draw_top_k(seed: int) -> Challenge:
    """Ask for many draws with top_k 3, 1 and V from two kinds of rows in turn; at temperature 1, so that
    a mistake with the temperature costs nothing here; then few draws, see `few_draws`."""
    rng = np.random.default_rng(seed)
    kinds = np.float32([rng.permutation(np.linspace(2.0, -2.2, 8)) for _ in range(2)])
    kinds[1] += 10  # so that no row's edge is right for the other
    cases = [draw_case(kinds, seed, temperature=1.0, top_k=k) for k in (3, 1, 8)]
    return {"cases": [*cases, *few_draws(rng, seed)]}


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


def judge_top_k(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Judge which tokens were drawn, and how often each."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    for case, out in zip(cases[:-1], outputs[:-1], strict=True):
        if wrong := judge_draws(case, out, truth):
            return wrong
    case, out = cases[-1], outputs[-1]
    if error := wrong_tokens(case, out):
        return failed(error)
    (logits,), top_k, tokens = case["kinds"], case["settings"]["top_k"], out["array"]
    better = (logits > logits[tokens][:, None]).sum(axis=1)  # tokens that are likelier, (rows,)
    if better.max() >= top_k or tokens.max() < len(logits) // 2:
        return failed(
            f"{len(logits)} tokens, top_k={top_k}: of {len(tokens)} draws {(better >= top_k).sum()} "
            f"are not among the likeliest {top_k}; the largest token drawn is {tokens.max()}. With "
            "few tokens all is right: what in your code is made for a certain number of them?"
        )
    return passed("Only the top_k likeliest tokens of each row are drawn, each in its proportion.")


# What is refused


def draw_refusals(seed: int) -> Challenge:
    """Draw logits, and calls that must be refused."""
    rng = np.random.default_rng(seed)
    V = 6
    logits = rng.normal(size=(2, V)).astype(np.float32)
    return {"cases": refusal_cases(logits, temperatures=(0.0, -1.0), top_ks=(0, -2, V + 1))}


def refusal_cases(
    logits: Array, temperatures: tuple[float, ...], top_ks: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Make calls that must be refused; last come arguments at the edge that are right."""
    V = logits.shape[1]

    def case(function: str, values: Array, refuse: bool = True, **settings: Any) -> dict[str, Any]:
        return {"function": function, "logits": values, "settings": settings, "refuse": refuse}

    cases = [case("sample_next", logits, temperature=temperature) for temperature in temperatures]
    cases += [case("sample_next", logits, top_k=top_k) for top_k in top_ks]
    for shape in ((V,), (2, 1, V), (1, 3, V)):
        values = np.resize(logits, shape)
        cases += [case(function, values) for function in ("greedy_next", "sample_next")]
    cases += [case("sample_next", logits, refuse=False, top_k=top_k) for top_k in (1, V, None)]
    cases += [case("sample_next", logits, refuse=False, temperature=t) for t in (0.01, 1, 100.0)]
    for values in (logits, logits[:1, :1]):
        cases += [
            case(function, values, refuse=False) for function in ("greedy_next", "sample_next")
        ]
    return cases


def judge_refusals(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether bad arguments raise a ValueError, and good ones at the edge do not."""
    for case, out in zip(challenge["cases"], evidence["outputs"], strict=True):
        settings = "".join(f", {name}={value}" for name, value in case["settings"].items())
        asked = f"{case['function']}(logits of shape {case['logits'].shape}{settings})"
        if case["refuse"]:
            if wrong := not_refused(asked, out):
                return failed(wrong)
        elif error := stopped(asked, out):
            return failed(f"These arguments are right: {error}")
    return passed("Arguments that make no sense are refused at the door.")


def not_refused(asked: str, out: Evidence) -> str | None:
    """Say how a call went that should have been refused; None where it was."""
    if not out["error"]:
        return f"{asked} gave an answer. What should the caller hear instead, and when?"
    if out["error"] in TORCH_ERRORS:
        return (
            f"{asked} stopped with {out['error']} ({out['words']}), not with a ValueError of "
            "its own. At which line does the bad value enter?"
        )
    if out["error"] != "ValueError":
        return f"{asked} was refused with {out['error']}. Which exception does the docstring name?"
    if out["drew"]:
        return f"{asked} was refused, but only after a random number was drawn. What comes first?"
    return None
