"""Store a quantized cache in groups of tokens, and check the shapes of one layer of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course.fast.quantized import Quantized
from course.model.config import GPTConfig

Window = tuple[Tensor, Tensor]
"""Keys and values (B, G, W, D) in full precision."""


def check_attention_shapes(
    q: Tensor, keys: Quantized, values: Quantized, window: Window | None
) -> None:
    """Raise a ValueError that names the shapes, unless one token can attend to these.

    Args:
        q: (B, H, 1, D), the queries of one token.
        keys, values: n groups of tokens, oldest first: codes (B, G, n, group, D) uint8, or narrower where
            several share a byte; scale and zero (B, G, n, 1, D) for keys, one per channel of a group,
            and (B, G, n, group, 1) for values, one per token.
        window: keys and values (B, G, W, D) of the newest tokens, not quantized.
    """
    got = [tuple(part.shape) for part in (q, *keys[:3], *values[:3], *(window or ()))]
    match got:
        case [(B, H, 1, D), (_, G, n, group, width), *_] if G and H % G == 0:
            codes = (B, G, n, group, width)
            W = got[-1][2] if window and len(got[-1]) == 4 else 0
            steps = [[(B, G, n, 1, D)] * 2, [(B, G, n, group, 1)] * 2]
            rows = [(B, G, W, D)] * 2 if window else []
            if got == [(B, H, 1, D), codes, *steps[0], codes, *steps[1], *rows] and n * group + W:
                return
    raise ValueError(
        "one token attends to at least one: q (B, H, 1, D), codes (B, G, n, group, width), G a divisor "
        "of H, scale and zero (B, G, n, 1, D) of keys and (B, G, n, group, 1) of values, window "
        f"(B, G, W, D); got {got}"
    )


class GroupStore:
    """Store quantized keys, or values, of all layers in groups of tokens; allocated once.

    Args:
        config, batch: sizes.
        n_groups: room, in groups.
        group: tokens of a group.
        bits: of a code; the codes are packed, 8 / bits to a byte.
        dim: along which the numbers (…, group, D) of a group share a step: -2 gives one step to each
            channel, -1 one to each token.
        dtype, device: of scales and zeros; codes are bytes.
        pack, unpack: two 4-bit codes to a byte, and back. They are never called without any codes.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        n_groups: int,
        group: int,
        bits: int,
        dim: int,
        dtype: torch.dtype,
        device: str | torch.device,
        pack: Callable[[Tensor], Tensor],
        unpack: Callable[[Tensor], Tensor],
    ) -> None:
        D = config.head_dim
        places = (config.n_layers, batch, config.n_kv_heads, n_groups)
        steps = (*places, 1, D) if dim == -2 else (*places, group, 1)
        self.bits, self._pack, self._unpack = bits, pack, unpack
        self.codes = torch.zeros((*places, group, D * bits // 8), dtype=torch.uint8, device=device)
        self.scale = torch.zeros(steps, dtype=dtype, device=device)
        self.zero = torch.zeros(steps, dtype=dtype, device=device)

    def write(self, first: int, groups: Quantized) -> None:
        """Store groups from number `first` on, in all layers: codes (L, B, G, n, group, D)."""
        to = slice(first, first + groups.codes.shape[3])
        self.codes[:, :, :, to] = self._packed(groups.codes)
        self.scale[:, :, :, to], self.zero[:, :, :, to] = groups.scale, groups.zero

    def read(self, layer: int, n: int) -> Quantized:
        """Return the first n groups of one layer: codes (B, G, n, group, D)."""
        codes = self._unpacked(self.codes[layer, :, :, :n])
        scale, zero = self.scale[layer, :, :, :n], self.zero[layer, :, :, :n]
        return Quantized(codes, scale, zero, self.bits)

    def nbytes(self) -> int:
        """Count the bytes of codes, scales and zeros."""
        return self.codes.nbytes + self.scale.nbytes + self.zero.nbytes

    def _packed(self, codes: Tensor) -> Tensor:
        """Pack codes (…, D) into bytes (…, D * bits / 8)."""
        if not codes.numel():
            return codes[..., : codes.shape[-1] * self.bits // 8]
        if self.bits == 2:  # two codes of 2 bits are one of 4: the left half and the right half
            left, right = codes.chunk(2, dim=-1)
            codes = left + 4 * right
        return codes if self.bits == 8 else self._pack(codes)

    def _unpacked(self, stored: Tensor) -> Tensor:
        """Unpack bytes (…, D * bits / 8) into codes (…, D)."""
        if not stored.numel():
            return stored.new_empty(*stored.shape[:-1], stored.shape[-1] * 8 // self.bits)
        codes = stored if self.bits == 8 else self._unpack(stored)
        return torch.cat([codes % 4, codes // 4], dim=-1) if self.bits == 2 else codes
