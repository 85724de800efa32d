"""Right answers to lesson 13 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.given.latent import (
    check_absorbed,
    check_latent_block,
    check_latent_bytes,
    check_latent_cache,
    check_latent_queries,
)
from course.minigpt.kv_cache import causal_mask
from course.minigpt.latent_attention import LatentKVCache, absorb, attend_latent
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model.bounds import check_between
from course.model.cache import CacheFull


def bytes_by_part(n_layers, rank, d_rope, n_tokens, batch=1, bytes_per_element=2):
    """Latents and keys apart."""
    check_latent_bytes(n_layers, rank, d_rope, n_tokens, batch, bytes_per_element)
    places = n_layers * batch * n_tokens
    return places * rank * bytes_per_element + places * d_rope * bytes_per_element


def bytes_as_grouped(n_layers, rank, d_rope, n_tokens, batch=1, bytes_per_element=2):
    """A row for each place, by math.prod."""
    check_latent_bytes(n_layers, rank, d_rope, n_tokens, batch, bytes_per_element)
    return math.prod((n_layers, batch, n_tokens, rank + d_rope, bytes_per_element))


def bytes_by_adding(n_layers, rank, d_rope, n_tokens, batch=1, bytes_per_element=2):
    check_latent_bytes(n_layers, rank, d_rope, n_tokens, batch, bytes_per_element)
    return sum(bytes_per_element * batch * n_tokens * (rank + d_rope) for _ in range(n_layers))


def bytes_of_shape(n_layers, rank, d_rope, n_tokens, batch=1, bytes_per_element=2):
    """Of the shape that the cache would have."""
    check_latent_bytes(n_layers, rank, d_rope, n_tokens, batch, bytes_per_element)
    return torch.Size((n_layers, batch, n_tokens, rank + d_rope)).numel() * bytes_per_element


class ListOfLayers(LatentKVCache):
    """A tensor for each layer, written by narrow and copy_."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        check_latent_cache(config, batch, max_len, rank, d_rope)
        self.n_layers, self.batch, self.max_len = config.n_layers, batch, max_len
        self.rank, self.d_rope, self.dtype = rank, d_rope, dtype
        self.length = 0
        options = {"dtype": dtype, "device": device}
        self.layers = [
            torch.empty(batch, max_len, rank + d_rope, **options) for _ in range(config.n_layers)
        ]

    def append(self, layer, c, k_rope):
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        T = c.shape[1]
        if self.max_len - self.length < T:
            raise CacheFull(f"{T} more do not fit")
        new = self.layers[layer].narrow(1, self.length, T)
        new.copy_(torch.cat([c, k_rope.squeeze(1)], dim=2))
        return self.layers[layer].narrow(1, 0, self.length + T)

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        return sum(layer.numel() * layer.element_size() for layer in self.layers)


class TokenByToken(LatentKVCache):
    """Rows are written one at a time, in one flat memory of (L · B)."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        check_latent_cache(config, batch, max_len, rank, d_rope)
        self.n_layers, self.batch, self.max_len = config.n_layers, batch, max_len
        self.rank, self.d_rope, self.dtype = rank, d_rope, dtype
        self.length = 0
        places = (config.n_layers * batch, max_len, rank + d_rope)
        self.memory = torch.full(places, float("nan"), dtype=dtype, device=device)

    def append(self, layer, c, k_rope):
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        T = c.shape[1]
        if self.length + T > self.max_len:
            raise CacheFull("no room")
        own = self.memory[layer * self.batch : (layer + 1) * self.batch]
        for t in range(T):
            own[:, self.length + t, : self.rank] = c[:, t]
            own[:, self.length + t, self.rank :] = k_rope[:, 0, t]
        return own[:, : self.length + T]

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.memory[:, n:] = float("nan")
        self.length = n

    def reset(self):
        self.memory.fill_(float("nan"))
        self.length = 0

    def nbytes(self):
        return self.memory.untyped_storage().nbytes()


class TokensFirst(LatentKVCache):
    """The tokens' axis comes first in memory; what append returns is a transposed view."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        check_latent_cache(config, batch, max_len, rank, d_rope)
        self.n_layers, self.batch, self.max_len = config.n_layers, batch, max_len
        self.rank, self.d_rope, self.dtype = rank, d_rope, dtype
        self.length = 0
        self.store = torch.zeros(
            max_len, config.n_layers, batch, rank + d_rope, dtype=dtype, device=device
        )

    def append(self, layer, c, k_rope):
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        places = torch.arange(self.length, self.length + c.shape[1])
        if len(places) > self.max_len - len(self):
            raise CacheFull("no room")
        latents, keys = self.store[:, layer].split([self.rank, self.d_rope], dim=-1)
        latents.index_copy_(0, places, c.transpose(0, 1))
        keys.index_copy_(0, places, k_rope[:, 0].transpose(0, 1))
        return self.store[: len(self) + len(places), layer].transpose(0, 1)

    def nbytes(self):
        return self.store.element_size() * self.store.numel()


