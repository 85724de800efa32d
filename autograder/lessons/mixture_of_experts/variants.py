"""Right answers to lesson 16 in other styles: every check must pass them."""

from __future__ import annotations

import math
from itertools import count

import torch
import torch.nn.functional as F
from torch import nn

from autograder.lessons.exhibits import Variant
from course.given.experts import (
    check_experts,
    check_read,
    check_routing,
    check_tokens_and_experts,
)
from course.model.layers import SwiGLU

# --- sorted: all pairs of row and expert in a row, cut where the expert changes -------------------


def route_by_sorting(logits, k):
    check_routing(logits, k)
    chosen = logits.argsort(dim=1, descending=True, stable=True)[:, :k]
    return chosen, F.softmax(torch.take_along_dim(logits, chosen, dim=1), dim=1)


def grouped_by_sorting(x, experts, chosen, weights):
    """Sort, call, sort back by the inverse, and sum over the slots."""
    check_experts(x, experts, chosen, weights)
    (n, k), order = chosen.shape, chosen.reshape(-1).argsort(stable=True)
    rows, sizes = x[order // k], torch.bincount(chosen.reshape(-1), minlength=len(experts)).tolist()
    outputs = [
        expert(part) for expert, part in zip(experts, rows.split(sizes), strict=True) if len(part)
    ]
    pairs = torch.cat(outputs)[order.argsort()].reshape(n, k, -1)
    return (pairs * weights.unsqueeze(2)).sum(dim=1)


def expected_step_by_step(n_experts, k, n_tokens):
    """Each token reads its share of what is still unread."""
    check_tokens_and_experts(n_experts, k, n_tokens)
    read = 0.0
    for _ in range(n_tokens):
        read += k * (n_experts - read) / n_experts
    return read


def bytes_of_shapes(size, experts_read, bytes_per_element=2):
    """A list of matrices: rows, columns, how often."""
    check_read(size.n_experts, experts_read, bytes_per_element)
    C, L = size.d_model, size.n_layers
    queries, keys = size.n_heads * size.head_dim, size.n_kv_heads * size.head_dim
    matrices = [
        (queries, C, 2 * L),
        (keys, C, 2 * L),
        (size.n_experts, C, L),
        (size.d_expert, C, 3 * experts_read * L),
        (size.d_shared, C, 3 * L),
        (size.vocab_size, C, 1),
    ]
    return sum(rows * columns * times for rows, columns, times in matrices) * bytes_per_element


def bound_by_halving(size, machine, bytes_per_element=2):
    """Double until it is over, then halve the interval."""

    def over(n):
        n_read = size.n_experts * (1 - (1 - size.k / size.n_experts) ** n)
        flops = 2 * n * bytes_of_shapes(size, size.k, 1)
        return flops >= machine.balance * bytes_of_shapes(size, n_read, bytes_per_element)

    high = 1
    while not over(high):
        high *= 2
    low = high // 2  # not over, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if over(middle) else (middle, high)
    return high


# --- by masks: a softmax over all with what was not chosen hidden, matrices in the place of indices --


def route_by_mask(logits, k):
    check_routing(logits, k)
    chosen = torch.topk(logits, k, dim=1, sorted=False).indices
    hidden = torch.ones_like(logits, dtype=torch.bool).scatter_(1, chosen, False)
    everything = logits.masked_fill(hidden, -math.inf).softmax(dim=1)
    return chosen, everything.gather(1, chosen)


def grouped_by_mask(x, experts, chosen, weights):
    """For each expert in use a column of weights, and the rows with a place in it."""
    check_experts(x, experts, chosen, weights)
    out = torch.zeros_like(x)
    for number in chosen.unique().tolist():
        hit = chosen == number
        rows = hit.any(dim=1)
        share = (weights * hit).sum(dim=1)[rows]
        out[rows] = out[rows] + share[:, None] * experts[number](x[rows])
    return out


def expected_by_unread(n_experts, k, n_tokens):
    check_tokens_and_experts(n_experts, k, n_tokens)
    unread = float(n_experts)
    for _ in range(n_tokens):
        unread *= (n_experts - k) / n_experts
    return n_experts - unread


def bytes_of_layers(size, experts_read, bytes_per_element=2):
    """Count the numbers of layers that need no memory."""
    check_read(size.n_experts, experts_read, bytes_per_element)
    C, D = size.d_model, size.head_dim
    with torch.device("meta"):
        layers = [nn.Linear(C, h * D) for h in (size.n_heads, size.n_kv_heads)]
        expert = sum(weight.numel() for weight in SwiGLU(C, size.d_expert).parameters())
        shared = 3 * nn.Linear(C, size.d_shared, bias=False).weight.numel() if size.d_shared else 0
        attention = 2 * sum(layer.weight.numel() for layer in layers)
        router = nn.Linear(C, size.n_experts, bias=False).weight.numel()
    layer = attention + router + shared + experts_read * expert
    return bytes_per_element * (size.n_layers * layer + size.vocab_size * C)


def bound_by_seconds(size, machine, bytes_per_element=2):
    """Compare the seconds of arithmetic and of memory."""
    used = bytes_of_shapes(size, size.k, 1)
    for n in count(1):
        n_read = size.n_experts - size.n_experts * (1 - size.k / size.n_experts) ** n
        n_bytes = bytes_of_shapes(size, n_read, bytes_per_element)
        if 2 * used * n / n_bytes >= machine.flops_per_second / machine.bytes_per_second:
            return n


# --- by lists: a loop over tokens that fills a dictionary -----------------------------------------


def route_by_lists(logits, k):
    check_routing(logits, k)
    chosen = torch.tensor(
        [
            sorted(sorted(range(len(row)), key=row.__getitem__)[-k:])
            for row in logits.double().tolist()
        ],
        device=logits.device,
    )
    picked = logits.gather(1, chosen)
    raised = (picked - picked.max(dim=1, keepdim=True).values).exp()
    return chosen, raised / raised.sum(dim=1, keepdim=True)


def grouped_by_dictionary(x, experts, chosen, weights):
    check_experts(x, experts, chosen, weights)
    groups = {}
    for row, numbers in enumerate(chosen.tolist()):
        for slot, number in enumerate(numbers):
            groups.setdefault(number, []).append((row, slot))
    rows_of_output = [torch.zeros_like(row) for row in x]
    for number, places in groups.items():
        given = experts[number](torch.stack([x[row] for row, _ in places]))
        for (row, slot), output in zip(places, given, strict=True):
            rows_of_output[row] = rows_of_output[row] + weights[row, slot] * output
    return torch.stack(rows_of_output)


def expected_by_logarithm(n_experts, k, n_tokens):
    check_tokens_and_experts(n_experts, k, n_tokens)
    if k == n_experts or n_tokens == 0:
        return float(k) if n_tokens else 0.0
    return -n_experts * math.expm1(n_tokens * math.log1p(-k / n_experts))


# --- one-hot: every pair in one tensor of zeros and ones ------------------------------------------


def route_by_logarithms(logits, k):
    check_routing(logits, k)
    largest, chosen = torch.sort(logits, dim=-1, descending=True)
    return chosen[:, :k].clone(), largest[:, :k].log_softmax(dim=-1).exp()


def grouped_by_one_hot(x, experts, chosen, weights):
    check_experts(x, experts, chosen, weights)
    hot = F.one_hot(chosen, len(experts)).to(x.dtype)  # (n, k, N)
    share = torch.einsum("nk,nke->ne", weights, hot)
    out = x.new_zeros(x.shape)
    for number, expert in enumerate(experts):
        rows = hot[:, :, number].sum(dim=1).nonzero().squeeze(1)
        if rows.numel() == 0:
            continue
        gathered = torch.index_select(x, 0, rows)
        out = out.index_add(0, rows, expert(gathered) * share[rows, number].reshape(-1, 1))
    return out


# --- strong first: the pairs in the order of their weights, a step at a time ----------------------


def route_by_striking_out(logits, k):
    check_routing(logits, k)
    left, picks, rows = logits.clone(), [], torch.arange(len(logits), device=logits.device)
    for _ in range(k):
        picks.append(left.argmax(dim=1))
        left[rows, picks[-1]] = -math.inf
    chosen = torch.stack(picks, dim=1)
    return chosen, torch.softmax(logits[rows[:, None], chosen], dim=1)


def grouped_backwards(x, experts, chosen, weights):
    """From the last expert to the first; the rows of a group the other way round."""
    check_experts(x, experts, chosen, weights)
    out = x * 0
    for number in range(len(experts) - 1, -1, -1):
        rows, slots = (chosen == number).nonzero(as_tuple=True)
        if rows.shape[0] == 0:
            continue
        rows, slots = rows.flip(0), slots.flip(0)
        out[rows] += torch.mul(experts[number](x[rows]), weights[rows, slots][:, None])
    return out


VARIANTS = [
    Variant(
        "sorted",
        {
            "route": route_by_sorting,
            "moe_grouped": grouped_by_sorting,
            "expected_experts": expected_step_by_step,
            "step_bytes": bytes_of_shapes,
            "compute_bound_from": bound_by_halving,
        },
    ),
    Variant(
        "masks",
        {
            "route": route_by_mask,
            "moe_grouped": grouped_by_mask,
            "expected_experts": expected_by_unread,
            "step_bytes": bytes_of_layers,
            "compute_bound_from": bound_by_seconds,
        },
    ),
    Variant(
        "lists",
        {
            "route": route_by_lists,
            "moe_grouped": grouped_by_dictionary,
            "expected_experts": expected_by_logarithm,
        },
    ),
    Variant("one-hot", {"route": route_by_logarithms, "moe_grouped": grouped_by_one_hot}),
    Variant("backwards", {"route": route_by_striking_out, "moe_grouped": grouped_backwards}),
]
