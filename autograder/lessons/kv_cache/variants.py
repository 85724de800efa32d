"""Right answers to lesson 03 in other styles: every check must pass them."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Edits, Variant
from course.minigpt.kv_cache import (
    GrowingKVCache,
    KVCache,
    attention_layer_cached,
    causal_mask,
    forward_cached,
)
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_block, check_cache_sizes


class PairsInADeque:
    """A pair of tensors a layer, in a deque; slots; the length is a tensor."""

    __slots__ = ("batch", "config", "count", "dtype", "max_len", "pairs", "places")

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (2, batch, config.n_kv_heads, max_len, config.head_dim)
        layers = range(config.n_layers)
        self.pairs = deque(torch.empty(shape, dtype=dtype, device=device) for _ in layers)
        self.count, self.places = torch.tensor(0), torch.arange(max_len, device=device)

    def __len__(self):
        return int(self.count)

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        T = k.shape[2]
        if len(self) + T > self.max_len:
            raise CacheFull(f"no room for {T} more")
        self.pairs[layer].index_copy_(
            3, self.places[len(self) : len(self) + T], torch.stack([k, v])
        )
        return tuple(self.pairs[layer][:, :, :, : len(self) + T])

    def advance(self, n):
        check_between("n", n, 0, self.max_len - len(self))
        self.count += n

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.count.fill_(n)

    def reset(self):
        self.count.zero_()

    def nbytes(self):
        return sum(pair.nbytes for pair in self.pairs)


STORE = {}


class KeptInTheNotebook(KVCache):
    """The storage stands in a variable of the notebook, by the id of the cache; properties find it."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        STORE[id(self)] = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)]
        self.length = 0

    @property
    def keys(self):
        return STORE[id(self)][0]

    @property
    def values(self):
        return STORE[id(self)][1]


class NumPyStorage(KVCache):
    """NumPy arrays in a closure; views of them come back as tensors."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (2, config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        storage = np.zeros(shape, str(dtype).removeprefix("torch."))
        self.part = lambda layer, places: storage[:, layer, :, :, places]
        self.nbytes = lambda: storage.nbytes
        self.length = 0

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull("full")
        self.part(layer, slice(self.length, end))[:] = np.stack([k.numpy(), v.numpy()])
        k, v = torch.from_numpy(self.part(layer, slice(end)))
        return k, v


def mask_by_tril(n_new, n_visible, device="cpu"):
    check_between("n_new", n_new, 1, n_visible)
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril(n_visible - n_new)


class OneTensorCache(KVCache):
    """Keys and values in one tensor, batch first."""

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
        return held[:, 0], held[:, 1]

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
    mask = causal_mask(T, k.shape[2], x.device)
    hidden = torch.zeros(mask.shape, device=x.device).masked_fill(~mask, float("-inf"))
    weights = (scores + hidden).softmax(dim=-1)
    heads = torch.einsum("bgrts,bgsd->bgrtd", weights, v.double()).to(x.dtype)
    return attn.wo(heads.reshape(B, H, T, D).transpose(1, 2).reshape(B, T, H * D))


def layer_fused(attn, x, positions, cache, layer):
    """One product for queries, keys and values; weights without their modules."""
    H, G, D = attn.n_heads, attn.n_kv_heads, attn.head_dim
    fused = torch.cat([attn.wq.weight, attn.wk.weight, attn.wv.weight])
    parts = (x @ fused.T).split([H * D, G * D, G * D], dim=-1)
    q, k, v = (part.unflatten(-1, (-1, D)).movedim(2, 1) for part in parts)
    k, v = cache.append(layer, attn.rotate(k, positions), v)
    mask = causal_mask(q.shape[2], k.shape[2], x.device)
    q = attn.rotate(q, positions)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return heads.movedim(1, 2).flatten(2) @ attn.wo.weight.T


def layer_in_numpy(attn, x, positions, cache, layer):
    """NumPy, but for the rotation and the cache."""
    B, T, _ = x.shape
    H, G, D = attn.n_heads, attn.n_kv_heads, attn.head_dim

    def heads(linear, n):
        rows = x.numpy() @ linear.weight.numpy().T  # (B, T, n·D)
        return torch.from_numpy(rows.reshape(B, T, n, D).swapaxes(1, 2))

    q = attn.rotate(heads(attn.wq, H), positions)
    k, v = cache.append(layer, attn.rotate(heads(attn.wk, G), positions), heads(attn.wv, G))
    k, v = (rows.numpy().repeat(H // G, axis=1) for rows in (k, v))
    scores = q.numpy() @ k.swapaxes(2, 3) / math.sqrt(D)
    scores = np.where(causal_mask(T, k.shape[2]).numpy(), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True) @ v  # (B, H, T, D)
    return torch.from_numpy(out.swapaxes(1, 2).reshape(B, T, -1) @ attn.wo.weight.numpy().T)


def forward_by_recursion(model, tokens, cache):
    model.check_tokens(tokens)
    past, T = len(cache), tokens.shape[1]
    if past + T > cache.max_len:
        raise CacheFull("full")

    def through(x, layer):
        if layer == len(model.blocks):
            return x
        block, positions = model.blocks[layer], past + torch.arange(T, device=tokens.device)
        x = x + attention_layer_cached(block.attn, block.attn_norm(x), positions, cache, layer)
        return through(x + block.mlp(block.mlp_norm(x)), layer + 1)

    with torch.inference_mode():
        logits = model.lm_head(model.norm(through(model.embed(tokens), 0)))
    cache.advance(T)
    return logits


def generate_as_a_stream(model, prompt, n_new, cache=None):
    """A generator inside; what cannot be done is refused before it begins."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    n_fed = prompt.shape[1] + n_new - 1
    if cache is None:
        cache = KVCache(
            model.config, len(prompt), max(n_fed, 1), model.embed.weight.dtype, prompt.device
        )
    if n_new and n_fed > cache.max_len - len(cache):
        raise CacheFull("full")

    def stream(feed):
        while True:
            feed = forward_cached(model, feed, cache)[:, -1:].argmax(dim=-1)  # (B, 1)
            yield feed

    return torch.cat([prompt, *islice(stream(prompt), n_new)], dim=1)


