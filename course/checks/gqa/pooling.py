"""Fewer heads out of many: what becomes of keys and values, and of everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import RECORD, record
from course.checks.tolerance import TOLERANCE
from course.model.config import GPTConfig

Truth = Callable[[Challenge, str], np.ndarray]
"""The pooled weight of that name, (G · D, C)."""
REMEMBERED = "An earlier call had the same sizes. What does your function keep from call to call?"


def draw_pooling(seed: int) -> Challenge:
    """Draw models and how many KV heads are wanted: few heads first, more of them, one that is left,
    heads that are shared already, more layers, as many heads as there are, and two models of the same
    sizes; the last one's weights lie in memory in another order."""
    rng = np.random.default_rng(seed)
    sizes_drawn = [
        ((1, 4, 4), 2, "float32"),
        ((1, 12, 12), int(rng.choice([3, 4])), "float32"),
        ((1, 12, 12), 1, "float64"),
        ((1, 12, 6), 2, "float32"),
        ((int(rng.integers(3, 6)), 6, 6), 2, "float32"),
        ((1, 4, 4), 4, "float32"),
        ((1, 4, 4), 2, "float32"),
        ((1, 4, 4), 2, "float32"),
    ]
    return {"cases": with_turned_last([draw_case(rng, *case) for case in sizes_drawn])}


def with_turned_last(cases: list[Challenge]) -> list[Challenge]:
    """Let the weights of the last model lie in memory in another order: who trips over that has sizes
    and heads right."""
    return [{**case, "turned": number == len(cases) - 1} for number, case in enumerate(cases)]


def draw_types(seed: int) -> Challenge:
    """Draw models of every type, of one layer and of two, one in which no head is pooled, and one
    whose weights lie in memory in another order."""
    rng = np.random.default_rng([seed, 1])
    sizes_drawn = [
        ((1, 4, 4), 2, "float32"),
        ((2, 8, 4), 1, "float64"),
        ((1, 8, 8), 4, "float16"),
        ((1, 8, 4), 2, "bfloat16"),
        ((1, 4, 4), 4, "float32"),
        ((1, 4, 4), 2, "float32"),
    ]
    return {"cases": with_turned_last([draw_case(rng, *case) for case in sizes_drawn])}


TWO_LAYERS = 1
"""The case of `draw_types` in which who forgets a layer has still pooled another."""


def draw_case(
    rng: np.random.Generator, sizes: tuple[int, int, int], n_pooled: int, dtype: str
) -> Challenge:
    """Draw a model with heads 2 wide; in a type of 16 bits it has whole numbers, whose means are exact.

    Args:
        sizes: layers, query heads, KV heads.
        n_pooled: KV heads that must remain.
    """
    n_layers, n_heads, had = sizes
    config = GPTConfig(20, n_layers, 2 * n_heads, n_heads, had, d_ff=30)
    state = {}
    for name, shape in shapes_of(config).items():
        if dtype in ("float16", "bfloat16"):
            state[name] = rng.integers(-60, 61, shape).astype(np.float32)
        else:
            state[name] = rng.normal(0, 0.3, shape).astype(np.float32)
    return {"config": config.to_dict(), "state": state, "n_pooled": n_pooled, "dtype": dtype}


