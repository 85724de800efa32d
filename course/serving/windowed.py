"""One conversation of a model whose layers have a window, as Mistral 7B had: with lesson 08's cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.given.windowed import forward_windowed
from course.minigpt.sliding_window import WindowedKVCache, window_mask
from course.model import MiniGPT
from course.serving.conversation import Conversation

CHUNK = 256
"""Tokens of a prompt that are fed at once."""


class Windowed:
    """Writes one conversation after the other, of any length, in the memory of one window.

    Args:
        window: tokens that a token sees, itself included.
    """

    def __init__(self, model: MiniGPT, window: int) -> None:
        self.model, self.window = model, window
        self.cache: WindowedKVCache | None = None

    def passes(self, conversation: Conversation) -> Iterator[list[int]]:
        """Write an answer; yield the new token of each pass."""
        weight, fed = self.model.embed.weight, len(conversation.prompt) + conversation.n_new - 1
        self.cache = WindowedKVCache(
            self.model.config,
            1,
            fed,
            min(fed, self.window),
            dtype=weight.dtype,
            device=weight.device,
        )
        prompt = torch.tensor([list(conversation.prompt)], device=weight.device)
        *before, last = prompt.split(CHUNK, dim=1)
        for chunk in before:
            self._forward(chunk)
        feed = last
        while not conversation.done:
            conversation.out.append(int(conversation.choose(self._forward(feed))))
            conversation.fed = len(self.cache)
            yield conversation.out[-1:]
            feed = prompt.new_tensor([conversation.out[-1:]])

    @torch.inference_mode()
    def _forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (V,) of what follows tokens (1, T)."""
        return forward_windowed(self.model, tokens, self.cache, window_mask)[0, -1]

    @property
    def nbytes(self) -> int:
        """The bytes of the storage of keys and values."""
        return self.cache.nbytes() if self.cache else 0
