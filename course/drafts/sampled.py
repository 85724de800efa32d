"""Draw two tokens many times, with a draft and without: who counts them cannot tell which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from course.model import MiniGPT

Verify = Callable[[Tensor, Tensor, Tensor, torch.Generator], tuple[int, int]]


def odds_of(model: MiniGPT) -> Callable[[tuple[int, ...]], Tensor]:
    """Return a function from a text to the probabilities (V,) of its next token, which it remembers."""

    @cache
    def odds(text: tuple[int, ...]) -> Tensor:
        with torch.no_grad():
            return model(torch.tensor([text]))[0, -1].softmax(dim=-1)

    return odds


def draw_twice(
    prompt: Tensor,
    n: int,
    model: MiniGPT,
    draft: MiniGPT | None = None,
    verify: Verify | None = None,
    seed: int = 0,
) -> Counter[tuple[int, ...]]:
    """Continue a prompt by two tokens, n times, at temperature 1, and count the pairs.

    Args:
        prompt: (P,) int64.
        draft: proposes one token at a time; left out, the model draws alone.
        verify: lesson 12's `verify_sampled`, which judges what is proposed.
    """
    generator = torch.Generator().manual_seed(seed)
    p, q = odds_of(model), draft and odds_of(draft)
    start, pairs = tuple(prompt.tolist()), Counter()
    for _ in range(n):
        text = start
        while len(text) < len(start) + 2:
            if q is None:
                text += (int(torch.multinomial(p(text), 1, generator=generator)),)
                continue
            guess = int(torch.multinomial(q(text), 1, generator=generator))
            rows = torch.stack([p(text), p((*text, guess))])  # (2, V)
            kept, token = verify(torch.tensor([guess]), q(text)[None], rows, generator)
            text += (guess, token) if kept else (token,)
        pairs[text[len(start) : len(start) + 2]] += 1
    return pairs
