"""Wrong answers to `split_heads` and `merge_heads`."""

import torch

from autograder.lessons.exhibits import Edits
from autograder.lessons.mini_gpt.museum import MUSEUM

CUT = "x.view(B, T, n_heads, width // n_heads)"
INTERLEAVED = Edits((("x.transpose(1, 2)", "x.permute(0, 2, 3, 1)"),))
bug, patch = MUSEUM.section("split_heads", check="heads_split_and_merge")
patch(
    "split_by_view",
    "head order",
    "heads that hold pieces of other tokens",
    "view(B, H, T, D) in one step: the shape is right, and heads hold pieces of other tokens.",
    (CUT, "x.view(B, n_heads, T, width // n_heads)"),
    ("x.transpose(1, 2)", "x"),
)


@bug(
    "head order",
    "heads that take every H-th number instead of a slice, and are merged alike",
    merge_heads=INTERLEAVED,
)
def heads_interleaved(x, n_heads):
    """view(B, T, D, H): every H-th number makes a head. Split and merge undo each other, so a
    round trip looks fine, but the weights were trained with slices."""
    B, T, width = x.shape
    return x.view(B, T, width // n_heads, n_heads).permute(0, 3, 1, 2)


@bug("head order", "heads that take every H-th number instead of a slice")
def split_interleaved(x, n_heads):
    """view(B, T, D, H), and the merge is right: a round trip shows it."""
    B, T, width = x.shape
    return x.view(B, T, width // n_heads, n_heads).permute(0, 3, 1, 2)


patch(
    "split_not_transposed",
    "form",
    "heads that stay behind the tokens",
    "The heads are cut but stay behind the tokens: (B, T, H, D).",
    ("x.transpose(1, 2)", "x"),
)
patch(
    "number_taken_for_width",
    "form",
    "heads as wide as there should be many",
    "n_heads is read as the width of a head: (B, T, width // n_heads, n_heads).",
    (CUT, "x.view(B, T, width // n_heads, n_heads)"),
)
patch(
    "heads_in_front",
    "form",
    "heads that stand before the batch",
    "Stacked along a new first axis: (H, B, T, D).",
    ("x.transpose(1, 2)", "x.permute(2, 0, 1, 3)"),
)
patch(
    "batch_and_tokens_in_one_view",
    "form",
    "a view that takes rows to lie side by side in memory",
    "view(B * T, …) needs memory without gaps, which a slice of a batch has not.",
    (CUT, "x.view(B * T, n_heads, width // n_heads).view(B, T, n_heads, -1)"),
    kind="layout",
)


@bug("form", "heads that are filled into float32, whatever came in", kind="dtype")
def split_into_float32(x, n_heads):
    """torch.zeros is float32 where nothing else is said."""
    B, T, width = x.shape
    D = width // n_heads
    out = torch.zeros(B, n_heads, T, D)
    for h in range(n_heads):
        out[:, h] = x[:, :, h * D : (h + 1) * D]
    return out


@bug("form", "a single token whose axis is dropped", kind="sizes")
def split_squeezes_one_token(x, n_heads):
    """squeeze() was meant for something else, and takes every axis of length 1."""
    B, T, width = x.shape
    return x.reshape(B, T, n_heads, width // n_heads).transpose(1, 2).squeeze()


bug, patch = MUSEUM.section("merge_heads", check="heads_split_and_merge")
MERGE = "x.transpose(1, 2).reshape(B, T, H * D)"
patch(
    "merge_by_reshape",
    "head order",
    "heads that are merged while the token axis still stands between them",
    "reshape(B, T, H * D) without moving the token axis back: tokens are scrambled.",
    ("x.transpose(1, 2).reshape", "x.reshape"),
)
patch(
    "merge_interleaved",
    "head order",
    "merged heads whose numbers take turns",
    "permute(0, 2, 3, 1): number 0 of every head, then number 1 of every head.",
    ("x.transpose(1, 2)", "x.permute(0, 2, 3, 1)"),
)
patch(
    "merge_by_view",
    "form",
    "a view of what a transpose has left in another order",
    "view after transpose: PyTorch refuses, for the numbers have to be copied.",
    (".reshape(B, T, H * D)", ".view(B, T, H * D)"),
    kind="layout",
)
patch(
    "merge_drops_a_batch_of_one",
    "form",
    "a batch of one whose axis is dropped",
    "squeeze(0) at the end: written for one text, and only for one it hurts.",
    (MERGE, f"{MERGE}.squeeze(0)"),
    kind="batch",
)
patch(
    "merge_adds_the_heads",
    "head order",
    "heads that are added up instead of put side by side",
    "sum over the heads: (B, T, D), as wide as one head.",
    (MERGE, "x.sum(dim=1)"),
)
patch(
    "merge_turns_its_argument",
    "state",
    "a transpose in place, of the caller's own tensor",
    "transpose_ exchanges the axes of the caller's tensor, too.",
    ("x.transpose(1, 2)", "x.transpose_(1, 2)"),
    kind="arguments",
)

MERGED = {}


@bug("state", "merged heads that lie where the next call writes", kind="results")
def merge_into_one_buffer(x):
    """One result tensor for each shape, to save memory."""
    B, H, T, D = x.shape
    out = MERGED.setdefault((B, H, T, D, x.dtype), x.new_empty(B, T, H * D))
    return out.copy_(x.transpose(1, 2).reshape(B, T, H * D))
