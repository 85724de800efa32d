"""Right answers to lesson 08 in other styles: every check must pass them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.given.windowed import check_numbers, check_window, check_windowed_sizes
from course.minigpt.kv_cache import kv_cache_bytes
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block

# --- window_mask ---------------------------------------------------------------------------------


def mask_by_distance(own, places, window, n_sinks=0):
    check_numbers("own", own)
    check_numbers("places", places)
    check_window(window, n_sinks)
    distance = own[:, None] - places[None, :]
    return distance.ge(0) & (distance.lt(window) | places.lt(n_sinks))


def mask_pair_by_pair(own, places, window, n_sinks=0):
    check_window(window, n_sinks)

    def sees(i, j):
        return j <= i and (i - j < window or j < n_sinks)

    rows = [[sees(i, j) for j in places.tolist()] for i in own.tolist()]
    return own.new_tensor(rows, dtype=torch.bool).view(len(own), len(places))


def mask_in_numpy(own, places, window, n_sinks=0):
    check_window(window, n_sinks)
    i, j = np.meshgrid(own.numpy(), places.numpy(), indexing="ij")
    hidden = (j > i) | ((i - j >= window) & (j >= n_sinks))
    return torch.from_numpy(np.logical_not(hidden))


def mask_row_by_row(own, places, window, n_sinks=0):
    check_window(window, n_sinks)
    mask = own.new_zeros(len(own), len(places), dtype=torch.bool)
    for row, i in zip(mask, own, strict=True):
        row[(places > i - window) & (places <= i)] = True
        row[(places < n_sinks) & (places <= i)] = True
    return mask


# --- place_of ------------------------------------------------------------------------------------


def place_by_division(tokens, window, n_sinks=0):
    check_numbers("tokens", tokens)
    check_window(window, n_sinks)
    rounds = torch.div((tokens - n_sinks).clamp(min=0), window, rounding_mode="floor")
    return tokens - rounds * window


def place_one_by_one(tokens, window, n_sinks=0):
    check_window(window, n_sinks)
    places = [t if t < n_sinks else (t - n_sinks) % window + n_sinks for t in tokens.tolist()]
    return tokens.new_tensor(places)


def place_in_numpy(tokens, window, n_sinks=0):
    check_window(window, n_sinks)
    behind = np.maximum(tokens.numpy() - n_sinks, 0)
    return torch.from_numpy(np.minimum(tokens.numpy(), n_sinks) + np.mod(behind, window))


def place_by_mask(tokens, window, n_sinks=0):
    check_window(window, n_sinks)
    places, in_ring = tokens.clone(), tokens >= n_sinks
    places[in_ring] = torch.remainder(tokens[in_ring] - n_sinks, window) + n_sinks
    return places


# --- WindowedKVCache -----------------------------------------------------------------------------


class _Sizes:
    """What every cache here says of itself."""

    def __init__(
        self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32, device="cpu"
    ):
        check_windowed_sizes(config, batch, max_len, window, n_sinks)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.window, self.n_sinks, self.device = window, n_sinks, device
        self.length, self.pending = 0, {}
        self.room = min(max_len, n_sinks + window)

    def __len__(self):
        return self.length

    def take(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull(f"{self.max_len} tokens at most")
        self.pending[layer] = (k, v)

    def needed(self, n):
        return {t for t in range(n) if t < self.n_sinks or t > n - self.window}

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        sizes = (2, self.config.n_layers, self.batch, self.config.n_kv_heads, self.config.head_dim)
        return int(np.prod(sizes)) * self.room * self.dtype.itemsize


class KeepsTokensInADict(_Sizes):
    """A row of its own for each token: the oldest goes when one comes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rows = {}  # by token: (2, L, B, G, D)

    def places(self, n_new):
        check_between("n_new", n_new, 1, self.max_len - self.length)
        return torch.tensor([*self.rows, *range(self.length, self.length + n_new)])

    def append(self, layer, k, v):
        self.take(layer, k, v)
        old = [row[:, layer].unsqueeze(3) for row in self.rows.values()]  # (2, B, G, 1, D)
        both = torch.cat([*old, torch.stack([k, v])], dim=3)
        return both[0], both[1]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.length)
        check_appended(self.pending, self.config.n_layers, n)
        if not n:
            return
        layers = [torch.stack(self.pending[i]) for i in range(self.config.n_layers)]
        new = torch.stack(layers, dim=1)  # (2, L, B, G, T, D)
        for t in range(n):
            self.rows[self.length + t] = new[..., t, :].clone()
        self.length, self.pending = self.length + n, {}
        for token in [t for t in self.rows if self.n_sinks <= t < self.length - self.window]:
            del self.rows[token]

    def truncate(self, n):
        check_between("n", n, 0, self.length)
        if not self.needed(n) <= self.rows.keys():
            raise ValueError(f"rows for token {n} are gone")
        self.rows = {token: row for token, row in self.rows.items() if token < n}
        self.length, self.pending = n, {}


