"""Right answers to lesson 04 in other styles: every check must pass them."""

from __future__ import annotations

import math
import statistics
from collections import deque
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from autograder.lessons.exhibits import Variant
from course.measure.latency import Latency, check_stamps
from course.minigpt.kv_cache import causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.prefill_and_decode import prefill
from course.model.bounds import check_prompts
from course.model.cache import CacheFull


def _refuse(model, prompt, cache, chunk_size):
    """Refuse what prefill must refuse, in other words than the lesson's."""
    model.check_tokens(prompt)
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size {chunk_size}")
    if cache.max_len - len(cache) < prompt.shape[1]:
        raise CacheFull("no room")


def _refuse_stream(model, prompt, n_new, cache):
    """Refuse what stream must refuse, in other words than the lesson's."""
    if not isinstance(n_new, int) or not 0 <= n_new <= model.config.max_seq_len:
        raise ValueError(f"n_new {n_new}")
    model.check_tokens(prompt)
    if n_new and cache.max_len - len(cache) < prompt.shape[1] + n_new - 1:
        raise CacheFull("no room")


def prefill_by_slices(model, prompt, cache, chunk_size=256):
    _refuse(model, prompt, cache, chunk_size)
    for begin in range(0, prompt.shape[1], chunk_size):
        last = forward_cached(model, prompt[:, begin : begin + chunk_size], cache)[:, -1, :]
    return last


def stream_by_feeding(model, prompt, n_new, cache, chunk_size=256):
    _refuse_stream(model, prompt, n_new, cache)
    feed = None
    for _ in range(n_new):
        if feed is None:
            logits = prefill(model, prompt, cache, chunk_size)
        else:
            logits = forward_cached(model, feed, cache)[:, -1]
        feed = logits.argmax(dim=-1, keepdim=True)
        yield feed.squeeze(1)


def prefill_by_while(model, prompt, cache, chunk_size=256):
    _refuse(model, prompt, cache, chunk_size)
    begin, done = len(cache), 0
    while done < prompt.shape[1]:
        length = min(chunk_size, prompt.shape[1] - done)
        out = forward_cached(model, prompt.narrow(1, done, length), cache)
        done = len(cache) - begin
    return out.select(1, out.shape[1] - 1)


def latency_in_plain_python(start, stamps):
    check_stamps(start, stamps)
    gaps = sorted(b - a for a, b in pairwise(stamps))
    if not gaps:
        return Latency(stamps[0] - start, None, None, None, None)

    def at(share):
        place = share * (len(gaps) - 1)
        low = math.floor(place)
        return gaps[low] + (place - low) * (gaps[math.ceil(place)] - gaps[low])

    decode = stamps[-1] - stamps[0]
    return Latency(stamps[0] - start, decode / len(gaps), at(0.5), at(0.99), len(gaps) / decode)


def prefill_by_recursion(model, prompt, cache, chunk_size=256):
    _refuse(model, prompt, cache, chunk_size)
    logits = forward_cached(model, prompt[:, :chunk_size], cache)
    if prompt.shape[1] > chunk_size:
        return prefill_by_recursion(model, prompt[:, chunk_size:], cache, chunk_size)
    return logits[:, -1]


def pad_by_cat(prompts, pad_id):
    check_prompts(prompts)
    T = max(map(len, prompts))
    rows = [torch.cat([p.new_full((T - len(p),), pad_id), p]) for p in prompts]
    return torch.stack(rows), prompts[0].new_tensor([T - len(p) for p in prompts])


def prefill_with_all_logits(model, prompt, cache, chunk_size=256):
    _refuse(model, prompt, cache, chunk_size)
    chunks = prompt.split(chunk_size, dim=1)
    return torch.cat([forward_cached(model, chunk, cache) for chunk in chunks], dim=1)[:, -1]


