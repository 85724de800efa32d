"""Right answers to lesson 17 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.given.hybrid import (
    CannotGoBack,
    check_delta,
    check_hybrid_cache,
    check_is_full,
    check_kept,
    check_rows,
)
from course.minigpt.kv_cache import KVCache
from course.model.bounds import check_between
from course.model.config import GPTConfig

# --- one token ------------------------------------------------------------------------------------


def _unit(x):
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True).clamp(min=1e-20))


def step_by_einsum(S, q, k, v, beta, decay):
    check_delta(S, q, k, v, beta, decay, tokens=False)
    q, k = _unit(q), _unit(k)
    S = torch.einsum("bh,bhkv->bhkv", decay, S)
    found = torch.einsum("bhk,bhkv->bhv", k, S)
    S = S + torch.einsum("bh,bhk,bhv->bhkv", beta, k, v - found)
    return torch.einsum("bhk,bhkv->bhv", q, S), S


def step_by_matrices(S, q, k, v, beta, decay):
    """(I - beta k kᵀ) decay S + beta k vᵀ."""
    q, k = _unit(q), _unit(k)
    column, gate = k.unsqueeze(-1), beta[..., None, None]
    forget = torch.eye(k.shape[-1], dtype=S.dtype, device=S.device) - gate * column * column.mT
    S = forget @ (decay[..., None, None] * S) + gate * column * v.unsqueeze(-2)
    return (S.mT @ q.unsqueeze(-1)).squeeze(-1), S


def step_in_place_on_a_copy(S, q, k, v, beta, decay):
    S = S.clone()
    S.mul_(decay.unsqueeze(-1).unsqueeze(-1))
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    told = (S * k.unsqueeze(-1)).sum(dim=2)
    S.addcmul_((k * beta[:, :, None])[..., None], (v - told)[:, :, None, :])
    return (S * q.unsqueeze(-1)).sum(dim=2), S


# --- a chunk --------------------------------------------------------------------------------------


def chunk_by_solve(S, q, k, v, beta, decay):
    check_delta(S, q, k, v, beta, decay, tokens=True)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    logs, gate = decay.log().cumsum(-1), beta[..., None]
    fading = (logs[..., :, None] - logs[..., None, :]).clamp(max=0).exp().tril()
    start, last = logs.exp()[..., None], fading[..., -1, :, None]
    below = (gate * fading * (k @ k.transpose(-1, -2))).tril(-1)
    one = torch.eye(k.shape[2], dtype=S.dtype, device=S.device)
    written = torch.linalg.solve(one + below, gate * (v - start * (k @ S)))
    out = start * (q @ S) + (fading * (q @ k.transpose(-1, -2))) @ written
    return out, start[..., -1, :, None] * S + (k * last).transpose(-1, -2) @ written


def chunk_in_blocks(S, q, k, v, beta, decay):
    """As many at a time as `forward_hybrid` takes."""
    outs = []
    for block in zip(*(x.split(64, dim=2) for x in (q, k, v, beta, decay)), strict=True):
        out, S = chunk_by_solve(S, *block)
        outs.append(out)
    return torch.cat(outs, dim=2), S


# --- sizes ----------------------------------------------------------------------------------------


def bytes_layer_by_layer(sizes, batch=1, state_element=4, element=2):
    total = 0
    for _ in range(sizes.n_linear):
        total += sizes.value_heads * sizes.key_dim * sizes.value_dim * state_element
        total += (sizes.width - 1) * sizes.channels * element
    return total * batch


def even_by_ceiling(sizes, state_element=4, element=2):
    state = sizes.value_heads * sizes.key_dim * sizes.value_dim * state_element
    tail = sizes.channels * (sizes.width - 1) * element
    return math.ceil((state + tail) / (sizes.n_kv_heads * sizes.head_dim * 2 * element))


# --- caches ---------------------------------------------------------------------------------------


class SharingCache:
    """Tensors that are kept are never written to again, so checkpoints share them. Rows lie in lesson
    03's cache."""

    def __init__(self, sizes, full, batch, max_len, dtype=torch.float32, device="cpu"):
        check_hybrid_cache(sizes, full, batch, max_len)
        self.sizes, self.full, self.batch, self.max_len = sizes, tuple(full), batch, max_len
        self.dtype, self.device = dtype, device
        self.rows = None
        if sizes.n_full:
            G, D = sizes.n_kv_heads, sizes.head_dim
            config = GPTConfig(1, sizes.n_full, G * D, G, G, 1, max_seq_len=max_len)
            self.rows = KVCache(config, batch, max_len, dtype=dtype, device=device)
        self.length, self.saved = 0, {}
        self.current, self.pending = self._zeros(), {}

    def _zeros(self):
        sizes, of = self.sizes, {"dtype": self.dtype, "device": self.device}
        S = (self.batch, sizes.value_heads, sizes.key_dim, sizes.value_dim)
        tail = (self.batch, sizes.width - 1, sizes.channels)
        linear = [layer for layer in range(len(self.full)) if not self.full[layer]]
        return {layer: (torch.zeros(S, **of), torch.zeros(tail, **of)) for layer in linear}

    def __len__(self):
        return self.length

    def append(self, layer, k, v):
        check_is_full(self.full, layer, True)
        check_rows(self.sizes, self.batch, self.dtype, k, v)
        return self.rows.append(self.full[:layer].count(True), k, v)

    def state(self, layer):
        check_is_full(self.full, layer, False)
        return tuple(tensor.clone() for tensor in self.current[layer])

    def keep(self, layer, S, tail):
        check_is_full(self.full, layer, False)
        check_kept(self.sizes, self.batch, self.dtype, S, tail)
        self.pending[layer] = (S.clone(), tail.clone())

    def advance(self, n):
        check_between("n", n, 1, self.max_len - self.length)
        if self.rows is not None:
            self.rows.advance(n)
        self.length += n
        self.current = {**self.current, **self.pending}
        self.pending = {}

    def checkpoint(self):
        if self.length:
            self.saved.setdefault(self.length, self.current)

    @property
    def checkpoints(self):
        return sorted(self.saved)

    def truncate(self, n):
        check_between("n", n, 0, self.length)
        if n == self.length:
            self.pending = {}
            return
        if n and n not in self.saved:
            raise CannotGoBack(f"no state after {n} tokens")
        self.current = self.saved[n] if n else self._zeros()
        self.saved = {at: kept for at, kept in self.saved.items() if at <= n}
        self.pending, self.length = {}, n
        if self.rows is not None:
            self.rows.truncate(n)

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        pair = next(iter(self.current.values()))
        each = len(self.current) * sum(tensor.nbytes for tensor in pair)
        rows = 0 if self.rows is None else self.rows.nbytes()
        return rows + each * (len(self.saved) + 1)


