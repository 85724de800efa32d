"""The probes of lesson 03: those of its visible checks, and more where a count could be forged.

The student's process counts its own work, and could lie. So generation is asked once more in a way that
only the work itself can answer: from a past that is exchanged before every step. Where two conversations
are kept apart no rows are counted, so a pass that reads the whole text again would do: there every FLOP
is counted as well.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from torch.utils.flop_counter import flop_registry

from course.checks.caches import feed, new_cache
from course.checks.check import Challenge, Evidence
from course.checks.comparing import outcome
from course.checks.drawing import build_model
from course.checks.kv_cache.forward import run_split
from course.checks.kv_cache.generation import probe_generation, write
from course.checks.kv_cache.memory import probe_two_texts
from course.checks.lookups import BeforeEachPass
from course.checks.recorder import given
from course.measure.operations import OperationMode


def exchange_contents(cache: Any, contents: np.ndarray) -> None:
    """Replace the n tokens that a cache holds by contents[n].

    Whatever was computed from the tokens before is then of no use.
    """
    n = len(cache)
    cache.reset()
    feed(cache, contents[n][..., :n, :])


def two_conversations_stay_apart(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe, and count the FLOPs of the first text alone."""
    evidence = probe_two_texts(student, challenge)
    return {**evidence, "flops": flops_of(student, challenge, challenge["texts"][0], [3, 1, 2])}


class CountedFlops(OperationMode):
    """Counts the FLOPs of all products by PyTorch's own formulas, as `FlopCounterMode` does."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(operation._overloadpacket)
        if formula is None:
            with self:  # in inference mode some operations come here whole, such as `linear`
                result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = operation(*args, **kwargs)
        if formula:
            self.flops += formula(*args, **kwargs, out_val=result)
        return result


def flops_of(
    student: SimpleNamespace, challenge: Challenge, tokens: np.ndarray, split: list[int]
) -> int:
    """Count every FLOP of a text that is fed chunk by chunk to a cache of just its length."""
    model = build_model(challenge)
    cache = new_cache(student, challenge, tokens.shape[1], batch=len(tokens))
    with CountedFlops() as counted:
        outcome(lambda: run_split(student, model, tokens, split, cache))
    return counted.flops


def no_row_is_computed_twice(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; count every FLOP of one more generation, whatever it was called through;
    and generate from one token while all that is cached is exchanged before each pass."""
    evidence = probe_generation(student, challenge)
    model, prompt = build_model(challenge), given(challenge["prompt"])
    n_new, contents = challenge["n_new"], challenge["contents"]
    cache = new_cache(student, challenge, prompt.shape[1] + n_new, batch=len(prompt))
    with CountedFlops() as counted:
        outcome(lambda: student.generate_cached(model, prompt, n_new, cache))
    held = challenge["held"]
    cache = new_cache(student, challenge, held + n_new, batch=len(prompt))
    feed(cache, contents[held][..., :held, :])
    with BeforeEachPass(model, lambda: exchange_contents(cache, contents)):
        exchanged = write(student, model, challenge["prompt"][:, -1:], n_new, cache)
    return {**evidence, "flops": counted.flops, "exchanged": exchanged}