class Streaming:
    """An iterator that is no generator."""

    def __init__(self, model, prompt, n_new, cache, chunk_size):
        _refuse_stream(model, prompt, n_new, cache)
        self.model, self.feed, self.left, self.cache = model, prompt, n_new, cache
        self.size = chunk_size

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        token = prefill(self.model, self.feed, self.cache, self.size).argmax(dim=-1)
        self.feed = token[:, None]
        return token


def stream_by_class(model, prompt, n_new, cache, chunk_size=256):
    return Streaming(model, prompt, n_new, cache, chunk_size)


def latency_by_torch(start, stamps):
    check_stamps(start, stamps)
    times = torch.tensor(stamps, dtype=torch.float64)
    gaps = times[1:] - times[:-1]
    if not gaps.numel():
        return Latency(float(times[0]) - start, *[None] * 4)
    p50, p99 = gaps.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    return Latency(float(times[0] - start), gaps.mean().item(), p50, p99, 1 / gaps.mean().item())


def stream_by_map(model, prompt, n_new, cache, chunk_size=256):
    _refuse_stream(model, prompt, n_new, cache)
    state = {"feed": prompt}

    def step(_):
        logits = prefill(model, state["feed"], cache, chunk_size)
        state["feed"] = logits.topk(1, dim=-1).indices
        return state["feed"].reshape(-1)

    return map(step, range(n_new))


def latency_by_statistics(start, stamps):
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return Latency(stamps[0] - start, None, None, None, None)
    gaps = [late - early for early, late in pairwise(stamps)]
    p99 = gaps[0] if len(gaps) == 1 else statistics.quantiles(gaps, n=100, method="inclusive")[98]
    mean = statistics.fmean(gaps)
    return Latency(stamps[0] - start, mean, statistics.median(gaps), p99, 1 / mean)


def stream_by_yield_from(model, prompt, n_new, cache, chunk_size=256):
    _refuse_stream(model, prompt, n_new, cache)

    def steps(token, left):
        yield token
        if left:
            logits = forward_cached(model, token.reshape(-1, 1), cache)
            yield from steps(logits[:, -1].max(dim=-1).indices, left - 1)

    if n_new > 0:
        yield from steps(greedy_next(prefill(model, prompt, cache, chunk_size)), n_new - 1)


def latency_from_zero(start, stamps):
    check_stamps(start, stamps)
    times = np.asarray(stamps) - start
    if times.size == 1:
        return Latency(times[0], None, None, None, None)
    gaps = np.sort(times[1:] - times[:-1])
    places = np.array([0.5, 0.99]) * (gaps.size - 1)
    p50, p99 = np.interp(places, np.arange(gaps.size), gaps)
    return Latency(times[0], np.mean(gaps), p50, p99, (times.size - 1) / (times[-1] - times[0]))


def pad_by_functional(prompts, pad_id):
    check_prompts(prompts)
    T = max(prompt.shape[0] for prompt in prompts)
    n_pads = [T - prompt.shape[0] for prompt in prompts]
    rows = [F.pad(p, (n, 0), value=pad_id) for p, n in zip(prompts, n_pads, strict=True)]
    return torch.vstack(rows), prompts[0].new_tensor(n_pads)


def mask_by_loops(n_new, n_visible, n_pads):
    size = len(n_pads), 1, n_new, n_visible
    mask = torch.zeros(size, dtype=torch.bool, device=n_pads.device)
    for b, pads in enumerate(n_pads.tolist()):
        for t in range(n_new):
            own = n_visible - n_new + t
            for s in range(min(pads, own), own + 1):
                mask[b, 0, t, s] = s >= pads or own < pads
    return mask


def positions_by_loops(n_new, n_visible, n_pads):
    first = n_visible - n_new
    rows = [[max(first + t - pads, 0) for t in range(n_new)] for pads in n_pads.tolist()]
    return torch.tensor(rows, device=n_pads.device)


