"""The result of attention over a part of the keys, and the checks of arguments of lesson 09."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from course.model.bounds import check_between, check_grouped


class Part(NamedTuple):
    """The attention of queries over some of the keys, in a form that can be merged with that over others.

    Attributes:
        out: (B, H, T, D): the sum of the values, each times exp(score - top). It is not a mean.
        top: (B, H, T, 1): the largest score; -inf for a query that sees none of these keys.
        total: (B, H, T, 1): the sum of exp(score - top).
    """

    out: Tensor
    top: Tensor
    total: Tensor


def check_part(part: Part) -> None:
    """Check that out is (B, H, T, D), and top and total (B, H, T, 1)."""
    one = (*part.out.shape[:3], 1)
    if part.out.dim() != 4 or tuple(part.top.shape) != one or tuple(part.total.shape) != one:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in part._asdict().items())
        raise ValueError(
            f"a part is out (B, H, T, D) with top and total (B, H, T, 1); got {shapes}"
        )


def check_pair(a: Part, b: Part) -> None:
    """Check that two parts belong to the same queries."""
    check_part(a)
    check_part(b)
    if a.out.shape != b.out.shape:
        raise ValueError(
            f"parts of other queries cannot be merged: out is {tuple(a.out.shape)} and "
            f"{tuple(b.out.shape)}"
        )


def check_cut(q: Tensor, k: Tensor, v: Tensor, size: int, mask: Tensor | None) -> None:
    """Check that keys can be read `size` at a time, and that a mask can be cut with them.

    Args:
        q: (B, H, T, D); k, v: (B, G, S, D).
        mask: bool, broadcasts to (B, H, T, S), and its last axis is S; or None.
    """
    check_grouped(q, k, v, mask)
    check_between("size", size, 1, 2**31)
    if mask is not None and (mask.dim() == 0 or mask.shape[-1] != k.shape[2]):
        raise ValueError(
            f"the last axis of a mask that is cut must be S = {k.shape[2]}; got {tuple(mask.shape)}"
        )


def check_blocks(
    q: Tensor, keys: Tensor, values: Tensor, table: Sequence[int], length: int
) -> None:
    """Check that the queries of one conversation can read its tokens block by block.

    Args:
        q: (1, H, T, D).
        keys, values: (n_blocks, G, size, D), of all conversations.
        table: the numbers of its blocks, in the order of its tokens.
        length: how many tokens it holds.
    """
    check_grouped(q, keys[:1], values[:1], None)  # one block, as keys (1, G, size, D)
    if keys.shape != values.shape:
        raise ValueError(
            f"keys {tuple(keys.shape)} and values {tuple(values.shape)} must have one shape"
        )
    n_blocks, size = keys.shape[0], keys.shape[2]
    check_between("length", length, 1, 2**31)
    needed = -(-length // size)
    if len(table) < needed:
        raise ValueError(
            f"{length} tokens need {needed} blocks of {size}; this table names {len(table)}"
        )
    for number in table[:needed]:
        check_between("a block of the table", number, 0, n_blocks - 1)


def check_shared(
    q: Tensor, prefix_k: Tensor, prefix_v: Tensor, own_k: Tensor, own_v: Tensor
) -> None:
    """Check that each row of queries can read its own keys and values, and all rows one prefix.

    Args:
        q: (B, H, 1, D), the newest token of each row.
        prefix_k, prefix_v: (1, G, P, D).
        own_k, own_v: (B, G, S, D).
    """
    check_grouped(q, own_k, own_v, None)
    check_grouped(q[:1], prefix_k, prefix_v, None)
    if q.shape[2] != 1:
        raise ValueError(f"q must be (B, H, 1, D), one new token per row; got {tuple(q.shape)}")
    if prefix_k.shape[1] != own_k.shape[1]:
        raise ValueError(
            f"the prefix has {prefix_k.shape[1]} KV heads, the rows' own keys {own_k.shape[1]}"
        )
