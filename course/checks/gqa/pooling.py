"""Fewer heads out of many: what becomes of keys and values, and of everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE, draw_model
from course.config import GPTConfig

Truth = Callable[[Challenge, str], np.ndarray]
"""The pooled weight of that name, (G · D, C)."""
WEIGHT = (np.ndarray, str)
"""The form of a recorded weight; or, in words, what stands in its place."""


def draw_pooling(seed: int) -> Challenge:
    """Draw models of 12 query heads and fewer KV heads that are wanted: 6 of 12, 3 or 4 of 12, one of
    12, and 2 of 6 that are shared already.

    Each weight is a mean with deviations that cancel within a group; no two groups are alike.
    """
    rng = np.random.default_rng(seed)
    cases = []
    for had, wanted in ((12, 6), (12, int(rng.choice([3, 4]))), (12, 1), (6, 2)):
        sizes = {"n_layers": 2, "d_model": 48, "n_heads": 12, "n_kv_heads": had, "d_ff": 20}
        model = draw_model(rng, **sizes)
        means = {}
        for name in pooled_names(model):
            shape = model["state"][name].shape
            means[name] = rng.normal(0, 0.3, (wanted, 4, 48)).astype(np.float32)  # D = 4, C = 48
            aside = rng.normal(0, 0.3, (wanted, had // wanted, 4, 48))
            aside -= aside.mean(axis=1, keepdims=True)
            heads = means[name][:, None] + aside  # (wanted, heads of a group, D, C)
            model["state"][name] = heads.reshape(shape).astype(np.float32)
        cases.append({**model, "wanted": wanted, "means": means})
    return {"cases": cases}


def pooled_names(case: Challenge) -> list[str]:
    """List the weights that make keys and values."""
    return [name for name in case["state"] if name.endswith(("wk.weight", "wv.weight"))]


def other_names(case: Challenge) -> list[str]:
    """List the weights that pooling leaves as they are."""
    pooled = pooled_names(case)
    return [name for name in case["state"] if name not in pooled]


def pool(student: SimpleNamespace, case: Challenge) -> tuple[Any, dict[str, Tensor]]:
    """Pool the student's way; return what came back, and the weights that were handed in."""
    given = {name: torch.from_numpy(array.copy()) for name, array in case["state"].items()}
    return student.mean_pool_kv_heads(given, GPTConfig(**case["config"]), case["wanted"]), given


def kind_of(result: Any) -> str:
    """Say what a result is that is no dict of tensors; "" of one."""
    if isinstance(result, dict) and all(isinstance(w, Tensor) for w in result.values()):
        return ""
    return "nothing (None)" if result is None else f"a {type(result).__name__}"


def read_weights(result: Any, names: Iterable[str]) -> dict[str, np.ndarray | str]:
    """Read weights of these names as arrays; of anything else in their place, say what it is."""
    found = result if isinstance(result, dict) else {}
    return {name: read_weight(found.get(name)) for name in names}


def read_weight(value: Any) -> np.ndarray | str:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else type(value).__name__


