"""Right answers to lesson 03 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch

from autograder.lessons.exhibits import Edits, Variant
from course.bounds import check_between
from course.cache import CacheFull, check_block, check_cache_sizes
from course.minigpt import kv_cache as right
from course.minigpt.kv_cache import KVCache, causal_mask, forward_cached


class ConcatenatedCache:
    """Pairs of tensors that grow by torch.cat."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.held, self.count = {}, 0

    def __len__(self):
        return self.count

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.count + k.shape[2] > self.max_len:
            raise CacheFull(f"no room for {k.shape[2]} more")
        old = [kept[:, :, : self.count] for kept in self.held.get(layer, (k, v))]
        self.held[layer] = torch.cat([old[0], k], dim=2), torch.cat([old[1], v], dim=2)
        return self.held[layer]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.count)
        self.count += n

    def truncate(self, n):
        check_between("n", n, 0, self.count)
        self.count = n

    def reset(self):
        self.count = 0

    def nbytes(self):
        return sum(k.nbytes + v.nbytes for k, v in self.held.values())


def mask_by_tril(n_new, n_visible, device="cpu"):
    check_between("n_new", n_new, 1, n_visible)
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril(n_visible - n_new)


class OneTensorCache(KVCache):
    """Keys and values in one tensor, batch first; clones come back."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (batch, config.n_layers, 2, max_len, config.n_kv_heads, config.head_dim)
        self.storage = torch.full(shape, float("nan"), dtype=dtype, device=device)
        self.length = 0

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        new = slice(self.length, self.length + k.shape[2])
        if new.stop > self.max_len:
            raise CacheFull("full")
        self.storage[:, layer, :, new] = torch.stack([k, v], dim=1).transpose(
            2, 3
        )  # (B, 2, T, G, D)
        held = self.storage[:, layer, :, : new.stop].transpose(2, 3)  # (B, 2, G, S, D)
        return held[:, 0].clone(), held[:, 1].clone()

    def nbytes(self):
        return self.storage.numel() * self.storage.element_size()


def bytes_by_head(config, n_tokens, batch=1, bytes_per_element=2):
    per_token = sum(2 * config.n_kv_heads * config.head_dim for _ in range(config.n_layers))
    return per_token * bytes_per_element * n_tokens * batch


def layer_by_hand(attn, x, positions, cache, layer):
    """Grouped queries, einsum, an additive mask, float64 inside."""
    B, T, _ = x.shape
    H, G, D = attn.n_heads, attn.n_kv_heads, attn.head_dim
    q = attn.rotate(attn.wq(x).view(B, T, H, D).transpose(1, 2), positions)
    k = attn.rotate(attn.wk(x).view(B, T, G, D).transpose(1, 2), positions)
    k, v = cache.append(layer, k, attn.wv(x).view(B, T, G, D).transpose(1, 2))
    q = q.reshape(B, G, H // G, T, D).double()  # (B, G, H/G, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", q, k.double()) / math.sqrt(D)
    hidden = torch.zeros(T, k.shape[2]).masked_fill(~causal_mask(T, k.shape[2]), float("-inf"))
    weights = (scores + hidden).softmax(dim=-1)
    heads = torch.einsum("bgrts,bgsd->bgrtd", weights, v.double()).to(x.dtype)
    return attn.wo(heads.reshape(B, H, T, D).transpose(1, 2).reshape(B, T, H * D))


def forward_step_by_step(model, tokens, cache):
    """One token at a time, whatever the chunk: slow and right."""
    model.check_tokens(tokens)
    if len(cache) + tokens.shape[1] > cache.max_len:
        raise CacheFull("full")
    return torch.cat([right.forward_cached(model, t, cache) for t in tokens.split(1, dim=1)], 1)


def generate_prefill_first(model, prompt, n_new, cache=None):
    """The prompt outside the loop, a preallocated result, argmax by hand."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    B, P = prompt.shape
    text = torch.empty(B, P + n_new, dtype=torch.int64)
    text[:, :P] = prompt
    if n_new == 0:
        return text
    cache = KVCache(model.config, B, P + n_new) if cache is None else cache
    if cache.max_len - len(cache) < P + n_new - 1:
        raise CacheFull("full")
    text[:, P] = forward_cached(model, prompt, cache)[:, -1].argmax(dim=-1)
    for place in range(P + 1, P + n_new):
        text[:, place] = forward_cached(model, text[:, place - 1 : place], cache)[:, -1].argmax(-1)
    return text


VARIANTS = [
    Variant("concatenated", {"KVCache": ConcatenatedCache, "causal_mask": mask_by_tril}),
    Variant("one_tensor", {"KVCache": OneTensorCache, "kv_cache_bytes": bytes_by_head}),
    Variant("by_hand", {"attention_layer_cached": layer_by_hand, "causal_mask": mask_by_tril}),
    Variant(
        "no_mask_for_one_token",
        {
            "attention_layer_cached": Edits(
                (("attn_mask=mask", "attn_mask=mask if len(mask) > 1 else None"),)
            )
        },
    ),
    Variant("step_by_step", {"forward_cached": forward_step_by_step}),
    Variant("prefill_first", {"generate_cached": generate_prefill_first}),
]