class WithHeadAxis(LatentKVCache):
    """Kept as keys of one head are, (L, B, 1, max_len, W); lengths in a tensor of whole numbers."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, rank, d_rope, dtype, device)
        self.rows = self.rows.unsqueeze(2)

    def append(self, layer, c, k_rope):
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        new = slice(self.length, self.length + c.shape[1])
        if new.stop > self.max_len:
            raise CacheFull("no room")
        self.rows[layer, :, :, new, : self.rank] = c.unsqueeze(1)
        self.rows[layer, :, :, new, self.rank :] = k_rope
        return self.rows[layer].squeeze(1)[:, : new.stop]


def absorb_by_einsum(q_nope, up_k):
    check_absorbed(q_nope, up_k)
    heads = up_k.reshape(q_nope.shape[1], q_nope.shape[3], up_k.shape[1])
    return torch.einsum("bhtd,hdr->bhtr", q_nope, heads)


def absorb_head_by_head(q_nope, up_k):
    check_absorbed(q_nope, up_k)
    D = q_nope.shape[3]
    heads = [q @ up_k[h * D : (h + 1) * D] for h, q in enumerate(q_nope.unbind(dim=1))]
    return torch.stack(heads, dim=1)


def absorb_by_unflatten(q_nope, up_k):
    check_absorbed(q_nope, up_k)
    heads = up_k.unflatten(0, (q_nope.shape[1], q_nope.shape[3])).unsqueeze(0)
    return torch.matmul(q_nope.contiguous(), heads.contiguous())


def absorb_in_float64(q_nope, up_k):
    """Chunks of the transposed matrix, in double precision."""
    check_absorbed(q_nope, up_k)
    parts = up_k.double().T.chunk(q_nope.shape[1], dim=1)  # (rank, D) each
    out = [F.linear(q_nope[:, h].double(), part) for h, part in enumerate(parts)]
    return torch.stack(out, dim=1).to(q_nope.dtype)


def attend_by_einsum(q, rows, rank, scale, mask=None):
    check_latent_queries(q, rows, rank, mask)
    scores = torch.einsum("bhtw,bsw->bhts", q, rows) * scale
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return torch.einsum("bhts,bsr->bhtr", scores.softmax(-1), rows[:, :, :rank])


def attend_by_sdpa(q, rows, rank, scale, mask=None):
    """One KV head that all queries share; the heads' queries lie below one another."""
    check_latent_queries(q, rows, rank, mask)
    B, H, T, W = q.shape
    if mask is not None:
        mask = mask.expand(B, H, T, rows.shape[1]).reshape(B, 1, H * T, -1)
    below = q.reshape(B, 1, H * T, W)
    keys, values = rows.unsqueeze(1), rows[..., :rank].unsqueeze(1)
    out = F.scaled_dot_product_attention(below, keys, values, attn_mask=mask, scale=scale)
    return out.reshape(B, H, T, rank)


def attend_text_by_text(q, rows, rank, scale, mask=None):
    """A text at a time, the softmax by its logarithm."""
    check_latent_queries(q, rows, rank, mask)
    whole = (*q.shape[:3], rows.shape[1])
    hidden = None if mask is None else ~mask.broadcast_to(whole)
    out = []
    for b in range(len(q)):
        scores = scale * (q[b] @ rows[b].T)  # (H, T, S)
        if hidden is not None:
            scores[hidden[b]] = -math.inf
        out.append((scores - scores.logsumexp(-1, keepdim=True)).exp() @ rows[b, :, :rank])
    return torch.stack(out)


def attend_in_parts(q, rows, rank, scale, mask=None):
    """Scores of the latents and of the rotated part apart, and added."""
    check_latent_queries(q, rows, rank, mask)
    H, T, W = q.shape[1:]
    q = (q * scale).flatten(1, 2)  # (B, H * T, W)
    latents, keys = rows.split([rank, W - rank], dim=-1)
    scores = torch.baddbmm(q[..., :rank] @ latents.mT, q[..., rank:], keys.mT)
    scores = scores.unflatten(1, (H, T))
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill_(mask.logical_not(), -math.inf)
    shares = torch.softmax(scores, dim=3).flatten(1, 2)
    return torch.bmm(shares, latents.contiguous()).unflatten(1, (H, T))


def layer_by_einsum(attn, x, positions, cache, layer):
    (B, T, _), D = x.shape, attn.head_dim
    q = attn.wq(x).unflatten(-1, (attn.n_heads, -1)).transpose(1, 2)
    down = attn.down(x)
    k_rope = attn.rotate(down[:, None, :, attn.rank :], positions)
    rows = cache.append(layer, down[..., : attn.rank], k_rope)
    whole = torch.cat(
        [absorb(q[..., :D], attn.up_k.weight), attn.rotate(q[..., D:], positions)], -1
    )
    S = rows.shape[1]
    mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
    latents = attend_latent(whole, rows, attn.rank, 1 / math.sqrt(q.shape[-1]), mask)
    up_v = attn.up_v.weight.unflatten(0, (attn.n_heads, D))
    return attn.wo(torch.einsum("bhtr,hdr->bthd", latents, up_v).reshape(B, T, -1))


