"""Lesson 14: Which rows must a step read?.

Built from solutions/14-sparse-read/sparse_read.py by `make build`: change it there.
"""

import math

import torch
from torch import Tensor

from course.given.sparse import (
    check_bounds,
    check_choice,
    check_paged,
    check_pages_read,
    check_shrinking,
)
from course.minigpt.split_read import attend_part, finish


def page_bounds(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Find the least and the largest of each number over the rows of each page.

    Args:
        keys: (B, G, S, D). Page p holds tokens p · size … p · size + size - 1; the last one may be
            shorter, and then has its own rows only.
        size: tokens of a page, at least 1; it may be more than S.

    Returns:
        least, largest: (B, G, P, D) each, where P = ceil(S / size), in the type of the keys and in memory
        of their own.

    Raises:
        ValueError: keys of another form; size below 1.
    """
    check_paged(keys, size)
    pages = keys.split(size, dim=2)
    least = torch.stack([page.amin(dim=2) for page in pages], dim=2)
    return least, torch.stack([page.amax(dim=2) for page in pages], dim=2)


def page_scores(q: Tensor, least: Tensor, largest: Tensor) -> Tensor:
    """Bound what the scores of one query can be in each page.

    Args:
        q: (B, H, 1, D), the newest token's queries; head h reads KV head h // (H // G).
        least, largest: (B, G, P, D), of the keys of each page.

    Returns:
        (B, G, P): for each head the sum over d of the larger of q[d] · least[d] and q[d] · largest[d],
        divided by √D; of the heads of a group the largest. So no q · k / √D of the group, with a key
        of this page, lies above it. In the type of q.

    Raises:
        ValueError: shapes that do not belong together; more than one query.
    """
    check_bounds(q, least, largest)
    (B, H, _, D), G = q.shape, least.shape[1]
    heads = q.reshape(B, G, H // G, D)
    up, down = heads.clamp_min(0), heads.clamp_max(0)  # each number of q wants one of the two ends
    bounds = up @ largest.mT + down @ least.mT  # (B, G, H // G, P)
    return bounds.amax(dim=2) / math.sqrt(D)


def choose(scores: Tensor, n: int, newest: int) -> Tensor:
    """Choose the newest, and of the others those with the largest scores.

    Args:
        scores: (B, G, P), finite or -inf; not changed.
        n: how many are chosen for each text and KV head; all, if P is smaller.
        newest: how many of these are the last ones, whatever their scores, 0 … n; all, if P is smaller.

    Returns:
        (B, G, min(n, P)) int64, on the device of the scores: numbers of the chosen, rising, each once.
        Of equal scores any may be taken; those of -inf only where no others are left.

    Raises:
        ValueError: n below 1; newest not from 0 to n.
    """
    check_choice(scores, n, newest)
    B, G, P = scores.shape
    n, newest = min(n, P), min(newest, P)
    best = scores[:, :, : P - newest].topk(n - newest).indices
    last = torch.arange(P - newest, P, device=scores.device).expand(B, G, newest)
    return torch.cat([best, last], dim=2).sort(dim=2).values


def attend_pages(q: Tensor, k: Tensor, v: Tensor, pages: Tensor, size: int) -> Tensor:
    """Attend to the rows of the chosen pages alone.

    Other rows are not read: they may hold anything, also NaN. What is written into new tensors grows
    with the rows chosen, not with S: for 64 rows of 4,096 they hold fewer numbers than a quarter of k.
    Operations of PyTorch alone, for only these can be counted.

    Args:
        q: (B, H, 1, D).
        k, v: (B, G, S, D).
        pages: (B, G, n) int64, n at least 1; the numbers of one list are distinct, in any order. A page
            has `size` tokens; the last page of all may be shorter.

    Returns:
        (B, H, 1, D), in the type of q.

    Raises:
        ValueError: shapes that do not belong together, more than one query, no such page, no page.
    """
    check_pages_read(q, k, v, pages, size)
    (H, D), (G, S) = (q.shape[1], q.shape[3]), k.shape[1:3]
    rows = pages[..., None] * size + torch.arange(size, device=pages.device)  # (B, G, n, size)
    rows = rows.flatten(2)
    seen = (rows < S).repeat_interleave(H // G, dim=1)[:, :, None]  # (B, H, 1, n * size)
    at = rows.clamp_max(S - 1)[..., None].expand(-1, -1, -1, D)
    return finish(attend_part(q, k.gather(2, at), v.gather(2, at), seen))


def shrink(
    q: Tensor, k: Tensor, v: Tensor, budget: int, recent: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Keep the rows that the last T tokens attended to most, and drop the others for ever.

    A row's score is its softmax weight, with scores q · k / √D, added up over the T queries and the heads
    of its group. Of the rows that are not recent, those with the largest scores are kept.

    Args:
        q: (B, H, T, D), of the last T of the S tokens; each sees itself and what is before it.
        k, v: (B, G, S, D); not changed.
        budget: rows that are kept for each KV head; all, where there are fewer.
        recent: how many of these are the newest ones, 0 … budget.

    Returns:
        keys, values: (B, G, m, D) with m = min(budget, S), in the order of the text and the type of k,
        in new memory that holds nothing else, also where all rows are kept.
        rows: (B, G, m) int64, the numbers that these rows had among the S, rising.

    Raises:
        ValueError: shapes that do not belong together, T above S, budget below 1, recent not from 0 to
            budget.
    """
    check_shrinking(q, k, v, budget, recent)
    (H, T, D), (G, S) = q.shape[1:], k.shape[1:3]
    scores = q @ k.repeat_interleave(H // G, dim=1).mT / math.sqrt(D)  # (B, H, T, S)
    seen = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    attended = weights.unflatten(1, (G, H // G)).sum(dim=(2, 3))  # (B, G, S)
    rows = choose(attended, budget, recent)
    at = rows[..., None].expand(-1, -1, -1, D)
    return k.gather(2, at), v.gather(2, at), rows
