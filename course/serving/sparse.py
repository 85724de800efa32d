"""One conversation of which each step reads only some pages: lesson 14's functions in the engine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.fast.layer import FastWeights, after_attention, heads_of
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.sparse_read import attend_pages, choose, page_bounds, page_scores
from course.model import MiniGPT
from course.serving.conversation import Conversation

PAGE = 16
"""Tokens of a page."""
CHUNK = 256
"""Tokens of a prompt that are fed at once."""


class Bounds:
    """The bounds of one layer's pages, (1, G, P, D) each; those of full pages are computed once."""

    def __init__(self) -> None:
        self._full: tuple[Tensor, Tensor] | None = None

    def of(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of keys (1, G, S, D), of which only the last rows are new."""
        done = self._full[0].shape[2] if self._full else 0
        new = page_bounds(keys[:, :, done * PAGE :], PAGE)
        if self._full:
            new = tuple(torch.cat(pair, dim=2) for pair in zip(self._full, new, strict=True))
        n_full = keys.shape[2] // PAGE
        if n_full > done:
            self._full = tuple(bound[:, :, :n_full] for bound in new)
        return new


class Sparse:
    """Writes one conversation after the other; in a step, each KV head reads so many pages.

    All rows stay in the cache, and the prompt is read densely.

    Args:
        model: reads the prompt.
        weights: of the same model, by which each step is computed.
        n_pages: pages of 16 tokens, of which the newest is always one.
    """

    def __init__(self, model: MiniGPT, weights: FastWeights, n_pages: int) -> None:
        self.model, self.weights, self.n_pages = model, weights, n_pages
        self.cache: KVCache | None = None

    def passes(self, conversation: Conversation) -> Iterator[list[int]]:
        """Write an answer; yield the new token of each pass."""
        weight, fed = self.weights.embed, len(conversation.prompt) + conversation.n_new - 1
        self.cache = KVCache(self.model.config, 1, fed, dtype=weight.dtype, device=weight.device)
        bounds = [Bounds() for _ in self.weights.layers]
        prompt = torch.tensor([list(conversation.prompt)], device=weight.device)
        with torch.inference_mode():
            for chunk in prompt.split(CHUNK, dim=1):
                logits = forward_cached(self.model, chunk, self.cache)[0, -1]
        while True:
            conversation.out.append(int(conversation.choose(logits)))
            conversation.fed = len(self.cache)
            yield conversation.out[-1:]
            if conversation.done:
                return
            logits = self._step(prompt.new_tensor([conversation.out[-1:]]), bounds)

    @torch.inference_mode()
    def _step(self, token: Tensor, bounds: list[Bounds]) -> Tensor:
        """Feed one token (1, 1); return the logits (V,) of what follows."""
        positions = torch.tensor([len(self.cache)], device=token.device)
        x, cos_sin = self.weights.embedded(token, positions)
        for number, layer in enumerate(self.weights.layers):
            q, k, v = heads_of(x, layer, cos_sin)
            keys, values = self.cache.append(number, k, v)  # (1, G, S, D)
            scores = page_scores(q, *bounds[number].of(keys))
            pages = choose(scores, self.n_pages, 1)
            x = after_attention(x, attend_pages(q, keys, values, pages, PAGE), layer)
        self.cache.advance(1)
        return self.weights.logits(x[:, 0])[0]

    @property
    def nbytes(self) -> int:
        """The bytes of the storage of keys and values."""
        return self.cache.nbytes() if self.cache else 0
