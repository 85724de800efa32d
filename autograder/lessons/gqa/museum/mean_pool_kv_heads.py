"""Known wrong answers to lesson 06: `mean_pool_kv_heads`."""

from __future__ import annotations

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right

bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooled_heads_are_means")

patch(
    "pool_adjacent_features",
    "head order",
    "means over neighbouring features instead of neighbouring heads",
    "view(-1, n, C).mean(1): neighbouring rows are features, not heads.",
    ("view(n_kv_heads, -1, D, C)", "view(n_kv_heads * D, -1, C)"),
)
patch(
    "pool_strided_heads",
    "head order",
    "means over heads that are not neighbours",
    "view(n, G, D, C): heads g, g + G, g + 2 G … are averaged, which no new head serves.",
    ("view(n_kv_heads, -1, D, C)", "view(-1, n_kv_heads, D, C)"),
    ("dim=1", "dim=0"),
)
patch(
    "pool_all_heads_alike",
    "head order",
    "one and the same mean for every new head",
    "One mean over all heads, handed to every new one.",
    ("dim=1).reshape(n_kv_heads * D, C)", "dim=(0, 1)).repeat(n_kv_heads, 1)"),
)
patch(
    "pool_by_summing",
    "formula",
    "sums of heads",
    "sum() for mean(): scores become n times as sharp.",
    ("groups.mean", "groups.sum"),
)
patch(
    "pool_keeps_the_first",
    "head order",
    "the first head of each group, without the others",
    "The first head of each group stays, the others are forgotten.",
    ("groups.mean(dim=1)", "groups[:, 0]"),
)
patch(
    "pool_keeps_the_first_of_all",
    "head order",
    "as many heads as wanted, the first ones there were",
    "The first G heads stay, whichever groups there are.",
    ("groups.mean(dim=1).reshape(n_kv_heads * D, C)", "weight[: n_kv_heads * D].clone()"),
)
patch(
    "pool_columns",
    "form",
    "matrices that are pooled along the wrong axis",
    "A Linear's weight is (out, in), and the in-axis is pooled.",
    ("view(n_kv_heads, -1, D, C)", "view(len(weight), -1, config.n_kv_heads // n_kv_heads)"),
    ("dim=1).reshape(n_kv_heads * D, C)", "dim=2)"),
)
patch(
    "pool_keys_only",
    "wiring",
    "keys that are pooled and values that are not",
    "Values are forgotten.",
    ('("wk.weight", "wv.weight")', '"wk.weight"'),
)
patch(
    "pool_keeps_the_axis_of_heads",
    "form",
    "weights with an axis of heads, which no matrix has",
    "The reshape back to a matrix is forgotten.",
    (".reshape(n_kv_heads * D, C)", ""),
)
patch(
    "pool_counts_query_heads",
    "head order",
    "groups counted in query heads",
    "Groups of H // G: right from MHA, wrong where the model shares heads already.",
    ("view(n_kv_heads, -1, D, C)", "view(-1, config.n_heads // n_kv_heads, D, C)"),
    ("reshape(n_kv_heads * D, C)", "flatten(0, 1)"),
)

patch(
    "pool_values_only",
    "wiring",
    "values that are pooled and keys that are not",
    "Keys are forgotten.",
    ('("wk.weight", "wv.weight")', '"wv.weight"'),
)
patch(
    "pool_keeps_the_last",
    "head order",
    "the last head of each group, without the others",
    "The last head of each group stays, the others are forgotten.",
    ("groups.mean(dim=1)", "groups[:, -1]"),
)
patch(
    "pool_leaves_out_the_last",
    "off by one",
    "means of all heads of a group but the last",
    "A slice that ends one head too early.",
    ("groups.mean(dim=1)", "groups[:, : max(1, groups.shape[1] - 1)].mean(dim=1)"),
)
patch(
    "pool_pairs",
    "head order",
    "means of the first two heads of each group",
    "Half as many heads, it was tried with: two become one.",
    ("groups.mean(dim=1)", "groups[:, :2].mean(dim=1)"),
    kind="sizes",
)
patch(
    "pool_divides_by_the_new_heads",
    "formula",
    "sums of heads, divided by the number of new heads",
    "Divided by n_kv_heads: right for four heads that become two.",
    ("groups.mean(dim=1)", "(groups.sum(dim=1) / n_kv_heads)"),
)
patch(
    "pool_divides_by_the_old_heads",
    "formula",
    "sums of heads, divided by the number of old heads",
    "Divided by as many as there were, not by as many as are added.",
    ("groups.mean(dim=1)", "(groups.sum(dim=1) / config.n_kv_heads)"),
)
patch(
    "pool_takes_the_largest",
    "formula",
    "the largest of each feature, not the mean",
    "Max-pooling, as in images.",
    ("groups.mean(dim=1)", "groups.amax(dim=1)"),
)
patch(
    "pool_takes_heads_for_the_group",
    "head order",
    "groups of as many heads as there shall be groups",
    "view(-1, n_kv_heads, D, C): the number of groups for the size of one.",
    ("view(n_kv_heads, -1, D, C)", "view(-1, n_kv_heads, D, C)"),
    ("reshape(n_kv_heads * D, C)", "reshape(-1, C)"),
)
patch(
    "pool_with_wide_heads",
    "head order",
    "heads that are as wide as the model divided by its KV heads",
    "D from d_model // n_kv_heads: query heads decide how wide a head is.",
    ("config.head_dim", "config.d_model // config.n_kv_heads"),
    ("view(n_kv_heads, -1, D, C)", "reshape(n_kv_heads, -1, D, C)"),
)
patch(
    "pool_and_write_out_again",
    "form",
    "means that are written out for all old heads again",
    "Repeated, so that shapes stay: nothing becomes smaller.",
    (".reshape(n_kv_heads * D, C)", ".repeat_interleave(groups.shape[1], 0).flatten(0, 1)"),
)
patch(
    "pool_the_first_layer",
    "wiring",
    "a first layer that is pooled and others that are not",
    "One layer by name; the others are forgotten.",
    ("if name.endswith(", 'if name.startswith("blocks.0.") and name.endswith('),
    kind="sizes",
)
patch(
    "pool_two_layers",
    "wiring",
    "two layers that are pooled and others that are not",
    "range(2), for the model that it was tried with.",
    ("if name.endswith(", 'if name[:9] in ("blocks.0.", "blocks.1.") and name.endswith('),
    kind="sizes",
)
patch(
    "pool_all_but_the_last_layer",
    "off by one",
    "a last layer that is not pooled",
    "range(n_layers - 1): the last layer is forgotten.",
    ("if name.endswith(", 'if f".{config.n_layers - 1}." not in name and name.endswith('),
)
POOLED = {}


