"""A conversation that the engine serves: how its tokens are chosen, and which of them end it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from course.serving.request import Request


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the likeliest token; above 0 it is drawn from softmax(logits / temperature).
        top_k: draw only among so many of the likeliest tokens; 0 is all of them.
        top_p: draw only among the likeliest tokens that together reach this probability, 0 … 1.
        seed: the same seed draws the same text; None draws another one each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError that names what is out of range."""
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (all tokens) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie above 0 and at most at 1, got {self.top_p}")

    def generator(self, device: torch.device) -> torch.Generator:
        """Return a new generator, of the seed if there is one."""
        generator = torch.Generator(device)
        if self.seed is None:
            generator.seed()
            return generator
        return generator.manual_seed(self.seed)

    def scores(self, logits: Tensor) -> Tensor:
        """Return what softmax makes the probabilities of: logits (V,) divided by the temperature, with
        -inf for what top-k, and then top-p, rule out."""
        scores = logits / self.temperature
        if 0 < self.top_k < len(scores):
            scores = scores.masked_fill(scores < scores.topk(self.top_k).values[-1], -torch.inf)
        if self.top_p == 1:  # rounding would rule out the last ones
            return scores
        odds, tokens = scores.softmax(dim=-1).sort(descending=True)
        likelier = odds.cumsum(dim=-1) - odds  # of all tokens before each one; 0 for the first
        return scores.index_fill(0, tokens[likelier >= self.top_p], -torch.inf)

    def choose(self, logits: Tensor, generator: torch.Generator | None) -> Tensor:
        """Choose a token, () int64, from its logits (V,)."""
        from course.minigpt.mini_gpt import greedy_next, sample_next  # given when lesson 01 closes

        if self.temperature == 0:
            return greedy_next(logits[None])[0]
        return sample_next(self.scores(logits)[None], generator=generator)[0]


GREEDY = Sampling()


@dataclass(eq=False)
class Conversation(Request):
    """A request that may end before its n_new tokens are written.

    Attributes:
        ends: tokens of which each ends the answer; it is the answer's last.
        sampling: how tokens are chosen.
        reused: tokens whose keys and values were known before, of the prompt.
    """

    ends: frozenset[int] = frozenset()
    sampling: Sampling = GREEDY
    reused: int = 0
    generator: torch.Generator | None = field(default=None, repr=False)

    @property
    def done(self) -> bool:
        """Whether the whole answer is written. Its last token is never fed."""
        return super().done or (bool(self.out) and self.out[-1] in self.ends)

    def cut(self) -> None:
        """Let the answer end with its next token, and the prompt with the one that is fed next."""
        if not self.decodes:
            self.prompt = self.prompt[: self.fed + 1]
        self.n_new = len(self.out) + 1

    def choose(self, logits: Tensor) -> Tensor:
        """Choose the next token, () int64, from its logits (V,)."""
        if self.generator is None and self.sampling.temperature > 0:
            self.generator = self.sampling.generator(logits.device)
        return self.sampling.choose(logits, self.generator)
