"""Sizes of published mixtures of experts, as in the `config.json` beside their weights.

Each is a decoder as in `course.model`, with experts in the place of each layer's feed-forward. From these
sizes follows the published number of parameters, less norms and biases; a test holds that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from course.model.config import GPTConfig


@dataclass(frozen=True)
class MoESize:
    """The sizes of a mixture of experts, the same in every layer.

    An expert is three matrices, as the feed-forward of `course.model` is: two of (d_expert, C), one of
    (C, d_expert). In shapes: V = vocab_size, L = n_layers, C = d_model, H = n_heads, G = n_kv_heads,
    D = head_dim, which need not be C // H; N = n_experts.

    Attributes:
        d_expert: the width of one expert.
        n_experts: N, of each layer.
        k: how many of them a token uses.
        d_shared: the width of one more expert that every token uses; 0 where there is none.

    Raises:
        ValueError: a size is no whole number of at least 1 (d_shared: 0), k is more than n_experts, or
            n_kv_heads does not divide n_heads.
    """

    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_expert: int
    n_experts: int
    k: int
    d_shared: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "d_shared" else 1
            if type(value) is not int or value < least:
                raise ValueError(
                    f"{field.name} must be a whole number of at least {least}, got {value!r}"
                )
        if self.k > self.n_experts:
            raise ValueError(f"a token cannot use k = {self.k} of {self.n_experts} experts")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"{self.n_kv_heads} KV heads do not divide {self.n_heads} heads")


EXPERTS: dict[str, MoESize] = {
    "Mixtral-8x7B": MoESize(32_000, 32, 4096, 32, 8, 128, 14_336, 8, 2),
    "Qwen3-30B-A3B": MoESize(151_936, 48, 2048, 32, 4, 128, 768, 128, 8),
    "gpt-oss-120b": MoESize(201_088, 36, 2880, 64, 8, 64, 2880, 128, 4),
}
"""By name. gpt-oss-120b has biases as well, and its experts were released with 4.25 bits a number."""


def as_mixture(config: GPTConfig) -> MoESize:
    """Describe a dense model as a mixture with one expert, which every token uses."""
    heads = config.n_heads, config.n_kv_heads, config.head_dim
    layers = config.vocab_size, config.n_layers, config.d_model
    return MoESize(*layers, *heads, d_expert=config.d_ff, n_experts=1, k=1)
