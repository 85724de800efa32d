"""Lesson 13: Latent attention: the cache shrunk by design.

Built from solutions/13-latent-attention/latent_attention.py by `make build`: change it there.
"""

import torch
from torch import Tensor

from course.given.latent import (
    LatentAttention,
    check_absorbed,
    check_latent_block,
    check_latent_bytes,
    check_latent_cache,
    check_latent_queries,
)
from course.minigpt.kv_cache import causal_mask
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model.bounds import check_between
from course.model.cache import CacheFull, KVCacheLike
from course.model.config import GPTConfig


def latent_cache_bytes(
    n_layers: int,
    rank: int,
    d_rope: int,
    n_tokens: int,
    batch: int = 1,
    bytes_per_element: int = 2,
) -> int:
    """Bytes of a cache of latents, an int.

    Args:
        n_layers: L; each keeps rows of its own.
        rank: numbers of a latent.
        d_rope: R, numbers of the rotated key, even.
        n_tokens: S, 0 or more, of each text.
        batch: B, texts.
        bytes_per_element: of a number.

    Raises:
        ValueError: a number out of these bounds, or not a whole one.
    """
    check_latent_bytes(n_layers, rank, d_rope, n_tokens, batch, bytes_per_element)
    return n_layers * (rank + d_rope) * n_tokens * batch * bytes_per_element


class LatentKVCache:
    """Rows of the tokens so far, [latent | rotated key], in storage that is allocated once. It keeps no
    other tensors of floats.

    Args:
        config: sizes of the model that fills it.
        batch: B, texts decoded together.
        max_len: tokens it can hold, at most config.max_seq_len.
        rank: numbers of a latent.
        d_rope: R, numbers of the rotated key, even.
        dtype, device: of the storage.

    Raises:
        ValueError: sizes that cannot be used; latents or keys of another shape or dtype.
        CacheFull: from `append`, when there is no room; nothing was changed.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        rank: int,
        d_rope: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_latent_cache(config, batch, max_len, rank, d_rope)
        self.n_layers, self.batch, self.max_len = config.n_layers, batch, max_len
        self.rank, self.d_rope, self.dtype = rank, d_rope, dtype
        self.length = 0
        shape = (config.n_layers, batch, max_len, rank + d_rope)
        self.rows = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, max_len, rank + R)

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, c: Tensor, k_rope: Tensor) -> Tensor:
        """Copy latents c (B, T, rank) and rotated keys k_rope (B, 1, T, R) behind what is held; return
        all rows so far, (B, S, rank + R), latent first, as a view: no older row is copied."""
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        end = self.length + c.shape[1]
        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
        self.rows[layer, :, self.length : end, : self.rank] = c
        self.rows[layer, :, self.length : end, self.rank :] = k_rope[:, 0]
        return self.rows[layer, :, :end]  # (B, S, rank + R)

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        check_between("n", n, 0, self.max_len - len(self))
        self.length += n

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget the rest."""
        check_between("n", n, 0, len(self))
        self.length = n

    def reset(self) -> None:
        """Forget every token."""
        self.length = 0

    def nbytes(self) -> int:
        """Bytes that the storage occupies, whether filled or not."""
        return self.rows.nbytes


def absorb(q_nope: Tensor, up_k: Tensor) -> Tensor:
    """Queries that meet a latent c as q_nope would meet the key that up_k makes of it.

    Args:
        q_nope: (B, H, T, D), what is not to be rotated.
        up_k: (H * D, rank), D rows for each head, one head after the other.

    Returns:
        (B, H, T, rank), in the type of the arguments.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0.
    """
    check_absorbed(q_nope, up_k)
    H, D = q_nope.shape[1], q_nope.shape[3]
    heads = up_k.reshape(H, D, -1)  # (H, D, rank)
    return q_nope @ heads  # (B, H, T, rank)


def attend_latent(
    q: Tensor, rows: Tensor, rank: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Attention of every head to the same rows.

    Args:
        q: (B, H, T, rank + R), absorbed queries, then rotated ones.
        rows: (B, S, rank + R). Keys are whole rows; values are their first `rank` numbers.
        rank: 1 … rank + R.
        scale: by which scores are multiplied.
        mask: bool, (T, S) or anything that broadcasts to (B, H, T, S), True where a query may look;
            every query sees at least one row. None: each query sees all.

    Returns:
        (B, H, T, rank), in the type of q and rows. In float32, scores may be of any size.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0, or a mask that is not bool.
    """
    check_latent_queries(q, rows, rank, mask)
    B, H, T, W = q.shape
    below = q.reshape(B, H * T, W)  # all queries of a text, below one another
    scores = (below @ rows.transpose(1, 2)).view(B, H, T, -1) * scale  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, H * T, -1)  # (B, H * T, S)
    return (shares @ rows[..., :rank]).view(B, H, T, rank)


def latent_attention_layer(
    attn: LatentAttention, x: Tensor, positions: Tensor, cache: KVCacheLike, layer: int
) -> Tensor:
    """One layer of latent attention over the cached tokens and the new ones.

    Args:
        attn: its matrices `wq`, `down`, `up_k`, `up_v`, `wo` (`attn.wq(x)` multiplies, `attn.up_k.weight`
            is the tensor), its sizes `n_heads`, `head_dim`, `rank`, `d_rope`, and `rotate(heads,
            positions)`, which turns the R numbers of each head.
        x: (B, T, C), the new tokens only.
        positions: (T,) int64, their places in the whole text.
        cache: rows of the tokens before; `append` is called once, for this layer; the caller advances.
        layer: which one that is, 0 … L-1.

    Returns:
        (B, T, C). Operations of PyTorch alone, for only these can be counted.
    """
    H, D, rank, R = attn.n_heads, attn.head_dim, attn.rank, attn.d_rope
    q = split_heads(attn.wq(x), H)  # (B, H, T, D + R)
    q_nope, q_rope = q[..., :D], attn.rotate(q[..., D:], positions)
    c, k_rope = attn.down(x).split([rank, R], dim=-1)  # (B, T, rank), (B, T, R)
    k_rope = attn.rotate(k_rope.unsqueeze(1), positions)  # (B, 1, T, R)
    rows = cache.append(layer, c, k_rope)  # (B, S, rank + R)
    q = torch.cat([absorb(q_nope, attn.up_k.weight), q_rope], dim=-1)  # (B, H, T, rank + R)
    mask = causal_mask(q.shape[2], rows.shape[1], device=x.device)  # (T, S)
    latents = attend_latent(q, rows, rank, (D + R) ** -0.5, mask)  # (B, H, T, rank)
    up_v = attn.up_v.weight.view(H, D, rank)  # (H, D, rank)
    return attn.wo(merge_heads(latents @ up_v.transpose(1, 2)))  # (B, H, T, D) -> (B, T, C)
