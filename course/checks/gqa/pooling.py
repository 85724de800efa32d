"""Fewer heads out of many: what becomes of keys and values, and of everything else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE, draw_model
from course.config import GPTConfig

Truth = Callable[[Challenge, str], np.ndarray]
"""The pooled weight of that name, (G · D, C)."""


def draw_pooling(seed: int) -> Challenge:
    """A model of 12 query heads and 12, 12 or 6 KV heads, and fewer that are wanted: 6 of 12 first,
    then groups of three or four, one for all, and out of a model that shares heads already.

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
    """The weights that make keys and values."""
    return [name for name in case["state"] if name.endswith(("wk.weight", "wv.weight"))]


def pool(student: SimpleNamespace, case: Challenge) -> tuple[Any, dict[str, Tensor]]:
    """What came back, and the weights that were handed in."""
    given = {name: torch.from_numpy(array.copy()) for name, array in case["state"].items()}
    return student.mean_pool_kv_heads(given, GPTConfig(**case["config"]), case["wanted"]), given


def as_arrays(state: Any) -> dict[str, np.ndarray] | str:
    """Weights as arrays by name; of anything else, what it is, in words."""
    if not isinstance(state, dict) or not all(isinstance(w, Tensor) for w in state.values()):
        return "nothing (None)" if state is None else f"a {type(state).__name__}"
    return {str(name): weight.detach().cpu().numpy() for name, weight in state.items()}


def probe_means(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Keys' and values' weights alone."""
    models = []
    for case in challenge["cases"]:
        pooled, names = as_arrays(pool(student, case)[0]), pooled_names(case)
        if not isinstance(pooled, str):
            pooled = {name: pooled[name] for name in names if name in pooled}
        models.append(pooled)
    return {"models": models}


def probe_rest(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """All other weights, the types of all of them, and what was handed in, afterwards."""
    models = []
    for case in challenge["cases"]:
        result, given = pool(student, case)
        pooled, names = as_arrays(result), pooled_names(case)
        rest, types = pooled, {}
        if not isinstance(pooled, str):
            rest = {name: weight for name, weight in pooled.items() if name not in names}
            types = {name: str(weight.dtype) for name, weight in pooled.items()}
        models.append({"rest": rest, "types": types, "given": as_arrays(given)})
    return {"models": models}


def said(case: Challenge) -> str:
    """ "12 KV heads of 4, pooled to 3"."""
    return f"{case['config']['n_kv_heads']} KV heads of 4, pooled to {case['wanted']}"


def missing(case: Challenge, found: Any, names: set[str]) -> str | None:
    """What is wrong where no weights came back, or other ones than the model has."""
    if isinstance(found, str):
        return f"{said(case)}: you return {found}; wanted is a dict of tensors by name."
    for name in sorted(names ^ found.keys()):
        there = "is a weight of the model and is not there" if name in names else "is a new name"
        return (
            f"{said(case)}: in what you return, {name} {there}. What becomes of the weights that you "
            f"do not pool?"
        )
    return None


def built_in(case: Challenge, name: str) -> np.ndarray:
    """The means from which the weights were drawn."""
    return case["means"][name].reshape(-1, case["config"]["d_model"])


def make_means(truth: Truth) -> Check:
    """Keys and values: each new head is the mean of the heads that it replaces."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        for case, pooled in zip(challenge["cases"], evidence["models"], strict=True):
            names = pooled_names(case)
            if wrong := missing(case, pooled, set(names)):
                return failed(wrong)
            for name in names:
                if wrong := _compare(case, name, pooled[name], truth(case, name)):
                    return failed(wrong)
        return passed("Keys and values: each new head is the mean of those that it replaces.")

    return Check(
        "pooled_heads_are_means", ("mean_pool_kv_heads",), draw_pooling, probe_means, judge
    )


def _compare(case: Challenge, name: str, got: np.ndarray, wanted: np.ndarray) -> str | None:
    per_group = case["config"]["n_kv_heads"] // case["wanted"]
    if got.shape != wanted.shape:
        return (
            f"{said(case)}: {name} has shape {got.shape}, wanted is (G · D, C) = {wanted.shape}. "
            f"Which rows of the matrix belong to one head?"
        )
    delta = np.abs(got.astype(np.float64) - wanted).max(axis=1)  # (G · D,)
    delta[~np.isfinite(delta)] = np.inf
    bad = np.flatnonzero(delta > TOLERANCE)
    if not len(bad):
        return None
    head, row = divmod(int(bad[0]), 4)
    first = head * per_group
    return (
        f"{said(case)}: in {name}, row {row} of new head {head} differs (max |Δ| "
        f"{delta[bad[0]]:.2g}, tolerance {TOLERANCE:g}). Query heads that read old KV heads {first} "
        f"… {first + per_group - 1} will read it. What should it have of each?"
    )


def judge_rest(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, model in zip(challenge["cases"], evidence["models"], strict=True):
        state, pooled, rest = case["state"], pooled_names(case), model["rest"]
        if isinstance(rest, str):
            return failed(missing(case, rest, set()))
        for name in state:
            weight, given = state[name], model["given"][name]
            if given.shape != weight.shape or (given != weight).any():
                return failed(
                    f"{said(case)}: {name} of the model that was handed in is another one now. "
                    f"Whose weights do you write into?"
                )
        if wrong := missing(case, model["types"], set(state)):
            return failed(wrong)
        if wrong := missing(case, rest, set(state) - set(pooled)):
            return failed(wrong)
        for name in state:
            weight = state[name]
            if model["types"][name] != str(weight.dtype):
                return failed(
                    f"{said(case)}: {name} was {weight.dtype} and is {model['types'][name]}. "
                    f"What changed the type of the numbers?"
                )
            if name not in pooled and not np.array_equal(rest[name], weight):
                return failed(
                    f"{said(case)}: {name}, {weight.shape}, should stay as it is, and is "
                    f"{rest[name].shape} with other numbers. Which matrices make keys and values?"
                )
    return passed("Everything else is as before, and so is the model that was handed in.")


pooled_heads_are_means = make_means(built_in)
pooling_keeps_the_rest = Check(
    "pooling_keeps_the_rest", ("mean_pool_kv_heads",), draw_pooling, probe_rest, judge_rest
)
