"""Wrong answers to `split_heads` and `merge_heads`."""

import torch

from autograder.lessons.exhibits import Edits
from autograder.lessons.mini_gpt.museum import MUSEUM

INTERLEAVED = Edits((("x.transpose(1, 2)", "x.permute(0, 2, 3, 1)"),))
bug = MUSEUM.section("split_heads", check="heads_split_and_merge")


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


bug = MUSEUM.section("merge_heads", check="heads_split_and_merge")

MERGED = {}


@bug("state", "merged heads that lie where the next call writes", kind="results")
def merge_into_one_buffer(x):
    """One result tensor for each shape, to save memory."""
    B, H, T, D = x.shape
    out = MERGED.setdefault((B, H, T, D, x.dtype), x.new_empty(B, T, H * D))
    return out.copy_(x.transpose(1, 2).reshape(B, T, H * D))
