"""The probes of lesson 04: those of its visible checks, and more where a count could be made up.

Forward passes that are counted in the student's process are a claim. So the work is also asked for
in a way that has no short cut: at every pass the words have other meanings (the rows of the
embedding are exchanged), and for a stream they have others again after each token that it gave out.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence
from course.checks.drawing import build_model
from course.checks.prefill_and_decode.chunks import as_array, new_cache, probe_sizes
from course.checks.prefill_and_decode.streaming import probe_laziness, record, start


class Meanings:
    """Gives a model, before each forward pass, the next of some tables of words: entry v of a table
    is the word whose row of the embedding stands for v in that pass."""

    def __init__(self, model: Any) -> None:
        self.rows, self.left = model.embed.weight.clone(), []
        model.embed.register_forward_pre_hook(lambda *_: self.exchange(model))

    def begin(self, tables: np.ndarray) -> None:
        """From now on: these tables (n, V), one a pass; the last one stays."""
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
    """The visible probe; and every chunk size once more, with other meanings in every pass."""
    evidence = probe_sizes(student, challenge)
    exchanged = []
    for size in challenge["sizes"]:
        model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
        Meanings(model).begin(challenge["tables"])
        logits = student.prefill(model, prompt, new_cache(challenge, prompt.shape[1] + 1), size)
        exchanged.append(as_array(logits))
    return {**evidence, "exchanged": exchanged}


def no_step_before_it_is_asked_for(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """The visible probe; and a stream whose words have other meanings after each token that it gave
    out, and in each pass in between. It is continued by its own last token, in a second stream."""
    evidence = probe_laziness(student, challenge)
    model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
    (P, n_new), turns = (prompt.shape[1], challenge["n_new"]), challenge["turns"]
    cache, meanings, given = new_cache(challenge, P + n_new + 2), Meanings(model), []
    meanings.begin(turns[0])
    for token in islice(start(student, model, prompt, n_new, cache, chunk_size=P), n_new + 1):
        given.append(token)
        meanings.begin(turns[min(len(given), n_new)])
    if (seen := record(given))["tokens"].size:
        last = torch.from_numpy(seen["tokens"][:, -1:].copy())
        given += islice(start(student, model, last, 1, cache, chunk_size=P), 2)
    return {**evidence, "exchanged": record(given)}
