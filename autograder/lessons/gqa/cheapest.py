"""The cheapest wrong functions for the checks of lesson 06, see `autograder cheapest`.

Heads that are written out first are not among them: right numbers, without the points of
nothing_is_expanded.
"""


# %% heads_stand_in_a_row: copies of all heads, one after another
def repeat_kv(x, n_rep):
    return x.repeat(1, n_rep, 1, 1)


# %% grouped_equals_repeated: lesson 01's attention
from course.minigpt.mini_gpt import causal_attention


def grouped_attention(q, k, v, mask=None):
    return causal_attention(q, k, v)


# %% grouped_equals_repeated: all heads read the first KV head
def grouped_attention(q, k, v, mask=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1], attn_mask=mask)


# %% grouped_equals_repeated: PyTorch's ready-made call
def grouped_attention(q, k, v, mask=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


# %% masks_reach_every_head: the mask of the first row and head for all
def grouped_attention(q, k, v, mask=None):
    mask = mask if mask is None or mask.dim() < 4 else mask[:1, :1]
    k, v = (x.repeat(1, q.shape[1] // k.shape[1], 1, 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# %% nothing_is_expanded: keys that are read and written nowhere
def grouped_attention(q, k, v, mask=None):
    return q + (k.sum() + v.sum()).to(q.dtype)


# %% nothing_is_expanded: PyTorch's attention for one KV head, which broadcasts
def grouped_attention(q, k, v, mask=None):
    return torch.nn.functional.scaled_dot_product_attention(
        q.reshape(-1, *q.shape[2:]), k.reshape(-1, *k.shape[2:]), v.reshape(-1, *v.shape[2:])
    ).view_as(q)


# %% pooled_heads_are_means: the first heads stay, the others go
def mean_pool_kv_heads(state, config, n_kv_heads):
    rows = n_kv_heads * config.head_dim
    return {n: w[:rows] if n.endswith(("wk.weight", "wv.weight")) else w for n, w in state.items()}


# %% pooled_heads_are_means: neighboring rows are averaged
def mean_pool_kv_heads(state, config, n_kv_heads):
    rows = n_kv_heads * config.head_dim
    return {n: w.view(rows, -1, w.shape[-1]).mean(1) for n, w in state.items() if ".w" in n}


# %% pooling_keeps_the_rest: a copy of the dict
def mean_pool_kv_heads(state, config, n_kv_heads):
    return dict(state)


# %% pooling_keeps_the_rest: the first heads stay, the others go
def mean_pool_kv_heads(state, config, n_kv_heads):
    rows = n_kv_heads * config.head_dim
    return {n: w[:rows] if n.endswith(("wk.weight", "wv.weight")) else w for n, w in state.items()}


# %% batch_fills_the_memory: no thought of weights that do not fit
def max_batch_that_fits(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    return (memory_bytes - weight_bytes) // kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


# %% edge_of_the_memory: none fits
def max_batch_that_fits(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    return 0


# %% edge_of_the_memory: the memory, as if it held no weights
def max_batch_that_fits(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    return max(0, memory_bytes // kv_cache_bytes(config, n_tokens) - 1)
