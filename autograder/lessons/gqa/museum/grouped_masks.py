"""Known wrong answers to lesson 06: masks in `grouped_attention`."""

from __future__ import annotations

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right

IF_MASKED = "    if mask is not None:\n"

bug, patch = MUSEUM.section("grouped_attention", check="masks_reach_every_head")


@bug("mask", "attention in which the mask hides nothing")
def grouped_without_mask(q, k, v, mask=None):
    """In decode everything is visible, so the mask is never used."""
    return right.grouped_attention(q, k, v)


patch(
    "grouped_with_the_mask_turned_round",
    "mask",
    "attention that hides what the mask shows",
    "masked_fill(mask) for masked_fill(~mask): what should be seen is hidden.",
    ("~mask", "mask"),
)
patch(
    "grouped_with_the_mask_on_group_rows",
    "mask",
    "a mask whose rows belong to other queries of the group",
    "The stacked queries are head by head, the mask's rows are laid token by token.",
    (
        IF_MASKED,
        IF_MASKED + "        mask = mask.expand(B, H, T, S).reshape(B, G, H // G, T, S)\n"
        "        mask = mask.transpose(2, 3).reshape(B, H, T, S)\n",
    ),
)
patch(
    "grouped_with_the_mask_of_the_first_row",
    "mask",
    "the mask of the first row for the whole batch",
    "A mask with a batch axis is cut down to its first row.",
    (IF_MASKED, IF_MASKED + "        mask = mask[0, 0] if mask.dim() == 4 else mask\n"),
)
patch(
    "grouped_with_zero_for_hidden",
    "mask",
    "hidden keys with a score of zero, which is still a share",
    "Scores are multiplied by the mask: a hidden key has score 0, and so a share.",
    ('scores.masked_fill(~mask, float("-inf"))', "scores * mask"),
)
patch(
    "grouped_with_a_mask_for_one_head_only",
    "mask",
    "one mask for all heads where each has its own",
    "Masks of single heads are put together, so each head sees what any may see.",
    (
        IF_MASKED,
        IF_MASKED + "        mask = mask.any(-3, keepdim=True) if mask.dim() == 4 else mask\n",
    ),
)

