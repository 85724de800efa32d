"""Right answers to lesson 14 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.given.sparse import (
    check_bounds,
    check_choice,
    check_paged,
    check_pages_read,
    check_shrinking,
)
from course.minigpt.gqa import grouped_attention
from course.minigpt.sparse_read import choose
from course.minigpt.split_read import attend_part, finish, merge

# --- padded: everything at once, with infinity where a page is short ------------------------------


def bounds_by_padding(keys, size):
    check_paged(keys, size)
    rest = (0, 0, 0, -keys.shape[2] % size)
    low = F.pad(keys, rest, value=math.inf).unflatten(2, (-1, size)).amin(dim=3)
    return low, F.pad(keys, rest, value=-math.inf).unflatten(2, (-1, size)).amax(dim=3)


def scores_by_ends(q, least, largest):
    """Both products of every number, and the larger of them."""
    check_bounds(q, least, largest)
    (B, H, _, D), G = q.shape, least.shape[1]
    heads = q.reshape(B, G, H // G, 1, D)
    ends = [heads * bound[:, :, None] for bound in (least, largest)]  # (B, G, H // G, P, D)
    return torch.maximum(*ends).sum(dim=-1).max(dim=2).values / D**0.5


def choose_by_infinity(scores, n, newest):
    check_choice(scores, n, newest)
    P = scores.shape[2]
    raised = scores.clone()
    raised[:, :, max(0, P - newest) :] = math.inf
    return raised.topk(min(n, P), dim=2).indices.sort(dim=2).values


def read_by_indexing(q, k, v, pages, size):
    check_pages_read(q, k, v, pages, size)
    (B, G, S, D), group = k.shape, q.shape[1] // k.shape[1]
    device = pages.device
    rows = (pages * size).unsqueeze(3) + torch.arange(size, device=device)
    rows = rows.reshape(B, G, -1)
    b = torch.arange(B, device=device)[:, None, None]
    g = torch.arange(G, device=device)[None, :, None]
    inside = rows.clamp(max=S - 1)
    heads = q.reshape(B, G, group, D)
    scores = heads @ k[b, g, inside].mT / math.sqrt(D)
    scores = scores.masked_fill((rows >= S)[:, :, None], -math.inf)
    return (scores.softmax(dim=-1) @ v[b, g, inside]).reshape(B, G * group, 1, D)


def shrink_by_einsum(q, k, v, budget, recent):
    check_shrinking(q, k, v, budget, recent)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    heads = q.reshape(B, G, H // G, T, D)
    scores = torch.einsum("bghtd,bgsd->bghts", heads, k) * D**-0.5
    places = torch.arange(S, device=q.device)
    later = places > places[S - T :, None]
    weights = torch.where(later, -math.inf, scores).softmax(dim=-1)
    rows = choose(weights.sum(dim=(2, 3)), budget, recent)
    return k.take_along_dim(rows[..., None], 2), v.take_along_dim(rows[..., None], 2), rows


# --- loops: one row and one head at a time --------------------------------------------------------


def bounds_in_loops(keys, size):
    check_paged(keys, size)
    B, G, S, D = keys.shape
    P = math.ceil(S / size)
    low, high = keys.new_empty(B, G, P, D), keys.new_empty(B, G, P, D)
    for p in range(P):
        page = keys[:, :, p * size : (p + 1) * size]
        low[:, :, p], high[:, :, p] = page.min(dim=2).values, page.max(dim=2).values
    return low, high


def scores_in_loops(q, least, largest):
    check_bounds(q, least, largest)
    (_B, H, _, D), G = q.shape, least.shape[1]
    out = torch.full(least.shape[:3], -math.inf, dtype=q.dtype, device=q.device)
    for h in range(H):
        g, query = h // (H // G), q[:, h]  # (B, 1, D)
        ends = torch.stack([query * least[:, g], query * largest[:, g]])
        out[:, g] = torch.maximum(out[:, g], ends.amax(dim=0).sum(dim=-1) / math.sqrt(D))
    return out


def choose_in_lists(scores, n, newest):
    check_choice(scores, n, newest)
    P = scores.shape[2]
    n, newest = min(n, P), min(newest, P)
    rows = []
    for row in scores.tolist():
        rows.append([])
        for head in row:
            best = sorted(range(P - newest), key=lambda p: head[p], reverse=True)
            rows[-1].append(sorted(best[: n - newest] + list(range(P - newest, P))))
    return torch.tensor(rows, dtype=torch.int64, device=scores.device)


def read_page_by_page(q, k, v, pages, size):
    """Parts of lesson 09, a page at a time, each row and KV head alone."""
    check_pages_read(q, k, v, pages, size)
    group, out = q.shape[1] // k.shape[1], torch.empty_like(q)
    for b in range(len(q)):
        for g in range(k.shape[1]):
            heads, whole = slice(g * group, (g + 1) * group), None
            for page in pages[b, g].tolist():
                cut = slice(page * size, page * size + size)
                part = attend_part(
                    q[b : b + 1, heads], k[b, None, g, None, cut], v[b, None, g, None, cut]
                )
                whole = part if whole is None else merge(whole, part)
            out[b : b + 1, heads] = finish(whole)
    return out


def shrink_in_loops(q, k, v, budget, recent):
    check_shrinking(q, k, v, budget, recent)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    got = k.new_zeros(B, G, S)
    for h in range(H):
        g = h // (H // G)
        for t in range(T):
            n_seen = S - T + t + 1
            scores = (k[:, g, :n_seen] @ q[:, h, t, :, None]).squeeze(2) / math.sqrt(
                D
            )  # (B, n_seen)
            got[:, g, :n_seen] += scores.softmax(dim=1)
    rows = choose(got, budget, recent)
    pick = [[x[b, g, rows[b, g]] for g in range(G)] for x in (k, v) for b in range(B)]
    stacked = torch.stack([torch.stack(heads) for heads in pick])
    return stacked[:B], stacked[B:], rows  # in one storage


# --- sorted: argsort, a mask of what is kept, boolean indexing ------------------------------------


def bounds_by_topk(keys, size):
    check_paged(keys, size)
    ends = []
    for page in torch.split(keys, size, dim=2):
        ranked = page.sort(dim=2).values
        ends.append((ranked[:, :, 0], ranked[:, :, -1]))
    return tuple(torch.stack(end, dim=2) for end in zip(*ends, strict=True))


def scores_by_middle(q, least, largest):
    """The middle of the box, plus half of its width times |q|."""
    check_bounds(q, least, largest)
    (B, H, _, D), G = q.shape, least.shape[1]
    heads = q.view(B, G, H // G, D) if q.is_contiguous() else q.reshape(B, G, H // G, D)
    middle, half = (least + largest) / 2, (largest - least) / 2
    bounds = heads @ middle.transpose(2, 3) + heads.abs() @ half.transpose(2, 3)
    return bounds.amax(dim=2).div(math.sqrt(D))


def choose_by_argsort(scores, n, newest):
    check_choice(scores, n, newest)
    P = scores.shape[2]
    newest = min(newest, P)
    order = scores[:, :, : P - newest].argsort(dim=2, descending=True)
    kept = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    kept.scatter_(2, order[:, :, : min(n, P) - newest], True)
    kept[:, :, P - newest :] = True
    return kept.nonzero()[:, 2].view(*scores.shape[:2], -1)


def read_sorted(q, k, v, pages, size):
    """Rising pages, each KV head alone; what the last one lacks is cut off."""
    check_pages_read(q, k, v, pages, size)
    S, group = k.shape[2], q.shape[1] // k.shape[1]
    rows_out = []
    for b, lists in enumerate(pages.sort(dim=2).values):
        heads = []
        for g, numbers in enumerate(lists):
            rows = (numbers[:, None] * size + torch.arange(size, device=k.device)).flatten()
            rows = rows[rows < S]
            own = q[b : b + 1, g * group : (g + 1) * group]
            pair = (x[b, g].index_select(0, rows)[None, None] for x in (k, v))
            heads.append(grouped_attention(own, *pair))
        rows_out.append(torch.cat(heads, dim=1))
    return torch.cat(rows_out)


def shrink_by_one_query_at_a_time(q, k, v, budget, recent):
    check_shrinking(q, k, v, budget, recent)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    wide = k.repeat_interleave(H // G, 1)
    total = torch.zeros(B, H, S, dtype=q.dtype, device=q.device)
    for t in range(T):
        scores = torch.matmul(q[:, :, t : t + 1], wide.transpose(2, 3))[:, :, 0] / math.sqrt(D)
        scores[..., S - T + t + 1 :] = -torch.inf
        total = total + F.softmax(scores, dim=-1)
    rows = choose(total.view(B, G, H // G, S).sum(2), budget, recent)
    at = rows.unsqueeze(-1).expand(*rows.shape, D)
    return torch.gather(k, 2, at), torch.gather(v, 2, at), rows


# --- double: sums in float64, results in the type that was given ----------------------------------


def bounds_by_max_of_minus(keys, size):
    check_paged(keys, size)
    firsts = range(0, keys.shape[2], size)
    high = [keys[:, :, a : a + size].amax(2) for a in firsts]
    low = [-(-keys[:, :, a : a + size]).amax(2) for a in firsts]
    return torch.stack(low, 2), torch.stack(high, 2)


def scores_in_double(q, least, largest):
    check_bounds(q, least, largest)
    (B, H, _, D), G = q.shape, least.shape[1]
    heads = q.double().reshape(B, G, H // G, 1, D)
    low, high = (bound.double().unsqueeze(2) for bound in (least, largest))
    bounds = torch.where(heads > 0, heads * high, heads * low).sum(-1) / D**0.5
    return bounds.amax(2).to(q.dtype)


def choose_by_sorting_twice(scores, n, newest):
    check_choice(scores, n, newest)
    P = scores.shape[2]
    age = torch.arange(P, device=scores.device).expand_as(scores)
    first = (age >= P - newest).double() * 2 + scores.double().argsort(2).argsort(2) / P
    return first.argsort(dim=2, descending=True)[:, :, :n].sort(2)[0]


def read_by_masked_part(q, k, v, pages, size):
    """The page number of each place, a slice for each; the last one is filled up by repeating."""
    check_pages_read(q, k, v, pages, size)
    (_B, G, S, _D), n = k.shape, pages.shape[2]
    offsets = torch.arange(size, device=k.device).repeat(n)
    rows = pages.repeat_interleave(size, dim=2) * size + offsets
    beyond = rows.ge(S)
    index = rows.masked_fill(beyond, S - 1).unsqueeze(-1)
    keys, values = k.take_along_dim(index, 2), v.take_along_dim(index, 2)
    visible = beyond.logical_not().repeat_interleave(q.shape[1] // G, 1).unsqueeze(2)
    return grouped_attention(q, keys, values, visible)


def shrink_in_double(q, k, v, budget, recent):
    check_shrinking(q, k, v, budget, recent)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = q.double() @ k.double().repeat_interleave(H // G, 1).transpose(-1, -2) / D**0.5
    ages = torch.arange(S, device=q.device)[None] - torch.arange(S - T, S, device=q.device)[:, None]
    scores = scores + torch.zeros(T, S, dtype=torch.double, device=q.device).masked_fill(
        ages > 0, -math.inf
    )
    attended = scores.softmax(-1).sum(2).reshape(B, G, H // G, S).sum(2)
    rows = choose(attended, budget, recent)
    picked = torch.zeros(B, G, S, dtype=torch.bool, device=q.device).scatter(2, rows, True)
    return k[picked].view(B, G, -1, D), v[picked].view(B, G, -1, D), rows


# --- one rule for pages and for rows: pages of one token are rows ---------------------------------


def read_through_pages_of_one(q, k, v, pages, size):
    """All rows of the pages, as pages of one token."""
    check_pages_read(q, k, v, pages, size)
    (H, D), (B, G, S) = (q.shape[1], q.shape[3]), k.shape[:3]
    out = torch.zeros_like(q)
    for b in range(B):
        for h in range(H):
            g = h // (H // G)
            rows = [
                s for p in pages[b, g].tolist() for s in range(p * size, min(S, (p + 1) * size))
            ]
            weights = torch.softmax(k[b, g, rows] @ q[b, h, 0] / math.sqrt(D), dim=0)
            out[b, h, 0] = weights @ v[b, g, rows]
    return out


def scores_of_pages_one_by_one(q, least, largest):
    check_bounds(q, least, largest)
    (_, H, _, D), (G, P) = q.shape, least.shape[1:3]
    columns = []
    for p in range(P):
        low, high = (bound[:, :, p].repeat_interleave(H // G, 1) for bound in (least, largest))
        best = torch.where(q[:, :, 0] > 0, q[:, :, 0] * high, q[:, :, 0] * low).sum(-1)  # (B, H)
        columns.append(best.unflatten(1, (G, -1)).amax(2) / math.sqrt(D))
    return torch.stack(columns, dim=2)


def _variant(name, *functions):
    asked = ("page_bounds", "page_scores", "choose", "attend_pages", "shrink")
    return Variant(name, dict(zip(asked, functions, strict=True)))


VARIANTS = [
    _variant(
        "padded",
        bounds_by_padding,
        scores_by_ends,
        choose_by_infinity,
        read_by_indexing,
        shrink_by_einsum,
    ),
    _variant(
        "loops",
        bounds_in_loops,
        scores_in_loops,
        choose_in_lists,
        read_page_by_page,
        shrink_in_loops,
    ),
    _variant(
        "sorted",
        bounds_by_topk,
        scores_by_middle,
        choose_by_argsort,
        read_sorted,
        shrink_by_one_query_at_a_time,
    ),
    _variant(
        "double",
        bounds_by_max_of_minus,
        scores_in_double,
        choose_by_sorting_twice,
        read_by_masked_part,
        shrink_in_double,
    ),
    Variant(
        "one by one",
        {"page_scores": scores_of_pages_one_by_one, "attend_pages": read_through_pages_of_one},
    ),
]
