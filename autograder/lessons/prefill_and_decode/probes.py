"""The probes of lesson 04: those of its visible checks, and more where a count could be forged.

The student's process counts its own forward passes, and could lie. So the same is asked once more in a
way that only the work itself can answer: in every pass the words have other meanings (the rows of the
embedding are exchanged), and in a stream they change again after each token that it gave out.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model
from course.checks.prefill_and_decode.chunks import arguments_of, as_array, new_cache, probe_sizes
from course.checks.prefill_and_decode.streaming import probe_laziness, record, start


class Meanings:
    """Exchange the rows of a model's embedding before each forward pass, by one table after another.

    Entry v of a table (V,) is the word whose row stands for v in that pass.
    """

    def __init__(self, model: Any) -> None:
        self.rows, self.left = model.embed.weight.clone(), []
        model.embed.register_forward_pre_hook(lambda *_: self.exchange(model))

    def begin(self, tables: np.ndarray) -> None:
        """Take these tables (n, V) from now on, one a pass; the last one stays."""
        self.left = list(tables)

    def exchange(self, model: Any) -> None:
        if self.left:
            table = torch.from_numpy(self.left[0].copy())
            self.left = self.left[1:] or self.left
            with torch.no_grad():
                model.embed.weight.copy_(self.rows[table])


def every_chunk_size_gives_the_same_logits(
    student: SimpleNamespace, challenge: Challenge
) -> Evidence:
    """Run the visible probe; and prefill once more with each size, other meanings in every pass."""
    evidence = probe_sizes(student, challenge)
    exchanged = []
    for size in challenge["sizes"]:
        model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
        Meanings(model).begin(challenge["tables"])
        cache = new_cache(challenge, prompt.shape[1] + 1)
        logits = student.prefill(model, prompt, cache, *arguments_of(size))
        exchanged.append(as_array(logits))
    return {**evidence, "exchanged": exchanged}


def no_step_before_it_is_asked_for(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; and a stream whose words change their meanings after each token that it
    gave out, and in each pass in between. A second stream continues it from its own last token."""
    evidence = probe_laziness(student, challenge)
    model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
    (P, n_new), turns = (prompt.shape[1], challenge["n_new"]), challenge["turns"]
    cache, meanings, given = new_cache(challenge, P + n_new + 2), Meanings(model), []
    meanings.begin(turns[0])
    for token in islice(start(student, model, prompt, n_new, cache, chunk_size=P), n_new + 1):
        given.append(token)
        meanings.begin(turns[min(len(given), n_new)])
    if (recorded := record(given))["tokens"].size:
        last = torch.from_numpy(recorded["tokens"][:, -1:].copy())
        given += islice(start(student, model, last, 1, cache, chunk_size=P), 2)
    return {**evidence, "exchanged": record(given)}
