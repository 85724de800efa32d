"""The cheapest wrong functions for the checks of lesson 09, see `autograder cheapest`."""


# %% parts_say_their_sums: PyTorch's attention, with a top of 0 and a total of 1
def attend_part(q, k, v, mask=None):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    return Part(out, torch.zeros_like(out[..., :1]), torch.ones_like(out[..., :1]))


# %% any_cut_any_order: sums without fading
def merge(a, b):
    return Part(a.out + b.out, torch.maximum(a.top, b.top), a.total + b.total)


def finish(part):
    return part.out / part.total


# %% far_apart_scores: the part with the higher top alone
def merge(a, b):
    high = a.top > b.top
    return Part(*(torch.where(high, x, y) for x, y in zip(a, b, strict=True)))


def finish(part):
    return part.out / part.total


# %% inputs_stay: sums without fading
def merge(a, b):
    return Part(a.out + b.out, torch.maximum(a.top, b.top), a.total + b.total)


def finish(part):
    return part.out / part.total


# %% parts_nobody_sees: all keys as one part
def attend_in_parts(q, k, v, size, mask=None):
    return finish(attend_part(q, k, v, mask))


# %% nothing_large_is_made: PyTorch's attention to all keys at once
def attend_in_parts(q, k, v, size, mask=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


# %% blocks_where_they_lie: the given tiles
from course.fast.paged_tiles import attend_tiles, make_scratch


def attend_blocks(q, keys, values, table, length):
    scratch = make_scratch(keys, 1)
    return attend_tiles(q, keys, values, table, length, scratch, attend_part, merge, finish)


# %% prefix_is_read_once: PyTorch's attention to a prefix that is expanded
def attend_shared(q, prefix_k, prefix_v, own_k, own_v):
    k, v = (
        torch.cat([prefix.expand(len(q), -1, -1, -1), own], dim=2)
        for prefix, own in ((prefix_k, own_k), (prefix_v, own_v))
    )
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