class KeepsTheOrderOfTheText(_Sizes):
    """Sinks and window as one tensor a layer, in the order of the text; the front is cut off."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        shape = (
            2,
            self.config.n_layers,
            self.batch,
            self.config.n_kv_heads,
            0,
            self.config.head_dim,
        )
        self.rows = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.tokens = []

    def places(self, n_new):
        new = range(self.length, self.length + n_new)
        return torch.tensor([*self.tokens, *new], dtype=torch.int64)

    def append(self, layer, k, v):
        self.take(layer, k, v)
        return tuple(torch.cat([self.rows[i, layer], x], dim=2) for i, x in enumerate((k, v)))

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.length)
        check_appended(self.pending, self.config.n_layers, n)
        if not n:
            return
        new = torch.stack(
            [torch.stack(self.pending[i]) for i in range(self.config.n_layers)], dim=1
        )
        rows = torch.cat([self.rows, new[..., :n, :]], dim=4)
        tokens = [*self.tokens, *range(self.length, self.length + n)]
        self.length, self.pending = self.length + n, {}
        stay = [t < self.n_sinks or t >= self.length - self.window for t in tokens]
        self.rows = rows[..., torch.tensor(stay), :]
        self.tokens = [t for t, s in zip(tokens, stay, strict=True) if s]

    def truncate(self, n):
        check_between("n", n, 0, self.length)
        if self.needed(n) - set(self.tokens):
            raise ValueError(f"rows for token {n} are gone")
        self.tokens = [t for t in self.tokens if t < n]
        self.rows = self.rows[..., : len(self.tokens), :].clone()
        self.length, self.pending = n, {}


class CountsItsOldestToken(_Sizes):
    """Keys and values apart, the ring by whole numbers: from the oldest token that is there."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        c = self.config
        shape = (c.n_layers, self.batch, c.n_kv_heads, self.room, c.head_dim)
        self.keys = torch.empty(shape, dtype=self.dtype, device=self.device)
        self.values = torch.empty(shape, dtype=self.dtype, device=self.device)
        self.oldest = 0  # of the ring

    def held(self):
        sinks = range(min(self.length, self.n_sinks))
        return [*sinks, *range(max(self.oldest, self.n_sinks), self.length)]

    def place(self, token):
        return (
            token if token < self.n_sinks else self.n_sinks + (token - self.n_sinks) % self.window
        )

    def places(self, n_new):
        new = [self.length + i for i in range(n_new)]
        return torch.as_tensor(self.held() + new, dtype=torch.long)

    def append(self, layer, k, v):
        self.take(layer, k, v)
        at = [self.place(token) for token in self.held()]
        old_k, old_v = self.keys[layer][:, :, at], self.values[layer][:, :, at]
        return torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.length)
        check_appended(self.pending, self.config.n_layers, n)
        if n == 0:
            return
        for i in range(n):
            token = self.length + i
            for layer, (k, v) in self.pending.items():
                self.keys[layer, :, :, self.place(token)] = k[:, :, i]
                self.values[layer, :, :, self.place(token)] = v[:, :, i]
        self.length += n
        self.oldest = max(self.oldest, self.length - self.window)
        self.pending.clear()

    def truncate(self, n):
        check_between("n", n, 0, self.length)
        if max(n - self.window + 1, self.n_sinks) < min(self.oldest, n):
            raise ValueError(f"token {n} needs rows before token {self.oldest}")
        self.length, self.pending = n, {}
        self.oldest = min(self.oldest, n)

    def nbytes(self):
        return self.keys.nbytes + self.values.nbytes