def generate_prefill_first(model, prompt, n_new, cache=None):
    """The prompt outside the loop, a preallocated result, argmax by hand."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    B, P = prompt.shape
    text = torch.empty(B, P + n_new, dtype=torch.int64, device=prompt.device)
    text[:, :P] = prompt
    if n_new == 0:
        return text
    if cache is None:
        weight = model.lm_head.weight
        cache = KVCache(model.config, B, P + n_new - 1, weight.dtype, weight.device)
    if cache.max_len - len(cache) < P + n_new - 1:
        raise CacheFull("full")
    text[:, P] = forward_cached(model, prompt, cache)[:, -1].argmax(dim=-1)
    for place in range(P + 1, P + n_new):
        text[:, place] = forward_cached(model, text[:, place - 1 : place], cache)[:, -1].argmax(-1)
    return text


class GrowsByDoubling:
    """Room is doubled when it ends; what comes back are views."""

    def __init__(self, config, batch, dtype=torch.float32, device="cpu"):
        self.shape = (2, batch, config.n_kv_heads, 1, config.head_dim)
        self.rows = [torch.zeros(self.shape, dtype=dtype) for _ in range(config.n_layers)]
        self.length, self.max_len = 0, config.max_seq_len

    def __len__(self):
        return self.length

    def append(self, layer, k, v):
        end = self.length + k.shape[2]
        while self.rows[layer].shape[3] < end:
            self.rows[layer] = self.rows[layer].repeat(1, 1, 1, 2, 1)
        self.rows[layer][:, :, :, self.length : end] = torch.stack([k, v])
        return tuple(self.rows[layer][:, :, :, :end])

    def advance(self, n):
        self.length += n


class GrowsInALoop(GrowingKVCache):
    """Both tensors of a layer in turn, by concat of their last but one axis."""

    def append(self, layer, k, v):
        for kept, new in ((self.keys, k), (self.values, v)):
            kept[layer] = torch.concat((kept[layer], new), -2)
        return self.keys[layer], self.values[layer]


def copies_step_by_step(config, n_tokens, batch=1):
    old = torch.arange(n_tokens).sum().item()  # 0 + 1 + … + (n - 1)
    heads = config.n_layers * config.n_kv_heads
    return sum(old * batch * heads * config.head_dim for _ in ("keys", "values"))


EMBEDDED, BY_INDEX = "model.embed(tokens)", "model.embed.weight[tokens]"


VARIANTS = [
    Variant("doubling", {"GrowingKVCache": GrowsByDoubling}),
    Variant("loop", {"GrowingKVCache": GrowsInALoop, "numbers_copied": copies_step_by_step}),
    Variant("pairs_in_a_deque", {"KVCache": PairsInADeque, "causal_mask": mask_by_tril}),
    Variant("one_tensor", {"KVCache": OneTensorCache, "kv_cache_bytes": bytes_by_head}),
    Variant("kept_in_the_notebook", {"KVCache": KeptInTheNotebook}),
    Variant("numpy", {"KVCache": NumPyStorage, "attention_layer_cached": layer_in_numpy}),
    Variant("by_hand", {"attention_layer_cached": layer_by_hand, "causal_mask": mask_by_tril}),
    Variant("fused", {"attention_layer_cached": layer_fused}),
    Variant("a_mask_always", {"attention_layer_cached": Edits((("if T > 1:", "if T:"),))}),
    Variant("recursion", {"forward_cached": forward_by_recursion}),
    Variant("rows_of_the_embedding", {"forward_cached": Edits(((EMBEDDED, BY_INDEX),))}),
    Variant("prefill_first", {"generate_cached": generate_prefill_first}),
    Variant("stream", {"generate_cached": generate_as_a_stream}),
]
