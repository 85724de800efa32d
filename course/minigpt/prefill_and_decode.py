"""Lesson 04: Prefill and decode.

Built from solutions/04-prefill-and-decode/prefill_and_decode.py by `make build`: change it there.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from course.measure.latency import Latency, check_stamps
from course.minigpt.kv_cache import causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.model import MiniGPT
from course.model.bounds import check_between, check_prompts
from course.model.cache import CacheFull, KVCacheLike
from course.model.layers import Attention


def prefill(model: MiniGPT, prompt: Tensor, cache: KVCacheLike, chunk_size: int = 256) -> Tensor:
    """Feed a prompt chunk by chunk; the logits after its last token.

    Args:
        prompt: (B, P) int64; it follows what the cache holds.
        cache: holds P tokens more afterwards.
        chunk_size: tokens that go into one forward pass, at least 1; the last chunk has what is
            left. No other passes are made.

    Returns:
        (B, V), of the model's dtype, from which the first new token is chosen.

    Raises (before any forward pass is made; the cache holds what it held):
        ValueError: tokens that the model cannot take, or a chunk_size below 1.
        CacheFull: no room for the whole prompt.
    """
    model.check_tokens(prompt)
    check_between("chunk_size", chunk_size, 1, 2**31)
    needed = len(cache) + prompt.shape[1]
    if needed > cache.max_len:
        raise CacheFull(f"{needed} tokens are more than the {cache.max_len} places of this cache")
    for chunk in prompt.split(chunk_size, dim=1):  # (B, T) each
        logits = forward_cached(model, chunk, cache)  # (B, T, V)
    return logits[:, -1]  # (B, V)


def stream(
    model: MiniGPT, prompt: Tensor, n_new: int, cache: KVCacheLike, chunk_size: int = 256
) -> Iterator[Tensor]:
    """Continue a prompt greedily, and give out each token as soon as it is known.

    Nothing is computed before a token is asked for: the first takes the prefill, each further one
    a decode step. The last one is never fed. A text goes on after `<end>`.

    Args:
        prompt: (B, P) int64; it follows what the cache holds.
        n_new: tokens to write, from 0 to the model's max_seq_len. For 0 nothing is fed, so no room
            is needed.
        cache: holds P + n_new - 1 tokens more afterwards; for n_new = 0, what it held.
        chunk_size: of the prefill.

    Yields:
        (B,) int64, n_new times; later steps do not change them.

    Raises (at the latest when the first token is asked for, and before any forward pass is made):
        ValueError: n_new out of its bounds, or tokens that the model cannot take; where a token is
            wanted, a chunk_size below 1.
        CacheFull: n_new above 0, and no room for all P + n_new - 1 tokens.
    """
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    model.check_tokens(prompt)
    if n_new == 0:
        return
    needed = len(cache) + prompt.shape[1] + n_new - 1
    if needed > cache.max_len:
        raise CacheFull(f"{needed} tokens are more than the {cache.max_len} places of this cache")
    token = greedy_next(prefill(model, prompt, cache, chunk_size))  # (B,)
    yield token
    for _ in range(n_new - 1):
        logits = forward_cached(model, token.unsqueeze(1), cache)  # (B, 1, V)
        token = greedy_next(logits[:, -1])  # (B,)
        yield token


def latency_metrics(start: float, stamps: Sequence[float]) -> Latency:
    """The latency of one stream.

    Args:
        start: when the request came, in seconds.
        stamps: when each token came out, in seconds of the same clock; any sequence.

    Returns:
        Latency(ttft, itl_mean, itl_p50, itl_p99, tokens_per_second). The gaps are those between
        neighbouring tokens; percentiles by linear interpolation; the rate is that of the decode
        phase, tokens after the first by seconds after the first. With one stamp the last four are
        None.

    Raises:
        ValueError: no stamps; times that go back or are not finite; two stamps or more, all of them
            at one moment (two of several may be).
    """
    check_stamps(start, stamps)
    ttft, gaps = stamps[0] - start, np.diff(stamps)  # (n - 1,)
    if len(gaps) == 0:
        return Latency(ttft, None, None, None, None)
    p50, p99 = np.percentile(gaps, [50, 99])
    return Latency(ttft, gaps.mean(), p50, p99, len(gaps) / gaps.sum())


def pad_prompts(prompts: Sequence[Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    """One batch of prompts of different lengths, filled up on the left.

    Args:
        prompts: B tensors (P,) int64, P of at least 1 each.
        pad_id: what to fill with; it may be an id that prompts contain.

    Returns:
        tokens (B, T) int64, T the longest length, rows in the order of the prompts, in memory of
        their own; and the number of pads of each row, (B,) int64.

    Raises:
        ValueError: no prompts, an empty one, or one that is no (P,) int64.
    """
    check_prompts(prompts)
    device = prompts[0].device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)  # (B,)
    T = max(map(len, prompts))
    tokens = torch.full((len(prompts), T), pad_id, dtype=torch.int64, device=device)  # (B, T)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[T - len(prompt) :] = prompt
    return tokens, T - lengths


def ragged_mask(n_new: int, n_visible: int, n_pads: Tensor) -> Tensor:
    """Which visible places each new place of each row may see.

    Args:
        n_new: T, the last T of the visible places.
        n_visible: S, at least T.
        n_pads: (B,) int64: places 0 … n_pads[b] - 1 of row b are pads; may be all S and more, in
            an early chunk.

    Returns:
        (B, 1, T, S) bool, True where a new place may look. No token sees a pad. What a pad sees is
        open, but it sees at least one place.
    """
    check_between("n_new", n_new, 1, n_visible)
    places = torch.arange(n_visible, device=n_pads.device)  # (S,)
    token = places >= n_pads.view(-1, 1, 1, 1)  # (B, 1, 1, S)
    itself = places == places[-n_new:].unsqueeze(1)  # (T, S)
    return causal_mask(n_new, n_visible, n_pads.device) & token | itself  # (B, 1, T, S)


def ragged_positions(n_new: int, n_visible: int, n_pads: Tensor) -> Tensor:
    """The position of each new place in its own row's text.

    Args:
        n_new, n_visible, n_pads: as for ragged_mask.

    Returns:
        (B, T) int64: i for the row's own token i, counted from 0. Of pads any number from 0 to
        S - 1.
    """
    check_between("n_new", n_new, 1, n_visible)
    places = torch.arange(n_visible - n_new, n_visible, device=n_pads.device)  # (T,)
    return (places - n_pads.unsqueeze(1)).clamp(min=0)  # (B, T)


def attend_ragged(
    attn: Attention, x: Tensor, positions: Tensor, mask: Tensor, cache: KVCacheLike, layer: int
) -> Tensor:
    """x (B, T, C), positions (B, T), mask (B, 1, T, S) -> (B, T, C)."""
    (B, T, _), D = x.shape, attn.head_dim
    q, k, v = (w(x).view(B, T, -1, D).transpose(1, 2) for w in (attn.wq, attn.wk, attn.wv))
    held = cache.append(layer, attn.rotate(k, positions), v)  # (B, G, S, D) each
    k, v = (part.repeat_interleave(attn.n_heads // attn.n_kv_heads, dim=1) for part in held)
    scores = attn.rotate(q, positions) @ k.mT / math.sqrt(D)  # (B, H, T, S)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return attn.wo((weights @ v).transpose(1, 2).reshape(B, T, -1))


def forward_ragged(model: MiniGPT, tokens: Tensor, n_pads: Tensor, cache: KVCacheLike) -> Tensor:
    """Logits (B, T, V) of tokens (B, T), in rows that begin with n_pads (B,) pads."""
    model.check_tokens(tokens)
    n_new, n_visible = tokens.shape[1], len(cache) + tokens.shape[1]
    positions = ragged_positions(n_new, n_visible, n_pads)
    mask = ragged_mask(n_new, n_visible, n_pads)
    hidden = model.embed(tokens)  # (B, T, C)
    for i, block in enumerate(model.blocks):
        normed = block.attn_norm(hidden)
        hidden = attend_ragged(block.attn, normed, positions, mask, cache, i) + hidden
        hidden = block.mlp(block.mlp_norm(hidden)) + hidden
    cache.advance(n_new)
    logits = model.lm_head(model.norm(hidden))
    return logits
