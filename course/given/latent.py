"""A model that caches latents: its layers, its cached forward pass, and the checks of arguments.

    model = LatentGPT.from_weights("story-latent-16-16")
    logits = forward_latent(model, tokens, cache, latent_attention_layer)

What a layer computes with a `LatentAttention`, and what its cache holds, is written in lesson 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_cache_sizes
from course.model.config import GPTConfig
from course.model.rotary import rotary_table, rotate

LARGEST = 2**31
"""The largest size that the checks here accept."""


class LatentAttention(nn.Module):
    """The matrices and the sizes of one layer of latent attention (DeepSeek-AI 2024).

    Args:
        config: the sizes of the model; n_kv_heads is ignored, since every head has its own keys and
            values.
        rank: the width of a latent.
        d_rope: R, the width of the rotated key that all heads share, and of each head's rotated query.

    Attributes:
        n_heads, head_dim, rank, d_rope: H, D, rank and R.
        wq: (H * (D + R), C). Of each head's D + R numbers the first D are the query of the content; the
            last R are to be rotated.
        down: (rank + R, C), from a token to its latent and then the shared key, which is to be rotated.
        up_k, up_v: (H * D, rank), from a latent to the keys and to the values of all heads.
        wo: (C, H * D).
    """

    def __init__(self, config: GPTConfig, rank: int, d_rope: int) -> None:
        super().__init__()
        check_latent_sizes(rank, d_rope)
        self.n_heads, self.head_dim = config.n_heads, config.head_dim
        self.rank, self.d_rope = rank, d_rope
        C, H, D = config.d_model, config.n_heads, config.head_dim
        self.wq = nn.Linear(C, H * (D + d_rope), bias=False)
        self.down = nn.Linear(C, rank + d_rope, bias=False)
        self.up_k = nn.Linear(rank, H * D, bias=False)
        self.up_v = nn.Linear(rank, H * D, bias=False)
        self.wo = nn.Linear(H * D, C, bias=False)
        table = rotary_table(config.max_seq_len, d_rope, config.rope_theta)
        self.register_buffer("rotary_table", table, persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries (B, H, T, R) or the key (B, 1, T, R) by positions, (T,) int64."""
        return rotate(x, positions, self.rotary_table)


LatentLayer = Callable[..., Tensor]
"""`latent_attention_layer(attn, x, positions, cache, layer)` -> (B, T, C)."""


class LatentGPT(MiniGPT):
    """A MiniGPT with a `LatentAttention` in every block; `forward_latent` computes its logits."""

    def __init__(
        self, config: GPTConfig, rank: int, d_rope: int, attention_layer: LatentLayer | None = None
    ) -> None:
        super().__init__(config, attention_layer or _not_without_a_cache)
        self.rank, self.d_rope = rank, d_rope
        for block in self.blocks:
            block.attn = LatentAttention(config, rank, d_rope)
        self.requires_grad_(False)

    @classmethod
    def from_weights(cls, name: str) -> LatentGPT:  # type: ignore[override]
        """Load a model with weights that the course ships, such as "story-latent-16-16".

        Raises:
            ValueError: there are no such weights, or they are not those of latent attention.
        """
        from course import weights

        config, state = weights.read(name)
        return cls.from_latent_state(config, state)

    @classmethod
    def from_latent_state(
        cls,
        config: GPTConfig,
        state: Mapping[str, Tensor],
        attention_layer: LatentLayer | None = None,
    ) -> LatentGPT:
        """Make a float32 model of the given tensors, from whose shapes rank and d_rope are read."""
        if "blocks.0.attn.up_k.weight" not in state:
            raise ValueError("these are not the weights of latent attention: up_k is missing")
        rank = state["blocks.0.attn.up_k.weight"].shape[1]
        d_rope = state["blocks.0.attn.down.weight"].shape[0] - rank
        model = cls(config, rank, d_rope, attention_layer)
        model.load_state_dict(state)
        return model.eval()


def _not_without_a_cache(attn: LatentAttention, x: Tensor, positions: Tensor) -> Tensor:
    raise ValueError("a LatentGPT computes its logits by forward_latent, with a cache")


def forward_latent(model: LatentGPT, tokens: Tensor, cache: object, layer: LatentLayer) -> Tensor:
    """Compute the logits of new tokens that follow those in the cache; then the cache holds them too.

    Args:
        model: a LatentGPT.
        tokens: (B, T) int64, T at least 1.
        cache: a LatentKVCache of the earlier tokens; it is advanced by T, once.
        layer: lesson 13's `latent_attention_layer`.

    Raises:
        ValueError: the model cannot take the tokens.
        CacheFull: there is no room for T tokens; the cache is not changed.
    """
    model.check_tokens(tokens)
    past, T = len(cache), tokens.shape[1]
    if past + T > cache.max_len:
        raise CacheFull(f"{past} of {cache.max_len} places are taken, {T} more do not fit")
    positions = torch.arange(past, past + T, device=tokens.device)
    x = model.embed(tokens)  # (B, T, C)
    for number, block in enumerate(model.blocks):
        x = x + layer(block.attn, block.attn_norm(x), positions, cache, number)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T)
    return model.lm_head(model.norm(x))  # (B, T, V)


