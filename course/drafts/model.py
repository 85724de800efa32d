"""Propose tokens by a smaller model, whose own cache is truncated where guesses were wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course.minigpt.kv_cache import KVCache, forward_cached
from course.model import MiniGPT
from course.model.bounds import check_between


class ModelDraft:
    """Proposes what a model would write.

    Args:
        model: has the vocabulary of the model that verifies.
        max_len: the length of the longest text, in tokens.
    """

    def __init__(self, model: MiniGPT, max_len: int) -> None:
        self.model = model
        self.cache = KVCache(model.config, 1, min(max_len, model.config.max_seq_len))
        self.fed: list[int] = []

    def propose(self, text: Tensor, n_draft: int) -> Tensor:
        """Continue text (S,) greedily by n_draft tokens, (n_draft,) int64."""
        known = text.tolist()
        for _ in range(n_draft):
            self._truncate_to(known)
            feed = torch.tensor([known[len(self.fed) :]])
            logits = forward_cached(self.model, feed, self.cache)  # (1, T, V)
            self.fed = list(known)
            known.append(int(logits[0, -1].argmax()))
        return torch.tensor(known[len(text) :], dtype=torch.int64)

    def _truncate_to(self, known: list[int]) -> None:
        """Truncate the cache to what it shares with `known`; at least one token is left to feed."""
        same = 0
        for fed, token in zip(self.fed, known[:-1], strict=False):
            if fed != token:
                break
            same += 1
        self.cache.truncate(same)
        self.fed = self.fed[:same]


def first_layers(model: MiniGPT, n: int) -> MiniGPT:
    """Make a model of the first n layers of another, with its embedding and its head.

    Raises:
        ValueError: n is not from 1 to the number of layers.
    """
    check_between("n", n, 1, model.config.n_layers)
    others = tuple(f"blocks.{layer}." for layer in range(n, model.config.n_layers))
    state = {
        name: tensor for name, tensor in model.state_dict().items() if not name.startswith(others)
    }
    return MiniGPT.from_state(replace(model.config, n_layers=n), state)


def acceptance(model: MiniGPT, draft: MiniGPT, texts: Sequence[Tensor]) -> tuple[float, float]:
    """Compute the share of a draft model's next tokens that are accepted, over all places of some texts.

    Args:
        texts: (S,) int64 each.

    Returns:
        Two shares. In greedy decoding a token is accepted where both models have the same likeliest
        token. In sampling at temperature 1 the share is the mean of the sums of min(p, q), the most
        that any rule can accept.
    """
    greedy, sampled = [], []
    for text in texts:
        p, q = (m(text[None])[0].softmax(dim=-1) for m in (model, draft))  # (S, V) each
        greedy.append((p.argmax(dim=-1) == q.argmax(dim=-1)).float().mean())
        sampled.append(torch.minimum(p, q).sum(dim=-1).mean())
    return float(torch.stack(greedy).mean()), float(torch.stack(sampled).mean())
