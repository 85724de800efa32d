"""Lesson 08: A cache that never grows.

Built from solutions/08-sliding-window/sliding_window.py by `make build`: change it there.
"""

import torch
from torch import Tensor

from course.given.windowed import check_numbers, check_window, check_windowed_sizes
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block
from course.model.config import GPTConfig


def window_mask(own: Tensor, places: Tensor, window: int, n_sinks: int = 0) -> Tensor:
    """Which rows each new token may see.

    Args:
        own: (T,) int64, numbers of the new tokens in the text.
        places: (R,) int64, number of the token whose row lies in each place, in any order.
        window: W, tokens that are seen, the token itself included.
        n_sinks: tokens 0 … n_sinks - 1 are seen from every later one.

    Returns:
        (T, R) bool, True where a token may look; none looks at one that comes after it.

    Raises:
        ValueError: window below 1, n_sinks below 0, or what is no number of a token.
    """
    check_numbers("own", own)
    check_numbers("places", places)
    check_window(window, n_sinks)
    own = own.unsqueeze(1)  # (T, 1)
    in_window = places > own - window  # (T, R)
    return (places <= own) & (in_window | (places < n_sinks))


def place_of(tokens: Tensor, window: int, n_sinks: int = 0) -> Tensor:
    """In which place of the storage the rows of tokens lie.

    Args:
        tokens: (n,) int64, numbers of tokens.
        window: places of the ring, which begins behind the sinks.
        n_sinks: tokens 0 … n_sinks - 1 have places of their own, 0 … n_sinks - 1.

    Returns:
        (n,) int64, 0 … n_sinks + window - 1. Token n_sinks lies in place n_sinks, the next behind it,
        and so on; after the last place comes place n_sinks.

    Raises:
        ValueError: window below 1, n_sinks below 0, or what is no number of a token.
    """
    check_numbers("tokens", tokens)
    check_window(window, n_sinks)
    ring = n_sinks + (tokens - n_sinks) % window
    return torch.where(tokens < n_sinks, tokens, ring)


class WindowedKVCache:
    """A KV cache of sinks and a ring: the first tokens and the newest ones. Between two passes it keeps
    no other tensors of floats.

    Args:
        config, batch, max_len: as of `KVCache`; max_len bounds the text, not the storage.
        window: tokens that a token sees, itself included.
        n_sinks: first tokens that stay, 0 … max_len.
        dtype, device: of keys and values.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype.
        CacheFull: from `append`, when the text would be longer than max_len.
        Whatever is refused changes nothing.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        window: int,
        n_sinks: int = 0,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_windowed_sizes(config, batch, max_len, window, n_sinks)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.window, self.n_sinks = window, n_sinks
        self.length = 0  # tokens of the text so far
        self.pending: dict[int, tuple[Tensor, Tensor]] = {}  # by layer, until advance
        room = min(max_len, n_sinks + window)
        shape = (2, config.n_layers, batch, config.n_kv_heads, room, config.head_dim)
        self.rows = torch.zeros(shape, dtype=dtype, device=device)  # (2, L, B, G, places, D)
        self.numbers = torch.full((room,), -1, device=device)  # the token in each place, -1: none

    def __len__(self) -> int:
        """Tokens so far, those that are gone included: the next one's position."""
        return self.length

    def places(self, n_new: int) -> Tensor:
        """Numbers of the tokens whose rows `append` returns for n_new tokens, (R,) int64: the held ones,
        in any order, each once, then the new ones: only rows that were given and are still stored."""
        check_between("n_new", n_new, 1, self.max_len - len(self))
        new = torch.arange(self.length, self.length + n_new, device=self.numbers.device)
        return torch.cat([self.numbers[self.numbers >= 0], new])

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k and v (B, G, T, D) of new tokens; return held rows, then these, (B, G, R, D) each.

        Held are at least the sinks and the last window - 1 tokens. The new ones are pending until
        `advance`; appended again before that, the new ones replace the old.
        """
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} tokens were fed, {k.shape[2]} more are too many"
            )
        self.pending[layer] = (k, v)
        old_k, old_v = self.rows[:, layer, :, :, self.numbers >= 0]  # (B, G, held, D) each
        return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)

    def advance(self, n: int) -> None:
        """Count n tokens more, once per forward pass, and store those that stay. These are the first n
        that are pending; the rest is forgotten. advance(0) does nothing."""
        check_between("n", n, 0, self.max_len - len(self))
        check_appended(self.pending, self.config.n_layers, n)
        if n == 0:
            return
        end = self.length + n
        new = torch.arange(self.length, end, device=self.numbers.device)
        kept = new[(new < self.n_sinks) | (new >= end - self.window)]
        at = place_of(kept, self.window, self.n_sinks)
        for layer, (k, v) in self.pending.items():
            self.rows[0, layer, :, :, at] = k[:, :, kept - self.length]
            self.rows[1, layer, :, :, at] = v[:, :, kept - self.length]
        self.numbers[at] = kept
        self.length, self.pending = end, {}

    def truncate(self, n: int) -> None:
        """Go back to the first n tokens; nothing stays pending.

        Raises:
            ValueError: n is not 0 … len(self), or a row that token n needs is gone: a sink before it, or
                one of the window - 1 tokens before it. Nothing was changed.
        """
        check_between("n", n, 0, len(self))
        before = torch.arange(n, device=self.numbers.device)
        needed = before[(before < self.n_sinks) | (before > n - self.window)]
        if not torch.isin(needed, self.numbers).all():
            raise ValueError(f"of {len(self)} tokens, rows that token {n} needs are overwritten")
        self.numbers[self.numbers >= n] = -1
        self.length, self.pending = n, {}

    def reset(self) -> None:
        """Forget every token."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes of the storage, whether filled or not: min(max_len, n_sinks + window) places."""
        return self.rows.nbytes


def windowed_cache_bytes(
    config: GPTConfig,
    n_tokens: int,
    window: int,
    n_sinks: int = 0,
    n_full_layers: int = 0,
    batch: int = 1,
    bytes_per_element: int = 2,
) -> int:
    """Bytes of keys and values, an int, when n_tokens of each of `batch` rows were fed.

    Args:
        n_tokens: 0 or more; config.max_seq_len is no bound.
        window, n_sinks: of the layers that have a window.
        n_full_layers: layers that keep every token, 0 … L.

    Raises:
        ValueError: window below 1, n_sinks below 0, more full layers than there are.
    """
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    held = min(n_tokens, n_sinks + window)
    rows = n_full_layers * n_tokens + (config.n_layers - n_full_layers) * held  # of all layers
    return 2 * config.n_kv_heads * config.head_dim * rows * batch * bytes_per_element
