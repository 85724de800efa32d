"""Lesson 06: Fewer keys, same answer.

Built from solutions/06-gqa/gqa.py by `make build`: change it there.
"""

import math

from torch import Tensor

from course.minigpt.kv_cache import kv_cache_bytes
from course.model.bounds import check_between, check_grouped, check_heads, check_pooling
from course.model.config import GPTConfig


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    """Each KV head n_rep times in a row: x (B, G, S, D) -> (B, G * n_rep, S, D), perhaps a view of x.

    Raises:
        ValueError: x of another number of axes, or one of them 0; n_rep below 1.
    """
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x.repeat_interleave(n_rep, dim=1)  # (B, G * n_rep, S, D)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention in which groups of query heads read the same keys and values, where they lie.

    Neither k nor v is copied or converted, whole or head by head: for one or two new tokens, with a
    mask or without, fewer numbers are written into new tensors than k has. Only PyTorch
    operations, for only these can be counted, but not its `enable_gqa`.

    Args:
        q: queries (B, H, T, D).
        k, v: keys and values (B, G, S, D); query head h reads KV head h // (H // G).
        mask: bool, (T, S) or anything that broadcasts to (B, H, T, S), True where a query may
            look; every query sees at least one key. None: each query sees all.

    Returns:
        (B, H, T, D), in the type of q, k and v. In float32 scores may be of any size; what is
        hidden has no share in any case. Ainslie et al. 2023.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0, or a mask that is not bool.
    """
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, H // G * T, D)  # the queries of a group, below one another
    scores = rows @ k.transpose(-2, -1) / math.sqrt(D)  # (B, G, H // G * T, S)
    scores = scores.view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, G, H // G * T, S)
    return (shares @ v).view(B, H, T, D)  # (B, G, H // G * T, D), and back to heads


def mean_pool_kv_heads(
    state: dict[str, Tensor], config: GPTConfig, n_kv_heads: int
) -> dict[str, Tensor]:
    """Weights of a model in which each KV head is the mean of the neighbouring ones it replaces.

    Args:
        state: weights of a model, named as in `state_dict()`; they are not written to. Keys and
            values come from "….wk.weight" and "….wv.weight", (heads * D, C) each.
        config: the sizes of that model; it has `config.n_kv_heads` heads to pool.
        n_kv_heads: how many there shall be, a divisor of that.

    Returns:
        A new dict with the same names and types; what is not pooled may be the same tensors.
        Ainslie et al. 2023.

    Raises:
        ValueError: the heads cannot be cut into so many groups of one size.
    """
    check_pooling(config, n_kv_heads)
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            C, D = config.d_model, config.head_dim
            groups = weight.view(n_kv_heads, -1, D, C)  # (G, heads of a group, D, C)
            pooled[name] = groups.mean(dim=1).reshape(n_kv_heads * D, C)  # (G * D, C)
    return pooled


def max_batch_that_fits(
    config: GPTConfig,
    memory_bytes: int,
    n_tokens: int,
    weight_bytes: int,
    bytes_per_element: int = 2,
) -> int:
    """How many sequences fit into a memory beside the weights, an int: 0 if the weights alone do not.

    Args:
        config: sizes of the model.
        memory_bytes: of the device, at least 1.
        n_tokens: S, that each sequence may grow to, at least 1; config.max_seq_len is no bound.
        weight_bytes: of the model, 0 or more; its weights are there once.
        bytes_per_element: of keys and values.

    Raises:
        ValueError: a number out of these bounds, or not a whole one.
    """
    check_between("memory_bytes", memory_bytes, 1, 2**63)
    check_between("n_tokens", n_tokens, 1, 2**31)
    check_between("weight_bytes", weight_bytes, 0, 2**63)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    one_sequence = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(0, memory_bytes - weight_bytes) // one_sequence