def pad_by_flipping(prompts, pad_id):
    check_prompts(prompts)
    turned = pad_sequence([p.flip(0) for p in prompts], batch_first=True, padding_value=pad_id)
    lengths = turned.new_tensor([len(p) for p in prompts])
    return turned.flip(1), turned.shape[1] - lengths


def mask_where_pads_see_everything(n_new, n_visible, n_pads):
    places = torch.arange(n_visible, device=n_pads.device).reshape(1, 1, 1, -1)
    own = places[..., n_visible - n_new :].transpose(2, 3)
    pads = n_pads.reshape(-1, 1, 1, 1)
    return torch.where(own < pads, True, (places <= own) & (places >= pads))


def positions_by_counting(n_new, n_visible, n_pads):
    own = torch.arange(n_visible, device=n_pads.device) >= n_pads[:, None]  # (B, S)
    return (own.cumsum(dim=1) - 1).clamp_min(0)[:, -n_new:]


def pad_by_lists(prompts, pad_id):
    check_prompts(prompts)
    rows = [prompt.tolist() for prompt in prompts]
    T = max(len(row) for row in rows)
    n_pads = [T - len(row) for row in rows]
    filled = [[pad_id] * n + row for n, row in zip(n_pads, rows, strict=True)]
    device = prompts[0].device
    return torch.tensor(filled, device=device), torch.tensor(n_pads, device=device)


def mask_where_pads_see_pads(n_new, n_visible, n_pads):
    places = torch.arange(n_visible, device=n_pads.device)
    pad = places[None] < n_pads[:, None]  # (B, S)
    same_kind = pad[:, -n_new:, None] == pad[:, None, :]  # (B, T, S)
    return (same_kind & causal_mask(n_new, n_visible, n_pads.device)).unsqueeze(1)


def positions_with_pads_at_one(n_new, n_visible, n_pads):
    places = torch.arange(n_visible, device=n_pads.device)
    positions = places.repeat(len(n_pads), 1) - n_pads.reshape(-1, 1)
    positions = positions.masked_fill(positions < 0, 1 if n_visible > 1 else 0)
    return positions[:, n_visible - n_new :]


def mask_by_stacking(n_new, n_visible, n_pads):
    rows = []
    for pads in n_pads.tolist():
        row = n_pads.new_ones(n_new, n_visible, dtype=torch.bool).tril(n_visible - n_new)
        row[:, :pads] = False
        row[~row.any(dim=1), 0] = True
        rows.append(row)
    return torch.stack(rows).unsqueeze(1)


def positions_by_relu(n_new, n_visible, n_pads):
    new = torch.arange(n_new, device=n_pads.device)
    return torch.relu(new[None, :] + (n_visible - n_new - n_pads)[:, None])


def prefill_by_reduce(model, prompt, cache, chunk_size=256):
    _refuse(model, prompt, cache, chunk_size)
    feed = partial(forward_cached, model, cache=cache)
    return deque(map(feed, prompt.split(chunk_size, dim=1)), maxlen=1).pop()[:, -1]


class Turns:
    """An iterator with slots, which looks at everything when it is first asked."""

    __slots__ = ("_feed", "_left", "_request")

    def __init__(self, *request):
        self._request, self._feed, self._left = request, None, None

    def __iter__(self):
        return self

    def __next__(self):
        model, prompt, n_new, cache, chunk_size = self._request
        if self._left is None:
            _refuse_stream(model, prompt, n_new, cache)
            self._left = n_new
        if self._left == 0:
            raise StopIteration
        first = self._feed is None
        logits = prefill(model, prompt if first else self._feed, cache, chunk_size)
        token = logits.topk(1).indices[:, 0]
        self._left, self._feed = self._left - 1, token.reshape(-1, 1)
        return token


def stream_by_slots(model, prompt, n_new, cache, chunk_size=256):
    return Turns(model, prompt, n_new, cache, chunk_size)


