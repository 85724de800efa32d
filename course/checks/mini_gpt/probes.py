"""Run lesson 01's functions and record what they return; shared with the hidden checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model
from course.checks.recorder import given

Array = np.ndarray

OUTPUT = {
    "kind": str,
    "error": str,
    "words": str,
    "dtype": str,
    "array": (np.ndarray, type(None)),
}
"""The form of what `call` records."""
TORCH_ERRORS = ("RuntimeError", "IndexError")
"""What PyTorch raises where nobody refused."""


def call(function: Any, *arguments: Any, **named: Any) -> Evidence:
    """Run a student's function and record what it returned, as plain values: the kind of result
    ("error", "Tensor" or a type's name); of an exception its name and words; of a tensor its dtype and
    numbers."""
    output = {"kind": "error", "error": "", "words": "", "dtype": "", "array": None}
    try:
        value = function(*arguments, **named)
    except NotImplementedError:
        raise  # here the student has not begun
    except Exception as error:
        return {**output, "error": type(error).__name__, "words": str(error)}
    if not isinstance(value, Tensor):
        return {**output, "kind": type(value).__name__}
    array = value.detach().double() if value.is_floating_point() else value.detach()
    dtype = str(value.dtype).removeprefix("torch.")
    return {**output, "kind": "Tensor", "dtype": dtype, "array": array.numpy().copy()}


# Each probe stands with the form of its evidence.


def cases_form(challenge: Challenge) -> Evidence:
    """Declare one output for each of the challenge's cases."""
    return {"outputs": [OUTPUT] * len(challenge["cases"])}


def probe_heads(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Split the x of each case, and merge its heads, which belong to another x."""
    cases = challenge["cases"]
    return {
        "split": [call(student.split_heads, rows_apart(c["x"]), c["n_heads"]) for c in cases],
        "merge": [call(student.merge_heads, rows_apart(c["heads"])) for c in cases],
    }


def rows_apart(array: Array) -> Tensor:
    """Make a tensor whose rows lie apart in memory, as in a slice of a batch: it is not contiguous, but
    a wrong cut by `view` goes as far as one by `reshape`, and is recognised."""
    return torch.tensor(np.repeat(array, 2, axis=0))[::2]


def heads_form(challenge: Challenge) -> Evidence:
    (outputs,) = cases_form(challenge).values()
    return {"split": outputs, "merge": outputs}


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call causal_attention on each case, a (q, k, v)."""
    cases = challenge["cases"]
    return {"outputs": [call(student.causal_attention, *map(given, case)) for case in cases]}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call attention_layer on each case, an (x, positions), of each layer, a model of one layer with
    the dtype of its x."""
    outputs = []
    for layer in challenge["layers"]:
        model = build_model(layer, student.attention_layer)
        for x, positions in layer["cases"]:
            attn = model.to(given(x).dtype).blocks[0].attn
            outputs.append(call(student.attention_layer, attn, given(x), given(positions)))
    return {"outputs": outputs}


def layers_form(challenge: Challenge) -> Evidence:
    return {"outputs": [OUTPUT for layer in challenge["layers"] for _ in layer["cases"]]}


def probe_greedy(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call greedy_next on each case, an array of logits."""
    return {"outputs": [call(student.greedy_next, given(case)) for case in challenge["cases"]]}


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


def probe_sampling(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call sample_next on each case, and twice with the first one's logits alone."""
    outputs = probe_draws(student, challenge)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(challenge["cases"][0]["seed"])
        defaults = [call(student.sample_next, logits_of(challenge["cases"][0])) for _ in range(2)]
    return {**outputs, "defaults": defaults}


def sampling_form(challenge: Challenge) -> Evidence:
    return {**cases_form(challenge), "defaults": [OUTPUT] * 2}


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


def refusals_form(challenge: Challenge) -> Evidence:
    form = {"kind": str, "error": str, "words": str, "drew": bool}
    return {"outputs": [form] * len(challenge["cases"])}


# What is wrong with a result before its values are looked at


def form_error(name: str, out: Evidence, shape: tuple[int, ...], dtype: str) -> str | None:
    """Say what is wrong with the form of a result, or None."""
    if error := stopped(name, out):
        return error
    if out["kind"] != "Tensor":
        return f"{name} must return a tensor, got {out['kind']}. What does its last line return?"
    if out["array"].shape != shape:
        return wrong_shape(name, out["array"].shape, shape)
    if out["dtype"] != dtype:
        return f"{name} returned {out['dtype']} and should return {dtype}. {about_dtype(dtype)}"
    if not np.isfinite(out["array"]).all():
        place = tuple(np.argwhere(~np.isfinite(out["array"]))[0].tolist())
        return (
            f"{name}: the number at {place} is {out['array'][place]}. "
            "What goes into the softmax of that row?"
        )
    return None


def stopped(name: str, out: Evidence) -> str | None:
    """Say with which exception a call stopped; None where it did not."""
    if not out["error"]:
        return None
    words = f"{name} stopped with {out['error']}: {out['words']}".strip(" :")
    question = about_error(out["words"])
    return f"{words.rstrip('.')}. {question}" if question else words


def wrong_shape(name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Say that a shape is wrong, and ask about its axes."""
    question = "Which axis is where?"
    if len(got) < len(shape):
        question = "Which axis got lost, and does it also where it has length 1?"
    elif len(got) > len(shape):
        question = "Which axis is one too many?"
    return f"{name} returned shape {tuple(got)} and should return {shape}. {question}"


def about_dtype(dtype: str) -> str:
    if dtype == "int64":
        return "Tokens are int64 everywhere in the course."
    return "A result has the dtype of the inputs. Which of your tensors has one of its own?"


def about_error(words: str) -> str:
    """Ask what an exception of PyTorch points at; "" where it says enough."""
    if "view size is not compatible" in words:
        return "Inputs may lie in memory in any order, as transposes do. Which call needs none?"
    if "dtype" in words or "scalar type" in words:
        return "Which of your tensors has a dtype of its own?"
    if "probability tensor" in words or "multinomial" in words:
        return "Which weights go into the draw: is any token left, and is any weight no number?"
    return ""


def gap(a: Array, b: Array) -> float:
    """Compute max |Δ|."""
    return float(np.abs(a - b).max())


def moved(a: Array, b: Array, axis: int, tolerance: float) -> list[int]:
    """List the indices along `axis` at which two outputs differ."""
    others = tuple(i for i in range(a.ndim) if i != axis % a.ndim)
    return np.flatnonzero(np.abs(a - b).max(axis=others) > tolerance).tolist()