def check_latent_sizes(rank: int, d_rope: int) -> None:
    """Check the width of a latent and of the rotated key; a ValueError names what is wrong."""
    check_between("rank", rank, 1, LARGEST)
    check_between("d_rope", d_rope, 2, LARGEST)
    if d_rope % 2:
        raise ValueError(f"rotation turns pairs of numbers, so d_rope must be even, got {d_rope}")


def check_latent_cache(config: GPTConfig, batch: int, max_len: int, rank: int, d_rope: int) -> None:
    """Check the sizes of a cache of latents; a ValueError names what is wrong."""
    check_cache_sizes(config, batch, max_len)
    check_latent_sizes(rank, d_rope)


def check_latent_block(
    n_layers: int,
    batch: int,
    rank: int,
    d_rope: int,
    dtype: torch.dtype,
    layer: int,
    c: Tensor,
    k_rope: Tensor,
) -> None:
    """Check what is appended to a cache of latents; a ValueError names what is wrong.

    Args:
        n_layers, batch, rank, d_rope, dtype: the sizes and the dtype of the cache.
        layer: 0 … L-1.
        c: (B, T, rank), with T of at least 1.
        k_rope: (B, 1, T, R).
    """
    check_between("layer", layer, 0, n_layers - 1)
    T = c.shape[1] if c.dim() == 3 else 0
    if tuple(c.shape) != (batch, T, rank) or T < 1:
        raise ValueError(
            f"this cache takes latents of shape (B, T, rank) = ({batch}, T, {rank}) with T of at "
            f"least 1, got {tuple(c.shape)}"
        )
    if tuple(k_rope.shape) != (batch, 1, T, d_rope):
        raise ValueError(
            f"latents {tuple(c.shape)} need rotated keys of shape (B, 1, T, R) = ({batch}, 1, {T}, "
            f"{d_rope}), got {tuple(k_rope.shape)}"
        )
    for name, tensor in (("latents", c), ("rotated keys", k_rope)):
        if tensor.dtype != dtype:
            raise ValueError(f"this cache holds {dtype}, got {name} of {tensor.dtype}")


def check_latent_bytes(
    n_layers: int, rank: int, d_rope: int, n_tokens: int, batch: int, bytes_per_element: int
) -> None:
    """Check the sizes of a cache whose bytes are counted; a ValueError names what is wrong."""
    check_between("n_layers", n_layers, 1, LARGEST)
    check_latent_sizes(rank, d_rope)
    check_between("n_tokens", n_tokens, 0, LARGEST)
    check_between("batch", batch, 1, LARGEST)
    check_between("bytes_per_element", bytes_per_element, 1, 8)


def check_absorbed(q_nope: Tensor, up_k: Tensor) -> None:
    """Check queries (B, H, T, D) and a matrix (H * D, rank) that belong together."""
    if q_nope.dim() != 4 or 0 in q_nope.shape:
        raise ValueError(f"q_nope must be (B, H, T, D), none of them 0; got {tuple(q_nope.shape)}")
    width = q_nope.shape[1] * q_nope.shape[3]
    if up_k.dim() != 2 or up_k.shape[0] != width or up_k.shape[1] < 1:
        raise ValueError(
            f"queries {tuple(q_nope.shape)} need up_k of shape (H * D, rank) = ({width}, rank), got "
            f"{tuple(up_k.shape)}"
        )


def check_latent_queries(q: Tensor, rows: Tensor, rank: int, mask: Tensor | None) -> None:
    """Check that queries (B, H, T, rank + R) can attend to rows (B, S, rank + R), under a mask."""
    if q.dim() != 4 or 0 in q.shape:
        raise ValueError(f"q must be (B, H, T, rank + R), none of them 0; got {tuple(q.shape)}")
    B, H, T, width = q.shape
    if rows.dim() != 3 or (rows.shape[0], rows.shape[2]) != (B, width) or rows.shape[1] < 1:
        raise ValueError(
            f"queries {tuple(q.shape)} need rows of shape (B, S, rank + R) = ({B}, S, {width}), got "
            f"{tuple(rows.shape)}"
        )
    check_between("rank", rank, 1, width)
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask must be bool, True where a token may look; got {mask.dtype}")
    whole = (B, H, T, rows.shape[1])
    sizes = zip(reversed(mask.shape), reversed(whole), strict=False)
    if mask.dim() > 4 or any(size not in (1, full) for size, full in sizes):
        raise ValueError(f"a mask {tuple(mask.shape)} does not broadcast to (B, H, T, S) = {whole}")
