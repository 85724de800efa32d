"""Right answers to lesson 07 in other styles: every check must pass them."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.fast.quantized import (
    CacheBytes,
    Quantized,
    check_codes,
    check_finite,
    check_quantizable,
    check_quantized_sizes,
)
from course.minigpt.quantized_cache import (
    QuantizedKVCache,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block


def quantize_symmetric(x, bits, dim):
    """Equally far to both sides of 0; one code is never used."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.float().abs().amax(dim, keepdim=True) / half).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    zero = -half * scale
    codes = ((x.float() - zero.float()) / scale.float()).round().clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, zero, bits)


def quantize_around_the_middle(x, bits, dim):
    """Symmetric around the middle of the range: asymmetric, with half codes."""
    check_quantizable(x, bits, dim)
    low, high = (end.double() for end in torch.aminmax(x, dim=dim, keepdim=True))
    tiny = torch.finfo(x.dtype).tiny
    scale = ((high - low) / (2**bits - 1)).to(x.dtype).clamp_min(tiny)
    zero = torch.where(
        high - low < tiny, low, (low + high) / 2 - (2**bits - 1) * scale.double() / 2
    )
    zero = zero.to(x.dtype)
    codes = ((x.double() - zero.double()) / scale.double()).round().clamp(0, 2**bits - 1)
    return Quantized(codes.byte(), scale, zero, bits)


