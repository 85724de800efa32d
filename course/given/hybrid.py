"""A model most of whose layers keep a state in place of rows, and the checks of what lesson 17 is given.

    model = HybridGPT.from_weights("story-hybrid")
    logits = forward_hybrid(model, tokens, cache, delta_step, delta_chunk)

What a linear layer computes with its state, and what the cache holds, is written in lesson 17.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull
from course.model.config import GPTConfig
from course.model.layers import Attention

LARGEST = 2**31
"""The largest size that the checks here accept."""
CHUNK = 64
"""Tokens that a linear layer of `forward_hybrid` takes at a time."""
WIDTH = 4
"""Tokens over which our models' linear layers mix what they project, as Qwen3-Next does."""


class CannotGoBack(Exception):
    """Raised when a cache has no state of the length it is cut to; nothing in it was changed."""


@dataclass(frozen=True)
class HybridSizes:
    """Hold the sizes of a model with linear layers, which keep a state, and full ones, which keep rows.

    Attributes:
        n_linear, n_full: layers of each kind.
        n_kv_heads, head_dim: G and D of a full layer's keys and values.
        key_heads, value_heads: of a linear layer; each key head serves value_heads // key_heads states.
        key_dim, value_dim: K and V of a state, which has K rows and V columns.
        width: tokens that the convolution of a linear layer reads; at 1 it needs no earlier token.

    Raises:
        ValueError: a size that is not a whole number of at least 1, or a number of layers below 0.
    """

    n_linear: int
    n_full: int
    n_kv_heads: int
    head_dim: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int = WIDTH

    def __post_init__(self) -> None:
        for field in fields(self):
            low = 0 if field.name in ("n_linear", "n_full") else 1
            check_between(field.name, getattr(self, field.name), low, LARGEST)
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"{self.key_heads} key heads cannot serve {self.value_heads} states equally"
            )

    @property
    def channels(self) -> int:
        """Count the numbers of a row that the convolution mixes: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


# --- the checks of arguments ---------------------------------------------------------------------


def check_delta(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, tokens: bool
) -> None:
    """Check what a step of the delta rule is given, or a chunk where `tokens` says that T is an axis.

    Args:
        S: (B, H, K, V).
        q, k: (B, H, K), or (B, H, T, K).
        v: (B, H, V), or (B, H, T, V).
        beta, decay: (B, H), or (B, H, T).

    Raises:
        ValueError: another shape, an axis of size 0, or tensors of different dtypes.
    """
    if S.dim() != 4 or 0 in S.shape:
        raise ValueError(f"the state must be (B, H, K, V), none of them 0; got {tuple(S.shape)}")
    B, H, K, V = S.shape
    if tokens and (q.dim() != 4 or q.shape[2] < 1):
        raise ValueError(f"queries must be (B, H, T, K) with T of at least 1, got {tuple(q.shape)}")
    front = (B, H, q.shape[2]) if tokens else (B, H)
    expected = {
        "q": (q, (*front, K)),
        "k": (k, (*front, K)),
        "v": (v, (*front, V)),
        "beta": (beta, front),
        "decay": (decay, front),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"a state {tuple(S.shape)} needs {name} of shape {shape}, got {tuple(tensor.shape)}"
            )
        if tensor.dtype != S.dtype:
            raise ValueError(f"the state is {S.dtype}, but {name} is {tensor.dtype}")


def check_element(*sizes: int) -> None:
    """Check the bytes of one number, 1 … 8."""
    for size in sizes:
        check_between("the bytes of a number", size, 1, 8)


def check_hybrid_cache(sizes: HybridSizes, full: Sequence[bool], batch: int, max_len: int) -> None:
    """Check the sizes of a cache for layers of both kinds, and that `full` has as many of each."""
    if len(full) != sizes.n_linear + sizes.n_full or sum(full) != sizes.n_full:
        raise ValueError(
            f"sizes of {sizes.n_linear} linear and {sizes.n_full} full layers, but full={list(full)}"
        )
    if not sizes.n_linear:
        raise ValueError("without a linear layer this is lesson 03's cache")
    check_between("batch", batch, 1, LARGEST)
    check_between("max_len", max_len, 1, LARGEST)


def check_is_full(full: Sequence[bool], layer: int, wanted: bool) -> None:
    """Check that there is such a layer, and that it keeps rows (`wanted`), or else a state."""
    check_between("layer", layer, 0, len(full) - 1)
    if full[layer] != wanted:
        kinds = ("a linear layer, which keeps a state", "a full layer, which keeps rows")
        raise ValueError(f"layer {layer} is {kinds[full[layer]]}")


def check_rows(sizes: HybridSizes, batch: int, dtype: torch.dtype, k: Tensor, v: Tensor) -> None:
    """Check keys and values (B, G, T, D) before a full layer stores them."""
    T = k.shape[2] if k.dim() == 4 else 0
    shape = (batch, sizes.n_kv_heads, T, sizes.head_dim)
    for name, tensor in (("keys", k), ("values", v)):
        _check_tensor(name, tensor, shape, dtype)
    if T < 1:
        raise ValueError(f"at least one token's keys are appended, got {tuple(k.shape)}")


def check_kept(sizes: HybridSizes, batch: int, dtype: torch.dtype, S: Tensor, tail: Tensor) -> None:
    """Check a state (B, value_heads, K, V) and a tail (B, width - 1, channels) before they are kept."""
    shape = (batch, sizes.value_heads, sizes.key_dim, sizes.value_dim)
    _check_tensor("the state", S, shape, dtype)
    _check_tensor("the tail", tail, (batch, sizes.width - 1, sizes.channels), dtype)


def check_resume(held: Sequence[int], prompt: Sequence[int], checkpoints: Sequence[int]) -> None:
    """Check that there is a prompt, and that each checkpoint is one of the tokens that are held."""
    if len(prompt) < 1:
        raise ValueError("the prompt is empty; at least one token must be left to feed")
    if any(not 1 <= n <= len(held) for n in checkpoints):
        raise ValueError(
            f"checkpoints of {len(held)} tokens are 1 … {len(held)}, got {checkpoints}"
        )


def _check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"this cache takes {name} of shape {shape} in {dtype}, got {tuple(tensor.shape)} in "
            f"{tensor.dtype}"
        )


# --- the model -----------------------------------------------------------------------------------


class DeltaLayer(nn.Module):
    """Hold the matrices of a linear layer: a gated delta rule with one state a head (Yang et al. 2024).

    Args:
        config: the sizes of the model. Each of its heads has a state of head_dim x head_dim numbers.

    Attributes:
        wq, wk, wv, wo: (C, C) each, as those of attention.
        mix: (channels, width), the weights of the convolution: how a channel of the last `width`
            tokens adds up. The last column is the token's own.
        gates: (2 * H, C) with a bias, whose sigmoids are beta and decay.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_heads, self.head_dim = config.n_heads, config.head_dim
        C = config.d_model
        self.wq = nn.Linear(C, C, bias=False)
        self.wk = nn.Linear(C, C, bias=False)
        self.wv = nn.Linear(C, C, bias=False)
        self.wo = nn.Linear(C, C, bias=False)
        self.mix = nn.Parameter(torch.zeros(3 * C, WIDTH))
        self.gates = nn.Linear(C, 2 * config.n_heads)

    def project(self, x: Tensor, tail: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Make what the delta rule is given, and the next tail.

        Args:
            x: (B, T, C).
            tail: (B, width - 1, channels), the rows of the tokens before.

        Returns:
            q, k, v (B, H, T, D), beta and decay (B, H, T); the last width - 1 rows.
        """
        new = torch.cat([self.wq(x), self.wk(x), self.wv(x)], dim=-1)  # (B, T, channels)
        rows = torch.cat([tail, new], dim=1)  # (B, width - 1 + T, channels)
        mixed = F.conv1d(
            rows.mT, self.mix.unsqueeze(1), groups=rows.shape[-1]
        ).mT  # (B, T, channels)
        q, k, v = (split_heads(part, self.n_heads) for part in mixed.chunk(3, dim=-1))
        beta, decay = self.gates(x).sigmoid().mT.chunk(2, dim=1)  # (B, H, T) each
        return (q, k, v, beta, decay.clamp(min=1e-6)), rows[:, -(WIDTH - 1) :]


class HybridGPT(MiniGPT):
    """A MiniGPT with a `DeltaLayer` in some of its blocks; `forward_hybrid` computes its logits.

    Args:
        config: the sizes.
        full: a bool for each layer, in order: whether it is one of attention.

    Attributes:
        full: as given.
        sizes: its HybridSizes.
    """

    def __init__(self, config: GPTConfig, full: Sequence[bool]) -> None:
        super().__init__(config, _not_without_a_cache)
        self.full = list(full)
        for block, is_full in zip(self.blocks, full, strict=True):
            if not is_full:
                block.attn = DeltaLayer(config)
        H, D = config.n_heads, config.head_dim
        n_full = sum(self.full)
        self.sizes = HybridSizes(
            config.n_layers - n_full, n_full, config.n_kv_heads, D, H, H, D, D, WIDTH
        )
        self.requires_grad_(False)

    @classmethod
    def from_weights(cls, name: str) -> HybridGPT:  # type: ignore[override]
        """Load a model with weights that the course ships, "story-hybrid" or "story-linear".

        Raises:
            ValueError: there are no such weights, or no layer of theirs is linear.
        """
        from course import weights

        return cls.from_hybrid_state(*weights.read(name))

    @classmethod
    def from_hybrid_state(cls, config: GPTConfig, state: Mapping[str, Tensor]) -> HybridGPT:
        """Make a float32 model of the given tensors, whose names say which layers are linear."""
        full = [f"blocks.{layer}.attn.mix" not in state for layer in range(config.n_layers)]
        if all(full):
            raise ValueError("these are not the weights of a hybrid: no layer is linear")
        model = cls(config, full)
        model.load_state_dict(state)
        return model.eval()


class OtherStates:
    """Stand in for a cache whose rows are right and whose states and tails are not, until the next pass.

    Args:
        cache: a HybridCache; it is used and changed.
        states: what `state` returns before that pass, (S, tail) by layer.
    """

    def __init__(self, cache: Any, states: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        self.cache, self.states, self.max_len = cache, dict(states), cache.max_len
        self.append, self.keep = cache.append, cache.keep

    def __len__(self) -> int:
        return len(self.cache)

    def state(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.states[layer] if layer in self.states else self.cache.state(layer)

    def advance(self, n: int) -> None:
        self.states = {}
        self.cache.advance(n)


def _not_without_a_cache(attn: nn.Module, x: Tensor, positions: Tensor) -> Tensor:
    raise ValueError("a HybridGPT computes its logits by forward_hybrid, with a cache")


Rule = Callable[..., tuple[Tensor, Tensor]]
"""`delta_step` or `delta_chunk`, of (S, q, k, v, beta, decay)."""


def forward_hybrid(
    model: HybridGPT, tokens: Tensor, cache: Any, delta_step: Rule, delta_chunk: Rule
) -> Tensor:
    """Compute the logits of new tokens that follow those in the cache; then the cache holds them too.

    Args:
        model: a HybridGPT.
        tokens: (B, T) int64, T at least 1.
        cache: a HybridCache of the earlier tokens; it is advanced by T, once.
        delta_step: lesson 17's, for one token.
        delta_chunk: lesson 17's, for more; they come in chunks of 64.

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
    for layer, block in enumerate(model.blocks):
        normed = block.attn_norm(x)
        if model.full[layer]:
            x = x + _attend(block.attn, normed, positions, cache, layer)
        else:
            x = x + _follow_the_rule(block.attn, normed, cache, layer, delta_step, delta_chunk)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T)
    return model.lm_head(model.norm(x))  # (B, T, V)


