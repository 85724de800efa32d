"""Prepare one forward pass to be timed, with any number of rows, new tokens and cached tokens.

    call = step(FastDecoder(model, 1, 1), batch=4, n_new=1, n_past=128)
    logits = call()             # (B, V); every further call does the same again

What the tokens are, and what the cache holds, makes no difference to the time, so both are random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from course.fast.decode import FastDecoder
from course.measure.operations import OperationMode
from course.minigpt.kv_cache import KVCache, attention_layer_cached
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import KVCacheLike

Step = Callable[[], Tensor]


def step(runner: MiniGPT | FastDecoder, batch: int = 1, n_new: int = 1, n_past: int = 0) -> Step:
    """Prepare a forward pass of n_new tokens after n_past cached ones, with logits of the last only.

    Args:
        runner: a model goes through lesson 03's layer. A `FastDecoder` takes a whole prompt, or one
            token, and shares its weights; it is left as it is.
        batch: B, rows.
        n_new, n_past: T and P, tokens of each row.

    Returns:
        A function without arguments that returns logits (B, V).

    Raises:
        ValueError: sizes that the model cannot take, or a chunk that FastDecoder cannot take.
    """
    longest = runner.config.max_seq_len
    check_between("batch", batch, 1, 2**31)
    check_between("n_new", n_new, 1, longest)
    check_between("n_past", n_past, 0, longest - n_new)
    fast = isinstance(runner, FastDecoder)
    if fast and n_new > 1 and n_past > 0:
        raise ValueError(
            f"FastDecoder takes a prompt or one token, not {n_new} tokens after {n_past}"
        )
    device = runner.embed.device if fast else runner.embed.weight.device
    tokens = torch.randint(runner.config.vocab_size, (batch, n_new), device=device)
    return (_fast if fast else _plain)(runner, tokens, n_past)


@torch.no_grad()
def forward_last(model: MiniGPT, tokens: Tensor, cache: KVCacheLike) -> Tensor:
    """Run lesson 03's forward pass with logits of the last position only, (B, T) -> (B, V): the others
    of a prompt are not needed."""
    past, T = len(cache), tokens.shape[1]
    positions = torch.arange(past, past + T, device=tokens.device)
    x = model.embed(tokens)  # (B, T, C)
    for layer, block in enumerate(model.blocks):
        x = x + attention_layer_cached(block.attn, block.attn_norm(x), positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T)
    return model.lm_head(model.norm(x[:, -1]))  # (B, V)


def _plain(model: MiniGPT, tokens: Tensor, n_past: int) -> Step:
    weight, config = model.embed.weight, model.config
    (B, T), G, D = tokens.shape, config.n_kv_heads, config.head_dim
    cache = KVCache(config, B, n_past + T, dtype=weight.dtype, device=weight.device)
    past = torch.randn(B, G, n_past, D, dtype=weight.dtype, device=weight.device)
    if n_past:
        for layer in range(config.n_layers):
            cache.append(layer, past, past)
        cache.advance(n_past)

    def call() -> Tensor:
        cache.truncate(n_past)
        return forward_last(model, tokens, cache)

    return call


def _fast(runner: FastDecoder, tokens: Tensor, n_past: int) -> Step:
    B, T = tokens.shape
    with torch.no_grad():
        decoder = runner.resized(B, n_past + T)  # no more places: every step reads all of them
    if T > 1:
        return torch.no_grad()(lambda: decoder.prefill(tokens))
    decoder.keys.normal_()
    decoder.values.normal_()

    @torch.no_grad()
    def call() -> Tensor:
        decoder.length = n_past
        return decoder.step(tokens[:, 0])

    return call


class Operations(NamedTuple):
    """Count operations of torch: views, which describe the same memory in another way, and kernels,
    which compute or copy."""

    views: int
    kernels: int


class _Counter(OperationMode):
    """Count every operation that torch launches; a view takes time, too."""

    def __init__(self) -> None:
        super().__init__()
        self.views = self.kernels = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = [value.alias_info for value in function._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returned)
        if is_view or function is torch.ops.aten._unsafe_view.default:
            self.views += 1
        else:
            self.kernels += 1
        return function(*args, **(kwargs or {}))


def count_operations(call: Callable[[], object]) -> Operations:
    """Count the operations of torch that one call launches."""
    with _Counter() as counter:
        call()
    return Operations(counter.views, counter.kernels)
