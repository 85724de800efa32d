"""How lesson 01's functions are run and written down; shared with the hidden checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model

Array = np.ndarray

TOLERANCE = 1e-4
"""For float32 outputs of attention. Over 100 seeds, right answers in every style stayed within 6e-6
of float64, and the mildest bug of the museum was off by 0.4."""


def call(function: Any, *arguments: Any, **named: Any) -> Evidence:
    """Run a student's function on copies of the tensors; what it returned, as plain values."""
    tensors = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
    try:
        value = function(*tensors, **named)
    except NotImplementedError:
        raise  # here the student has not begun
    except Exception as error:
        return {"kind": "error", "error": type(error).__name__, "words": str(error)}
    modified = any(
        isinstance(before, Tensor) and not torch.equal(before, after)
        for before, after in zip(arguments, tensors, strict=True)
    )
    if not isinstance(value, Tensor):
        return {"kind": type(value).__name__, "modified": modified}
    array = value.detach().double() if value.is_floating_point() else value.detach()
    dtype = str(value.dtype).removeprefix("torch.")
    return {"kind": "Tensor", "dtype": dtype, "array": array.numpy(), "modified": modified}


def tensor(array: Array) -> Tensor:
    """A float32 tensor of its own."""
    return torch.from_numpy(np.array(array, dtype=np.float32))


def probe_heads(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {
        "split": call(student.split_heads, tensor(challenge["x"]), challenge["n_heads"]),
        "merge": call(student.merge_heads, tensor(challenge["heads"])),
    }


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Each case is a (q, k, v)."""
    cases = challenge["cases"]
    return {"outputs": [call(student.causal_attention, *map(tensor, case)) for case in cases]}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Each layer is a model of one layer; each of its cases an (x, positions)."""
    outputs = []
    for layer in challenge["layers"]:
        attn = build_model(layer, student.attention_layer).blocks[0].attn
        for x, positions in layer["cases"]:
            where = torch.from_numpy(positions.copy())
            outputs.append(call(student.attention_layer, attn, tensor(x), where))
    return {"outputs": outputs}


def probe_greedy(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"token": call(student.greedy_next, tensor(challenge["logits"]))}


def probe_sampling(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Each case holds logits, the settings of the draw, and seeds: of its generator, and of torch's
    own numbers, which must make no difference where a generator is given."""
    outputs = []
    with torch.random.fork_rng(devices=[]):
        for case in challenge["cases"]:
            torch.manual_seed(case["global_seed"])
            generator = torch.Generator().manual_seed(case["seed"])
            outputs.append(
                call(
                    student.sample_next,
                    tensor(case["logits"]),
                    **case["settings"],
                    generator=generator,
                )
            )
        defaults = call(student.sample_next, tensor(challenge["cases"][0]["logits"]))
    return {"outputs": outputs, "defaults": defaults}


def probe_refusals(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Each case names a function and gives logits and settings."""
    return {
        "outputs": [
            call(getattr(student, case["function"]), tensor(case["logits"]), **case["settings"])
            for case in challenge["cases"]
        ]
    }


# What every verdict asks first.


def form_error(name: str, out: Evidence, shape: tuple[int, ...], dtype: str) -> str | None:
    """What is wrong with a result before its values are looked at."""
    if out["kind"] == "error":
        return f"{name} stopped with {out['error']}: {out['words']}"
    if out["kind"] != "Tensor":
        return f"{name} must return a tensor, got {out['kind']}. What does its last line return?"
    if out["array"].shape != shape:
        return (
            f"{name} returned shape {out['array'].shape} and should return {shape}. "
            "Which axis is where?"
        )
    if out["dtype"] != dtype:
        return f"{name} returned {out['dtype']} and should return {dtype}."
    if not np.isfinite(out["array"]).all():
        place = tuple(np.argwhere(~np.isfinite(out["array"]))[0].tolist())
        return (
            f"{name}: the number at {place} is {out['array'][place]}. "
            "What goes into the softmax of that row?"
        )
    if out["modified"]:
        return f"{name} changed a tensor that it was given. Which of your lines works in place?"
    return None


def gap(a: Array, b: Array) -> float:
    """max |Δ|."""
    return float(np.abs(a - b).max())


def moved(a: Array, b: Array, axis: int) -> list[int]:
    """Indices along `axis` at which two outputs differ."""
    others = tuple(i for i in range(a.ndim) if i != axis % a.ndim)
    return np.flatnonzero(np.abs(a - b).max(axis=others) > TOLERANCE).tolist()
