"""Right answers to lesson 01 in other styles: every check must pass them."""

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Edits, Variant
from course.minigpt.mini_gpt import causal_attention


def split_by_unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).movedim(-2, 1)


def merge_by_cat(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def split_by_stack(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_by_permute(x):
    return x.permute(0, 2, 1, 3).flatten(2)


def attention_by_einsum(q, k, v):
    B, H, T, D = q.shape
    G = k.shape[1]
    q = q.reshape(B, G, H // G, T, D)
    scores = torch.einsum("bgitd,bgsd->bgits", q, k) * D**-0.5
    scores = scores + torch.full((T, T), -1e9).triu(1)
    return torch.einsum("bgits,bgsd->bgitd", scores.softmax(-1), v).reshape(B, H, T, D)


def attention_by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def attention_by_loops(q, k, v):
    H, T, D = q.shape[1:]
    group = H // k.shape[1]
    out = torch.empty_like(q)
    for h in range(H):
        for t in range(T):
            keys, values = k[:, h // group, : t + 1], v[:, h // group, : t + 1]
            scores = (keys @ q[:, h, t, :, None]).squeeze(-1) / D**0.5  # (B, t + 1)
            out[:, h, t] = (scores.softmax(-1)[:, None] @ values).squeeze(1)
    return out


attention_in_float64 = Edits(
    (
        ("q @ k.transpose", "q.double() @ k.double().transpose"),
        ("scores.softmax(dim=-1) @ v", "(scores.softmax(dim=-1) @ v.double()).to(q.dtype)"),
    )
)
attention_by_exponentials = Edits(
    (
        ('scores.masked_fill(~visible, float("-inf"))', "scores.exp() * visible"),
        ("scores.softmax(dim=-1) @ v", "scores @ v / scores.sum(-1, keepdim=True)"),
    )
)


def layer_in_two_steps(attn, x, positions):
    B, T, _ = x.shape
    k, q, v = (
        F.linear(x, matrix.weight).reshape(B, T, -1, attn.head_dim).transpose(1, 2)
        for matrix in (attn.wk, attn.wq, attn.wv)
    )
    k = attn.rotate(k, positions)
    out = causal_attention(attn.rotate(q, positions), k, v)
    return F.linear(out.transpose(1, 2).flatten(2), attn.wo.weight)


layer_head_by_head = Edits(
    (
        (
            "    q, k = attn.rotate",
            "    positions = positions - positions[0]\n    q, k = attn.rotate",
        ),
        (
            "return attn.wo(merge_heads(causal_attention(q, k, v)))",
            "heads = causal_attention(q, k, v)\n"
            "    parts = attn.wo.weight.split(attn.head_dim, dim=1)  # (C, D) each\n"
            "    return sum(heads[:, h] @ part.T for h, part in enumerate(parts))",
        ),
    )
)


def greedy_by_topk(logits):
    if logits.ndim != 2:
        raise ValueError("one row of logits for each text, please")
    return logits.topk(1).indices[:, 0]


greedy_by_max = Edits((("argmax(dim=-1)", "max(dim=1).indices"),))


def sample_with_ties_kept(logits, temperature=1.0, top_k=None, generator=None):
    if logits.ndim != 2 or temperature <= 0 or top_k not in (None, *range(1, logits.shape[1] + 1)):
        raise ValueError(f"{temperature=} and {top_k=} for logits {tuple(logits.shape)}")
    if top_k is not None:
        edge = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < edge, float("-inf"))
    weights = (logits / temperature).softmax(-1)
    return torch.multinomial(weights, 1, generator=generator).squeeze(-1)


DRAW = "torch.multinomial(weights, 1, generator=generator)"
NOISE = "torch.rand(weights.shape, generator=generator).clamp(1e-7, 1 - 1e-7)"
sample_by_gumbel = Edits(
    ((DRAW, f"(weights.log() - (-{NOISE}.log()).log()).argmax(-1, keepdim=True)"),)
)
sample_by_inverse_cdf = Edits(
    (
        ("logits.topk", "logits.double().topk"),
        (
            DRAW,
            "torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)\n"
            "    place = torch.searchsorted(weights.cumsum(-1), place, right=True)\n"
            "    place = place.clamp(max=weights.shape[1] - 1)",
        ),
    )
)

VARIANTS = [
    Variant("unflatten_and_cat", {"split_heads": split_by_unflatten, "merge_heads": merge_by_cat}),
    Variant("stack_and_permute", {"split_heads": split_by_stack, "merge_heads": merge_by_permute}),
    Variant("einsum_with_additive_mask", {"causal_attention": attention_by_einsum}),
    Variant("sdpa", {"causal_attention": attention_by_sdpa}),
    Variant("float64_inside", {"causal_attention": attention_in_float64}),
    Variant("loops", {"causal_attention": attention_by_loops}),
    Variant("exponentials_masked", {"causal_attention": attention_by_exponentials}),
    Variant("layer_in_two_steps", {"attention_layer": layer_in_two_steps}),
    Variant("layer_head_by_head", {"attention_layer": layer_head_by_head}),
    Variant("greedy_by_topk", {"greedy_next": greedy_by_topk}),
    Variant("greedy_by_max", {"greedy_next": greedy_by_max}),
    Variant("ties_kept", {"sample_next": sample_with_ties_kept}),
    Variant("gumbel", {"sample_next": sample_by_gumbel}),
    Variant("inverse_cdf", {"sample_next": sample_by_inverse_cdf}),
]
