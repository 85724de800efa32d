"""The cheapest wrong functions for the checks of lesson 07, see `autograder cheapest`."""


# %% half_a_step_at_most: codes of whole numbers
def quantize(x, bits, dim):
    low = x.amin(dim, keepdim=True)
    codes = (x - low).round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(codes, torch.ones_like(low), low, bits)


def dequantize(q):
    return q.zero + q.scale * q.codes


# %% codes_fit_their_bits: the sign alone
def quantize(x, bits, dim):
    one = x.amax(dim, keepdim=True)
    return Quantized((x > 0).to(torch.uint8), one, one, bits)


# %% flat_vectors_stay_finite: the smallest step for all
def quantize(x, bits, dim):
    low = x.amin(dim, keepdim=True)
    step = torch.full_like(low, torch.finfo(x.dtype).tiny)
    codes = ((x - low) / step).round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(codes, step, low, bits)


def dequantize(q):
    return q.zero + q.scale * q.codes


# %% two_codes_share_a_byte: the sum of two codes, and a division
def pack_int4(codes):
    check_codes(codes, highest=15)
    return codes[..., 0::2] + 16 * codes[..., 1::2]


def unpack_int4(packed):
    return torch.cat([packed % 16, packed // 16], dim=-1)


# %% groups_and_a_window: lesson 03's cache, groups as halves of what was stored
from course.minigpt.kv_cache import KVCache


class QuantizedKVCache(KVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window = group, window

    def append(self, layer, k, v):
        n = max(0, len(self) - self.window) // self.group * self.group
        rows = [rows.clone() for rows in super().append(layer, k, v)]
        for held in rows:
            held[:, :, :n] /= 2
        return rows


# %% keys_by_channel_values_by_token: lesson 03's cache, rounded as it is read
from course.minigpt.kv_cache import KVCache


class QuantizedKVCache(KVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.bits, self.group, self.window = bits, group, window

    def append(self, layer, k, v):
        n, rows = max(0, len(self) - self.window) // self.group, super().append(layer, k, v)
        rows = [held.clone() for held in rows]
        for held, dim in zip(rows, (-2, -1), strict=True) if n else ():
            groups = held[:, :, : n * self.group].unflatten(2, (n, self.group))
            groups.copy_(dequantize(quantize(groups, self.bits, dim)))
        return rows


# %% every_split_leaves_the_same: lesson 03's cache, groups as whole numbers
from course.minigpt.kv_cache import KVCache


class QuantizedKVCache(KVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window = group, window

    def append(self, layer, k, v):
        n = max(0, len(self) - self.window) // self.group * self.group
        rows = [rows.clone() for rows in super().append(layer, k, v)]
        for held in rows:
            held[:, :, :n] = held[:, :, :n].round()
        return rows


# %% a_refusal_changes_nothing: lesson 03's cache with a look at what is finite, groups as halves
from course.minigpt.kv_cache import KVCache


class QuantizedKVCache(KVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window = group, window

    def append(self, layer, k, v):
        check_finite("keys", k)
        check_finite("values", v)
        n = max(0, len(self) - self.window) // self.group * self.group
        rows = [rows.clone() for rows in super().append(layer, k, v)]
        for held in rows:
            held[:, :, :n] /= 2
        return rows


# %% quantized_cache_can_go_back: lesson 03's cache, which halves each group as it is complete
from course.minigpt.kv_cache import KVCache


class QuantizedKVCache(KVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window, self.done = group, window, 0

    def append(self, layer, k, v):
        return [rows.clone() for rows in super().append(layer, k, v)]

    def advance(self, n):
        super().advance(n)
        done = max(self.done, max(0, len(self) - self.window) // self.group * self.group)
        for rows in (self.keys, self.values):
            rows[..., self.done : done, :] /= 2
        self.done = done

    def truncate(self, n):
        super().truncate(n)
        self.done = min(self.done, n // self.group * self.group)


# %% bytes_match_codes_scales_window: lesson 03's bytes, times the bits, no scales and no window
from course.minigpt.kv_cache import kv_cache_bytes


def quantized_cache_bytes(config, n, batch=1, bits=8, group=64, window=32, width=2):
    return CacheBytes(kv_cache_bytes(config, n, batch, 1) * bits // 8, 0, 0)
