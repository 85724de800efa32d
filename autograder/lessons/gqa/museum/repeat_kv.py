"""Known wrong answers to lesson 06: `repeat_kv`."""

from __future__ import annotations

import torch

from autograder.lessons.gqa.museum import MUSEUM

bug = MUSEUM.section("repeat_kv", check="heads_stand_in_a_row")


@bug("form", "float32 heads, whatever type was given", kind="dtype")
def repeat_into_float32(x, n_rep):
    """torch.empty() without a dtype: float32, and the copies are turned into it."""
    B, G, S, D = x.shape
    out = torch.empty(B, G * n_rep, S, D)
    for head in range(G * n_rep):
        out[:, head] = x[:, head // n_rep]
    return out


KEPT = {}


@bug("state", "results that all lie in the same memory", kind="results")
def repeat_into_the_same_memory(x, n_rep):
    """Memory is made once for each shape, against the cost; the next call writes over it."""
    B, G, S, D = x.shape
    key = (B, G, n_rep, S, D, x.dtype)
    out = KEPT.setdefault(key, x.new_empty(B, G * n_rep, S, D))
    return out.copy_(x.repeat_interleave(n_rep, dim=1))
