"""Check that arguments which make no sense are refused, and those at the edge are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.mini_gpt.outputs import TORCH_ERRORS, call, stopped
from course.checks.recorder import given
from course.checks.recording import one_each


def case(function: str, logits: np.ndarray, refuse: bool = True, **settings: Any) -> dict[str, Any]:
    return {"function": function, "logits": logits, "settings": settings, "refuse": refuse}


def draw_refusals(seed: int) -> Challenge:
    """Draw calls that must be refused; last come arguments at the edge that are right."""
    rng = np.random.default_rng(seed)
    V = int(rng.integers(5, 12))
    logits = rng.normal(size=(3, V)).astype(np.float32)
    temperatures = (0.0, -float(rng.uniform(0.1, 2)))
    top_ks = (0, -int(rng.integers(1, 5)), V + int(rng.integers(1, 5)))

    cases = [case("sample_next", logits, temperature=temperature) for temperature in temperatures]
    cases += [case("sample_next", logits, top_k=top_k) for top_k in top_ks]
    for shape in ((V,), (2, 1, V), (1, 3, V), (1, 1, 1, V)):
        values = np.resize(logits, shape)
        cases += [case(function, values) for function in ("greedy_next", "sample_next")]
    cases += [case("sample_next", logits, refuse=False, top_k=top_k) for top_k in (1, V, None)]
    cases += [case("sample_next", logits, refuse=False, temperature=t) for t in (0.01, 1, 100.0)]
    for values in (logits, logits[:1, :1]):
        cases += [
            case(function, values, refuse=False) for function in ("greedy_next", "sample_next")
        ]
    return {"cases": cases}


def probe_refusals(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call, for each case, the function that it names with its logits and settings. What it chooses is
    left out: recorded are how it stopped, in PyTorch's words where these are, of what kind the answer
    is to a call that should be refused, and whether random numbers were drawn."""
    outputs = []
    for case in challenge["cases"]:
        settings, generator = case["settings"], torch.Generator().manual_seed(0)
        if case["function"] == "sample_next":
            settings = {**settings, "generator": generator}
        before = generator.get_state()
        output = call(getattr(student, case["function"]), given(case["logits"]), **settings)
        own_words = case["refuse"] and output["error"] not in TORCH_ERRORS
        outputs.append(
            {
                "kind": output["kind"] if case["refuse"] else "",
                "error": output["error"],
                "words": "" if own_words else output["words"],
                "drew": not torch.equal(before, generator.get_state()),
            }
        )
    return {"outputs": outputs}


@check(
    "greedy_next",
    "sample_next",
    draw=draw_refusals,
    probe=probe_refusals,
    evidence=one_each(outputs={"kind": str, "error": str, "words": str, "drew": bool}),
)
def bad_arguments_are_refused(challenge: Challenge, evidence: Evidence) -> Verdict:
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
        return (
            f"{asked} stopped with {out['error']}. Which of your lines raises it, and which exception "
            f"does the docstring name?"
        )
    if out["drew"]:
        return f"{asked} was refused, but only after a random number was drawn. What comes first?"
    return None
