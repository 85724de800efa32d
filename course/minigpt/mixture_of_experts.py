"""Lesson 16: Which weights are read?.

Built from solutions/16-mixture-of-experts/mixture_of_experts.py by `make build`: change it there.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course.given.experts import (
    check_experts,
    check_read,
    check_routing,
    check_tokens_and_experts,
)
from course.measure.limits import Machine
from course.published.experts import MoESize


def route(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The experts that each token uses, and their weights.

    Args:
        logits: (n, N), n tokens' logits for N experts; those of a token may be hundreds apart.
        k: experts that each token uses, 1 … N.

    Returns:
        chosen: (n, k) int64. Indices of the k different experts with the largest logits, in any order;
            where logits are equal, any choice among them is right.
        weights: (n, k), of the dtype of logits: the softmax over the chosen logits. weights[i, j] is the
            weight of expert chosen[i, j].
    """
    check_routing(logits, k)
    largest, chosen = logits.topk(k, dim=-1)
    return chosen, largest.softmax(dim=-1)


def moe_grouped(
    x: Tensor,
    experts: Sequence[Callable[[Tensor], Tensor]],
    chosen: Tensor,
    weights: Tensor,
) -> Tensor:
    """Outputs of all rows: for each the sum of its experts' outputs, times their weights.

    Each chosen expert is called exactly once, with one (m, C) tensor of all rows that chose it, in any
    order. None is left out, added or repeated: equal rows all go in, and a weight of 0 is a choice as
    well. The other experts are not called.

    Args:
        x: (n, C), n at least 1.
        experts: N functions from (m, C) to (m, C), m at least 1. One may return what it was given.
        chosen: (n, k) int64; the k indices of a row are different.
        weights: (n, k), of the dtype of x. They are used as they are, also where they do not add up to 1.

    Returns:
        (n, C), of the dtype of x; a new tensor, which shares no memory with x.
    """
    check_experts(x, experts, chosen, weights)
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, slots = torch.where(chosen == number)
        if len(rows):
            out.index_add_(0, rows, weights[rows, slots].unsqueeze(1) * expert(x[rows]))
    return out


def expected_experts(n_experts: int, k: int, n_tokens: int) -> float:
    """Mean number of different experts that the tokens of a pass use together.

    Each token chooses k different ones, all equally likely, independently of the others.

    Args:
        n_experts: N, at least 1.
        k: 1 … N.
        n_tokens: 0 or more, also thousands.

    Returns:
        A float from 0.0, for no token, to N.
    """
    check_tokens_and_experts(n_experts, k, n_tokens)
    return n_experts * (1 - (1 - k / n_experts) ** n_tokens)


def step_bytes(size: MoESize, experts_read: float, bytes_per_element: int = 2) -> float:
    """Bytes of the weights that a pass reads.

    These are wq, wk, wv, wo, the router, the three matrices of each expert that is read and of the
    shared one, in every layer; and lm_head. The table of embeddings (of which a pass reads a few rows),
    norms, activations and the cache are left out.

    Args:
        size: its vocab_size, n_layers, d_model, n_heads, n_kv_heads, head_dim, d_expert, n_experts and
            d_shared, 0 without a shared expert. n_heads * head_dim need not be d_model.
        experts_read: in each layer, 0 … n_experts; a mean, so it need not be a whole number.
        bytes_per_element: of a weight, the same for all matrices.
    """
    check_read(size.n_experts, experts_read, bytes_per_element)
    heads = 2 * (size.n_heads + size.n_kv_heads) * size.head_dim
    widths = experts_read * size.d_expert + size.d_shared
    layer = size.d_model * (heads + size.n_experts + 3 * widths)
    return float((size.n_layers * layer + size.d_model * size.vocab_size) * bytes_per_element)


def compute_bound_from(size: MoESize, machine: Machine, bytes_per_element: int = 2) -> int:
    """Fewest tokens, at least 1, with which a pass does at least the machine's balance of FLOP/byte.

    FLOPs: for each token 2 for each weight that `step_bytes` counts with k experts read. Bytes:
    `step_bytes` with the expected number of experts. What attention does with the cache is left out.

    Args:
        size: sizes of the model.
        machine: its `balance`, in FLOP/byte.
        bytes_per_element: of a weight.
    """
    flops, n = 2 * step_bytes(size, size.k, 1), 1
    while True:
        n_read = expected_experts(size.n_experts, size.k, n)
        if n * flops / step_bytes(size, n_read, bytes_per_element) >= machine.balance:
            return n
        n += 1