@bug("state", "the weights of the first model with these sizes", kind="results")
def pool_once_for_all_models(state, config, n_kv_heads):
    """Kept by config and number of heads; another model of the same sizes gets the first one's."""
    if (config, n_kv_heads) not in POOLED:
        POOLED[config, n_kv_heads] = right.mean_pool_kv_heads(state, config, n_kv_heads)
    return dict(POOLED[config, n_kv_heads])


bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooling_keeps_the_rest")

patch(
    "pool_queries_too",
    "wiring",
    "a model whose queries are pooled as well",
    "wq looks like wk, and is pooled as well: the model has fewer query heads now.",
    ('"wv.weight")', '"wv.weight", "wq.weight")'),
)
patch(
    "pool_shrinks_the_output_too",
    "wiring",
    "a model whose output matrix is made smaller as well",
    "wo is made to fit fewer heads, though just as many arrive there.",
    (
        "    return pooled",
        '        if name.endswith("wo.weight"):\n'
        "            groups = weight.view(len(weight), n_kv_heads, -1, config.head_dim)\n"
        "            pooled[name] = groups.mean(dim=2).flatten(1)\n"
        "    return pooled",
    ),
)
patch(
    "pool_columns_of_the_output_too",
    "wiring",
    "a model whose output matrix has the mean of so many columns as heads are pooled",
    "wo is pooled along its columns, as many heads at a time as of keys.",
    (
        "    return pooled",
        '        if name.endswith("wo.weight"):\n'
        "            n = config.n_kv_heads // n_kv_heads\n"
        "            groups = weight.reshape(len(weight), -1, n, config.head_dim)\n"
        "            pooled[name] = groups.mean(dim=2).flatten(1)\n"
        "    return pooled",
    ),
)
patch(
    "pool_in_place",
    "state",
    "a parent whose weights are replaced by those of its child",
    "Writes into the dict that it was given: the parent is gone.",
    ("dict(state)", "state"),
    kind="arguments",
)
patch(
    "pool_writes_into_the_old_heads",
    "state",
    "means that are written into the model that was handed in",
    "A mean is stored in a view of the old weight, for a moment.",
    (
        "pooled[name] = groups.mean(dim=1)",
        "groups[:, 0] = groups.mean(dim=1)\n            pooled[name] = groups[:, 0].clone()",
    ),
    kind="arguments",
)
patch(
    "pool_leaves_out_the_rest",
    "form",
    "weights without those that are not pooled",
    "Only the pooled weights come back.",
    ("dict(state)", "{}"),
)
patch(
    "pool_in_double",
    "form",
    "weights of another type than those that were handed in",
    "Pooled in float64 for precision, and left there.",
    ("weight.view", "weight.double().view"),
    kind="dtype",
)
patch(
    "pool_hands_the_model_back",
    "state",
    "a child that is its own parent, where no head is pooled",
    "As many heads as there are: nothing to do, so the same dict comes back.",
    (
        "    pooled = dict(state)",
        "    if n_kv_heads == config.n_kv_heads:\n        return state\n    pooled = dict(state)",
    ),
    kind="results",
)
patch(
    "pool_turns_all_into_float32",
    "form",
    "weights in float32, whatever type they had",
    "float() for every weight, against trouble with 16 bits.",
    ("return pooled", "return {name: weight.float() for name, weight in pooled.items()}"),
    kind="dtype",
)
patch(
    "pool_in_float32",
    "form",
    "means in float32 beside weights of another type",
    "Averaged in float32, and left there.",
    ("groups.mean(dim=1)", "groups.float().mean(dim=1)"),
    kind="dtype",
)
patch(
    "pool_whatever_has_that_shape",
    "wiring",
    "weights that are pooled because they have the shape of keys",
    "Keys are known by their shape; without sharing, queries have the same.",
    (
        'name.endswith(("wk.weight", "wv.weight"))',
        'weight.shape == state["blocks.0.attn.wk.weight"].shape',
    ),
)
patch(
    "pool_without_norms",
    "form",
    "weights without those of the norms",
    "Only what has two axes comes back.",
    ("return pooled", "return {name: w for name, w in pooled.items() if w.dim() == 2}"),
)
patch(
    "pool_lets_go_of_the_old_name",
    "form",
    "weights under names of their own",
    "The pooled weight gets a name of its own, beside the old one.",
    ("pooled[name] = groups", 'pooled[f"{name}.pooled"] = groups'),
)


@bug("form", "weights that must lie in memory in one order", kind="layout")
def pool_rows_as_they_lie(state, config, n_kv_heads):
    """view() joins the axes behind the group; a weight that is a transpose does not lie so."""
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            heads = weight.view(n_kv_heads, -1, config.head_dim * config.d_model)
            pooled[name] = heads.mean(dim=1).view(-1, config.d_model)
    return pooled
