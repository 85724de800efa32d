"""Challenges and verdicts for choosing a token: frequencies, repeatability, bad arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.mini_gpt.probes import Array, form_error

VARIATION = 0.09
"""Largest total variation between drawn and expected frequencies. The expected one of 3,000 fair
draws over 8 tokens is at most 0.026, and by McDiarmid's inequality they pass 0.09 with a probability
below 1e-10; every bug of the museum that changes frequencies passes 0.13 somewhere."""
DRAWS = 3_000


def draw_logits(seed: int) -> Challenge:
    """Draw logits (B, V)."""
    return {"logits": np.random.default_rng(seed).normal(size=(4, 7)).astype(np.float32)}


def judge_greedy(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether each row's token has the row's best logit."""
    logits, out = challenge["logits"], evidence["token"]
    B, V = logits.shape
    if error := form_error(f"greedy_next on logits {(B, V)}", out, (B,), "int64"):
        return failed(error)
    wrong = np.flatnonzero(out["array"] != logits.argmax(axis=1)).tolist()
    if wrong:
        b = wrong[0]
        chosen = out["array"][b]
        score = f"has {logits[b, chosen]:.2f}" if 0 <= chosen < V else f"is outside 0 … {V - 1}"
        return failed(
            f"Row {b}: token {chosen} {score}, while the best logit of the row is "
            f"{logits[b].max():.2f}. Over which axis do you look for the largest?"
        )
    return passed("The likeliest token of every row.")


TEMPERATURES = (0.5, 1.0, 2.0)


def draw_temperatures(seed: int) -> Challenge:
    """Ask for many draws at three temperatures, from two kinds of rows in turn; then for few draws,
    twice with the same generator seed and once with another."""
    rng = np.random.default_rng(seed)
    kinds = np.stack([rng.permutation([2.5, 1.5, 0.5, 0.0, -0.5, -1.5]) for _ in range(2)])
    logits = np.tile(kinds, (DRAWS, 1))  # (2 · DRAWS, V): rows 0, 2, 4 … are of kind 0
    return {
        "kinds": kinds,
        "cases": [draw_case(logits, seed, temperature=t) for t in TEMPERATURES]
        + repeated_draws(logits[:64], seed),
    }


