"""Run lesson 01's functions and record what they return; shared with the hidden checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model

Array = np.ndarray

OUTPUT = {
    "kind": str,
    "error": str,
    "words": str,
    "dtype": str,
    "array": (np.ndarray, type(None)),
    "modified": bool,
}
"""The form of what `call` records."""


def call(function: Any, *arguments: Any, **named: Any) -> Evidence:
    """Run a student's function on copies of the tensors and record what it returned, as plain values:
    the kind of result ("error", "Tensor" or a type's name); of an exception its name and words; of a
    tensor its dtype and numbers; and whether an argument was modified."""
    output = {
        "kind": "error",
        "error": "",
        "words": "",
        "dtype": "",
        "array": None,
        "modified": False,
    }
    tensors = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
    try:
        value = function(*tensors, **named)
    except NotImplementedError:
        raise  # here the student has not begun
    except Exception as error:
        return {**output, "error": type(error).__name__, "words": str(error)}
    output["modified"] = any(
        isinstance(before, Tensor) and not torch.equal(before, after)
        for before, after in zip(arguments, tensors, strict=True)
    )
    if not isinstance(value, Tensor):
        return {**output, "kind": type(value).__name__}
    array = value.detach().double() if value.is_floating_point() else value.detach()
    dtype = str(value.dtype).removeprefix("torch.")
    return {**output, "kind": "Tensor", "dtype": dtype, "array": array.numpy()}


def tensor(array: Array) -> Tensor:
    """Copy an array into a float32 tensor."""
    return torch.from_numpy(np.array(array, dtype=np.float32))


# Each probe stands with the form of its evidence.


def probe_heads(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Split x, and merge the heads that it should give."""
    return {
        "split": call(student.split_heads, tensor(challenge["x"]), challenge["n_heads"]),
        "merge": call(student.merge_heads, tensor(challenge["heads"])),
    }


def heads_form(challenge: Challenge) -> Evidence:
    return {"split": OUTPUT, "merge": OUTPUT}


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call causal_attention on each case, a (q, k, v)."""
    cases = challenge["cases"]
    return {"outputs": [call(student.causal_attention, *map(tensor, case)) for case in cases]}


def cases_form(challenge: Challenge) -> Evidence:
    """Declare one output for each of the challenge's cases."""
    return {"outputs": [OUTPUT] * len(challenge["cases"])}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call attention_layer on each case, an (x, positions), of each layer, a model of one layer."""
    outputs = []
    for layer in challenge["layers"]:
        attn = build_model(layer, student.attention_layer).blocks[0].attn
        for x, positions in layer["cases"]:
            where = torch.from_numpy(positions.copy())
            outputs.append(call(student.attention_layer, attn, tensor(x), where))
    return {"outputs": outputs}


def layers_form(challenge: Challenge) -> Evidence:
    return {"outputs": [OUTPUT for layer in challenge["layers"] for _ in layer["cases"]]}


def probe_greedy(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"token": call(student.greedy_next, tensor(challenge["logits"]))}


def greedy_form(challenge: Challenge) -> Evidence:
    return {"token": OUTPUT}


def probe_sampling(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call sample_next on each case, and once with logits alone.

    A case holds logits, the settings of the draw, and seeds: of its generator, and of torch's own
    numbers, which must make no difference where a generator is given.
    """
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


def sampling_form(challenge: Challenge) -> Evidence:
    return {**cases_form(challenge), "defaults": OUTPUT}


def probe_refusals(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call, for each case, the function that it names with its logits and settings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # no case brings a generator, and the same code shall draw the same
        outputs = [
            call(getattr(student, case["function"]), tensor(case["logits"]), **case["settings"])
            for case in challenge["cases"]
        ]
    return {"outputs": outputs}


def form_error(name: str, out: Evidence, shape: tuple[int, ...], dtype: str) -> str | None:
    """Say what is wrong with a result before its values are looked at, or None."""
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
    """Compute max |Δ|."""
    return float(np.abs(a - b).max())


def moved(a: Array, b: Array, axis: int, tolerance: float) -> list[int]:
    """List the indices along `axis` at which two outputs differ."""
    others = tuple(i for i in range(a.ndim) if i != axis % a.ndim)
    return np.flatnonzero(np.abs(a - b).max(axis=others) > tolerance).tolist()