def layer_without_a_mask_for_one(attn, x, positions, cache, layer):
    """One new token needs no mask; values head by head."""
    H, D, T = attn.n_heads, attn.head_dim, x.shape[1]
    content, turned = split_heads(attn.wq(x), H).tensor_split([D], dim=-1)
    c, k_rope = attn.down(x).tensor_split([attn.rank], dim=-1)
    rows = cache.append(layer, c, attn.rotate(k_rope[:, None], positions))
    q = torch.cat((absorb(content, attn.up_k.weight), attn.rotate(turned, positions)), dim=3)
    masks = () if T == 1 else (causal_mask(T, rows.shape[1], x.device),)
    latents = attend_latent(q, rows, attn.rank, (D + attn.d_rope) ** -0.5, *masks)
    parts = attn.up_v.weight.chunk(H)
    heads = [F.linear(latents[:, h], part) for h, part in enumerate(parts)]
    return attn.wo(torch.cat(heads, dim=-1))


def layer_on_its_own(attn, x, positions, cache, layer):
    """Without the other functions: scores of both parts, the scale put into the queries."""
    H, D, rank = attn.n_heads, attn.head_dim, attn.rank
    B, T, _ = x.shape
    scale = (D + attn.d_rope) ** -0.5
    q = attn.wq(x).view(B, T, H, -1).permute(0, 2, 1, 3) * scale
    down = attn.down(x)
    rows = cache.append(
        layer, down[:, :, :rank], attn.rotate(down[:, :, rank:].unsqueeze(1), positions)
    )
    to_latent = torch.matmul(q[..., :D], attn.up_k.weight.view(H, D, rank))
    turned = attn.rotate(q[..., D:], positions)
    scores = to_latent.reshape(B, H * T, -1) @ rows[..., :rank].mT
    scores = scores + turned.reshape(B, H * T, -1) @ rows[..., rank:].mT
    S = rows.shape[1]
    places = torch.arange(S, device=x.device)
    later = places > places[S - T :, None]
    scores = scores.view(B, H, T, S).masked_fill(later, -math.inf)
    latents = scores.softmax(-1).reshape(B, H * T, S) @ rows[..., :rank]
    up_v = attn.up_v.weight.view(H, D, rank).mT
    return attn.wo(merge_heads(latents.view(B, H, T, rank) @ up_v))


def layer_with_wo_absorbed(attn, x, positions, cache, layer):
    """up_v goes into wo: from the mean of latents to the output in one matrix a head."""
    H, D, rank = attn.n_heads, attn.head_dim, attn.rank
    q = split_heads(attn.wq(x), H)
    c, k_rope = attn.down(x).split([rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, attn.rotate(k_rope.unsqueeze(1), positions))
    q = torch.cat(
        [absorb(q[..., :D], attn.up_k.weight), attn.rotate(q[..., D:], positions)], dim=-1
    )
    mask = causal_mask(x.shape[1], rows.shape[1], x.device)[None, None]
    latents = attend_latent(q, rows, rank, float(D + attn.d_rope) ** -0.5, mask)
    out = attn.wo.weight.view(-1, H, D).transpose(0, 1) @ attn.up_v.weight.view(H, D, rank)
    return torch.einsum("bhtr,hcr->btc", latents, out)


VARIANTS = [
    Variant(
        "einsum",
        {
            "latent_cache_bytes": bytes_by_part,
            "LatentKVCache": ListOfLayers,
            "absorb": absorb_by_einsum,
            "attend_latent": attend_by_einsum,
            "latent_attention_layer": layer_by_einsum,
        },
    ),
    Variant(
        "loops",
        {
            "latent_cache_bytes": bytes_by_adding,
            "LatentKVCache": TokenByToken,
            "absorb": absorb_head_by_head,
            "attend_latent": attend_text_by_text,
            "latent_attention_layer": layer_without_a_mask_for_one,
        },
    ),
    Variant(
        "fused",
        {
            "latent_cache_bytes": bytes_as_grouped,
            "LatentKVCache": TokensFirst,
            "absorb": absorb_by_unflatten,
            "attend_latent": attend_by_sdpa,
            "latent_attention_layer": layer_with_wo_absorbed,
        },
    ),
    Variant(
        "in parts",
        {
            "latent_cache_bytes": bytes_of_shape,
            "LatentKVCache": WithHeadAxis,
            "absorb": absorb_in_float64,
            "attend_latent": attend_in_parts,
            "latent_attention_layer": layer_on_its_own,
        },
    ),
    Variant("the layer on its own alone", {"latent_attention_layer": layer_on_its_own}),
]