def draw_case(logits: Array, seed: int, global_seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Make a case of `probe_sampling`."""
    return {"logits": logits, "seed": seed, "global_seed": global_seed, "settings": settings}


def repeated_draws(logits: Array, seed: int) -> list[dict[str, Any]]:
    """Repeat a generator seed while torch's own seed differs; then take another generator seed."""
    return [
        draw_case(logits, seed, temperature=1.0),
        draw_case(logits, seed, global_seed=1, temperature=1.0),
        draw_case(logits, seed + 1, temperature=1.0),
    ]


def probabilities(logits: Array, temperature: float, top_k: int | None = None) -> Array:
    """Compute the probabilities that fair draws from one row of logits follow, (V,)."""
    scaled = np.asarray(logits, np.float64) / temperature
    if top_k is not None:
        scaled[np.argsort(-scaled)[top_k:]] = -np.inf
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def judge_draws(case: dict[str, Any], out: Evidence, kinds: Array) -> Verdict | None:
    """Compare the draws of one case with the probabilities of each kind of row; None if they agree.

    A case without a temperature is one of temperature 1, the default.
    """
    temperature, top_k = case["settings"].get("temperature"), case["settings"].get("top_k")
    setting = "the default temperature" if temperature is None else f"temperature {temperature:.2g}"
    setting += "" if top_k is None else f", top_k {top_k}"
    V = kinds.shape[1]
    if error := form_error(f"sample_next at {setting}", out, (len(case["logits"]),), "int64"):
        return failed(error)
    tokens = out["array"]
    if tokens.min() < 0 or tokens.max() >= V:
        return failed(
            f"At {setting} a token outside 0 … {V - 1} was drawn. What is it the index of?"
        )
    for kind, logits in enumerate(kinds):
        expected = probabilities(logits, 1.0 if temperature is None else temperature, top_k)
        counts = np.bincount(tokens[kind :: len(kinds)], minlength=V)
        never = np.flatnonzero((expected == 0) & (counts > 0)).tolist()
        if never:
            place = 1 + int((logits > logits[never[0]]).sum())
            return failed(
                f"At {setting} token {never[0]} was drawn {counts[never[0]]:,} times, though its "
                f"logit is only number {place} of its row. Which tokens survive top_k={top_k}, and "
                "are they found for each row?"
            )
        drawn = counts / counts.sum()
        variation = 0.5 * np.abs(drawn - expected).sum()
        if variation > VARIATION:
            worst = int(np.abs(drawn - expected).argmax())
            return failed(
                f"At {setting} token {worst} (logit {logits[worst]:.2g}, the row's best "
                f"{logits.max():.2g}) came up in {drawn[worst]:.0%} of {counts.sum():,} draws; its "
                f"probability is {expected[worst]:.0%} (total variation {variation:.2f}, at most "
                f"{VARIATION:g}). {question_about(drawn, kind, temperature, top_k)}"
            )
    return None


def question_about(drawn: Array, kind: int, temperature: float | None, top_k: int | None) -> str:
    """Ask the one question that fits what is odd about the frequencies."""
    if drawn.max() == 1:
        return "All these rows gave the same token. Is there a draw, and one for each row?"
    if kind > 0:
        return "Other rows agree. Does every row use its own logits?"
    if top_k is not None:
        return "How likely is each of the tokens that survive, next to the others?"
    if temperature is None:
        return "Which temperature does the signature name?"
    if temperature == 1:
        return "Which numbers are the probabilities of the draw?"
    size = "small" if temperature < 1 else "large"
    return f"What does a {size} temperature do to the distances between logits?"


def judge_temperatures(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge the frequencies at each temperature, then whether draws can be repeated, and then the
    frequencies where logits alone are given."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    n_draws = len(cases) - 3
    for case, out in zip(cases[:n_draws], outputs, strict=False):
        if wrong := judge_draws(case, out, challenge["kinds"]):
            return wrong
    few = cases[n_draws]["logits"]
    for out in outputs[n_draws:]:
        if error := form_error("sample_next", out, (len(few),), "int64"):
            return failed(error)
    again, once_more, other = (out["array"] for out in outputs[n_draws:])
    if not np.array_equal(again, once_more):
        return failed(
            f"Two generators with the same seed gave different tokens in "
            f"{int((again != once_more).sum())} of {len(few)} rows. Where do your random numbers "
            "come from?"
        )
    if np.array_equal(again, other):
        return failed(
            f"Generators with different seeds gave the same {len(few)} tokens. "
            "Is anything drawn, and from the generator?"
        )
    alone = {"logits": cases[0]["logits"], "settings": {}}
    if wrong := judge_draws(alone, evidence["defaults"], challenge["kinds"]):
        return wrong
    return passed("Draws follow softmax(logits / temperature) in every row, and can be repeated.")


def draw_top_k(seed: int) -> Challenge:
    """Ask for many draws with top_k 1, 3 and V from two kinds of rows in turn; at temperature 1, so
    that a mistake with the temperature costs nothing here."""
    rng = np.random.default_rng(seed)
    kinds = np.stack([rng.permutation(np.arange(3.0, -5.0, -1.0)) for _ in range(2)])
    logits = np.tile(kinds, (DRAWS, 1))
    cases = [draw_case(logits, seed, temperature=1.0, top_k=k) for k in (1, 3, 8)]
    return {"kinds": kinds, "cases": cases}


def judge_top_k(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge which tokens were drawn, and how often each."""
    for case, out in zip(challenge["cases"], evidence["outputs"], strict=True):
        if wrong := judge_draws(case, out, challenge["kinds"]):
            return wrong
    return passed("Only the top_k likeliest tokens of each row are drawn, each in its proportion.")


def draw_refusals(seed: int) -> Challenge:
    """Draw logits, and calls that must be refused."""
    rng = np.random.default_rng(seed)
    V = 6
    logits = rng.normal(size=(2, V)).astype(np.float32)
    return {"cases": refusal_cases(logits, temperatures=(0.0, -1.0), top_ks=(0, -2, V + 1))}


def refusal_cases(
    logits: Array, temperatures: tuple[float, ...], top_ks: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Make calls that must be refused; last come settings at the edge that are right."""
    V = logits.shape[1]

    def case(function: str, values: Array, refuse: bool = True, **settings: Any) -> dict[str, Any]:
        return {"function": function, "logits": values, "settings": settings, "refuse": refuse}

    cases = [case("sample_next", logits, temperature=temperature) for temperature in temperatures]
    cases += [case("sample_next", logits, top_k=top_k) for top_k in top_ks]
    for shape in ((V,), (2, 1, V)):
        values = np.resize(logits, shape)
        cases += [case(function, values) for function in ("greedy_next", "sample_next")]
    cases += [case("sample_next", logits, refuse=False, top_k=top_k) for top_k in (1, V, None)]
    cases += [case("sample_next", logits, refuse=False, temperature=t) for t in (0.01, 1, 100.0)]
    return cases


def judge_refusals(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether bad arguments raise a ValueError, and good ones at the edge do not."""
    for case, out in zip(challenge["cases"], evidence["outputs"], strict=True):
        logits = case["logits"]
        settings = "".join(f", {name}={value}" for name, value in case["settings"].items())
        asked = f"{case['function']}(logits of shape {logits.shape}{settings})"
        if not case["refuse"]:
            if error := form_error(asked, out, logits.shape[:1], "int64"):
                return failed(f"{error} These arguments are right.")
            continue
        if out["kind"] != "error":
            return failed(f"{asked} gave an answer. What should the caller hear instead, and when?")
        if out["error"] != "ValueError":
            return failed(
                f"{asked} stopped with {out['error']} ({out['words']}), not with a ValueError of "
                "its own. At which line does the bad value enter?"
            )
    return passed("Arguments that mean nothing are refused at the door.")