def _follow_the_rule(
    attn: DeltaLayer, x: Tensor, cache: Any, layer: int, delta_step: Rule, delta_chunk: Rule
) -> Tensor:
    """Compute a linear layer of tokens (B, T, C), and have the cache keep its state and tail."""
    S, tail = cache.state(layer)
    parts, tail = attn.project(x, tail)
    if x.shape[1] == 1:
        out, S = delta_step(S, *(part.squeeze(2) for part in parts))
        outs = [out.unsqueeze(2)]
    else:
        outs = []
        for chunk in zip(*(part.split(CHUNK, dim=2) for part in parts), strict=True):
            out, S = delta_chunk(S, *chunk)
            outs.append(out)
    cache.keep(layer, S, tail)
    return attn.wo(merge_heads(torch.cat(outs, dim=2)))


def _attend(attn: Attention, x: Tensor, positions: Tensor, cache: Any, layer: int) -> Tensor:
    """Compute a full layer of tokens (B, T, C) over the rows that the cache returns."""
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)  # (B, H, T, D)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)  # (B, G, T, D)
    k, v = cache.append(layer, k, split_heads(attn.wv(x), attn.n_kv_heads))  # (B, G, S, D)
    places = torch.arange(k.shape[2], device=x.device)
    seen = F.scaled_dot_product_attention(
        q, k, v, attn_mask=places <= positions.unsqueeze(1), enable_gqa=k.shape[1] != q.shape[1]
    )
    return attn.wo(merge_heads(seen))
