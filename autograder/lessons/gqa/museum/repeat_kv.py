"""Known wrong answers to lesson 06: `repeat_kv`."""

from __future__ import annotations

import torch

from autograder.lessons.gqa.museum import MUSEUM

bug, patch = MUSEUM.section("repeat_kv", check="heads_stand_in_a_row")

patch(
    "repeat_that_tiles",
    "head order",
    "heads that are tiled, all of them before any comes again",
    "repeat() for repeat_interleave(): a b a b. Prefill and decode do it alike, so cached equals "
    "uncached, and only who knows the order sees it.",
    ("repeat_interleave(n_rep, dim=1)", "repeat(1, n_rep, 1, 1)"),
)
patch(
    "repeat_along_the_sequence",
    "head order",
    "tokens that are repeated where heads should be",
    "dim=2 for dim=1: every token comes n times, and no head does.",
    ("dim=1", "dim=2"),
)
patch(
    "repeat_by_an_odd_reshape",
    "head order",
    "copies that stand behind each token, cut into heads afterwards",
    "The new axis stands behind the tokens, and the reshape that follows fits all the same.",
    (
        "x.repeat_interleave(n_rep, dim=1)",
        "x[:, :, :, None].expand(-1, -1, -1, n_rep, -1).reshape(len(x), -1, *x.shape[2:])",
    ),
)
patch(
    "repeat_one_head_for_all",
    "head order",
    "one KV head that serves every query head",
    "Tried with one KV head only: the first serves everybody.",
    ("x.repeat_interleave(n_rep, dim=1)", "x[:, :1].expand(-1, x.shape[1] * n_rep, -1, -1)"),
)
patch(
    "repeat_with_an_axis_too_many",
    "form",
    "copies on an axis of their own",
    "expand without the reshape: five axes.",
    ("x.repeat_interleave(n_rep, dim=1)", "x[:, :, None].expand(-1, -1, n_rep, -1, -1)"),
)
REPEATED = "x.repeat_interleave(n_rep, dim=1)"

patch(
    "repeat_without_an_axis",
    "form",
    "numbers that are repeated one by one, in a single row",
    "repeat_interleave() without dim flattens first.",
    (", dim=1", ""),
)
patch(
    "repeat_once_more",
    "off by one",
    "each head and n_rep copies of it",
    "n_rep copies beside the head itself.",
    ("n_rep, dim", "n_rep + 1, dim"),
)
patch(
    "repeat_up_to_a_number_of_heads",
    "head order",
    "as many heads as n_rep, where each should be there n_rep times",
    "Takes n_rep for the number of heads that there shall be.",
    ("n_rep, dim", "max(1, n_rep // x.shape[1]), dim"),
)
patch(
    "repeat_without_axes_of_one",
    "form",
    "heads that have lost the axes of size 1",
    "squeeze() at the end, against an axis that expand() had left over.",
    (REPEATED, f"{REPEATED}.squeeze()"),
    kind="batch",
)
patch(
    "repeat_of_the_first_row",
    "wiring",
    "heads of the first row of the batch alone",
    "Written down for one text: x[0], and an axis put in front.",
    (REPEATED, f"{REPEATED}[:1]"),
    kind="batch",
)


@bug("form", "float32 heads, whatever type was given", kind="dtype")
def repeat_into_float32(x, n_rep):
    """torch.empty() without a dtype: float32, and the copies are turned into it."""
    B, G, S, D = x.shape
    out = torch.empty(B, G * n_rep, S, D)
    for head in range(G * n_rep):
        out[:, head] = x[:, head // n_rep]
    return out


patch(
    "repeat_by_a_view",
    "form",
    "heads that must lie in memory in one order",
    "view() joins tokens and numbers; a slice of a cache does not lie so.",
    (
        REPEATED,
        "x.view(*x.shape[:2], 1, -1).expand(-1, -1, n_rep, -1).reshape(len(x), -1, *x.shape[2:])",
    ),
    kind="layout",
)
patch(
    "repeat_sixteen_times_at_most",
    "capacity",
    "heads that are repeated so often and no more",
    "Sixteen heads were the most that it was tried with.",
    ("n_rep, dim", "min(n_rep, 16), dim"),
    kind="sizes",
)
patch(
    "repeat_behind_an_axis_put_into_the_argument",
    "state",
    "copies of heads that have got one more axis themselves",
    "unsqueeze_() saves a line, and gives the caller's tensor another axis.",
    (REPEATED, "x.unsqueeze_(2).repeat(1, 1, n_rep, 1, 1).flatten(1, 2)"),
    kind="arguments",
)
KEPT = {}


@bug("state", "results that all lie in the same memory", kind="results")
def repeat_into_the_same_memory(x, n_rep):
    """Memory is made once for each shape, against the cost; the next call writes over it."""
    B, G, S, D = x.shape
    key = (B, G, n_rep, S, D, x.dtype)
    out = KEPT.setdefault(key, x.new_empty(B, G * n_rep, S, D))
    return out.copy_(x.repeat_interleave(n_rep, dim=1))
