"""The probes of lesson 04: those of its visible checks, and more where a count could be forged.

The student's process counts its own forward passes, and could lie. So the same is asked once more in a
way that only the work itself can answer: in every pass the words have other meanings (each stands for
another row of the embedding), and in a stream they change again after each token that it gave out. A
stream of lesson 03's text has to leave its prompt in the cache, where the words that follow read it.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.comparing import outcome
from course.checks.drawing import build_model
from course.checks.lookups import Lookups
from course.checks.passes import count_passes, new_cache
from course.checks.prefill_and_decode.chunks import logits_of, probe_sizes
from course.checks.prefill_and_decode.ragged import STEPS, probe_ragged
from course.checks.prefill_and_decode.streaming import (
    Reader,
    probe_edit,
    probe_laziness,
    probe_text,
    start,
)
from course.checks.recorder import given
from course.checks.recording import as_array
from course.minigpt.kv_cache import forward_cached


class Meanings(Lookups):
    """Read other rows of a model's embedding than those asked for: by one table after another, a table
    for each forward pass. Entry v of a table (V,) is the word whose row stands for v in that pass. The
    model itself stays as it is.
    """

    def begin(self, tables: np.ndarray) -> None:
        """Take these tables (n, V) from now on, one a pass; the last one stays."""
        self.left = list(tables)

    def meant(self, ids: Tensor) -> Tensor:
        table = torch.tensor(self.left[0])
        self.left = self.left[1:] or self.left
        return table[ids]


def every_chunk_size_gives_the_same_logits(
    student: SimpleNamespace, challenge: Challenge
) -> Evidence:
    """Run the visible probe; and prefill the first case once more, with two chunk sizes and other
    meanings in every pass."""
    evidence, case = probe_sizes(student, challenge), challenge["cases"][0]
    model, prompt, exchanged = build_model(case), given(case["prompt"]), []
    for size in challenge["exchanged"]:
        cache = new_cache(case, len(prompt), prompt.shape[1] + 1)
        with Meanings(model) as meanings:
            meanings.begin(challenge["tables"])
            exchanged.append(logits_of(student, model, prompt, cache, size)[0])
    return {**evidence, "exchanged": exchanged}


def no_step_before_it_is_asked_for(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; and a stream whose words change their meanings after each token that it
    gave out, and in each pass in between. A second stream continues it from its own last token."""
    evidence = probe_laziness(student, challenge)
    model, prompt = build_model(challenge), given(challenge["prompt"])
    (P, n_new), rounds = (prompt.shape[1], challenge["n_new"]), challenge["turns"]
    cache = new_cache(challenge, len(prompt), P + n_new + 2)
    with Meanings(model) as meanings:
        meanings.begin(rounds[-1])  # for what is computed before a token is asked for
        tokens = start(student, model, prompt, n_new, cache, chunk_size=P)
        meanings.begin(rounds[0])
        first = Reader(islice(tokens, n_new + 1), any_form=True)
        for _ in first:
            meanings.begin(rounds[min(len(first.kinds), n_new)])
        exchanged = [first.read()]
        ended = "nothing to go on from"
        if (ids := exchanged[0]["tokens"]).size:
            last = given(ids[:, -1:])
            ended = outcome(
                lambda: exchanged.append(
                    Reader(
                        islice(start(student, model, last, 1, cache, chunk_size=P), 2),
                        any_form=True,
                    ).read()
                )
            )
    return {**evidence, "exchanged": exchanged, "outcome": ended}


def stream_writes_the_uncached_text(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; and read the first token of the first request once more. Count the passes
    and what the cache holds then; cut it back to the prompt, and feed that token."""
    evidence = probe_text(student, challenge)
    model, prompt, n_new = build_model(challenge), given(challenge["prompt"]), challenge["n_new"]
    (rows, P), logits = prompt.shape, np.zeros(0)
    cache = new_cache(challenge, rows, P + n_new)
    with count_passes(model) as passes:
        tokens = start(student, model, prompt, n_new, cache)
        first = Reader(islice(tokens, 1), rows).read()["tokens"]
    n_held = len(cache)
    if first.size and n_held >= P:
        cache.truncate(P)
        logits = as_array(forward_cached(model, given(first), cache)[:, -1])
    counts = {"n_passes": len(passes), "held": n_held}
    return {**evidence, **counts, "first": first, "logits": logits}


def rollback_equals_a_fresh_start(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; and once more with a model whose words mean something else in the second
    text, but for the part that stays in the cache."""
    evidence, n_new = probe_edit(student, challenge), challenge["n_new"]
    model, second = build_model(challenge), given(challenge["second"])
    n_shared = challenge["shared"].shape[1]
    text = given(np.concatenate([challenge["shared"], challenge["first"]], axis=1))
    cache, exchanged = new_cache(challenge, len(text), n_shared + second.shape[1] + n_new), []
    with Meanings(model) as meanings:
        meanings.begin(challenge["meanings"][:1])
        Reader(islice(start(student, model, text, n_new, cache), n_new + 1)).read()
        cache.truncate(min(n_shared, len(cache)))
        meanings.begin(challenge["meanings"][1:])
        ended = outcome(
            lambda: exchanged.append(
                Reader(start(student, model, second, n_new, cache), any_form=True).read()
            )
        )
    return {**evidence, "exchanged": exchanged, "ended": ended}


def each_row_equals_itself_alone(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run the visible probe; and the first batch once more, with other meanings in every pass."""
    evidence, batch = probe_ragged(student, challenge), challenge["batches"][0]
    model, prompts = build_model(challenge), [torch.tensor(prompt) for prompt in batch["prompts"]]
    tokens, n_pads = student.pad_prompts(prompts, batch["pad_id"])
    cache = new_cache(challenge, len(prompts), tokens.shape[1] + sum(STEPS))
    with Meanings(model) as meanings:
        meanings.begin(challenge["tables"])
        parts = [student.forward_ragged(model, tokens, n_pads, cache)]
        for part in given(batch["next"]).split(STEPS, dim=1):
            parts.append(student.forward_ragged(model, part, n_pads, cache))
    return {**evidence, "exchanged": [part.numpy() for part in parts]}
