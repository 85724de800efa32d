"""Lesson 17: A state instead of a cache.

Built from solutions/17-linear-state/linear_state.py by `make build`: change it there.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from course.given.hybrid import (
    CannotGoBack,
    HybridSizes,
    check_delta,
    check_element,
    check_hybrid_cache,
    check_is_full,
    check_kept,
    check_resume,
    check_rows,
)
from course.model.bounds import check_between
from course.model.cache import CacheFull


def delta_step(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule (Yang et al. 2024), for every head.

    Args:
        S: (B, H, K, V), the state after the tokens before.
        q, k: (B, H, K), as they come. Both are scaled to length 1 first; zeros stay zeros.
        v: (B, H, V), not scaled.
        beta: (B, H), 0 … 1: how much of the difference is written.
        decay: (B, H), above 0, up to 1: what is left of the old state.

    Returns:
        out: (B, H, V), what the query finds after the token was written, not scaled.
        S: (B, H, K, V), a new tensor, after this token.
        Nothing given is changed. `out` and S have the arguments' dtype, float32 or float64.
    """
    check_delta(S, q, k, v, beta, decay, tokens=False)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    faded = decay[..., None, None] * S  # (B, H, K, V)
    missing = v - (k.unsqueeze(-2) @ faded).squeeze(-2)  # (B, H, V)
    written = (beta.unsqueeze(-1) * k).unsqueeze(-1) * missing.unsqueeze(-2)  # (B, H, K, V)
    after = faded + written
    return (q.unsqueeze(-2) @ after).squeeze(-2), after


