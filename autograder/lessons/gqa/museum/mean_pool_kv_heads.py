"""Known wrong answers to lesson 06: `mean_pool_kv_heads`."""

from __future__ import annotations

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right

bug = MUSEUM.section("mean_pool_kv_heads", check="pooled_heads_are_means")


POOLED = {}


@bug("state", "the weights of the first model with these sizes", kind="results")
def pool_once_for_all_models(state, config, n_kv_heads):
    """Kept by config and number of heads; another model of the same sizes gets the first one's."""
    if (config, n_kv_heads) not in POOLED:
        POOLED[config, n_kv_heads] = right.mean_pool_kv_heads(state, config, n_kv_heads)
    return dict(POOLED[config, n_kv_heads])


bug = MUSEUM.section("mean_pool_kv_heads", check="pooling_keeps_the_rest")


@bug("form", "weights that must lie in memory in one order", kind="layout")
def pool_rows_as_they_lie(state, config, n_kv_heads):
    """view() joins the axes behind the group; a weight that is a transpose does not lie so."""
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            heads = weight.view(n_kv_heads, -1, config.head_dim * config.d_model)
            pooled[name] = heads.mean(dim=1).view(-1, config.d_model)
    return pooled


@bug("head order", "the first heads, while the others are cut off", kind="cheapest")
def pool_cuts_off(state, config, n_kv_heads):
    """A slice has the right shape, and everything else is as it was."""
    rows = n_kv_heads * config.head_dim
    return {n: w[:rows] if n.endswith(("wk.weight", "wv.weight")) else w for n, w in state.items()}
