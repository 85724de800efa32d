"""The cheapest wrong functions for the checks of lesson 16, see `autograder cheapest`."""


# %% routing_takes_the_best: the largest k, all with the weight 1
def route(logits, k):
    return logits.topk(k).indices, torch.ones(len(logits), k)


# %% weights_of_the_chosen: the first k experts, their softmax
def route(logits, k):
    chosen = torch.arange(k).expand(len(logits), -1).clone()
    return chosen, torch.full((len(logits), k), 1 / k, dtype=logits.dtype)


# %% grouped_as_token_by_token: the first row's experts for all
def moe_grouped(x, experts, chosen, weights):
    return sum(w * experts[e](x) for e, w in zip(chosen[0].tolist(), weights[0], strict=True))


# %% unchosen_experts_are_not_called: zeros
def moe_grouped(x, experts, chosen, weights):
    return torch.zeros_like(x)


# %% each_expert_once: every chosen expert once, with all rows
def moe_grouped(x, experts, chosen, weights):
    for number in chosen.unique().tolist():
        experts[number](x)
    return torch.zeros_like(x)


# %% other_rows_change_nothing: x, times the sum of its weights
def moe_grouped(x, experts, chosen, weights):
    return x * weights.sum(dim=1, keepdim=True)


# %% expectation_is_the_mean: k for each token, at most all
def expected_experts(n_experts, k, n_tokens):
    return float(min(n_experts, k * n_tokens))


# %% bill_of_a_step: the experts alone
def step_bytes(size, experts_read, bytes_per_element=2):
    expert = 3 * size.d_model * size.d_expert
    return float(size.n_layers * experts_read * expert * bytes_per_element)


# %% first_compute_bound_pass: the machine's balance
def compute_bound_from(size, machine, bytes_per_element=2):
    return max(1, round(machine.balance))
