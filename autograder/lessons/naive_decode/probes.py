"""The hidden probe of lesson 02.

What is counted in the student's process can be forged there. So the work is also asked for in a way that
has no short cut: the model's weights are exchanged for others after every forward pass.
"""

from __future__ import annotations

from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import torch

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model
from course.checks.lookups import BeforeEachPass
from course.checks.naive_decode.generation import probe_work
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
