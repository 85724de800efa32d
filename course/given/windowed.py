"""Forward passes in which every layer has a window: over a whole text, and with a cache.

    forward = windowed_model(model, window_mask, windows=[32, 32, EVERYTHING, 32])
    logits = forward(tokens)                                            # (B, T) -> (B, T, V)
    logits = forward_windowed(model, tokens, cache, window_mask)        # the same, in steps

The caller's `window_mask`, written in lesson 08, decides which token looks at which. It is made from the
tokens' numbers, so the cache need not keep its rows in the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_cache_sizes
from course.model.config import GPTConfig
from course.model.layers import Attention

EVERYTHING = 2**31
"""A window that is larger than any text."""
WindowMask = Callable[..., Tensor]
"""Lesson 08's function: (own, places, window, n_sinks) -> (T, R) bool."""
Store = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes a layer's new keys and values, (B, G, T, D); returns those to look at, (B, G, R, D)."""


def check_window(window: int, n_sinks: int) -> None:
    """Check that a window has at least 1 token, and that there are 0 sinks or more."""
    check_between("window", window, 1, EVERYTHING)
    check_between("n_sinks", n_sinks, 0, EVERYTHING)


def check_numbers(name: str, numbers: Tensor) -> None:
    """Check that numbers of tokens are (n,) int64, each 0 or more."""
    if not isinstance(numbers, Tensor) or numbers.dtype != torch.int64 or numbers.dim() != 1:
        kind = f"{numbers.dtype} {tuple(numbers.shape)}" if isinstance(numbers, Tensor) else numbers
        raise ValueError(f"{name} must be token numbers (n,) int64, got {kind}")
    if len(numbers) and int(numbers.min()) < 0:
        raise ValueError(f"{name} must be token numbers, 0 or more, got {int(numbers.min())}")


def check_windowed_sizes(
    config: GPTConfig, batch: int, max_len: int, window: int, n_sinks: int
) -> None:
    """Check the sizes of a cache with a window; the sinks must fit a text of max_len tokens."""
    check_cache_sizes(config, batch, max_len)
    check_window(window, n_sinks)
    check_between("n_sinks", n_sinks, 0, max_len)


def windowed_model(
    model: MiniGPT, window_mask: WindowMask, windows: Sequence[int], n_sinks: int = 0
) -> Callable[[Tensor], Tensor]:
    """Make a forward pass without a cache, in which layer i has the window windows[i].

    Returns:
        A function of tokens (B, T) int64 that returns logits (B, T, V).

    Raises:
        ValueError: there is not one window for each layer.
    """
    if len(windows) != model.config.n_layers:
        raise ValueError(
            f"{model.config.n_layers} layers need as many windows, got {len(windows)}: {windows}"
        )

    def forward(tokens: Tensor) -> Tensor:
        model.check_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        masks = [window_mask(positions, positions, w, n_sinks) for w in windows]  # (T, T) each
        return _forward(model, tokens, positions, masks, lambda layer, k, v: (k, v))

    return forward


def forward_windowed(model: MiniGPT, tokens: Tensor, cache: Any, window_mask: WindowMask) -> Tensor:
    """Compute the logits of new tokens that follow those in a cache with a window.

    Args:
        tokens: (B, T) int64.
        cache: lesson 08's cache. Its `places` returns which tokens' rows `append` returns; its `window`
            and `n_sinks` go into the mask. It is advanced by T, once.

    Returns:
        (B, T, V).

    Raises:
        ValueError: the model cannot take the tokens.
        CacheFull: there is no room for T tokens; the cache is not changed.
    """
    model.check_tokens(tokens)
    past, T = len(cache), tokens.shape[1]
    if past + T > cache.max_len:  # rotate() may have no such positions
        raise CacheFull(f"{past} of {cache.max_len} tokens were fed, {T} more are too many")
    positions = torch.arange(past, past + T, device=tokens.device)
    mask = window_mask(positions, cache.places(T), cache.window, cache.n_sinks)  # (T, R)
    logits = _forward(model, tokens, positions, [mask] * len(model.blocks), cache.append)
    cache.advance(T)
    return logits


def _forward(
    model: MiniGPT, tokens: Tensor, positions: Tensor, masks: Sequence[Tensor], store: Store
) -> Tensor:
    x = model.embed(tokens)  # (B, T, C)
    for layer, (block, mask) in enumerate(zip(model.blocks, masks, strict=True)):
        x = x + _attend(block.attn, block.attn_norm(x), positions, mask, layer, store)
        x = x + block.mlp(block.mlp_norm(x))
    return model.lm_head(model.norm(x))  # (B, T, V)


def _attend(
    attn: Attention, x: Tensor, positions: Tensor, mask: Tensor, layer: int, store: Store
) -> Tensor:
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)  # (B, H, T, D)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)  # (B, G, T, D)
    k, v = store(layer, k, split_heads(attn.wv(x), attn.n_kv_heads))  # (B, G, R, D)
    group = attn.n_heads // attn.n_kv_heads
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, R, D)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, T, D)
    return attn.wo(merge_heads(heads))


@torch.no_grad()
def attention_to_token(model: MiniGPT, tokens: Tensor, number: int, first: int = 0) -> Tensor:
    """Measure how much of its attention each head gives to one token.

    Args:
        tokens: (B, T) int64.
        number: the position of that token.
        first: the first query that counts.

    Returns:
        (L, H): the mean over rows and queries; 1 for a head that looks at nothing else.
    """
    weights = _attention_weights(model, tokens)
    return torch.stack([w[:, :, first:, number].mean(dim=(0, 2)) for w in weights])


def attention_beyond(model: MiniGPT, tokens: Tensor, distance: int, first: int = 0) -> Tensor:
    """Measure how much of its attention each head gives to tokens that lie far back.

    Args:
        tokens: (B, T) int64.
        distance: how many tokens back far begins.
        first: the first query that counts.

    Returns:
        (L, H): the mean over rows and queries.
    """
    far = torch.ones(tokens.shape[1], tokens.shape[1], device=tokens.device).tril(
        -distance
    )  # (T, T)
    weights = _attention_weights(model, tokens)
    return torch.stack([(w * far)[:, :, first:].sum(dim=-1).mean(dim=(0, 2)) for w in weights])


def _attention_weights(model: MiniGPT, tokens: Tensor) -> Iterator[Tensor]:
    """Yield the weights of each layer, (B, H, T, T): of each query on all keys."""
    model.check_tokens(tokens)
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    x = model.embed(tokens)  # (B, T, C)
    for block in model.blocks:
        attn, normed = block.attn, block.attn_norm(x)
        q = attn.rotate(split_heads(attn.wq(normed), attn.n_heads), positions)  # (B, H, T, D)
        k = attn.rotate(split_heads(attn.wk(normed), attn.n_kv_heads), positions)  # (B, G, T, D)
        k = k.repeat_interleave(attn.n_heads // attn.n_kv_heads, dim=1)  # (B, H, T, D)
        scores = q @ k.mT / attn.head_dim**0.5
        scores = scores.masked_fill(positions > positions[:, None], -torch.inf)
        yield scores.softmax(dim=-1)
        x = x + model.attention_layer(attn, normed, positions)
        x = x + block.mlp(block.mlp_norm(x))
