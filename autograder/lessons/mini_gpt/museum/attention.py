"""Wrong answers to `causal_attention`."""

import torch
import torch.nn.functional as F

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

bug = MUSEUM.section("causal_attention", check="attention_weighs_by_softmax")


@bug("form", "a view that takes heads to lie side by side in memory", kind="layout")
def heads_flattened_by_view(q, k, v):
    """view(B * H, T, D) for bmm: refused for tensors that come from a transpose."""
    B, H, T, D = q.shape
    G = k.shape[1]
    k, v = (part.repeat_interleave(H // G, dim=1).reshape(B * H, T, D) for part in (k, v))
    scores = torch.bmm(q.view(B * H, T, D), k.transpose(1, 2)) / D**0.5
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.bmm(weights, v).view(B, H, T, D)


OUTPUTS = {}


@bug("state", "attention whose result lies where the next call writes", kind="results")
def one_buffer_for_all_outputs(q, k, v):
    """One result tensor for each shape, to save memory."""
    out = OUTPUTS.setdefault((q.shape, q.dtype), torch.empty_like(q))
    return out.copy_(right.causal_attention(q, k, v))


bug = MUSEUM.section("causal_attention", check="query_heads_share_kv_heads")


@bug("head order", "KV heads that are averaged into one")
def averaged_kv_heads(q, k, v):
    """KV heads are averaged until one fits all query heads."""
    if k.shape[1] < q.shape[1]:
        k, v = k.mean(1, keepdim=True), v.mean(1, keepdim=True)
    return right.causal_attention(q, k, v)


@bug("softmax", "keys and values that are added, with no query", kind="cheapest")
def keys_and_values_added(q, k, v):
    """Heads are shared as they should be, but nothing attends: the query is never looked at."""
    return (k + v).repeat_interleave(q.shape[1] // k.shape[1], dim=1)


bug = MUSEUM.section("causal_attention", check="attention_sees_no_future")


@bug("softmax", "PyTorch's ready-made attention", kind="cheapest")
def ready_made_attention(q, k, v):
    """Right numbers in one call, which the lesson asks to write out: nobody sees what it does."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@bug("softmax", "the plain average of the values so far", kind="cheapest")
def average_so_far(q, k, v):
    """The first of the lesson's loops: no token sees the future, and all of the past weighs the same."""
    v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    n_seen = torch.arange(1, v.shape[2] + 1).unsqueeze(1)
    return (v.cumsum(dim=2) / n_seen).to(q.dtype)
