"""Known wrong answers to lesson 09: keys that are cut into parts, under a mask or without."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right
from course.minigpt.gqa import grouped_attention
from course.minigpt.split_read import attend_part, finish, merge

bug = MUSEUM.section("attend_in_parts", check="parts_nobody_sees")


@bug("capacity", "attention to the first eight parts at most", kind="sizes")
def at_most_eight_parts(q, k, v, size, mask=None):
    """A fixed number of parts, as many as there are processors; the rest is not read."""
    whole = None
    for first in range(0, min(k.shape[2], 8 * size), size):
        cut = slice(first, first + size)
        seen = None if mask is None else mask[..., cut]
        part = attend_part(q, k[:, :, cut], v[:, :, cut], seen)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)


bug = MUSEUM.section("attend_in_parts", check="nothing_large_is_made")


@bug("cost", "scores of all keys at once", kind="cost")
def reads_all_at_once(q, k, v, size, mask=None):
    """The size is ignored: the same numbers, and a row of S scores."""
    return grouped_attention(q, k, v, mask)


@bug("cost", "scores of all parts that are kept and joined", kind="cost")
def joins_the_scores(q, k, v, size, mask=None):
    """Scores are made part by part, and joined for one softmax at the end."""
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D) / D**0.5
    scores = torch.cat([rows @ part.mT for part in k.split(size, dim=2)], dim=3).view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1).view(B, G, -1, S) @ v).view(B, H, T, D)


@bug("cost", "keys that are padded to whole parts", kind="cost")
def pads_to_whole_parts(q, k, v, size, mask=None):
    """F.pad makes all parts equally long, and writes all keys and values once more."""
    n, S = -(-k.shape[2] // size) * size, k.shape[2]
    pad = (0, 0, 0, n - S)
    seen = torch.arange(n) < S
    if mask is not None:
        seen = seen & torch.nn.functional.pad(mask, (0, n - S))
    padded = [torch.nn.functional.pad(x, pad).contiguous().clone() for x in (k, v)]
    return right.attend_in_parts(q, *padded, size, seen)


@bug("cost", "values that are weighed one by one before they are summed", kind="cost")
def multiplies_out(q, k, v, size, mask=None):
    """weights * v and a sum, for a product of matrices: as many new numbers as there are values."""
    whole = None
    for first in range(0, k.shape[2], size):
        cut = slice(first, first + size)
        seen = None if mask is None else mask[..., cut]
        part = attend_part(q, k[:, :, cut], v[:, :, cut], seen)
        n = q.shape[1] // k.shape[1]
        scores = (q[:, :, :, None] * k[:, :, None, cut].repeat_interleave(n, 1)).sum(-1)
        part = Part(part.out + 0 * scores.sum(-1, keepdim=True), part.top, part.total)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)
