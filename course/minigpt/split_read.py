"""Lesson 09: Attention in parts.

Built from solutions/09-split-read/split_read.py by `make build`: change it there.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from course.given.parts import Part, check_blocks, check_cut, check_pair, check_part, check_shared
from course.model.bounds import check_grouped


def attend_part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Part:
    """Attend to some of the keys, ready to be merged with what the same queries find in others.

    No key and no value is copied or converted: for one new token and many keys, all new tensors
    together hold fewer numbers than k. Only PyTorch operations, for only these can be counted.

    Args:
        q: queries (B, H, T, D).
        k, v: some keys and values (B, G, S, D); query head h reads KV head h // (H // G).
        mask: bool, broadcasts to (B, H, T, S), True where a query may look; None: each sees all.

    Returns:
        top (B, H, T, 1): the largest score, q · k / √D, of what a query sees;
        total (B, H, T, 1): exp(score - top), added up over these keys;
        out (B, H, T, D): their values, each times exp(score - top), added up.
        For a query that sees none of these keys: top -inf, total 0, out 0. All in the type of q.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0, a mask that is not bool.
    """
    check_grouped(q, k, v, mask)
    (B, H, T, D), G = q.shape, k.shape[1]
    rows = q.reshape(B, G, -1, D) / math.sqrt(D)  # (B, G, H // G * T, D)
    scores = (rows @ k.transpose(-2, -1)).view(B, H, T, -1)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(dim=-1, keepdim=True)  # (B, H, T, 1)
    weights = (scores - top.clamp_min(torch.finfo(top.dtype).min)).exp()  # -inf - -inf is NaN
    out = (weights.view(B, G, H // G * T, -1) @ v).view(B, H, T, D)
    return Part(out, top, weights.sum(dim=-1, keepdim=True))


def merge(a: Part, b: Part) -> Part:
    """Merge what the same queries found in two disjoint sets of keys.

    Args:
        a, b: parts of one shape; neither is changed. A query may have seen nothing in one of them, or
            in both: then nothing changes, or the whole has top -inf, total 0, out 0 as well.

    Returns:
        The part that attention to both sets at once would give: its top is the larger of both, for
        each query, and total and out are counted from that.

    Raises:
        ValueError: parts of other shapes.
    """
    check_pair(a, b)
    top = torch.maximum(a.top, b.top)
    level = top.clamp_min(torch.finfo(top.dtype).min)  # finite, also where nobody saw a key
    keep_a, keep_b = (a.top - level).exp(), (b.top - level).exp()  # (B, H, T, 1)
    total = a.total * keep_a + b.total * keep_b
    return Part(a.out * keep_a + b.out * keep_b, top, total)


def finish(part: Part) -> Tensor:
    """Turn sums into attention, (B, H, T, D); every query saw some key. The part stays as it is."""
    check_part(part)
    return part.out / part.total


def attend_in_parts(
    q: Tensor, k: Tensor, v: Tensor, size: int, mask: Tensor | None = None
) -> Tensor:
    """Attend to `size` keys at a time; the last part may be shorter.

    For one new token and parts of some hundred keys, no new tensor holds as many numbers as there
    are keys (S), and all new ones together hold fewer than k. Only PyTorch operations.

    Args:
        q: (B, H, T, D); k, v: (B, G, S, D).
        size: keys of a part, from 1 to more than there are.
        mask: bool (…, S), broadcasts to (B, H, T, S); every query sees some key, but perhaps none of
            a whole part. None: each sees all.

    Returns:
        (B, H, T, D), as `grouped_attention` gives.

    Raises:
        ValueError: shapes that do not belong together; size below 1.
    """
    check_cut(q, k, v, size, mask)
    whole = None
    for first in range(0, k.shape[2], size):
        cut = slice(first, first + size)
        seen = None if mask is None else mask[..., cut]
        part = attend_part(q, k[:, :, cut], v[:, :, cut], seen)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)


def attend_blocks(
    q: Tensor, keys: Tensor, values: Tensor, table: Sequence[int], length: int
) -> Tensor:
    """Attend to the tokens of one conversation in the blocks where they lie.

    With blocks of 64 tokens and D = 64, all new tensors together hold fewer numbers than the
    conversation's keys. Only PyTorch operations.

    Args:
        q: (1, H, T, D); every query sees all `length` tokens.
        keys, values: (n_blocks, G, size, D), of all conversations.
        table: numbers of this one's blocks, in the order of its tokens; perhaps more than it needs.
        length: tokens that it holds. The last block need not be full.

    Returns:
        (1, H, T, D).

    Raises:
        ValueError: shapes that do not belong together; a table too short for so many tokens.
    """
    check_blocks(q, keys, values, table, length)
    size, whole = keys.shape[2], None
    for place, first in enumerate(range(0, length, size)):
        held = min(size, length - first)
        k, v = (pool[table[place]][None, :, :held] for pool in (keys, values))  # (1, G, held, D)
        part = attend_part(q, k, v)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)


def attend_shared(
    q: Tensor, prefix_k: Tensor, prefix_v: Tensor, own_k: Tensor, own_v: Tensor
) -> Tensor:
    """Attend to one prefix that all rows share, and to each row's own keys.

    The prefix is read once for all rows: not copied or expanded for each, nor read row by row.
    Only PyTorch operations.

    Args:
        q: (B, H, 1, D), the newest token of each of B chats.
        prefix_k, prefix_v: (1, G, P, D).
        own_k, own_v: (B, G, S, D), which follow it.

    Returns:
        (B, H, 1, D).

    Raises:
        ValueError: shapes that do not belong together, an axis of 0.
    """
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    chats = attend_part(q.transpose(0, 2), prefix_k, prefix_v)  # (1, H, B, ·)
    prefix = Part(*(x.transpose(0, 2) for x in chats))  # (B, H, 1, ·)
    return finish(merge(prefix, attend_part(q, own_k, own_v)))
