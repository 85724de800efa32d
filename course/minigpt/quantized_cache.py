"""Lesson 07: A cache of small numbers.

Built from solutions/07-quantized-cache/quantized_cache.py by `make build`: change it there.
"""

import torch
from torch import Tensor

from course.fast.quantized import (
    CacheBytes,
    Quantized,
    check_codes,
    check_finite,
    check_quantizable,
    check_quantized_sizes,
)
from course.fast.storage import GroupStore
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block
from course.model.config import GPTConfig


def quantize(x: Tensor, bits: int, dim: int) -> Quantized:
    """Numbers as codes of a few bits.

    Args:
        x: floating-point, finite, any shape.
        bits: of a code: 2, 4 or 8.
        dim: along which numbers share a step and a zero.

    Returns:
        codes uint8 in the shape of x; scale and zero in x's dtype, with size 1 along dim; bits.
        A step is a vector's range over 2^bits - 1 (symmetric: twice its largest |x|; there 2^bits - 2
        passes, too, where its zero can be stored), and at least torch.finfo(x.dtype).tiny.
        `zero + scale * codes` is within half a step of x, for scale and zero as they are *stored*:
        float16 and bfloat16 round them, so subtract and divide by what they have become, in float32
        or wider. Not counted: float32's rounding and, at the first and the last code, that of the
        stored step and zero.

    Raises:
        ValueError: other bits, no such dim, NaN or infinity.
    """
    check_quantizable(x, bits, dim)
    low, high = torch.aminmax(x, dim=dim, keepdim=True)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)  # of equal numbers, or lost in float16
    steps = (x.float() - low.float()) / scale.float()  # by the scale that is stored
    codes = steps.round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(codes, scale, low, bits)


def dequantize(q: Quantized) -> Tensor:
    """The numbers that codes stand for, in the dtype of the scale and the shape of the codes."""
    return q.zero + q.scale * q.codes


