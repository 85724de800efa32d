"""What lesson 16 is given: a model whose feed-forward is a mixture of experts, and checks of arguments.

    model = MoEGPT.from_weights("story-moe-8-2", route, moe_grouped)
    logits = model(tokens)                     # as any MiniGPT; generate_cached and speculate take it

Which experts a token uses, and how they are called, is written in lesson 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.config import GPTConfig
from course.model.gpt import AttentionLayer
from course.model.layers import SwiGLU

LARGEST = 2**31
"""The largest size that the checks here accept."""

Route = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""`route(logits, k)` -> chosen (n, k) int64, weights (n, k)."""
Expert = Callable[[Tensor], Tensor]
"""From rows (m, C) to rows (m, C), with m of at least 1."""
Grouped = Callable[[Tensor, Sequence[Expert], Tensor, Tensor], Tensor]
"""`moe_grouped(x, experts, chosen, weights)` -> (n, C)."""


class MixtureOfExperts(nn.Module):
    """The feed-forward of one layer: a router, and experts of which each token uses k.

    Args:
        d_model: C.
        d_expert: the width of one expert.
        n_experts: N.
        k: how many of them a token uses.
        route, grouped: lesson 16's `route` and `moe_grouped`.

    Attributes:
        router: (N, C), from a token to one logit for each expert.
        experts: N times what `course.model` has once in each layer, of another width.
        chosen: (n, k), what the tokens of the last pass used; None before the first.
    """

    def __init__(
        self, d_model: int, d_expert: int, n_experts: int, k: int, route: Route, grouped: Grouped
    ) -> None:
        super().__init__()
        self.k, self.route, self.grouped = k, route, grouped
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_expert) for _ in range(n_experts))
        self.chosen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, T, C) from (B, T, C)."""
        rows = x.flatten(0, 1)  # (B * T, C)
        self.chosen, weights = self.route(self.router(rows), self.k)
        return self.grouped(rows, list(self.experts), self.chosen, weights).view_as(x)


class MoEGPT(MiniGPT):
    """A MiniGPT with a `MixtureOfExperts` in every block."""

    def __init__(
        self,
        config: GPTConfig,
        n_experts: int,
        k: int,
        d_expert: int,
        route: Route,
        grouped: Grouped,
        attention_layer: AttentionLayer | None = None,
    ) -> None:
        super().__init__(config, attention_layer)
        for block in self.blocks:
            block.mlp = MixtureOfExperts(config.d_model, d_expert, n_experts, k, route, grouped)
        self.requires_grad_(False)

    @classmethod
    def from_weights(cls, name: str, route: Route, grouped: Grouped) -> MoEGPT:  # type: ignore[override]
        """Load a model with weights that the course ships, such as "story-moe-8-2".

        Raises:
            ValueError: there are no such weights, or they are not those of a mixture of experts.
        """
        from course import weights

        config, state = weights.read(name)
        k = name.rpartition("-")[2]  # "…-8-2": 2 of 8 experts
        return cls.from_moe_state(config, state, int(k) if k.isdigit() else 1, route, grouped)

    @classmethod
    def from_moe_state(
        cls,
        config: GPTConfig,
        state: Mapping[str, Tensor],
        k: int,
        route: Route,
        grouped: Grouped,
        attention_layer: AttentionLayer | None = None,
    ) -> MoEGPT:
        """Make a float32 model of the given tensors, from whose shapes the experts are counted."""
        if "blocks.0.mlp.router.weight" not in state:
            raise ValueError("these are not the weights of a mixture of experts: no router")
        n_experts = len(state["blocks.0.mlp.router.weight"])
        d_expert = len(state["blocks.0.mlp.experts.0.up.weight"])
        model = cls(config, n_experts, k, d_expert, route, grouped, attention_layer)
        model.load_state_dict(state)
        return model.eval()

    def chosen(self) -> list[Tensor]:
        """Return which experts the tokens of the last pass used: for each layer (n, k) int64."""
        return [block.mlp.chosen for block in self.blocks]


# --- the checks of arguments ---------------------------------------------------------------------


def check_routing(logits: Tensor, k: int) -> None:
    """Check logits (n, N) of N experts, and how many of them each token uses.

    Raises:
        ValueError: they cannot be used, as in every function here; the message names what is wrong.
    """
    if logits.dim() != 2 or logits.shape[1] == 0:
        raise ValueError(f"logits are (n, N), N at least 1; got {tuple(logits.shape)}")
    check_between("k", k, 1, logits.shape[1])


def check_experts(x: Tensor, experts: Sequence[Expert], chosen: Tensor, weights: Tensor) -> None:
    """Check that rows (n, C) belong to their experts and weights, (n, k) each."""
    if x.dim() != 2 or 0 in x.shape:
        raise ValueError(f"x is (n, C), none of them 0; got {tuple(x.shape)}")
    if chosen.dim() != 2 or len(chosen) != len(x) or chosen.shape[1] == 0:
        raise ValueError(
            f"{len(x)} rows need chosen of shape ({len(x)}, k), got {tuple(chosen.shape)}"
        )
    if weights.shape != chosen.shape:
        raise ValueError(
            f"each choice has one weight: got {tuple(chosen.shape)} and {tuple(weights.shape)}"
        )
    if chosen.dtype != torch.int64:
        raise ValueError(f"chosen must be int64, got {chosen.dtype}")
    low, high = int(chosen.min()), int(chosen.max())
    if low < 0 or high >= len(experts):
        raise ValueError(
            f"experts are numbered 0 … {len(experts) - 1}, got {low if low < 0 else high}"
        )


def check_tokens_and_experts(n_experts: int, k: int, n_tokens: int) -> None:
    """Check how many experts there are, how many a token uses, and how many tokens there are."""
    check_between("n_experts", n_experts, 1, LARGEST)
    check_between("k", k, 1, n_experts)
    check_between("n_tokens", n_tokens, 0, LARGEST)


def check_read(n_experts: int, experts_read: float, bytes_per_element: int) -> None:
    """Check how many of the experts of a layer are read, perhaps a mean, and the bytes of a number."""
    if not 0 <= experts_read <= n_experts:
        raise ValueError(f"experts_read must lie in 0 … {n_experts}, got {experts_read!r}")
    check_between("bytes_per_element", bytes_per_element, 1, 8)
