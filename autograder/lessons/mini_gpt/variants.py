"""Right answers to lesson 01 in other styles: every check must pass them."""

import numpy as np
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
    scores = scores + torch.full((T, T), -1e9, dtype=q.dtype, device=q.device).triu(1)
    return torch.einsum("bgits,bgsd->bgitd", scores.softmax(-1), v).reshape(B, H, T, D)


def attention_by_bmm(q, k, v):
    """All heads of all rows in one batch of matrices; the mask is added."""
    B, H, T, D = q.shape
    k, v = (part[:, torch.arange(H) // (H // k.shape[1])].reshape(B * H, T, D) for part in (k, v))
    hidden = torch.full((T, T), -torch.inf, dtype=q.dtype, device=q.device).triu(diagonal=1)
    scores = torch.baddbmm(hidden, q.reshape(B * H, T, D), k.mT, alpha=D**-0.5)
    return torch.bmm(F.softmax(scores, dim=2), v).view(B, H, T, D)


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
NOISE = "torch.rand(weights.shape, generator=generator, device=logits.device).clamp(1e-7, 1 - 1e-7)"
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


def attention_by_numpy(q, k, v):
    """NumPy throughout, one head at a time."""
    queries, keys, values = (np.asarray(part.double()) for part in (q, k, v))
    B, H, T, D = queries.shape
    out = np.empty((B, H, T, D))
    for h in range(H):
        g = h // (H // keys.shape[1])
        scores = queries[:, h] @ keys[:, g].swapaxes(1, 2) / np.sqrt(D)
        scores[:, np.triu(np.ones((T, T), dtype=bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, h] = weights / weights.sum(axis=-1, keepdims=True) @ values[:, g]
    return torch.from_numpy(out).to(q.dtype)


def attention_as_it_goes(q, k, v):
    """A running maximum and two running sums, one key at a time."""
    B, H, T, _ = q.shape
    k, v = (part.repeat_interleave(H // part.shape[1], dim=1) for part in (k, v))
    largest = q.new_full((B, H, T, 1), float("-inf"))
    above, below = torch.zeros_like(q), q.new_zeros(B, H, T, 1)
    for s in range(T):
        score = (q[:, :, s:] * k[:, :, s, None]).sum(-1, keepdim=True) / q.shape[-1] ** 0.5
        new = torch.maximum(largest[:, :, s:], score)
        old, weight = (largest[:, :, s:] - new).exp(), (score - new).exp()
        above[:, :, s:] = above[:, :, s:] * old + weight * v[:, :, s, None]
        below[:, :, s:] = below[:, :, s:] * old + weight
        largest[:, :, s:] = new
    return above / below


split_by_lambda = Edits(
    (
        ("B, T, width = x.shape\n", "cut = lambda part: part.unflatten(-1, (n_heads, -1))\n"),
        ("    x = x.view(B, T, n_heads, width // n_heads)  # (B, T, H, D)\n", ""),
        ("x.transpose(1, 2)", "cut(x).movedim(2, 1).clone()"),
    )
)


def merge_by_numpy(x):
    heads = np.moveaxis(x.numpy(), 1, 2)
    return torch.from_numpy(heads.reshape(*heads.shape[:2], -1))


def layer_row_by_row(attn, x, positions):
    """One text at a time, with the weights and without calling the modules."""
    rows = []
    for row in x[:, None]:
        q, k, v = (
            torch.einsum("btc,hdc->bhtd", row, matrix.weight.unflatten(0, (n, -1)))
            for matrix, n in (
                (attn.wq, attn.n_heads),
                (attn.wk, attn.n_kv_heads),
                (attn.wv, attn.n_kv_heads),
            )
        )
        q, k = (attn.rotate(x=part, positions=positions) for part in (q, k))
        out = causal_attention(v=v, k=k, q=q)
        rows.append(
            torch.einsum("bhtd,chd->btc", out, attn.wo.weight.unflatten(1, (q.shape[1], -1)))
        )
    return torch.cat(rows)


def greedy_by_unpacking(logits):
    _, V = logits.shape  # another number of axes is a ValueError
    best = [max(range(V), key=row.__getitem__) for row in logits.tolist()]
    return torch.tensor(best, device=logits.device)


class Sampler:
    """An object that is called, and draws one row at a time."""

    __slots__ = ("generator",)

    def __init__(self, generator):
        self.generator = generator

    def __call__(self, row, temperature, top_k):
        best, tokens = torch.topk(row, top_k)
        weights = torch.softmax(best / temperature, 0)
        return tokens[torch.multinomial(weights, 1, generator=self.generator)]


def sample_by_an_object(logits, temperature=1.0, top_k=None, generator=None):
    _, V = logits.shape
    top_k = V if top_k is None else top_k
    if temperature <= 0 or not 1 <= top_k <= V:
        raise ValueError(f"{temperature=}, {top_k=}")
    sampler = Sampler(generator)
    return torch.cat([sampler(row, temperature, top_k) for row in logits])


def sample_by_numpy(logits, temperature=1.0, top_k=None, generator=None):
    """The inverse of the cumulative sum, sorted, in NumPy."""
    if logits.ndim != 2 or not temperature > 0:
        raise ValueError("logits or temperature")
    scores = logits.double().numpy()
    kept = scores.shape[1] if top_k is None else top_k
    if not 0 < kept <= scores.shape[1]:
        raise ValueError("top_k")
    order = np.argsort(-scores, axis=1)[:, :kept]
    best = np.take_along_axis(scores, order, axis=1) / temperature
    weights = np.exp(best - best[:, :1])
    edges = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    chance = torch.rand(len(scores), 1, generator=generator, dtype=torch.float64).numpy()
    place = (edges < chance).sum(axis=1, keepdims=True).clip(max=kept - 1)
    return torch.from_numpy(np.take_along_axis(order, place, axis=1)[:, 0])


VARIANTS = [
    Variant("unflatten_and_cat", {"split_heads": split_by_unflatten, "merge_heads": merge_by_cat}),
    Variant("stack_and_permute", {"split_heads": split_by_stack, "merge_heads": merge_by_permute}),
    Variant("einsum_with_additive_mask", {"causal_attention": attention_by_einsum}),
    Variant("one_batch_of_matrices", {"causal_attention": attention_by_bmm}),
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
    Variant("numpy_attention", {"causal_attention": attention_by_numpy}),
    Variant("attention_as_it_goes", {"causal_attention": attention_as_it_goes}),
    Variant("lambda_and_numpy", {"split_heads": split_by_lambda, "merge_heads": merge_by_numpy}),
    Variant("layer_row_by_row", {"attention_layer": layer_row_by_row}),
    Variant("greedy_by_unpacking", {"greedy_next": greedy_by_unpacking}),
    Variant("sample_by_an_object", {"sample_next": sample_by_an_object}),
    Variant("sample_by_numpy", {"sample_next": sample_by_numpy}),
]