def shapes_of(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """List the weights of a MiniGPT, as `state_dict` names them, and their shapes."""
    C, G, D, F = config.d_model, config.n_kv_heads, config.head_dim, config.d_ff
    of_block = {"attn_norm": (C,), "attn.wq": (C, C), "attn.wk": (G * D, C), "attn.wv": (G * D, C)}
    of_block |= {"attn.wo": (C, C), "mlp_norm": (C,)}
    of_block |= {"mlp.gate": (F, C), "mlp.up": (F, C), "mlp.down": (C, F)}
    shapes = {"embed.weight": (config.vocab_size, C)}
    for layer in range(config.n_layers):
        shapes |= {f"blocks.{layer}.{name}.weight": shape for name, shape in of_block.items()}
    return {**shapes, "norm.weight": (C,), "lm_head.weight": (config.vocab_size, C)}


def pooled_names(case: Challenge) -> list[str]:
    """List the weights that make keys and values."""
    return [name for name in case["state"] if name.endswith(("wk.weight", "wv.weight"))]


def other_names(case: Challenge) -> list[str]:
    """List the weights that pooling leaves as they are."""
    pooled = pooled_names(case)
    return [name for name in case["state"] if name not in pooled]


def pool(student: SimpleNamespace, case: Challenge) -> tuple[Any, dict[str, Tensor]]:
    """Pool the student's way; return what came back, and the weights that were handed in."""
    dtype, laid_out = getattr(torch, case["dtype"]), given if case["turned"] else torch.tensor
    state = {name: laid_out(array, dtype=dtype) for name, array in case["state"].items()}
    return student.mean_pool_kv_heads(state, GPTConfig(**case["config"]), case["n_pooled"]), state


def kind_of(result: Any) -> str:
    """Say what a result is that is no dict of tensors; "" of one."""
    is_dict = isinstance(result, dict) and all(isinstance(w, Tensor) for w in result.values())
    return "" if is_dict else in_words(result)


def read_weights(result: Any, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Record the weights of these names, and what else stands in their place."""
    found = result if isinstance(result, dict) else {}
    return {name: record(found.get(name)) for name in names}


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
            {"kind": str, "weights": dict.fromkeys(pooled_names(case), RECORD)}
            for case in challenge["cases"]
        ]
    }


def probe_rest(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record all other weights, the names and types of all, and whether the dict is a new one; and what
    became of keys and values in the case of two layers."""
    models, pooled = [], []
    for number, case in enumerate(challenge["cases"]):
        result, state = pool(student, case)
        kind, weights = kind_of(result), read_weights(result, case["state"])
        if number == TWO_LAYERS:
            pooled = [weights[name] for name in pooled_names(case)]
        models.append(
            {
                "kind": kind,
                "is_new": result is not state,
                "names": [str(name) for name in result] if not kind else [],
                "types": {name: weight["type"] for name, weight in weights.items()},
                "rest": {name: weights[name] for name in other_names(case)},
            }
        )
    return {"models": models, "pooled": pooled}


def form_of_rest(challenge: Challenge) -> Any:
    return {
        "models": [
            {
                "kind": str,
                "is_new": bool,
                "names": Each(str),
                "types": dict.fromkeys(case["state"], str),
                "rest": dict.fromkeys(other_names(case), RECORD),
            }
            for case in challenge["cases"]
        ],
        "pooled": [RECORD] * len(pooled_names(challenge["cases"][TWO_LAYERS])),
    }


# --- judging -------------------------------------------------------------------------------------


def case_text(case: Challenge) -> str:
    """Write "12 query heads on 12 KV heads of 2, pooled to 3", and the type where it is not float32."""
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    config = case["config"]
    heads = f"{config['n_heads']} query heads on {config['n_kv_heads']} KV heads of 2"
    return f"{heads}, pooled to {case['n_pooled']}{in_type}"


def wrong_kind(case: Challenge, kind: str) -> str:
    return f"{case_text(case)}: you return {kind}; wanted is a dict of tensors by name."


def wrong_names(case: Challenge, found: set[str], expected: set[str]) -> str | None:
    """Tell the first name that is missing or new; None where none is."""
    for name in sorted(expected ^ found):
        there = "is a weight of the model and is not there" if name in expected else "is a new name"
        question = "What becomes of the weights that you do not pool?"
        if name in pooled_names(case):
            question = "Under which name do you return what you pooled?"
        return f"{case_text(case)}: in what you return, {name} {there}. {question}"
    return None


@check("mean_pool_kv_heads", draw=draw_pooling, probe=probe_means, evidence=form_of_means)
def pooled_heads_are_means(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    earlier: list[np.ndarray] = []
    for case, model in zip(challenge["cases"], evidence["models"], strict=True):
        if model["kind"]:
            return failed(wrong_kind(case, model["kind"]))
        weights = {name: w["numbers"] for name, w in model["weights"].items() if not w["kind"]}
        if wrong := wrong_names(case, set(weights), set(pooled_names(case))):
            return failed(wrong)
        for name, weight in weights.items():
            expected = truth(case, name)
            if wrong := first_difference(case, name, weight, expected, tolerance):
                if any(np.array_equal(weight, known) for known in earlier):
                    wrong = f"{case_text(case)}: {name} is that of another model. {REMEMBERED}"
                return failed(wrong)
            earlier.append(weight)
    return passed("Keys and values: each new head is the mean of those that it replaces.")


def first_difference(
    case: Challenge, name: str, got: np.ndarray, expected: np.ndarray, tolerance: float
) -> str | None:
    """Tell the first row of a weight that differs; None where all agree."""
    if got.shape != expected.shape:
        return (
            f"{case_text(case)}: {name} has shape {got.shape}, wanted is (G · D, C) = "
            f"{expected.shape}. {ask_about_shape(case, name, got)}"
        )
    delta = np.abs(got.astype(np.float64) - expected).max(axis=1)  # (G · D,)
    delta[~np.isfinite(delta)] = np.inf
    bad = np.flatnonzero(delta > tolerance)
    if not len(bad):
        return None
    head, row = divmod(int(bad[0]), 2)
    return (
        f"{case_text(case)}: in {name}, row {row} of new head {head} differs (max |Δ| "
        f"{delta[bad[0]]:.2g}, tolerance {tolerance:g}). "
        f"{ask_about_row(case, name, head, got[bad[0]], expected[bad[0]])}"
    )


def ask_about_shape(case: Challenge, name: str, got: np.ndarray) -> str:
    if np.array_equal(got, case["state"][name]):
        return "It is the old weight. For which names, and for which models, do you return a mean?"
    if got.shape == case["state"][name].shape:
        return "It is as large as it was. How many heads should be left, in keys and in values?"
    if got.ndim != 2:
        return "A Linear's weight has two axes. Which ones should be joined?"
    if got.shape[1] != case["state"][name].shape[1]:
        return "Means over heads keep all C columns. What do your reshapes make of them?"
    return "How many heads does your code cut the matrix into, and how many make one new head?"


def ask_about_row(
    case: Challenge, name: str, head: int, got: np.ndarray, expected: np.ndarray
) -> str:
    """Choose the question about a wrong row (C,): whether it is one old row, or the right one times a
    number."""
    old = case["state"][name]
    alone = np.flatnonzero(np.abs(old - got).max(axis=1) < TOLERANCE)
    if len(alone):
        of, row = divmod(int(alone[0]), 2)
        return f"It is row {row} of old head {of}, alone. What becomes of the other heads?"
    times = float(got @ expected / (expected @ expected))
    if np.abs(got - times * expected).max() < TOLERANCE:
        return f"It is {times:.3g} times what it should be. By how many is the sum divided?"
    per_group = case["config"]["n_kv_heads"] // case["n_pooled"]
    first = head * per_group
    return (
        f"Query heads that read old KV heads {first} … {first + per_group - 1} will read it. What "
        f"should it have of each?"
    )


@check("mean_pool_kv_heads", draw=draw_types, probe=probe_rest, evidence=form_of_rest)
def pooling_keeps_the_rest(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, model in zip(challenge["cases"], evidence["models"], strict=True):
        if model["kind"]:
            return failed(wrong_kind(case, model["kind"]))
        if not model["is_new"]:
            return failed(
                f"{case_text(case)}: you return the very dict that you were given. Who writes into "
                f"one of the two models then writes into both. Where is a new dict made?"
            )
        if wrong := wrong_names(case, set(model["names"]), set(case["state"])):
            return failed(wrong)
        for name, tensor in case["state"].items():
            if model["types"][name] != case["dtype"]:
                return failed(
                    f"{case_text(case)}: {name} was {case['dtype']} and is {model['types'][name]}. "
                    f"What changed the type of the numbers?"
                )
            rest = model["rest"][name]["numbers"] if name in model["rest"] else tensor
            if not np.array_equal(rest, tensor):
                return failed(
                    f"{case_text(case)}: {name}, {tensor.shape}, should stay as it is, and is "
                    f"{np.shape(rest)} with other numbers. Which matrices make keys and values?"
                )
    case = challenge["cases"][TWO_LAYERS]
    weights = zip(pooled_names(case), evidence["pooled"], strict=True)
    fates = {fate_of(case["state"][name], weight["numbers"]) for name, weight in weights}
    if not fates <= {"as before", "averaged"} or "averaged" not in fates:
        return failed(
            f"{case_text(case)}: the rest is judged only where the new keys and values have their "
            f"shapes and are averages. Does pooled_heads_are_means pass?"
        )
    return passed("Everything else is as before, and so is the model that was handed in.")


def fate_of(old: np.ndarray, new: np.ndarray) -> str:
    """Say whether a weight is "as before", or "averaged": made smaller by means or sums of any rows, of
    whatever heads; "" of others. Where nothing is averaged, there is no rest to keep."""
    if np.array_equal(old, new):
        return "as before"
    if new.ndim != 2 or not 0 < len(new) < len(old) or new.shape[1] != old.shape[1]:
        return ""
    changes = [np.abs(total(new, axis=0) - total(old, axis=0)) for total in (np.mean, np.sum)]
    return "averaged" if min(change.max() for change in changes) < TOLERANCE else ""