def pack_int4(codes: Tensor) -> Tensor:
    """Two codes in a byte: (…, n) uint8, 0 … 15, to (…, n / 2) uint8, the first of two in the low bits.

    Raises:
        ValueError: n is odd, or these are no such codes.
    """
    check_codes(codes, highest=15)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_int4(packed: Tensor) -> Tensor:
    """The codes in bytes of `pack_int4`: (…, n / 2) uint8 to (…, n) uint8."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)  # (…, n / 2, 2) -> (…, n)


class QuantizedKVCache:
    """A KV cache that keeps complete groups of tokens as codes and the newest tokens as they are.

    Keys have a step for each channel of a group, values one for each token. Used like any cache:
    `append` for every layer, then `advance`.

    Args:
        config, batch, max_len: as of `KVCache`.
        bits: of a code: 2, 4 or 8.
        group: tokens that are quantized together.
        window: newest tokens that are never codes, at least.
        dtype, device: of keys and values as they come and go, of the window, of scales and zeros.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype, or not finite.
        CacheFull: from `append`, when there is no room.
        Whatever is refused changes nothing, not even what is pending.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        bits: int = 8,
        group: int = 64,
        window: int = 32,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_quantized_sizes(config, batch, max_len, bits, group, window)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.bits, self.group, self.window = bits, group, window
        groups, codecs = max(0, max_len - window) // group, (pack_int4, unpack_int4)
        sizes = (config, batch, groups, group, bits)  # groups: so many can ever be complete
        self.keys = GroupStore(*sizes, -2, dtype, device, *codecs)
        self.values = GroupStore(*sizes, -1, dtype, device, *codecs)
        recent = min(max_len, window + group - 1)  # tokens: so many can ever wait
        shape = (2, config.n_layers, batch, config.n_kv_heads, recent, config.head_dim)
        self.recent = torch.zeros(shape, dtype=dtype, device=device)  # (2, L, B, G, recent, D)
        self.pending: dict[int, tuple[Tensor, Tensor]] = {}  # by layer, until advance
        self.length = 0  # tokens held
        self.n_groups = 0  # groups of them that are codes

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k and v (B, G, T, D) behind what is held; return all so far, (B, G, S, D) each.

        They are pending until `advance`; appended again before that, the new ones replace the old.
        """
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} places are taken, {k.shape[2]} more do not fit"
            )
        self.pending[layer] = (k, v)
        held = self.length - self.n_groups * self.group
        rows = []
        for store, recent, new in zip((self.keys, self.values), self.recent, (k, v), strict=True):
            old = dequantize(store.read(layer, self.n_groups)).flatten(2, 3)  # (B, G, n·group, D)
            rows.append(torch.cat([old, recent[layer, :, :, :held], new], dim=2))
        return rows[0], rows[1]  # (B, G, S, D) each

    def advance(self, n: int) -> None:
        """Count n tokens more as held, once per forward pass; groups that are complete become codes.

        These are the first n that are pending; the rest is forgotten. advance(0) does nothing.
        However many codes there are, none is read or written again.
        """
        check_between("n", n, 0, self.max_len - len(self))
        check_appended(self.pending, self.config.n_layers, n)
        if n == 0:
            return
        layers = [torch.stack(self.pending[i])[..., :n, :] for i in range(self.config.n_layers)]
        new = torch.stack(layers, dim=1)  # (2, L, B, G, n, D)
        held = self.length - self.n_groups * self.group
        rows = torch.cat([self.recent[..., :held, :], new], dim=4)
        self.length, self.pending = self.length + n, {}
        done = max(0, (self.length - self.window) // self.group - self.n_groups)
        if done:
            complete = rows[..., : done * self.group, :].unflatten(4, (done, self.group))
            self.keys.write(self.n_groups, quantize(complete[0], self.bits, dim=-2))
            self.values.write(self.n_groups, quantize(complete[1], self.bits, dim=-1))
            self.n_groups += done
        rest = rows[..., done * self.group :, :]
        self.recent[..., : rest.shape[4], :] = rest

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, and nothing that is pending.

        What is left of a group that is cut goes back to the recent ones. A group that stays whole may
        stay codes, also inside the window.
        """
        check_between("n", n, 0, len(self))
        kept = min(self.n_groups, n // self.group)
        rest = n - kept * self.group  # of the group that is cut
        if kept < self.n_groups and rest:
            for store, recent in zip((self.keys, self.values), self.recent, strict=True):
                for layer in range(self.config.n_layers):
                    old = dequantize(store.read(layer, kept + 1))  # (B, G, kept + 1, group, D)
                    recent[layer, :, :, :rest] = old[:, :, kept, :rest]
        self.length, self.n_groups, self.pending = n, kept, {}

    def reset(self) -> None:
        """Forget every token."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes that the storage occupies, whether filled or not; what is pending adds none."""
        return self.keys.nbytes() + self.values.nbytes() + self.recent.nbytes


def quantized_cache_bytes(
    config: GPTConfig,
    n_tokens: int,
    batch: int = 1,
    bits: int = 8,
    group: int = 64,
    window: int = 32,
    bytes_per_element: int = 2,
) -> CacheBytes:
    """Bytes of a quantized KV cache with room for n_tokens of each of `batch` rows.

    Args:
        bytes_per_element: of a number of the window, of a scale, of a zero.

    Returns:
        codes, scales (with zeros) and window, in bytes.
    """
    heads = 2 * config.n_layers * batch * config.n_kv_heads  # of keys and values
    n_groups = max(0, n_tokens - window) // group
    recent = min(n_tokens, window + group - 1)
    return CacheBytes(
        codes=heads * n_groups * group * config.head_dim * bits // 8,
        scales=heads * n_groups * (config.head_dim + group) * bytes_per_element,
        window=heads * recent * config.head_dim * bytes_per_element,
    )
