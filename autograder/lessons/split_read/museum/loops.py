"""Known wrong answers to lesson 09: keys that are cut into parts, under a mask or without."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right
from course.minigpt.gqa import grouped_attention
from course.minigpt.split_read import attend_part, finish, merge

CUT = "cut = slice(first, first + size)"
SEEN = "seen = None if mask is None else mask[..., cut]"

bug, patch = MUSEUM.section("attend_in_parts", check="parts_nobody_sees")

patch(
    "leaves_the_last_part_out",
    "off by one",
    "keys of which the last, shorter part is left out",
    "S // size parts: right where size divides S.",
    ("range(0, k.shape[2], size)", "range(0, max(size, k.shape[2] - size + 1), size)"),
)
patch(
    "parts_overlap_by_one",
    "off by one",
    "parts that overlap by one key",
    "The last key of a part is the first one of the next: it counts twice.",
    (CUT, "cut = slice(first, first + size + 1)"),
)
patch(
    "parts_leave_a_gap",
    "off by one",
    "parts between which a key is left out",
    "The end of a slice is taken for its last key.",
    (CUT, "cut = slice(first, max(first + 1, first + size - 1))"),
)
patch(
    "mask_not_cut",
    "mask",
    "a mask that is not cut with the keys",
    "The whole mask goes to every part.",
    (SEEN, "seen = mask"),
)
patch(
    "first_columns_of_the_mask",
    "mask",
    "the first columns of the mask for every part",
    "Cut to the size of the part, always from the left.",
    (SEEN, "seen = None if mask is None else mask[..., : k[:, :, cut].shape[2]]"),
)
patch(
    "mask_for_the_first_part_alone",
    "mask",
    "a mask that only the first part sees",
    "The first part is set up before the loop, with a mask; the loop forgets it.",
    (SEEN, "seen = None if mask is None or first else mask[..., cut]"),
)
patch(
    "mask_ignored_in_parts",
    "mask",
    "parts that are attended to without the mask",
    "The mask is taken, and not passed on.",
    (SEEN, "seen = None"),
)
patch(
    "mask_cut_along_the_queries",
    "mask",
    "a mask whose rows are cut, not its columns",
    "mask[first : first + size]: axis 0 of (T, S) counts queries.",
    (SEEN, "seen = None if mask is None else mask[cut]"),
)
patch(
    "means_of_the_parts",
    "softmax",
    "the mean of what each part alone gives",
    "Each part is finished at once, and the outputs averaged.",
    (
        "    return finish(whole)",
        "    cuts = [slice(i, i + size) for i in range(0, k.shape[2], size)]\n"
        "    seen = [None if mask is None else mask[..., cut] for cut in cuts]\n"
        "    parts = [attend_part(q, k[:, :, c], v[:, :, c], s) for c, s in zip(cuts, seen)]\n"
        "    return sum(map(finish, parts)) / len(parts)",
    ),
)
patch(
    "stops_where_nobody_sees",
    "mask",
    "parts behind the first that nobody sees left out as well",
    "A part that is hidden from all ends the loop: keys behind it are never read.",
    (
        "    part = attend_part",
        "    if seen is not None and not seen.any():\n            break\n        part = attend_part",
    ),
)
patch(
    "keeps_the_last_part",
    "wiring",
    "outputs of the last part alone",
    "whole is overwritten in the loop.",
    ("whole = part if whole is None else merge(whole, part)", "whole = part"),
)


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


bug, patch = MUSEUM.section("attend_in_parts", check="nothing_large_is_made")


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
