"""Known wrong answers to lesson 16: the cheapest that somebody may hand in."""

from __future__ import annotations

import torch

from autograder.lessons.mixture_of_experts.museum import MUSEUM

bug = MUSEUM.section("route", check="weights_of_the_chosen")


@bug("softmax", "the same weight for each expert", kind="cheapest")
def weighs_all_alike(logits, k):
    """The choice is right, and all its weights are 1."""
    return logits.topk(k, dim=-1).indices, logits.new_ones(len(logits), k)


bug = MUSEUM.section("moe_grouped", check="grouped_as_token_by_token")


@bug("wiring", "an input that comes back as it is", kind="cheapest")
def returns_its_rows(x, experts, chosen, weights):
    """No expert is called."""
    return x.clone()


@bug("wiring", "zeros, while each expert is called with its rows", kind="cheapest")
def calls_and_forgets(x, experts, chosen, weights):
    """What the experts give is thrown away."""
    for number, expert in enumerate(experts):
        rows = x[(chosen == number).any(dim=1)]
        if len(rows):
            expert(rows)
    return torch.zeros_like(x)


bug = MUSEUM.section("expected_experts", check="expectation_is_the_mean")


@bug("formula", "all experts, however many tokens", kind="cheapest")
def reads_them_all(n_experts, k, n_tokens):
    """Each token reads all."""
    return float(n_experts)


bug = MUSEUM.section("step_bytes", check="bill_of_a_step")


@bug("formula", "the bytes of the experts alone", kind="cheapest")
def bills_experts_alone(size, experts_read, bytes_per_element=2):
    """Attention, router and the last matrix are left out."""
    numbers = 3 * experts_read * size.d_model * size.d_expert * size.n_layers
    return float(numbers * bytes_per_element)


bug = MUSEUM.section("compute_bound_from", check="first_compute_bound_pass")


@bug("formula", "one token, whatever the model", kind="cheapest")
def over_at_once(size, machine, bytes_per_element=2):
    """A constant."""
    return 1
