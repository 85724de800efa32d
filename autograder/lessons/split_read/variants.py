"""Right answers to lesson 09 in other styles: every check must pass them."""

from __future__ import annotations

import functools
import itertools
import math

import torch

from autograder.lessons.exhibits import Variant
from course.given.parts import Part, check_blocks, check_cut, check_pair, check_part, check_shared
from course.minigpt.split_read import attend_part, finish, merge
from course.model.bounds import check_grouped

# --- einsum, and where() for who sees nothing


def part_by_einsum(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = torch.einsum("bgrtd,bgsd->bgrts", q.reshape(B, G, H // G, T, D), k) * D**-0.5
    if mask is not None:
        allowed = mask.expand(B, H, T, S).reshape(B, G, H // G, T, S)
        scores = torch.where(allowed, scores, -torch.inf)
    top = scores.max(dim=-1, keepdim=True).values
    weights = torch.exp(scores - torch.where(top == -torch.inf, 0.0, top))
    out = torch.einsum("bgrts,bgsd->bgrtd", weights, v)
    total = weights.sum(-1, keepdim=True)
    return Part(*(x.reshape(B, H, T, -1) for x in (out, top, total)))


def merge_by_where(a, b):
    check_pair(a, b)
    top = torch.where(a.top > b.top, a.top, b.top)
    down = [torch.where(p.top == -math.inf, 0.0, torch.exp(p.top - top)) for p in (a, b)]
    return Part(
        out=sum(p.out * w for p, w in zip((a, b), down, strict=True)),
        top=top,
        total=sum(p.total * w for p, w in zip((a, b), down, strict=True)),
    )


def finish_by_reciprocal(part):
    check_part(part)
    return part.out * part.total.reciprocal()


def in_parts_by_reduce(q, k, v, size, mask=None):
    check_cut(q, k, v, size, mask)
    cuts = [slice(i, i + size) for i in range(0, k.shape[2], size)]
    parts = (
        attend_part(q, k[:, :, c], v[:, :, c], None if mask is None else mask[..., c]) for c in cuts
    )
    return finish(functools.reduce(merge, parts))


def blocks_by_reduce(q, keys, values, table, length):
    check_blocks(q, keys, values, table, length)
    size = keys.shape[2]
    left = [min(size, length - i) for i in range(0, length, size)]
    return finish(
        functools.reduce(
            merge,
            (
                attend_part(q, keys[b : b + 1, :, :n], values[b : b + 1, :, :n])
                for b, n in zip(table, left, strict=False)
            ),
        )
    )


def shared_by_permute(q, prefix_k, prefix_v, own_k, own_v):
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    far = attend_part(q.permute(2, 1, 0, 3).contiguous(), prefix_k, prefix_v)
    far = Part(*(x.permute(2, 1, 0, 3).contiguous() for x in far))
    return finish(merge(attend_part(q, own_k, own_v), far))


# --- logsumexp and softmax


def part_by_softmax(q, k, v, mask=None):
    """PyTorch's softmax, multiplied by the total again."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = ((q * D**-0.5).reshape(B, G, -1, D) @ k.mT).view(B, H, T, S)
    if mask is not None:
        scores.masked_fill_(mask.logical_not(), -math.inf)
    top = scores.amax(-1, True)
    total = (scores.logsumexp(-1, True) - top).exp().nan_to_num(0.0)
    shares = scores.softmax(-1).nan_to_num(0.0) * total
    return Part((shares.view(B, G, -1, S) @ v).view(B, H, T, D), top, total)


def merge_by_stacking(a, b):
    check_pair(a, b)
    tops = torch.stack([a.top, b.top])
    top = tops.amax(0)
    weights = (tops - top).nan_to_num(nan=0.0, neginf=-math.inf).exp()
    total = (torch.stack([a.total, b.total]) * weights).sum(0)
    return Part((torch.stack([a.out, b.out]) * weights).sum(0), top, total)


def finish_by_div(part):
    check_part(part)
    out, _, total = part
    return torch.div(out, total)


def in_parts_by_stacking(q, k, v, size, mask=None):
    """All parts are kept, and weighed at the end by their tops."""
    check_cut(q, k, v, size, mask)
    masks = itertools.repeat(None) if mask is None else mask.split(size, dim=-1)
    pairs = zip(k.split(size, dim=2), v.split(size, dim=2), masks, strict=False)
    out, top, total = map(torch.stack, zip(*(attend_part(q, *p) for p in pairs), strict=True))
    weights = (top - top.amax(0)).exp()
    return (weights * out).sum(0) / (weights * total).sum(0)


def blocks_by_stacking(q, keys, values, table, length):
    check_blocks(q, keys, values, table, length)
    size = keys.shape[2]
    parts, done = [], 0
    for number in table:
        held = min(size, length - done)
        if held <= 0:
            break
        k, v = keys[number, :, :held], values[number, :, :held]
        parts.append(attend_part(q, k.unsqueeze(0), v.unsqueeze(0)))
        done += held
    out, top, total = (torch.cat(same, dim=2) for same in zip(*parts, strict=True))
    out, top, total = (x.unflatten(2, (len(parts), -1)) for x in (out, top, total))
    weights = (top - top.amax(2, keepdim=True)).exp()
    return (weights * out).sum(2) / (weights * total).sum(2)


def shared_by_swapaxes(q, prefix_k, prefix_v, own_k, own_v):
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    out, top, total = attend_part(q.swapaxes(0, 2), prefix_k, prefix_v)
    own = attend_part(q, own_k, own_v)
    together = merge(own, Part(out.swapaxes(0, 2), top.swapaxes(0, 2), total.swapaxes(0, 2)))
    return together.out / together.total


# --- head by head, part by part in a tree


def part_head_by_head(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    allowed = None if mask is None else mask.expand(B, H, T, S)
    out, top, total = torch.zeros_like(q), q.new_empty(B, H, T, 1), q.new_empty(B, H, T, 1)
    for h in range(H):
        g = h // (H // G)
        scores = q[:, h] @ k[:, g].mT / math.sqrt(D)  # (B, T, S)
        if allowed is not None:
            scores[~allowed[:, h]] = -torch.inf
        top[:, h] = scores.amax(-1, keepdim=True)
        lift = top[:, h].masked_fill(top[:, h].isneginf(), 0)
        scores.sub_(lift).exp_()
        total[:, h] = scores.sum(-1, keepdim=True)
        out[:, h] = scores @ v[:, g]
    return Part(out, top, total)


def merge_by_copies(a, b):
    """In place, on tensors of its own."""
    check_pair(a, b)
    out, total, top = a.out.clone(), a.total.clone(), a.top.maximum(b.top)
    safe = top.nan_to_num(neginf=0.0)
    down_a, down_b = torch.exp(a.top - safe), torch.exp(b.top - safe)
    out.mul_(down_a).addcmul_(b.out, down_b)
    total.mul_(down_a).addcmul_(b.total, down_b)
    return Part(out, top, total)


def finish_out_of_place(part):
    check_part(part)
    return part.out.clone().div_(part.total)


def in_parts_by_halves(q, k, v, size, mask=None):
    """A binary tree over the parts."""
    check_cut(q, k, v, size, mask)

    def read(first, last):
        if last - first <= size:
            cut = slice(first, last)
            seen = None if mask is None else mask[..., cut]
            return attend_part(q, k[:, :, cut], v[:, :, cut], seen)
        middle = first + max(1, (last - first) // size // 2) * size
        return merge(read(first, middle), read(middle, last))

    return finish(read(0, k.shape[2]))


def blocks_backwards(q, keys, values, table, length):
    check_blocks(q, keys, values, table, length)
    size = keys.shape[2]
    last = (length - 1) // size
    held = length - last * size
    number = table[last]
    whole = attend_part(q, keys[number][None][:, :, :held], values[number][None][:, :, :held])
    for number in reversed(table[:last]):
        whole = merge(whole, attend_part(q, keys[number][None], values[number][None]))
    return finish(whole)


def shared_in_tiles(q, prefix_k, prefix_v, own_k, own_v):
    """The prefix in parts of 64 keys, for all chats at once."""
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    turned, whole = q.transpose(0, 2), None
    for k, v in zip(prefix_k.split(64, 2), prefix_v.split(64, 2), strict=True):
        part = attend_part(turned, k, v)
        whole = part if whole is None else merge(whole, part)
    back = Part(*(x.transpose(0, 2) for x in whole))
    return finish(merge(back, attend_part(q, own_k, own_v)))


# --- scores in float64, everything from the definition


def part_in_double(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    grouped = q.unflatten(1, (G, H // G)).flatten(2, 3)
    scores = torch.matmul(grouped, k.transpose(2, 3)).double().div_(D**0.5).view(B, H, T, S)
    if mask is not None:
        scores = scores + q.new_zeros(mask.shape).masked_fill(mask.logical_not(), -math.inf)
    top = scores.amax(dim=3, keepdim=True)
    e = torch.where(scores == -math.inf, 0.0, torch.exp(scores - top))
    total = e.sum(dim=3, keepdim=True)
    out = torch.matmul(e.to(v.dtype).view(B, G, -1, S), v).view(B, H, T, D)
    return Part(out, top.to(q.dtype), total.to(q.dtype))


def merge_by_difference(a, b):
    """One exponential: the higher part stays, the lower one fades by the difference of tops."""
    check_pair(a, b)
    down = (-(a.top - b.top).abs()).nan_to_num(0.0, neginf=-math.inf).exp()
    first = a.top >= b.top
    keep_a, keep_b = torch.where(first, 1, down), torch.where(first, down, 1)
    top = torch.where(first, a.top, b.top)
    return Part(keep_a * a.out + keep_b * b.out, top, keep_a * a.total + keep_b * b.total)


def finish_in_double(part):
    check_part(part)
    return (part.out.double() / part.total.double()).to(part.out.dtype)


def in_parts_while(q, k, v, size, mask=None):
    check_cut(q, k, v, size, mask)
    B, H, T, _ = q.shape
    one = q.new_zeros(B, H, T, 1)
    whole, done = Part(torch.zeros_like(q), one - math.inf, one), 0
    while done < k.shape[2]:
        n = min(size, k.shape[2] - done)
        seen = None if mask is None else mask.narrow(-1, done, n)
        whole = merge(whole, attend_part(q, k.narrow(2, done, n), v.narrow(2, done, n), seen))
        done += n
    return finish(whole)


def blocks_by_mask(q, keys, values, table, length):
    """The last block in full, its rest hidden."""
    check_blocks(q, keys, values, table, length)
    size, whole = keys.shape[2], None
    for place in range(math.ceil(length / size)):
        number = int(table[place])
        seen = torch.arange(place * size, (place + 1) * size, device=q.device) < length
        part = attend_part(q, keys[number : number + 1], values[number : number + 1], seen)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)


def shared_by_stacking(q, prefix_k, prefix_v, own_k, own_v):
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    queries = torch.stack([row.squeeze(1) for row in q], dim=1)[None]  # (1, H, B, D)
    far, near = attend_part(queries, prefix_k, prefix_v), attend_part(q, own_k, own_v)
    far = Part(*(torch.stack(x[0].unbind(1)).unsqueeze(2) for x in far))
    return finish(merge(near, far))


def _variant(name, *functions):
    asked = ("attend_part", "merge", "finish", "attend_in_parts", "attend_blocks", "attend_shared")
    return Variant(name, dict(zip(asked, functions, strict=True)))


VARIANTS = [
    _variant(
        "einsum",
        part_by_einsum,
        merge_by_where,
        finish_by_reciprocal,
        in_parts_by_reduce,
        blocks_by_reduce,
        shared_by_permute,
    ),
    _variant(
        "stacked",
        part_by_softmax,
        merge_by_stacking,
        finish_by_div,
        in_parts_by_stacking,
        blocks_by_stacking,
        shared_by_swapaxes,
    ),
    _variant(
        "loops",
        part_head_by_head,
        merge_by_copies,
        finish_out_of_place,
        in_parts_by_halves,
        blocks_backwards,
        shared_in_tiles,
    ),
    _variant(
        "double",
        part_in_double,
        merge_by_difference,
        finish_in_double,
        in_parts_while,
        blocks_by_mask,
        shared_by_stacking,
    ),
]