def delta_chunk(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """T tokens of the gated delta rule at once: what T calls of `delta_step` give, one after the other.

    Args:
        S: (B, H, K, V), the state before the first of them.
        q, k: (B, H, T, K), T of at least 1, as they come.
        v: (B, H, T, V).
        beta, decay: (B, H, T), as in `delta_step`; each decay may be as small as 1e-6.

    Returns:
        out: (B, H, T, V).
        S: (B, H, K, V), a new tensor, after the last token.
        Nothing given is changed. `out` and S have the arguments' dtype, float32 or float64. 256 tokens
        take fewer than 512 operations of PyTorch, views included, and no others.
    """
    check_delta(S, q, k, v, beta, decay, tokens=True)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    T = q.shape[2]
    kept = decay.log().cumsum(dim=-1)  # (B, H, T): the logarithm of what is left of S
    past = torch.ones(T, T, dtype=torch.bool, device=S.device).tril()
    fading = (kept.unsqueeze(-1) - kept.unsqueeze(-2)).masked_fill(~past, float("-inf")).exp()
    of_start = kept.exp().unsqueeze(-1)  # (B, H, T, 1)
    overlap = beta.unsqueeze(-1) * fading * (k @ k.mT)  # (B, H, T, T): how much t finds of s
    alone = beta.unsqueeze(-1) * (v - of_start * (k @ S))  # (B, H, T, V)
    written = torch.linalg.solve_triangular(overlap, alone, upper=False, unitriangular=True)
    out = of_start * (q @ S) + (fading * (q @ k.mT)) @ written  # (B, H, T, V)
    left = fading[..., -1, :].unsqueeze(-1)  # (B, H, T, 1): of each token, at the end
    return out, of_start[..., -1:, :] * S + (left * k).mT @ written


def state_bytes(
    sizes: HybridSizes, batch: int = 1, state_element: int = 4, element: int = 2
) -> int:
    """Bytes of the states and the tails of all linear layers, whatever the length of the text.

    Args:
        sizes: of the model.
        batch: B, texts.
        state_element: bytes of a number of a state.
        element: bytes of a number of a tail, which has width - 1 rows of `sizes.channels`.
    """
    check_between("batch", batch, 1, 2**31)
    check_element(state_element, element)
    state = sizes.value_heads * sizes.key_dim * sizes.value_dim * state_element
    tail = (sizes.width - 1) * sizes.channels * element
    return batch * sizes.n_linear * (state + tail)


def break_even(sizes: HybridSizes, state_element: int = 4, element: int = 2) -> int:
    """The fewest tokens whose rows in one full layer take at least what one linear layer keeps.

    Args:
        sizes: of the model.
        state_element: bytes of a number of a state.
        element: bytes of a number of a tail, a key or a value.
    """
    check_element(state_element, element)
    kept = state_bytes(replace(sizes, n_linear=1), 1, state_element, element)
    row = 2 * sizes.n_kv_heads * sizes.head_dim * element
    return -(-kept // row)  # rounded up


class HybridCache:
    """Rows of the full layers, states and tails of the linear ones, and checkpoints of these.

    Args:
        sizes: of the model.
        full: for each layer, in order, whether it is full; at least one is linear.
        batch: B, texts decoded together.
        max_len: tokens that it can hold.
        dtype, device: of all its tensors.

    Raises:
        ValueError: sizes, shapes, types or layers that do not fit; nothing was changed.
        CacheFull: from `append`, when there is no room; nothing was changed.
        CannotGoBack: from `truncate`, where no state after n tokens is kept; nothing was changed.
    """

    def __init__(
        self,
        sizes: HybridSizes,
        full: Sequence[bool],
        batch: int,
        max_len: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_hybrid_cache(sizes, full, batch, max_len)
        self.sizes, self.full, self.dtype = sizes, list(full), dtype
        self.batch, self.max_len, self.length = batch, max_len, 0
        new = {"dtype": dtype, "device": device}
        G, D = sizes.n_kv_heads, sizes.head_dim
        self.rows = torch.zeros(sizes.n_full, 2, batch, G, max_len, D, **new)
        S = torch.zeros(batch, sizes.value_heads, sizes.key_dim, sizes.value_dim, **new)
        tail = torch.zeros(batch, sizes.width - 1, sizes.channels, **new)
        linear = [layer for layer, is_full in enumerate(full) if not is_full]
        self.now = {layer: (S.clone(), tail.clone()) for layer in linear}
        self.coming: dict[int, tuple[Tensor, Tensor]] = {}
        self.remembered: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy k and v (B, G, T, D) behind the rows of a full layer, as lesson 03's cache does; return
        all of that layer so far, (B, G, S, D) each."""
        check_is_full(self.full, layer, True)
        check_rows(self.sizes, self.batch, self.dtype, k, v)
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
        keys, values = self.rows[sum(self.full[:layer])]
        keys[:, :, self.length : end] = k
        values[:, :, self.length : end] = v
        return keys[:, :, :end], values[:, :, :end]

    def state(self, layer: int) -> tuple[Tensor, Tensor]:
        """The state (B, value_heads, K, V) and the tail (B, width - 1, channels) of a linear layer after
        `len(self)` tokens, also during a pass; zeros at 0. They are the caller's, who may change them."""
        check_is_full(self.full, layer, False)
        S, tail = self.now[layer]
        return S.clone(), tail.clone()

    def keep(self, layer: int, S: Tensor, tail: Tensor) -> None:
        """Copy the state and the tail of a linear layer after the tokens of this pass; they count from
        `advance` on. Kept again before it, they are replaced."""
        check_is_full(self.full, layer, False)
        check_kept(self.sizes, self.batch, self.dtype, S, tail)
        self.coming[layer] = S.clone(), tail.clone()

    def advance(self, n: int) -> None:
        """Count the n tokens of a pass as held, n at least 1. Before it, each full layer was appended to
        and each linear one kept. A pass that is never advanced counts for nothing; another may follow."""
        check_between("n", n, 1, self.max_len - len(self))
        self.length += n
        self.now, self.coming = self.now | self.coming, {}

    def checkpoint(self) -> None:
        """Remember states and tails after `len(self)` tokens, no rows. At 0 tokens, and where this length
        is remembered, it does nothing."""
        if self.length and self.length not in self.remembered:
            self.remembered[self.length] = {layer: self.state(layer) for layer in self.now}

    @property
    def checkpoints(self) -> list[int]:
        """The lengths that are remembered, rising, in a list that the caller may change."""
        return sorted(self.remembered)

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, where n is 0, `len(self)` or one of the checkpoints.

        Then everything is as if only these tokens had been fed. Checkpoints above n are forgotten, one
        at n stays, and a pass under way counts for nothing.

        Raises:
            ValueError: n is not 0 … len(self).
            CannotGoBack: no state after n tokens is kept.
        """
        check_between("n", n, 0, len(self))
        if n not in (0, self.length, *self.remembered):
            raise CannotGoBack(f"{n} of {self.length} tokens: kept are {self.checkpoints}")
        if n == 0:
            zeros = {layer: [torch.zeros_like(x) for x in pair] for layer, pair in self.now.items()}
            self.now = zeros
        elif n < self.length:
            old = self.remembered[n]
            self.now = {layer: (S.clone(), tail.clone()) for layer, (S, tail) in old.items()}
        self.length, self.coming = n, {}
        self.remembered = {at: states for at, states in self.remembered.items() if at <= n}

    def reset(self) -> None:
        """Forget every token and every checkpoint."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes of the rows, for max_len tokens, and of states and tails, once and once more for each
        checkpoint. After a pass, nothing else is stored."""
        once = sum(S.nbytes + tail.nbytes for S, tail in self.now.values())
        return self.rows.nbytes + once * (1 + len(self.remembered))


def resume_point(held: list[int], prompt: list[int], checkpoints: list[int]) -> int:
    """The most tokens of a prompt that need not be fed.

    `held` and `prompt` begin with them, there is a state after them, and at least one token is left to
    feed, whose logits are wanted. There is a state after 0 tokens, at each checkpoint, and after all that
    is held.

    Args:
        held: the tokens that a cache holds, perhaps none.
        prompt: the tokens of the next request, at least one.
        checkpoints: the cache's, rising, each from 1 to len(held).
    """
    check_resume(held, prompt, checkpoints)
    common = 0
    for old, new in zip(held, prompt[:-1], strict=False):
        if old != new:
            break
        common += 1
    return max(n for n in (0, len(held), *checkpoints) if n <= common)