def quantize_in_numpy(x, bits, dim):
    check_quantizable(x, bits, dim)
    numbers = x.double().numpy()
    low, high = numbers.min(axis=dim, keepdims=True), numbers.max(axis=dim, keepdims=True)
    scale = torch.from_numpy((high - low) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = np.rint((numbers - low) / scale.double().numpy()).clip(0, 2**bits - 1)
    zero = torch.from_numpy(low).to(x.dtype)
    return Quantized(torch.from_numpy(codes.astype(np.uint8)), scale, zero, bits)


def dequantize_in_numpy(q):
    codes, scale, zero = (part.double().numpy() for part in (q.codes, q.scale, q.zero))
    return torch.from_numpy(codes * scale + zero).to(q.scale.dtype)


def quantize_by_nearest_level(x, bits, dim):
    """All levels of each vector, and the nearest of them."""
    check_quantizable(x, bits, dim)
    moved = x.movedim(dim, -1)
    low, high = moved.amin(-1, keepdim=True), moved.amax(-1, keepdim=True)
    scale = ((high.double() - low.double()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    levels = low.double() + scale.double() * torch.arange(2**bits, device=x.device)  # (…, 2^bits)
    codes = (moved.double().unsqueeze(-1) - levels.unsqueeze(-2)).abs().argmin(-1)
    back = (part.movedim(-1, dim) for part in (codes.to(torch.uint8), scale, low))
    return Quantized(*back, bits)


def dequantize_in_double(q):
    return (q.zero.double() + q.codes.double() * q.scale.double()).to(q.scale.dtype)


def pack_by_arithmetic(codes):
    check_codes(codes, highest=15)
    return codes[..., ::2] + 16 * codes[..., 1::2]


def dequantize_by_addcmul(q):
    return torch.addcmul(q.zero, q.scale, q.codes.to(q.scale.dtype))


def unpack_into_places(packed):
    codes = packed.new_empty(*packed.shape[:-1], 2 * packed.shape[-1])
    codes[..., ::2], codes[..., 1::2] = packed % 16, packed // 16
    return codes


def dequantize_by_lerp(q):
    most = 2**q.bits - 1
    high = q.zero.double() + q.scale.double() * most
    return torch.lerp(q.zero.double(), high, q.codes.double() / most).to(q.scale.dtype)


def pack_in_pairs(codes):
    check_codes(codes, highest=15)
    pairs = codes.unflatten(-1, (-1, 2)).int()
    return (pairs * pairs.new_tensor([1, 16])).sum(-1).to(torch.uint8)


def unpack_by_shifts(packed):
    shifts = packed.new_tensor([0, 4])
    return ((packed.unsqueeze(-1) >> shifts) & 0xF).reshape(*packed.shape[:-1], -1)


def pack_in_numpy(codes):
    check_codes(codes, highest=15)
    numbers = codes.numpy()
    return torch.from_numpy(numbers[..., ::2] | np.left_shift(numbers[..., 1::2], 4))


def unpack_in_numpy(packed):
    numbers = packed.numpy()
    both = np.stack([numbers % 16, numbers // 16], axis=-1)
    return torch.from_numpy(both.reshape(*numbers.shape[:-1], -1))


def pack_one_by_one(codes):
    check_codes(codes, highest=15)
    flat = codes.reshape(-1).tolist()
    packed = [low + (high << 4) for low, high in zip(flat[::2], flat[1::2], strict=True)]
    return codes.new_tensor(packed).view(*codes.shape[:-1], -1)


def unpack_by_a_table(packed):
    table = packed.new_tensor([[byte % 16, byte // 16] for byte in range(256)])
    return table[packed.long()].flatten(-2)


def check_advance(cache, n):
    """Refuse what the reference's `advance` refuses."""
    check_between("n", n, 0, cache.max_len - len(cache))
    check_appended(cache.pending, cache.config.n_layers, n)


class GroupByGroup(QuantizedKVCache):
    """One group after the other, as they become complete."""

    def advance(self, n):
        check_advance(self, n)
        if n == 0:
            return
        rows = [
            torch.cat([self._waiting(layer), torch.stack(self.pending[layer])[..., :n, :]], dim=3)
            for layer in range(self.config.n_layers)
        ]
        self.pending, self.length = {}, self.length + n
        while rows and self.length - self.n_groups * self.group >= self.window + self.group:
            for store, dim, kind in ((self.keys, -2, 0), (self.values, -1, 1)):
                group = torch.stack([row[kind, :, :, None, : self.group] for row in rows])
                store.write(self.n_groups, quantize(group, self.bits, dim))
            rows = [row[..., self.group :, :] for row in rows]
            self.n_groups += 1
        for layer, row in enumerate(rows):
            self.recent[:, layer, ..., : row.shape[3], :] = row

    def _waiting(self, layer):
        return self.recent[:, layer, ..., : self.length - self.n_groups * self.group, :]


class TokenByToken(GroupByGroup):
    """Whatever the block, one token is counted after the other."""

    def advance(self, n):
        check_advance(self, n)
        blocks = dict(self.pending)
        for token in range(n):
            self.pending = {
                layer: tuple(part[:, :, token : token + 1] for part in pair)
                for layer, pair in blocks.items()
            }
            super().advance(1)


class ListsOfGroups(QuantizedKVCache):
    """No stores: a list of groups for each layer, and a window that is moved on."""

    def __init__(
        self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32, device="cpu"
    ):
        check_quantized_sizes(config, batch, max_len, bits, group, window)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.bits, self.group, self.window = bits, group, window
        rows = (2, batch, config.n_kv_heads, min(max_len, window + group - 1), config.head_dim)
        self.waiting = [
            torch.zeros(rows, dtype=dtype, device=device) for _ in range(config.n_layers)
        ]
        self.done = [[] for _ in range(config.n_layers)]
        self.count, self.pending = 0, {}

    def __len__(self):
        return self.count

    def _keep(self, x, dim):
        q = quantize(x.contiguous(), self.bits, dim)
        codes = q.codes
        if self.bits == 2:
            codes = codes[..., ::2] | codes[..., 1::2] << 2
        return (
            (codes.clone() if self.bits == 8 else pack_int4(codes)),
            q.scale.clone(),
            q.zero.clone(),
        )

    def _back(self, kept):
        codes, scale, zero = kept
        codes = codes if self.bits == 8 else unpack_int4(codes)
        if self.bits == 2:
            codes = torch.stack([codes & 3, codes >> 2], dim=-1).flatten(-2)
        return dequantize(Quantized(codes, scale, zero, self.bits))

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if self.count + k.shape[2] > self.max_len:
            raise CacheFull("full")
        self.pending[layer] = torch.stack([k, v])
        held = self.count - len(self.done[layer]) * self.group
        parts = [torch.stack([self._back(a), self._back(b)]) for a, b in self.done[layer]]
        both = torch.cat([*parts, self.waiting[layer][:, :, :, :held], self.pending[layer]], dim=3)
        return both[0], both[1]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.count)
        check_appended(self.pending, self.config.n_layers, n)
        for layer in range(self.config.n_layers if n else 0):
            held = self.count - len(self.done[layer]) * self.group
            new = self.pending[layer][..., :n, :]
            rows = torch.cat([self.waiting[layer][:, :, :, :held], new], dim=3)
            while rows.shape[3] >= self.window + self.group:
                group, rows = rows[:, :, :, : self.group], rows[:, :, :, self.group :]
                self.done[layer].append((self._keep(group[0], -2), self._keep(group[1], -1)))
            self.waiting[layer][:, :, :, : rows.shape[3]] = rows
        self.count, self.pending = self.count + n, {} if n else self.pending

    def truncate(self, n):
        check_between("n", n, 0, self.count)
        whole, rest = divmod(n, self.group)
        for layer, done in enumerate(self.done):
            if whole < len(done):
                cut = torch.stack([self._back(part) for part in done[whole]])
                self.waiting[layer][:, :, :, :rest] = cut[:, :, :, :rest]
                del done[whole:]
        self.count, self.pending = n, {}

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        kept = [part for done in self.done for pair in done for one in pair for part in one]
        return sum(part.nbytes for part in [*kept, *self.waiting])


def bytes_by_bits(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    D, coded = config.head_dim, max(0, n_tokens - window) // group * group
    vectors = 2 * config.n_layers * batch * config.n_kv_heads
    codes = vectors * coded * D * bits
    scales = vectors * coded * (8 * bytes_per_element) * (D + group) // group
    rows = n_tokens if n_tokens < window + group else window + group - 1
    return CacheBytes(codes // 8, scales // 8, vectors * rows * D * bytes_per_element)


class TwoWindows(QuantizedKVCache):
    """Keys and values apart in every step, by loops over layers."""

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if self.max_len - self.length < k.shape[2]:
            raise CacheFull("full")
        self.pending[layer] = (k.clone(), v.clone())
        first = self.n_groups * self.group
        total = self.length + k.shape[2]
        shape = (self.batch, self.config.n_kv_heads, total, self.config.head_dim)
        out = []
        for kind, (store, new) in enumerate(((self.keys, k), (self.values, v))):
            whole = torch.empty(shape, dtype=self.dtype)
            for number in range(self.n_groups):
                q = store.read(layer, number + 1)
                one = Quantized(*(part[:, :, number] for part in q[:3]), self.bits)
                whole[:, :, number * self.group : (number + 1) * self.group] = dequantize(one)
            whole[:, :, first : self.length] = self.recent[kind, layer, :, :, : self.length - first]
            whole[:, :, self.length :] = new
            out.append(whole)
        return tuple(out)


def bytes_of_keys_and_values(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    groups, D = max(n_tokens - window, 0) // group, config.head_dim
    rows = config.n_layers * batch * config.n_kv_heads
    key_steps, value_steps = 2 * groups * D, 2 * groups * group
    return CacheBytes(
        2 * (rows * groups * group * D * bits // 8),
        rows * (key_steps + value_steps) * bytes_per_element,
        2 * rows * min(n_tokens, window + group - 1) * D * bytes_per_element,
    )


def bytes_by_simulation(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    waiting = most = groups = 0
    for _ in range(n_tokens):
        waiting += 1
        if waiting == window + group:
            waiting, groups = waiting - group, groups + 1
        most = max(most, waiting)
    most = max(most, min(n_tokens, window + group - 1))
    heads, D = 2 * config.n_layers * batch * config.n_kv_heads, config.head_dim
    numbers = groups * (D + group)
    return CacheBytes(
        heads * groups * group * D * bits // 8,
        heads * numbers * bytes_per_element,
        heads * most * D * bytes_per_element,
    )


def bytes_of_a_real_cache(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    dtype = {2: torch.float16, 4: torch.float32, 8: torch.float64}[bytes_per_element]
    sizes = (bits, group, window, dtype, "meta")
    cache = QuantizedKVCache(config, batch, n_tokens, *sizes)
    stores = (cache.keys, cache.values)
    codes = sum(store.codes.nbytes for store in stores)
    return CacheBytes(codes, sum(s.nbytes() for s in stores) - codes, cache.recent.nbytes)


def quantize_in_loops(x, bits, dim):
    """Vector by vector, in float64."""
    check_quantizable(x, bits, dim)
    moved, smallest = x.movedim(dim, -1), torch.finfo(x.dtype).tiny
    codes = x.new_zeros(moved.shape, dtype=torch.uint8)
    scale, zero = x.new_zeros(2, *moved.shape[:-1], 1)
    for place in np.ndindex(*moved.shape[:-1]):
        row = moved[place].double()
        low, high = float(row.min()), float(row.max())
        zero[place], scale[place] = low, max((high - low) / (2**bits - 1), smallest)
        steps = (row - zero[place].double()) / scale[place].double()
        codes[place] = (steps + 0.5).floor().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(*(part.movedim(-1, dim) for part in (codes, scale, zero)), bits=bits)


def quantize_with_a_step_of_1(x, bits, dim):
    """Equal numbers get a step of 1, of which none is ever made."""
    check_quantizable(x, bits, dim)
    low, high = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    exact = (high.double() - low.double()) / (2**bits - 1)
    scale = torch.where(exact < torch.finfo(x.dtype).tiny, torch.ones_like(exact), exact)
    scale = scale.to(x.dtype)
    codes = torch.round((x.double() - low.double()) / scale.double())
    return Quantized(codes.clamp_(0, 2**bits - 1).byte(), scale, low, bits)


def pack_by_a_product(codes):
    check_codes(codes, highest=15)
    pairs = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 2, 2).float()
    return torch.einsum("...p,p->...", pairs, pairs.new_tensor([1.0, 16.0])).byte()


class TokensInADeque(QuantizedKVCache):
    """The window is a deque of single tokens, each in a place of its own; slots, and nothing else."""

    __slots__ = ("free", "waiting")

    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, *where, **named):
        super().__init__(config, batch, max_len, bits, group, window, *where, **named)
        self.free = deque(self.recent[..., i, :].clone() for i in range(self.recent.shape[4]))
        self.waiting = deque()
        del self.recent

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if len(self) + k.shape[2] > self.max_len:
            raise CacheFull("full")
        self.pending[layer] = k, v
        return tuple(map(self._all, (self.keys, self.values), range(2), (layer,) * 2, (k, v)))

    def _all(self, store, kind, layer, new):
        old = dequantize(store.read(layer, self.n_groups)).flatten(2, 3)
        return torch.cat([old, *(t[kind, layer, :, :, None] for t in self.waiting), new], dim=2)

    def advance(self, n):
        check_advance(self, n)
        for t in range(n):
            new = torch.stack(
                [torch.stack(self.pending[i]) for i in range(self.config.n_layers)], dim=1
            )
            self._take(new[..., t, :])
        self.pending = {} if n else self.pending

    def _take(self, token):
        self.length += 1
        if len(self.waiting) + 1 < self.window + self.group:
            place = self.free.popleft()
            self.waiting.append(place.copy_(token))
            return
        tokens = [*self.waiting, token]
        block = torch.stack(tokens[: self.group], dim=4)[..., None, :, :]
        self.keys.write(self.n_groups, quantize(block[0], self.bits, -2))
        self.values.write(self.n_groups, quantize(block[1], self.bits, -1))
        self.n_groups += 1
        kept = [part.clone() for part in tokens[self.group :]]
        self.free.extend(self.waiting)
        self.waiting = deque(self.free.popleft().copy_(part) for part in kept)

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        kept = min(self.n_groups, n // self.group)
        rest = n - kept * self.group
        tokens = [part.clone() for part in self.waiting][:rest]
        if kept < self.n_groups:
            layers = range(self.config.n_layers)
            cut = torch.stack(
                [
                    torch.stack([dequantize(s.read(i, kept + 1))[:, :, kept] for i in layers])
                    for s in (self.keys, self.values)
                ]
            )
            tokens = list(cut[..., :rest, :].unbind(4))
        self.free.extend(self.waiting)
        self.waiting = deque(self.free.popleft().copy_(part) for part in tokens)
        self.length, self.n_groups, self.pending = n, kept, {}

    def nbytes(self):
        window = sum(part.nbytes for part in [*self.waiting, *self.free])
        return self.keys.nbytes() + self.values.nbytes() + window


class BehindAProperty(QuantizedKVCache):
    """What is counted is computed from one number, and the window lies in a closure."""

    def __init__(self, *sizes, **named):
        self.done = 0
        super().__init__(*sizes, **named)

    @property
    def recent(self):
        return self._window()

    @recent.setter
    def recent(self, storage):
        self._window = lambda: storage

    @property
    def n_groups(self):
        return self.done // self.group

    @n_groups.setter
    def n_groups(self, n):
        self.done = n * self.group


VARIANTS = [
    Variant("symmetric", {"quantize": quantize_symmetric}),
    Variant("around_the_middle", {"quantize": quantize_around_the_middle}),
    Variant("numpy", {"quantize": quantize_in_numpy, "dequantize": dequantize_in_numpy}),
    Variant("nearest_level", {"quantize": quantize_by_nearest_level}),
    Variant("double", {"dequantize": dequantize_in_double, "pack_int4": pack_by_arithmetic}),
    Variant("addcmul", {"dequantize": dequantize_by_addcmul, "unpack_int4": unpack_into_places}),
    Variant("lerp", {"dequantize": dequantize_by_lerp}),
    Variant("pairs", {"pack_int4": pack_in_pairs, "unpack_int4": unpack_by_shifts}),
    Variant("numpy_bytes", {"pack_int4": pack_in_numpy, "unpack_int4": unpack_in_numpy}),
    Variant("one_by_one", {"pack_int4": pack_one_by_one, "unpack_int4": unpack_by_a_table}),
    Variant("group_by_group", {"QuantizedKVCache": GroupByGroup}),
    Variant("token_by_token", {"QuantizedKVCache": TokenByToken}),
    Variant(
        "lists_of_groups",
        {"QuantizedKVCache": ListsOfGroups, "quantized_cache_bytes": bytes_by_bits},
    ),
    Variant(
        "two_windows",
        {"QuantizedKVCache": TwoWindows, "quantized_cache_bytes": bytes_of_keys_and_values},
    ),
    Variant("loops", {"quantize": quantize_in_loops, "pack_int4": pack_by_a_product}),
    Variant("a_step_of_1", {"quantize": quantize_with_a_step_of_1}),
    Variant("tokens_in_a_deque", {"QuantizedKVCache": TokensInADeque}),
    Variant("behind_a_property", {"QuantizedKVCache": BehindAProperty}),
    Variant("bytes_simulated", {"quantized_cache_bytes": bytes_by_simulation}),
    Variant("bytes_of_a_real_cache", {"quantized_cache_bytes": bytes_of_a_real_cache}),
]
