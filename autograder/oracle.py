"""An independent mini-GPT: NumPy, float64, one head at a time, no cache and no torch.

Written from the papers and not from the course, so that a mistake there cannot hide here. It is
simple on purpose: every line can be checked by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
State = Mapping[str, Array]  # weights, named as in MiniGPT.state_dict()


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """(T, C) -> (T, C)."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def softmax(scores: Array) -> Array:
    """Over the last axis; a score of -inf gets weight 0."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rotate(x: Array, positions: Array, theta: float) -> Array:
    """Turn (heads, T, D) by (T,) positions: the pair (i, i + D/2) by position · theta^(-2i/D)."""
    half = x.shape[-1] // 2
    angle = np.outer(positions, theta ** (-np.arange(half) / half))  # (T, D / 2)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(q: Array, k: Array, v: Array, seen: Array | None = None) -> Array:
    """One head: queries (T, D) are the last T of the S tokens of k and v (S, D). Query t sees tokens
    0 … S - T + t, or those where `seen` (T, S) is True."""
    T, S = len(q), len(k)
    scores = q @ k.T / np.sqrt(q.shape[1])  # (T, S)
    later = np.arange(S) > S - T + np.arange(T)[:, None]
    return softmax(np.where(later if seen is None else ~seen, -np.inf, scores)) @ v


def attention_heads(q: Array, k: Array, v: Array, seen: Array | None = None) -> Array:
    """One row of a batch: (H, T, D), (G, S, D), (G, S, D) -> (H, T, D); head h reads KV head
    h // (H // G)."""
    H, G = len(q), len(k)
    return np.stack([attend(q[h], k[h // (H // G)], v[h // (H // G)], seen) for h in range(H)])


def shared_attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """A batch, (B, H, T, D), (B, G, S, D), (B, G, S, D) -> (B, H, T, D), in which query t of head h
    sees the tokens s where `mask`, bool and broadcast to (B, H, T, S), is True; all without one."""
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    seen = np.broadcast_to(True if mask is None else mask, (B, H, T, S))
    out = np.empty((B, H, T, D))
    for b, h, t in np.ndindex(B, H, T):
        of = h // (H // G)
        keys, values = k[b, of].astype(np.float64), v[b, of].astype(np.float64)
        scores = np.where(seen[b, h, t], keys @ q[b, h, t].astype(np.float64) / np.sqrt(D), -np.inf)
        out[b, h, t] = softmax(scores) @ values
    return out


def pooled_heads(weight: Array, head_dim: int, n_heads: int) -> Array:
    """A matrix of keys or values (heads · D, C) with `n_heads` heads, each the mean of as many
    neighbours. Ainslie et al. 2023."""
    heads = [weight[h : h + head_dim] for h in range(0, len(weight), head_dim)]  # (D, C) each
    of_each = len(heads) // n_heads
    means = [
        sum(head.astype(np.float64) for head in heads[g * of_each : (g + 1) * of_each]) / of_each
        for g in range(n_heads)
    ]
    return np.concatenate(means)


def split(x: Array, n_heads: int) -> Array:
    """(T, heads · D) -> (heads, T, D)."""
    D = x.shape[1] // n_heads
    return np.stack([x[:, h * D : (h + 1) * D] for h in range(n_heads)])


def attention_layer(
    state: State,
    prefix: str,
    config: Mapping[str, Any],
    x: Array,
    positions: Array,
    past: tuple[Array, Array] | None = None,
    seen: Array | None = None,
) -> tuple[Array, Array, Array]:
    """One attention layer on one row, x (T, C).

    Args:
        prefix: of the layer's weights, such as "blocks.0.attn.".
        past: keys, already rotated, and values that come before x, (G, P, D) each.
        seen: which tokens each of x looks at, (T, P + T) bool; left out, all that are not later.

    Returns:
        Output (T, C), and all keys and values, (G, P + T, D).
    """
    H, G = config["n_heads"], config["n_kv_heads"]
    weight = {part: np.asarray(state[f"{prefix}{part}.weight"], np.float64) for part in
              ("wq", "wk", "wv", "wo")}  # fmt: skip
    theta = config["rope_theta"]
    q = rotate(split(x @ weight["wq"].T, H), positions, theta)
    k = rotate(split(x @ weight["wk"].T, G), positions, theta)
    v = split(x @ weight["wv"].T, G)
    if past is not None:
        k, v = np.concatenate([past[0], k], axis=1), np.concatenate([past[1], v], axis=1)
    heads = attention_heads(q, k, v, seen)
    return np.concatenate(list(heads), axis=1) @ weight["wo"].T, k, v


def forward_row(
    state: State,
    config: Mapping[str, Any],
    tokens: Sequence[int],
    past: Sequence[tuple[Array, Array]] | None = None,
    seen: Array | None = None,
) -> Array:
    """Logits of one row of tokens, (T, V).

    Args:
        past: for each layer, keys (already rotated) and values of what comes before, (G, P, D)
            each: from tokens, or from nowhere, as in the poisoned-cache check.
        seen: as of `attention_layer`, the same in every layer.
    """
    w = lambda name: np.asarray(state[name], np.float64)  # noqa: E731
    P = 0 if past is None else past[0][0].shape[1]
    positions = np.arange(P, P + len(tokens), dtype=np.float64)
    x = w("embed.weight")[np.asarray(tokens)]
    for i in range(config["n_layers"]):
        block, eps = f"blocks.{i}.", config["norm_eps"]
        normed = rms_norm(x, w(f"{block}attn_norm.weight"), eps)
        before = None if past is None else past[i]
        attn = f"{block}attn."
        x = x + attention_layer(state, attn, config, normed, positions, before, seen)[0]
        normed = rms_norm(x, w(f"{block}mlp_norm.weight"), eps)
        gate, up = normed @ w(f"{block}mlp.gate.weight").T, normed @ w(f"{block}mlp.up.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(f"{block}mlp.down.weight").T
    head = "embed.weight" if config["tie_embeddings"] else "lm_head.weight"
    return rms_norm(x, w("norm.weight"), config["norm_eps"]) @ w(head).T


def forward(
    state: State,
    config: Mapping[str, Any],
    tokens: Array,
    past: Sequence[tuple[Array, Array]] | None = None,
    seen: Array | None = None,
) -> Array:
    """Logits (B, T, V) of tokens (B, T); `past` holds (B, G, P, D) pairs, one a layer. What each token
    looks at is `seen`, as of `attention_layer`."""
    rows = []
    for b, row in enumerate(tokens):
        before = None if past is None else [(k[b], v[b]) for k, v in past]
        rows.append(forward_row(state, config, row, before, seen))
    return np.stack(rows)


def generate(
    state: State, config: Mapping[str, Any], tokens: Array, n_new: int
) -> tuple[Array, float]:
    """Greedy continuation of tokens (B, P): the ids (B, P + n_new), and the smallest margin by
    which a chosen token led the next best (where it is noise, ids say nothing)."""
    tokens, margin = np.asarray(tokens), np.inf
    for _ in range(n_new):
        last = forward(state, config, tokens)[:, -1]
        best, second = np.sort(last, axis=1)[:, -1], np.sort(last, axis=1)[:, -2]
        margin = min(margin, float((best - second).min()))
        tokens = np.concatenate([tokens, last.argmax(axis=1)[:, None]], axis=1)
    return tokens, margin
