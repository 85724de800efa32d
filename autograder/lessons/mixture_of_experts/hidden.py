"""The hidden checks of lesson 16: experts called token by token, and matrices counted one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from torch import nn

from course.checks import mixture_of_experts as visible
from course.checks.check import Challenge, by_name
from course.model.layers import SwiGLU


def mixed(case: Challenge) -> np.ndarray:
    """Return each row's experts, called for it alone, times their weights, (n, C) in float64."""
    dtype = getattr(torch, case["dtype"])

    def rounded(name: str) -> np.ndarray:
        return torch.tensor(case[name]).to(dtype).double().numpy()

    x, weights = rounded("x"), rounded("weights")
    matrices, offsets = rounded("matrices"), rounded("offsets")
    out = np.zeros_like(x)
    for row, slot in np.ndindex(*case["chosen"].shape):
        number = case["chosen"][row, slot]
        given = np.maximum(x[row] @ matrices[number], 0) + offsets[number]
        out[row] += weights[row, slot] * given
    return out


@cache
def mean_of_different(n_experts: int, k: int, n_tokens: int) -> float:
    """Follow the probabilities of how many experts were read, token by token, and return the mean."""
    chances = np.zeros(n_experts + 1)
    chances[0] = 1.0
    step = np.zeros((n_experts + 1, n_experts + 1))  # from how many experts to how many, by a token
    for read in range(n_experts + 1):
        for new in range(min(k, n_experts - read) + 1):
            step[read, read + new] = _hypergeometric(n_experts - read, n_experts, k, new)
    for _ in range(n_tokens):
        # Added in one order: matrix products add in another on each processor, which shows in the
        # last digit of what is recorded.
        chances = sum(chance * row for chance, row in zip(chances, step, strict=True))
    return math.fsum(chances * np.arange(n_experts + 1))


def _hypergeometric(unread: int, n_experts: int, k: int, new: int) -> float:
    """Return the probability that `new` of k different experts are among the unread ones."""
    ways = math.comb(unread, new) * math.comb(n_experts - unread, k - new)
    return ways / math.comb(n_experts, k)


matrix = partial(nn.Linear, bias=False)


@cache
def numbers(layer: Callable[..., nn.Module], *sizes: int) -> int:
    """Count the numbers of a layer that is made without memory."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in layer(*sizes).parameters())


def counted(size: list[int], n_read: float, width: int = 2) -> float:
    """Count the numbers of all layers that are read, and add them up."""
    V, L, C, H, G, D, f, N, _, shared = size
    always = sum(numbers(matrix, C, heads * D) for heads in (H, G, G))
    always += numbers(matrix, H * D, C) + numbers(matrix, C, N)
    always += numbers(SwiGLU, C, shared) if shared else 0
    head = numbers(matrix, C, V)
    return (L * (always + n_read * numbers(SwiGLU, C, f)) + head) * width


def least(size: list[int], rates: list[float], width: int = 2) -> int:
    """Walk from one token to the next, an expert's chance to be unread at a time."""
    N, k = size[7:9]
    always, unread, n = counted(size, 0, width), 1.0, 0
    experts, flops = counted(size, N, width) - always, 2 * counted(size, k, 1)
    while True:
        n, unread = n + 1, unread * (N - k) / N
        if n * flops * rates[1] >= rates[0] * (always + experts * (1 - unread)):
            return n


CHECKS = by_name(
    visible.routing_takes_the_best,
    visible.weights_of_the_chosen,
    visible.grouped_as_token_by_token.hidden(truth=mixed),
    visible.unchosen_experts_are_not_called.hidden(truth=mixed),
    visible.each_expert_once,
    visible.other_rows_change_nothing.hidden(truth=mixed),
    visible.expectation_is_the_mean.hidden(truth=mean_of_different),
    visible.bill_of_a_step.hidden(truth=counted),
    visible.first_compute_bound_pass.hidden(truth=least),
)