patch(
    "grouped_with_the_mask_after_the_softmax",
    "mask",
    "weights that are hidden after they were made, and no longer add up to 1",
    "Shares are multiplied by the mask; those that are left do not become larger.",
    ('scores.masked_fill(~mask, float("-inf"))', "scores"),
    ("scores.softmax(dim=-1)", "(scores.softmax(dim=-1) * (1 if mask is None else mask))"),
)
patch(
    "grouped_with_minus_ten_for_hidden",
    "mask",
    "hidden keys with a low score, which is still a share",
    "−10 instead of −∞: a small share is a share.",
    ('float("-inf")', "-10.0"),
)
patch(
    "grouped_with_minus_a_hundred_for_hidden",
    "mask",
    "hidden keys with a score of -100, which visible ones can be below",
    "−100 instead of −∞: enough for most scores, and not for those below it.",
    ('float("-inf")', "-100.0"),
    kind="sizes",
)
patch(
    "grouped_with_the_least_of_float16_for_hidden",
    "mask",
    "hidden keys with the lowest score of float16, which others can be below in float32",
    "−65,504 in every type, so that float16 can hold it.",
    ('float("-inf")', "-65504.0"),
    kind="sizes",
)
patch(
    "grouped_with_the_mask_added",
    "mask",
    "scores to which a mask of True and False was added",
    "scores + mask: True is 1, so what may be seen weighs e times as much, and nothing is hidden.",
    ('scores.masked_fill(~mask, float("-inf"))', "scores + mask"),
)
patch(
    "grouped_with_the_mask_of_head_0",
    "mask",
    "the mask of head 0 for all heads, also where the mask has no axis of rows",
    "mask[..., :1, :, :]: an axis of heads is cut down to its first one, in masks of every shape.",
    (IF_MASKED, IF_MASKED + "        mask = mask[..., :1, :, :] if mask.dim() > 2 else mask\n"),
)
patch(
    "grouped_with_a_billion_for_hidden",
    "form",
    "hidden keys with a score that small types cannot hold",
    "−1e9 is a fine number in float32, and none in float16.",
    ('float("-inf")', "-1e9"),
    kind="dtype",
)
patch(
    "grouped_with_a_float32_mask",
    "form",
    "a mask that is added in float32, beside values of another type",
    "Zeros and −∞ are made in float32 and added: the scores become float32.",
    (
        'scores.masked_fill(~mask, float("-inf"))',
        "scores + mask.float().log()",
    ),
    kind="dtype",
)
patch(
    "grouped_with_the_mask_on_stacked_scores",
    "mask",
    "a mask that meets scores which are stacked by groups",
    "The view by heads is left out, so the mask meets (B, G, H // G · T, S).",
    ("    scores = scores.view(B, H, T, S)\n", ""),
    ("softmax(dim=-1).view(B, G, H // G * T, S)", "softmax(dim=-1)"),
)
patch(
    "grouped_with_the_mask_repeated_by_rows",
    "mask",
    "a mask whose rows are repeated query by query, for queries that are stacked head by head",
    "repeat_interleave() for the mask's rows, where the whole mask must come again for each head.",
    (
        IF_MASKED,
        IF_MASKED + "        n = H // G\n        mask = mask.expand(B, H, T, S)[:, ::n]\n"
        "        mask = mask.repeat_interleave(n, 2).reshape(B, H, T, S)\n",
    ),
)
patch(
    "grouped_with_the_mask_of_the_first_query",
    "mask",
    "the mask of the first query for all of them",
    "Tried in decode, where there is one: mask[..., :1, :].",
    ("~mask", "~mask[..., :1, :]"),
)
patch(
    "grouped_with_the_mask_of_the_last_query",
    "mask",
    "the mask of the last query for all of them",
    "mask[..., -1:, :], as the newest token wants it.",
    ("~mask", "~mask[..., -1:, :]"),
)
patch(
    "grouped_with_the_mask_of_the_first_head",
    "mask",
    "the mask of the first head for all of them",
    "A mask with an axis of heads is cut down to its first one.",
    (IF_MASKED, IF_MASKED + "        mask = mask[:, :1] if mask.dim() == 4 else mask\n"),
)
patch(
    "grouped_with_a_mask_for_each_kv_head",
    "mask",
    "one mask for all query heads of a group where each has its own",
    "Masks are thinned to G heads, and handed out again.",
    (
        IF_MASKED,
        IF_MASKED + "        n, own = H // G, mask.dim() == 4 and mask.shape[1] == H\n"
        "        mask = mask[:, ::n].repeat_interleave(n, 1) if own else mask\n",
    ),
)
patch(
    "grouped_with_the_masks_of_heads_in_turns",
    "mask",
    "masks of single heads that are handed to other heads of the layer",
    "A mask (B, H, T, S) is cut into (H // G, G) and turned to (G, H // G): queries are not.",
    (
        IF_MASKED,
        IF_MASKED + "        own = mask.dim() == 4 and mask.shape[1] == H\n"
        "        mask = mask.unflatten(1, (-1, G)).transpose(1, 2).flatten(1, 2) if own else mask\n",
    ),
)
patch(
    "grouped_with_a_mask_of_two_axes_alone",
    "mask",
    "a mask that may have nothing but queries and keys",
    "mask.view(1, 1, T, S): a batch of masks does not fit.",
    ("~mask", "~mask.reshape(1, 1, T, S)"),
)
patch(
    "grouped_without_mask_for_one_query",
    "mask",
    "attention in which the mask hides nothing from a single query",
    "In decode everything is visible, is it not? Not where rows are padded.",
    ("if mask is not None", "if mask is not None and T > 1"),
    kind="sizes",
)
patch(
    "grouped_causal_for_any_mask",
    "mask",
    "attention that is causal where any mask was given",
    "is_causal for whatever mask it is.",
    ("~mask", "~mask.new_ones(T, S).tril()"),
)
patch(
    "grouped_causal_to_the_end_for_any_mask",
    "mask",
    "attention in which queries are the last tokens, whatever the mask shows",
    "A causal mask is made anew from T and S, and the one that was given is not looked at.",
    ("~mask", "~mask.new_ones(T, S).tril(S - T)"),
)
patch(
    "grouped_with_a_mask_of_one_row",
    "mask",
    "the mask of the first row for the whole batch, head by head",
    "mask[:1]: a mask with a batch axis is cut down to its first row, and keeps its heads.",
    (IF_MASKED, IF_MASKED + "        mask = mask[:1] if mask.dim() == 4 else mask\n"),
    kind="batch",
)
patch(
    "grouped_turns_the_mask_round",
    "state",
    "a mask that is turned round where it lies",
    "logical_not_() with an underscore: the caller's mask is another one now.",
    ("~mask", "mask.logical_not_()"),
    kind="arguments",
)
HIDDEN = {}


@bug("state", "a mask that is kept from the first call with these sizes", kind="results")
def grouped_with_the_first_mask_of_its_size(q, k, v, mask=None):
    """The mask is turned round once for each size, and kept: masks of one size are alike."""
    if mask is not None:
        mask = HIDDEN.setdefault((q.shape[2], k.shape[2]), mask.clone())
    return right.grouped_attention(q, k, v, mask)
