"""The hidden probes of lesson 02: those of its visible checks, and more.

What is counted in the student's process can be forged there. So the work is also asked for in a way that
has no short cut: the model's weights are exchanged for others after every forward pass. And a result's
form comes free with any new tokens, so these have to come from the model.
"""

from __future__ import annotations

from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model
from course.checks.lookups import BeforeEachPass
from course.checks.naive_decode.generation import (
    another_model,
    probe_prompt,
    probe_results,
    probe_work,
)
from course.checks.recorder import given
from course.checks.recording import record


def exchange_weights(model: Any, left: list[dict]) -> None:
    """Give the model the weights of the next forward pass; `left` loses them."""
    with torch.no_grad():
        for name, array in (left.pop(0) if left else {}).items():
            model.get_parameter(name).copy_(torch.from_numpy(array.copy()))


def each_step_reads_everything(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count as the visible probe does; then record a text by a model that changes with every pass."""
    evidence = probe_work(student, challenge)
    model = build_model(challenge)
    left = list(challenge["passes"])
    prompt = given(challenge["prompt"][:1])
    with BeforeEachPass(model, lambda: exchange_weights(model, left)):
        # Unwrapped: the recorder would take the weights that are exchanged for changed by the student.
        text = unwrap(student.generate_naive)(model, prompt, len(challenge["passes"]))
    return {**evidence, "exchanged": record(text)}


def result_starts_with_the_prompt(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; then ask another model to continue the first prompt."""
    return {**probe_results(student, challenge), "other": write_by_another(student, challenge)}


def prompt_is_left_alone(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; then record the text, and the same written in two calls: the second goes on
    after the first one's only new token."""
    evidence = probe_prompt(student, challenge)
    model, n_new = build_model(challenge), challenge["n_new"]
    text = student.generate_naive(model, given(challenge["prompt"]), n_new)
    first = student.generate_naive(model, given(challenge["prompt"]), 1)
    continued = None
    if isinstance(first, Tensor) and first.shape[1:] == (challenge["prompt"].shape[1] + 1,):
        continued = student.generate_naive(model, first, n_new - 1)
    return {
        **evidence,
        "text": record(text),
        "continued": record(continued),
        "other": write_by_another(student, challenge),
    }


def write_by_another(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record the continuation of the prompt by a model that disagrees about every next token."""
    model, prompt = build_model(another_model(challenge)), given(challenge["prompt"])
    return record(student.generate_naive(model, prompt, challenge["n_new"]))