class ReturnsWhatIsNeeded(KeepsTokensInADict):
    """Of the ring's W rows only those come back that a new token sees; the newest held ones first."""

    def seen(self):
        old = [t for t in self.rows if t < self.n_sinks or t > self.length - self.window]
        return sorted(old, reverse=True)

    def places(self, n_new):
        return torch.tensor([*self.seen(), *range(self.length, self.length + n_new)])

    def append(self, layer, k, v):
        self.take(layer, k, v)
        old = [self.rows[token][:, layer] for token in self.seen()]
        rows = torch.stack(old, dim=3) if old else torch.zeros(0)
        new = torch.stack([k, v])
        both = torch.cat([rows, new], dim=3) if old else new.clone()
        return both.unbind(0)


# --- windowed_cache_bytes ------------------------------------------------------------------------


def bytes_layer_by_layer(
    config, n_tokens, window, n_sinks=0, n_full_layers=0, batch=1, bytes_per_element=2
):
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    total = 0
    for layer in range(config.n_layers):
        rows = n_tokens if layer < n_full_layers else min(n_tokens, window + n_sinks)
        total += rows * config.head_dim * config.n_kv_heads * batch * 2 * bytes_per_element
    return total


def bytes_of_two_caches(
    config, n_tokens, window, n_sinks=0, n_full_layers=0, batch=1, bytes_per_element=2
):
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    one = replace(config, n_layers=1)
    held = min(n_tokens, window + n_sinks)
    full = n_full_layers * kv_cache_bytes(one, n_tokens, batch, bytes_per_element)
    others = config.n_layers - n_full_layers
    return full + others * kv_cache_bytes(one, held, batch, bytes_per_element)


def bytes_saved_by_windows(
    config, n_tokens, window, n_sinks=0, n_full_layers=0, batch=1, bytes_per_element=2
):
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    gone = max(0, n_tokens - window - n_sinks)
    rows = config.n_layers * n_tokens - (config.n_layers - n_full_layers) * gone
    return rows * batch * 2 * config.n_kv_heads * config.head_dim * bytes_per_element


def bytes_by_numpy(
    config, n_tokens, window, n_sinks=0, n_full_layers=0, batch=1, bytes_per_element=2
):
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    limits = np.full(config.n_layers, window + n_sinks)
    limits[:n_full_layers] = n_tokens
    rows = np.minimum(limits, n_tokens).sum()
    return int(rows * 2 * batch * config.n_kv_heads * config.head_dim * bytes_per_element)


VARIANTS = [
    Variant(
        "distances, a dict of rows",
        {
            "window_mask": mask_by_distance,
            "place_of": place_by_division,
            "WindowedKVCache": KeepsTokensInADict,
            "windowed_cache_bytes": bytes_layer_by_layer,
        },
    ),
    Variant(
        "loops, the order of the text",
        {
            "window_mask": mask_pair_by_pair,
            "place_of": place_one_by_one,
            "WindowedKVCache": KeepsTheOrderOfTheText,
            "windowed_cache_bytes": bytes_of_two_caches,
        },
    ),
    Variant(
        "numpy, an oldest token",
        {
            "window_mask": mask_in_numpy,
            "place_of": place_in_numpy,
            "WindowedKVCache": CountsItsOldestToken,
            "windowed_cache_bytes": bytes_saved_by_windows,
        },
    ),
    Variant(
        "row by row, only what is seen",
        {
            "window_mask": mask_row_by_row,
            "place_of": place_by_mask,
            "WindowedKVCache": ReturnsWhatIsNeeded,
            "windowed_cache_bytes": bytes_by_numpy,
        },
    ),
]