def probe_means(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record the weights of keys and values."""
    models = []
    for case in challenge["cases"]:
        result, _ = pool(student, case)
        weights = read_weights(result, pooled_names(case))
        models.append({"kind": kind_of(result), "weights": weights})
    return {"models": models}


def form_of_means(challenge: Challenge) -> Any:
    return {
        "models": [
            {"kind": str, "weights": dict.fromkeys(pooled_names(case), WEIGHT)}
            for case in challenge["cases"]
        ]
    }


def probe_rest(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record all other weights, the names and types of all, and what was handed in, afterwards."""
    models = []
    for case in challenge["cases"]:
        result, given = pool(student, case)
        kind, state = kind_of(result), case["state"]
        models.append(
            {
                "kind": kind,
                "names": [str(name) for name in result] if not kind else [],
                "types": {
                    name: type_of(weight) for name, weight in read_weights(result, state).items()
                },
                "rest": read_weights(result, other_names(case)),
                "given": read_weights(given, state),
            }
        )
    return {"models": models}


def type_of(weight: np.ndarray | str) -> str:
    return weight if isinstance(weight, str) else str(weight.dtype)


def form_of_rest(challenge: Challenge) -> Any:
    return {
        "models": [
            {
                "kind": str,
                "names": Each(str),
                "types": dict.fromkeys(case["state"], str),
                "rest": dict.fromkeys(other_names(case), WEIGHT),
                "given": dict.fromkeys(case["state"], WEIGHT),
            }
            for case in challenge["cases"]
        ]
    }


# --- judging -------------------------------------------------------------------------------------


def case_text(case: Challenge) -> str:
    """Write "12 KV heads of 4, pooled to 3"."""
    return f"{case['config']['n_kv_heads']} KV heads of 4, pooled to {case['wanted']}"


def wrong_kind(case: Challenge, kind: str) -> str:
    return f"{case_text(case)}: you return {kind}; wanted is a dict of tensors by name."


def wrong_names(case: Challenge, found: set[str], wanted: set[str]) -> str | None:
    """Tell the first name that is missing or new; None where none is."""
    for name in sorted(wanted ^ found):
        there = "is a weight of the model and is not there" if name in wanted else "is a new name"
        return (
            f"{case_text(case)}: in what you return, {name} {there}. What becomes of the weights "
            f"that you do not pool?"
        )
    return None


def built_in(case: Challenge, name: str) -> np.ndarray:
    """Look up the mean from which a weight was drawn."""
    return case["means"][name].reshape(-1, case["config"]["d_model"])


def judge_means(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    for case, model in zip(challenge["cases"], evidence["models"], strict=True):
        if model["kind"]:
            return failed(wrong_kind(case, model["kind"]))
        weights = {n: w for n, w in model["weights"].items() if not isinstance(w, str)}
        if wrong := wrong_names(case, set(weights), set(pooled_names(case))):
            return failed(wrong)
        for name, weight in weights.items():
            if wrong := first_difference(case, name, weight, truth(case, name), tolerance):
                return failed(wrong)
    return passed("Keys and values: each new head is the mean of those that it replaces.")


def first_difference(
    case: Challenge, name: str, got: np.ndarray, wanted: np.ndarray, tolerance: float
) -> str | None:
    """Tell the first row of a weight that differs; None where all agree."""
    per_group = case["config"]["n_kv_heads"] // case["wanted"]
    if got.shape != wanted.shape:
        return (
            f"{case_text(case)}: {name} has shape {got.shape}, wanted is (G · D, C) = "
            f"{wanted.shape}. Which rows of the matrix belong to one head?"
        )
    delta = np.abs(got.astype(np.float64) - wanted).max(axis=1)  # (G · D,)
    delta[~np.isfinite(delta)] = np.inf
    bad = np.flatnonzero(delta > tolerance)
    if not len(bad):
        return None
    head, row = divmod(int(bad[0]), 4)
    first = head * per_group
    return (
        f"{case_text(case)}: in {name}, row {row} of new head {head} differs (max |Δ| "
        f"{delta[bad[0]]:.2g}, tolerance {tolerance:g}). Query heads that read old KV heads {first} "
        f"… {first + per_group - 1} will read it. What should it have of each?"
    )


def judge_rest(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, model in zip(challenge["cases"], evidence["models"], strict=True):
        if model["kind"]:
            return failed(wrong_kind(case, model["kind"]))
        state = case["state"]
        for name, tensor in state.items():
            given = model["given"][name]
            if isinstance(given, str) or not np.array_equal(given, tensor):
                return failed(
                    f"{case_text(case)}: {name} of the model that was handed in is another one now. "
                    f"Whose weights do you write into?"
                )
        if wrong := wrong_names(case, set(model["names"]), set(state)):
            return failed(wrong)
        for name, tensor in state.items():
            if model["types"][name] != str(tensor.dtype):
                return failed(
                    f"{case_text(case)}: {name} was {tensor.dtype} and is {model['types'][name]}. "
                    f"What changed the type of the numbers?"
                )
            rest = model["rest"].get(name, tensor)
            if not np.array_equal(rest, tensor):
                return failed(
                    f"{case_text(case)}: {name}, {tensor.shape}, should stay as it is, and is "
                    f"{np.shape(rest)} with other numbers. Which matrices make keys and values?"
                )
    return passed("Everything else is as before, and so is the model that was handed in.")


pooled_heads_are_means = Check(
    "pooled_heads_are_means",
    ("mean_pool_kv_heads",),
    draw_pooling,
    probe_means,
    judge_means,
    evidence=form_of_means,
    truth=built_in,
    tolerance=TOLERANCE,
)
pooling_keeps_the_rest = Check(
    "pooling_keeps_the_rest",
    ("mean_pool_kv_heads",),
    draw_pooling,
    probe_rest,
    judge_rest,
    evidence=form_of_rest,
)
