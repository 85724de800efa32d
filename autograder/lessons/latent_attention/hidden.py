"""The hidden checks of lesson 13: the visible ones, on inputs that nobody knows.

The truth is in float64 and expanded: every head makes keys and values of its own, one head at a time, as
the paper writes them. It shares no code with the course.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder import oracle
from course.checks import latent_attention as visible
from course.checks.check import Challenge, by_name


def bytes_of(layers: int, rank: int, R: int, tokens: int, batch: int = 1, n_bytes: int = 2) -> int:
    """Count the bytes of all rows, layer by layer."""
    return sum(n_bytes * (rank + R) for _ in range(layers)) * tokens * batch


def latents_of(function: str, *arguments: Any) -> np.ndarray:
    """Compute what `absorb` or `attend_latent` gives, one query of one head at a time."""
    return (absorbed if function == "absorb" else attended)(*arguments)


def absorbed(q_nope: np.ndarray, up_k: np.ndarray) -> np.ndarray:
    B, H, T, D = q_nope.shape
    out = np.zeros((B, H, T, up_k.shape[1]))
    for b, h, t in np.ndindex(B, H, T):
        for number in range(D):  # each number of the key that head h would make
            out[b, h, t] += float(q_nope[b, h, t, number]) * up_k[h * D + number].astype(np.float64)
    return out


def attended(
    q: np.ndarray, rows: np.ndarray, rank: int, scale: float, mask: Any = True
) -> np.ndarray:
    (B, H, T, _), S = q.shape, rows.shape[1]
    q, rows, seen = (
        q.astype(np.float64),
        rows.astype(np.float64),
        np.broadcast_to(mask, (B, H, T, S)),
    )
    out = np.zeros((B, H, T, rank))
    for b, h, t in np.ndindex(B, H, T):
        scores = np.where(seen[b, h, t], rows[b] @ q[b, h, t] * scale, -np.inf)
        out[b, h, t] = oracle.softmax(scores) @ rows[b, :, :rank]
    return out


PARTS = ("wq", "down", "up_k", "up_v", "wo")
"""The matrices of a layer."""


def logits(model: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the logits (B, T, V) without a cache, keys and values expanded."""
    return np.stack([_logits_of_row(model, row) for row in tokens])


def _logits_of_row(model: Challenge, tokens: np.ndarray) -> np.ndarray:
    config, eps = model["config"], model["config"]["norm_eps"]

    def w(name: str) -> np.ndarray:
        return np.asarray(model["state"][name], np.float64)

    x = w("embed.weight")[tokens]
    for i in range(config["n_layers"]):
        block = f"blocks.{i}."
        weight = {part: w(f"{block}attn.{part}.weight") for part in PARTS}
        x = x + _expanded(model, weight, oracle.rms_norm(x, w(f"{block}attn_norm.weight"), eps))
        normed = oracle.rms_norm(x, w(f"{block}mlp_norm.weight"), eps)
        gate, up = normed @ w(f"{block}mlp.gate.weight").T, normed @ w(f"{block}mlp.up.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(f"{block}mlp.down.weight").T
    return oracle.rms_norm(x, w("norm.weight"), eps) @ w("lm_head.weight").T


def _expanded(model: Challenge, weight: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """One layer on one row, x (T, C): for every head a key of D + R numbers and a value of D."""
    config, rank, R = model["config"], model["rank"], model["d_rope"]
    H, theta = config["n_heads"], config["rope_theta"]
    D, places = config["d_model"] // H, np.arange(len(x), dtype=np.float64)
    latent, shared = x @ weight["down"][:rank].T, x @ weight["down"][rank:].T
    shared = oracle.rotate(shared[None], places, theta)[0]  # (T, R)
    outs: list[Any] = []
    for h in range(H):
        own = weight["wq"][h * (D + R) : (h + 1) * (D + R)]
        content, turned = x @ own[:D].T, oracle.rotate((x @ own[D:].T)[None], places, theta)[0]
        key = np.concatenate([latent @ weight["up_k"][h * D : (h + 1) * D].T, shared], axis=1)
        value = latent @ weight["up_v"][h * D : (h + 1) * D].T
        # `attend` divides by the root of the width of a query, which is D + R.
        outs.append(oracle.attend(np.concatenate([content, turned], axis=1), key, value))
    return np.concatenate(outs, axis=1) @ weight["wo"].T


def on_rows(layer: Challenge, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute what a layer gives for one new token x (B, 1, C) behind the rows (B, S, rank + R), its own
    the last of them: for every head all keys and values."""
    config, rank, R = layer["config"], layer["rank"], layer["d_rope"]
    H, (B, S, _) = config["n_heads"], rows.shape
    D, place = config["d_model"] // H, np.array([S - 1.0])
    w = {name: layer["weights"][f"{name}.weight"].astype(np.float64) for name in PARTS}
    out = np.zeros((B, 1, H * D))
    for b, h in np.ndindex(B, H):
        latents, shared = np.split(rows[b].astype(np.float64), [rank], axis=1)
        q = x[b].astype(np.float64) @ w["wq"][h * (D + R) : (h + 1) * (D + R)].T
        turned = oracle.rotate(q[None, :, D:], place, config["rope_theta"])[0]
        own = slice(h * D, (h + 1) * D)
        key = np.concatenate([latents @ w["up_k"][own].T, shared], axis=1)
        q = np.concatenate([q[:, :D], turned], axis=1)
        out[b, :, own] = oracle.attend(q, key, latents @ w["up_v"][own].T)
    return out @ w["wo"].T


CHECKS = by_name(
    visible.bytes_of_rows.hidden(truth=bytes_of),
    visible.bytes_match_the_rows.hidden(truth=bytes_of),
    visible.rows_come_back,
    visible.full_changes_nothing,
    visible.can_go_back,
    visible.absorbed_scores_are_the_scores.hidden(truth=latents_of),
    visible.every_split_equals_the_paper.hidden(truth=logits),
    visible.rows_are_the_only_memory,
    visible.nothing_is_expanded.hidden(truth=on_rows),
)
