"""The cheapest wrong functions for the checks of lesson 14, see `autograder cheapest`."""


# %% bounds_of_each_page: the bounds of all rows, for one page
def page_bounds(keys, size):
    return keys.amin(dim=2, keepdim=True), keys.amax(dim=2, keepdim=True)


# %% no_score_is_above: infinity
def page_scores(q, least, largest):
    return torch.full(least.shape[:3], float("inf"), dtype=q.dtype)


# %% bound_is_tight: the middle of the bounds
def page_scores(q, least, largest):
    heads = q.reshape(len(q), least.shape[1], -1, q.shape[3])
    return (heads @ ((least + largest) / 2).mT).amax(dim=2) / math.sqrt(q.shape[3])


# %% newest_and_best: the newest n
def choose(scores, n, newest):
    B, G, P = scores.shape
    return torch.arange(max(0, P - n), P).expand(B, G, -1).clone()


# %% chosen_pages_alone: PyTorch's attention to all rows
def attend_pages(q, k, v, pages, size):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


# %% the_rest_is_not_read: a mean of the first chosen row
def attend_pages(q, k, v, pages, size):
    at = (pages[:, :, :1] * size)[..., None].expand(-1, -1, -1, k.shape[3])
    return v.gather(2, at).repeat_interleave(q.shape[1] // k.shape[1], dim=1)


# %% kept_are_the_most_attended: the newest rows
def shrink(q, k, v, budget, recent):
    B, G, S, _D = k.shape
    rows = torch.arange(max(0, S - budget), S).expand(B, G, -1).clone()
    return k[:, :, -budget:].clone(), v[:, :, -budget:].clone(), rows


# %% freed: the newest rows
def shrink(q, k, v, budget, recent):
    B, G, S, _D = k.shape
    rows = torch.arange(max(0, S - budget), S).expand(B, G, -1).clone()
    return k[:, :, -budget:].clone(), v[:, :, -budget:].clone(), rows