class StackedCache(SharingCache):
    """States and tails of all layers lie in one tensor each, which is written over."""

    stacked = None

    @property
    def current(self):
        pairs = zip(*(tensor.clone() for tensor in self.stacked), strict=True)
        return dict(
            zip((n for n, is_full in enumerate(self.full) if not is_full), pairs, strict=True)
        )

    @current.setter
    def current(self, states):
        S, tails = map(torch.stack, zip(*(states[layer] for layer in sorted(states)), strict=True))
        self.stacked = self.stacked or (torch.empty_like(S), torch.empty_like(tails))
        self.stacked[0][:], self.stacked[1][:] = S, tails


# --- where to resume ------------------------------------------------------------------------------


def resume_from_the_top(held, prompt, checkpoints):
    for n in range(len(prompt) - 1, 0, -1):
        if (n in checkpoints or n == len(held)) and held[:n] == prompt[:n]:
            return n
    return 0


VARIANTS = [
    Variant("einsum", {"delta_step": step_by_einsum}),
    Variant("a product of matrices", {"delta_step": step_by_matrices}),
    Variant("in place on a copy", {"delta_step": step_in_place_on_a_copy}),
    Variant("solve", {"delta_chunk": chunk_by_solve}),
    Variant("blocks", {"delta_chunk": chunk_in_blocks}),
    Variant("layer by layer", {"state_bytes": bytes_layer_by_layer}),
    Variant("a ceiling", {"break_even": even_by_ceiling}),
    Variant("checkpoints that share", {"HybridCache": SharingCache}),
    Variant("layers in one tensor", {"HybridCache": StackedCache}),
    Variant("from the top", {"resume_point": resume_from_the_top}),
]
