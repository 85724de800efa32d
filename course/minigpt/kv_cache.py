"""Lesson 03: The KV cache.

Built from solutions/03-kv-cache/kv_cache.py by `make build`: change it there.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull, KVCacheLike, check_block, check_cache_sizes
from course.model.config import GPTConfig
from course.model.layers import Attention


def causal_mask(n_new: int, n_visible: int, device: str | torch.device = "cpu") -> Tensor:
    """Which visible tokens each new token may see.

    Args:
        n_new: T, at least 1.
        n_visible: S, at least T: the new tokens are the last T of the visible ones.

    Returns:
        (T, S) bool, True where new token t may look at visible token s.

    Raises:
        ValueError: a size out of these bounds.
    """
    check_between("n_visible", n_visible, 1, 2**31)
    check_between("n_new", n_new, 1, n_visible)
    own = torch.arange(n_visible - n_new, n_visible, device=device).unsqueeze(1)  # (T, 1)
    return torch.arange(n_visible, device=device) <= own  # (S,) against (T, 1): (T, S)


class GrowingKVCache:
    """Keys and values of the tokens so far, in tensors that grow with every block.

    Args:
        config: sizes of the model that fills it.
        batch: B, rows decoded together.
        dtype, device: of its tensors.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        shape = (batch, config.n_kv_heads, 0, config.head_dim)  # no tokens yet
        layers, new = range(config.n_layers), {"dtype": dtype, "device": device}
        self.keys = [torch.empty(shape, **new) for _ in layers]
        self.values = [torch.empty(shape, **new) for _ in layers]
        self.length, self.max_len = 0, config.max_seq_len

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put copies of k and v (B, G, T, D) behind what layer `layer` holds; return all of its keys
        and all of its values, (B, G, S, D) each."""
        self.keys[layer] = torch.cat([self.keys[layer], k], dim=2)  # (B, G, S + T, D)
        self.values[layer] = torch.cat([self.values[layer], v], dim=2)  # (B, G, S + T, D)
        return self.keys[layer], self.values[layer]

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        self.length += n


def numbers_copied(config: GPTConfig, n_tokens: int, batch: int = 1) -> int:
    """Old numbers that GrowingKVCache copies in all while tokens come one at a time.

    Each step copies what was held before it, keys and values, in every layer. The new token's own
    numbers do not count.

    Args:
        config: sizes of the model.
        n_tokens: tokens appended to an empty cache, 0 or more.
        batch: B, rows.
    """
    per_token = 2 * config.n_layers * config.n_kv_heads * config.head_dim  # keys and values
    return batch * per_token * (n_tokens * (n_tokens - 1) // 2)  # 0 + 1 + … + (n_tokens - 1) tokens


class KVCache:
    """Keys and values of the tokens so far, in storage that is allocated once. Keep no other tensor of
    floats; a length or positions may be int64 tensors.

    Args:
        config: sizes of the model that fills it.
        batch: B, rows decoded together.
        max_len: tokens it can hold, at most config.max_seq_len.
        dtype, device: of the storage.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype.
        CacheFull: from `append`, when there is no room; nothing was changed.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, G, max_len, D)
        self.values = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, G, max_len, D)
        self.length = 0

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy k and v (B, G, T, D) behind what is held; return all so far, (B, G, S, D) each, as
        views: no older row is copied. Appended again before `advance`, the new ones replace the old."""
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} places are taken, {k.shape[2]} more do not fit"
            )
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, G, S, D)

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
        """Bytes that the storage of keys and values occupies, whether filled or not."""
        return self.keys.nbytes + self.values.nbytes


def attention_layer_cached(
    attn: Attention, x: Tensor, positions: Tensor, cache: KVCacheLike, layer: int
) -> Tensor:
    """One attention layer over the cached tokens and the new ones.

    Args:
        attn: its matrices `wq`, `wk`, `wv`, `wo`, its sizes `n_heads`, `n_kv_heads`, and `rotate`.
        x: (B, T, C), the new tokens only.
        positions: (T,) int64, their places in the whole text, of which a cache may hold the end alone.
        cache: any KVCacheLike, with the tokens before; this layer's part of it is extended.
        layer: which part that is, 0 … L-1.

    Returns:
        (B, T, C).
    """
    q = split_heads(attn.wq(x), attn.n_heads)  # (B, H, T, D)
    k = split_heads(attn.wk(x), attn.n_kv_heads)  # (B, G, T, D)
    v = split_heads(attn.wv(x), attn.n_kv_heads)  # (B, G, T, D)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    k, v = cache.append(layer, k, v)  # (B, G, S, D)
    group = attn.n_heads // attn.n_kv_heads
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, S, D)
    T, S, mask = x.shape[1], k.shape[2], None
    if T > 1:  # one new token may look at everything
        mask = causal_mask(T, S, device=x.device)  # (T, S)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, T, D)
    return attn.wo(merge_heads(heads))


def forward_cached(model: MiniGPT, tokens: Tensor, cache: KVCacheLike) -> Tensor:
    """Logits of new tokens that follow those in the cache, in one pass; then the cache holds them.

    Args:
        model: its parts `embed`, `blocks[i].attn`, `.attn_norm`, `.mlp_norm`, `.mlp`, `norm`,
            `lm_head`.
        tokens: (B, T) int64, T at least 1.
        cache: of the tokens before; advanced by T, once.

    Returns:
        (B, T, V).

    Raises:
        ValueError: tokens that the model cannot take.
        CacheFull: no room for T tokens (look before you make positions); the cache holds what it
            held.
    """
    model.check_tokens(tokens)
    past, T = len(cache), tokens.shape[1]
    if past + T > cache.max_len:  # rotate() may have no such positions, before append refuses
        raise CacheFull(f"{past} of {cache.max_len} places are taken, {T} more do not fit")
    positions = torch.arange(past, past + T, device=tokens.device)
    x = model.embed(tokens)  # (B, T, C)
    for layer, block in enumerate(model.blocks):
        x = x + attention_layer_cached(block.attn, block.attn_norm(x), positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T)
    return model.lm_head(model.norm(x))  # (B, T, V)


def generate_cached(
    model: MiniGPT, prompt: Tensor, n_new: int, cache: KVCacheLike | None = None
) -> Tensor:
    """Continue a prompt greedily, computing each row of keys and values once: n_new passes, the
    prompt in one and then each new token alone.

    Args:
        prompt: (B, P) int64.
        n_new: tokens to write, 0 or more; `<end>`, a story's last token, does not stop it.
        cache: may hold an earlier part of the text, which the prompt continues. Left out, a new
            one is made, with room for what is fed, in the model's dtype and on its device.

    Returns:
        A tensor of its own, (B, P + n_new) int64: the prompt and the new tokens. The cache then
        holds all but the last of them, which was never fed. For n_new = 0 nothing is fed.

    Raises:
        ValueError: a prompt that the model cannot take; n_new below 0, or P + n_new above
            model.config.max_seq_len, whatever the cache holds.
        CacheFull: before any pass: the cache given has no room for the P + n_new - 1 tokens that are
            fed (none for n_new = 0).
    """
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    B, P = prompt.shape
    if n_new == 0:
        return prompt.clone()
    n_fed, own = P + n_new - 1, cache is None
    if own:
        weight = model.embed.weight
        cache = KVCache(model.config, B, n_fed, dtype=weight.dtype, device=weight.device)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull(
            f"{n_fed} tokens are to be fed, but {len(cache)} of {cache.max_len} places are taken"
        )
    text, feed = [prompt], prompt
    # Inference mode is faster still, but what it makes may not be changed outside of it.
    with torch.inference_mode() if own else torch.no_grad():
        for _ in range(n_new):
            logits = forward_cached(model, feed, cache)  # (B, T, V)
            feed = greedy_next(logits[:, -1]).unsqueeze(1)  # (B, 1)
            text.append(feed)
    return torch.cat(text, dim=1)


def kv_cache_bytes(
    config: GPTConfig, n_tokens: int, batch: int = 1, bytes_per_element: int = 2
) -> int:
    """Bytes of a KV cache that holds n_tokens of each of `batch` rows.

    Args:
        config: sizes of the model.
        n_tokens: S, tokens a row.
        batch: B, rows.
        bytes_per_element: 4 for float32, 2 for float16 and bfloat16.
    """
    per_token = 2 * config.n_layers * config.n_kv_heads * config.head_dim  # keys and values
    return per_token * n_tokens * batch * bytes_per_element
