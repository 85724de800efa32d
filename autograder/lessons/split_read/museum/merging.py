"""Known wrong answers to lesson 09: parts that are merged, and finished."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right

KEEPS = "keep_a, keep_b = (a.top - level).exp(), (b.top - level).exp()"
OUT = "a.out * keep_a + b.out * keep_b"
TOTAL = "a.total * keep_a + b.total * keep_b"
TOP = "top = torch.maximum(a.top, b.top)"

bug, patch = MUSEUM.section("merge", check="any_cut_any_order")

patch(
    "merges_means",
    "softmax",
    "the mean of what both parts give when they are finished",
    "Two halves, so half of each: right only where both weigh the same.",
    (OUT, "(a.out / a.total + b.out / b.total) / 2 * total"),
)
patch(
    "adds_without_fading",
    "softmax",
    "sums that are added although they are counted from different tops",
    "out + out, total + total: right where both tops are equal.",
    (OUT, "a.out + b.out"),
    (TOTAL, "a.total + b.total"),
)
patch(
    "fades_out_alone",
    "softmax",
    "totals that do not fade",
    "The values are faded, the weights they are divided by are forgotten.",
    (TOTAL, "a.total + b.total"),
)
patch(
    "fades_total_alone",
    "softmax",
    "values that do not fade",
    "The totals are faded, the values are forgotten.",
    (OUT, "a.out + b.out"),
)
patch(
    "fades_the_first_alone",
    "softmax",
    "a second part that never fades",
    "As in a running softmax whose new block always has the highest score.",
    (KEEPS, "keep_a, keep_b = (a.top - level).exp(), torch.ones_like(level)"),
)
patch(
    "fades_the_second_alone",
    "softmax",
    "a first part that never fades",
    "As if the first part had the highest score.",
    (KEEPS, "keep_a, keep_b = torch.ones_like(level), (b.top - level).exp()"),
)
patch(
    "fades_swapped",
    "softmax",
    "each part faded by what belongs to the other",
    "The two factors change places.",
    (KEEPS, "keep_b, keep_a = (a.top - level).exp(), (b.top - level).exp()"),
)
patch(
    "fades_upside_down",
    "softmax",
    "parts that grow where they should fade",
    "level - top instead of top - level in the exponent.",
    (KEEPS, "keep_a, keep_b = (level - a.top).exp(), (level - b.top).exp()"),
)
patch(
    "keeps_the_smaller_top",
    "softmax",
    "the smaller top of both parts",
    "minimum for maximum: nothing is wrong until e to the power of the difference overflows.",
    ("torch.maximum(a.top", "torch.minimum(a.top"),
)
patch(
    "keeps_the_first_top",
    "softmax",
    "the first part's top for the whole",
    "Everything is counted from a.top, also where b has a higher one.",
    (TOP, "top = a.top.clone()"),
)
patch(
    "says_the_first_top",
    "wiring",
    "sums counted from the larger top, with the first part's top beside them",
    "The new top is used, and the old one returned: two parts agree, a third does not.",
    (f"Part({OUT}, top, total)", f"Part({OUT}, a.top.clone(), total)"),
)
patch(
    "merges_with_one_top_for_all_queries",
    "softmax",
    "one top for all queries when parts are merged",
    "The maximum over everything: queries far below it lose their digits.",
    (TOP, "top = torch.maximum(a.top, b.top).amax().expand_as(a.top).clone()"),
)
patch(
    "weighs_by_share",
    "softmax",
    "sums that are weighed by their share of the total once more",
    "out is taken for a mean, so it is multiplied by total / (total + total).",
    (OUT, "(a.out * a.total * keep_a + b.out * b.total * keep_b) / total"),
)
patch(
    "counts_the_first_twice",
    "wiring",
    "the first part's values twice",
    "a for b in one of four places.",
    (OUT, "a.out * keep_a + a.out * keep_b"),
)


@bug("wiring", "the first row's factors for all rows", kind="batch")
def merges_by_the_first_row(a, b):
    """top[:1] was enough for a batch of one."""
    top = torch.maximum(a.top, b.top)[:1].expand_as(a.top).clone()
    keep_a, keep_b = (a.top[:1] - top).exp(), (b.top[:1] - top).exp()
    return Part(a.out * keep_a + b.out * keep_b, top, a.total * keep_a + b.total * keep_b)


@bug("form", "merged parts in float32, whatever type was given", kind="dtype")
def merges_in_float32(a, b):
    """Tensors that are made without a dtype."""
    return Part(*(x.float() for x in right.merge(a, b)))


bug, patch = MUSEUM.section("merge", check="far_apart_scores")

patch(
    "merges_plain_sums",
    "softmax",
    "sums that go back to e to the power of the scores before they are added",
    "Each part is multiplied by exp(top), and the sum divided by it: exp(300) is infinite.",
    (KEEPS, "keep_a, keep_b = a.top.exp() / level.exp(), b.top.exp() / level.exp()"),
)
patch(
    "fades_no_further_than_e_to_50",
    "softmax",
    "a top that cannot be lower than some number",
    "clamp_min(-50) against -inf: real scores may be lower than that.",
    ("top.clamp_min(torch.finfo(top.dtype).min)", "top.clamp_min(-50)"),
)

bug, patch = MUSEUM.section("merge", check="parts_nobody_sees")

patch(
    "merges_minus_infinity_from_itself",
    "softmax",
    "minus infinity that is subtracted from itself when parts are merged",
    "Neither part saw a key: both tops are -inf, and their difference is NaN.",
    ("top.clamp_min(torch.finfo(top.dtype).min)", "top"),
)
patch(
    "merges_nobody_as_top_zero",
    "softmax",
    "a top of 0 for queries that nobody has shown a key",
    "The finite stand-in is returned as the top.",
    (f"Part({OUT}, top, total)", f"Part({OUT}, level.clamp_min(-1e4), total)"),
)

bug, patch = MUSEUM.section("merge", check="inputs_stay")

patch(
    "merges_into_the_first",
    "state",
    "a first part that is written into",
    "a.out *= and += save two tensors; who merges a once more gets other numbers.",
    (
        f"return Part({OUT}, top, total)",
        "return Part(a.out.mul_(keep_a).add_(b.out * keep_b), top, total)",
    ),
    kind="arguments",
)
patch(
    "merges_its_totals_into_the_first",
    "state",
    "totals that are added up in the first part",
    "a.total.add_ after the product: the sum is right, and a is another part from now on.",
    (TOTAL, "a.total.mul_(keep_a).add_(b.total * keep_b)"),
    kind="arguments",
)
patch(
    "fades_the_second_in_place",
    "state",
    "a second part that is faded where it lies",
    "b.out *= keep_b, because b is not needed any more: in a tree it may be.",
    (OUT, "a.out * keep_a + b.out.mul_(keep_b)"),
    kind="arguments",
)
ROOM = {}


@bug("state", "parts that all lie in the same memory", kind="results")
def merges_into_the_same_memory(a, b):
    """Room for a merged part is made once for each shape; the next call writes over it."""
    whole = right.merge(a, b)
    kept = ROOM.setdefault((a.out.shape, a.out.dtype), Part(*map(torch.empty_like, whole)))
    for mine, new in zip(kept, whole, strict=True):
        mine.copy_(new)
    return kept


bug, patch = MUSEUM.section("finish", check="any_cut_any_order")

patch(
    "finishes_without_the_total",
    "softmax",
    "outputs that are not divided by the total",
    "out is taken for attention.",
    ("part.out / part.total", "part.out.clone()"),
)
patch(
    "finishes_by_the_top",
    "wiring",
    "outputs that are divided by the largest score",
    "top for total.",
    ("part.out / part.total", "part.out / part.top"),
)
patch(
    "finishes_with_the_top_put_back",
    "softmax",
    "outputs that are multiplied by e to the power of the top once more",
    "The top was taken out of the values, so it is put back; but it was taken out of the total, too.",
    ("part.out / part.total", "part.out * part.top.exp() / part.total"),
)

bug, patch = MUSEUM.section("finish", check="inputs_stay")

patch(
    "finishes_in_place",
    "state",
    "a part whose sums are divided where they lie",
    "div_ saves a tensor, and the part is none any more.",
    ("part.out / part.total", "part.out.div_(part.total)"),
    kind="arguments",
)