def stream_into_columns(model, prompt, n_new, cache, chunk_size=256):
    _refuse_stream(model, prompt, n_new, cache)
    written = torch.empty(prompt.shape[0], n_new, dtype=torch.int64)
    for turn in range(n_new):
        feed = written[:, turn - 1 : turn] if turn else prompt
        written[:, turn] = prefill(model, feed, cache, chunk_size).argmax(dim=-1)
        yield written[:, turn]


def stream_in_float64(model, prompt, n_new, cache, chunk_size=256):
    _refuse_stream(model, prompt, n_new, cache)

    def chosen(logits):
        return torch.from_numpy(logits.double().numpy().argmax(axis=-1))

    def tokens():
        if n_new:
            yield (token := chosen(prefill(model, prompt, cache, chunk_size)))
            for _ in range(1, n_new):
                yield (token := chosen(forward_cached(model, token[:, None], cache)[:, 0]))

    return tokens()


def latency_in_tensors(start, stamps):
    check_stamps(start, stamps)
    times = torch.tensor([start, *stamps], dtype=torch.float64).diff()
    if len(times) == 1:
        return Latency(times[0], None, None, None, None)
    gaps, p = times[1:], torch.tensor([0.5, 0.99], dtype=torch.float64)
    return Latency(times[0], gaps.mean(), *gaps.quantile(p), 1 / gaps.mean())


def pad_in_numpy(prompts, pad_id):
    check_prompts(prompts)
    T = max(map(len, prompts))
    filled = np.full((len(prompts), T), pad_id, dtype=np.int64)
    for row, prompt in zip(filled, prompts, strict=True):
        row[-len(prompt) :] = prompt
    return torch.from_numpy(filled), torch.from_numpy(T - np.array([*map(len, prompts)]))


def mask_in_numpy(n_new, n_visible, n_pads):
    own, place = np.ogrid[n_visible - n_new : n_visible, :n_visible]
    token = place >= n_pads.numpy().reshape(-1, 1, 1, 1)
    return torch.from_numpy(((place <= own) & token) | (place == own))


def positions_by_einsum(n_new, n_visible, n_pads):
    places = torch.arange(n_visible, device=n_pads.device)
    own = (places >= n_pads[:, None]).double()  # (B, S)
    before = (places[:, None] < places).double()
    return torch.einsum("bs,st->bt", own, before)[:, n_visible - n_new :].long()


def _ragged(pad, mask, positions):
    return {"pad_prompts": pad, "ragged_mask": mask, "ragged_positions": positions}


VARIANTS = [
    Variant("slices", {"prefill": prefill_by_slices, "stream": stream_by_feeding}),
    Variant("while", {"prefill": prefill_by_while, "latency_metrics": latency_in_plain_python}),
    Variant("recursion", {"prefill": prefill_by_recursion, "pad_prompts": pad_by_cat}),
    Variant("all_logits", {"prefill": prefill_with_all_logits}),
    Variant("class", {"stream": stream_by_class, "latency_metrics": latency_by_torch}),
    Variant("map", {"stream": stream_by_map, "latency_metrics": latency_by_statistics}),
    Variant("yield_from", {"stream": stream_by_yield_from, "latency_metrics": latency_from_zero}),
    Variant("loops", _ragged(pad_by_functional, mask_by_loops, positions_by_loops)),
    Variant(
        "pads_see_everything",
        _ragged(pad_by_flipping, mask_where_pads_see_everything, positions_by_counting),
    ),
    Variant(
        "pads_see_pads",
        _ragged(pad_by_lists, mask_where_pads_see_pads, positions_with_pads_at_one),
    ),
    Variant("reduce", {"prefill": prefill_by_reduce, "stream": stream_by_slots}),
    Variant("columns", {"stream": stream_into_columns, "latency_metrics": latency_in_tensors}),
    Variant("closures", {"stream": stream_in_float64}),
    Variant("numpy", _ragged(pad_in_numpy, mask_in_numpy, positions_by_einsum)),
    Variant("stacked", {"ragged_mask": mask_by_stacking, "ragged_positions": positions_by_relu}),
]
