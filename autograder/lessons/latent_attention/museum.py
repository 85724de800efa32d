"""Known wrong answers to lesson 13."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.minigpt.latent_attention import LatentKVCache

MUSEUM = Museum("latent_attention")

# --- bytes ------------------------------------------------------------------------------------------


bug = MUSEUM.section("LatentKVCache", check="bytes_match_the_rows")


@bug("cost", "a cache that stores more beside its rows", kind="cost")
class StoresKeysAndValuesBeside(LatentKVCache):
    """Room for the keys and values of all heads as well, to save time: the bytes are back."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, rank, d_rope, dtype, device)
        shape = (2, config.n_layers, batch, config.n_heads, max_len, config.head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=dtype, device=device)


# --- the cache --------------------------------------------------------------------------------------

bug = MUSEUM.section("LatentKVCache", check="rows_come_back")


@bug("state", "caches that write into one and the same storage", kind="instances")
class SharedStorage(LatentKVCache):
    """The storage is made once for the class, so all caches of one size write into it."""

    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, rank, d_rope, dtype, device)
        self.rows = self._storage.setdefault((config, batch, max_len, rank, dtype), self.rows)


@bug("writes", "a cache that keeps the caller's tensors in place of copies", kind="results")
class KeepsWhatItWasGiven(LatentKVCache):
    """A list of the blocks, joined when asked for; their memory is the caller's, who uses it again."""

    def append(self, layer, c, k_rope):
        super().append(layer, c, k_rope)
        blocks = self.__dict__.setdefault("blocks", {})
        if len(self) == 0:
            blocks[layer] = []
        blocks[layer].append((c, k_rope))
        rows = [torch.cat([c, k[:, 0]], dim=-1) for c, k in blocks[layer]]
        return torch.cat(rows, dim=1)


# --- scores -----------------------------------------------------------------------------------------

bug = MUSEUM.section("absorb", check="absorbed_scores_are_the_scores")


@bug("state", "absorbed queries that lie in one memory for all calls", kind="results")
def absorbs_into_one_buffer(q_nope, up_k, buffers={}):  # noqa: B006 (the mistake)
    """The result is written into a buffer that the next call of the same sizes uses again."""
    check_absorbed(q_nope, up_k)  # noqa: F821
    H, D = q_nope.shape[1], q_nope.shape[3]
    heads = torch.matmul(q_nope, up_k.reshape(H, D, -1))
    kept = buffers.setdefault("all", torch.empty(10_000, dtype=torch.float64))
    out = kept[: heads.numel()].view(heads.shape) if heads.dtype == kept.dtype else heads
    return out.copy_(heads)


# --- the layer --------------------------------------------------------------------------------------


bug = MUSEUM.section("latent_attention_layer", check="rows_are_the_only_memory")


@bug("state", "a layer that keeps rows of its own and reads no cache")
def keeps_its_own_rows(attn, x, positions, cache, layer):
    """The rows so far are kept on the layer, beside the cache, and what append returns is not read."""
    rows = right.latent_attention_layer  # noqa: F821

    class Beside:
        def append(self, number, c, k_rope):
            cache.append(number, c, k_rope)
            new = torch.cat([c, k_rope[:, 0]], dim=-1)
            past = getattr(attn, "_rows", None) if int(positions[0]) else None
            attn._rows = new if past is None else torch.cat([past, new], dim=1)
            return attn._rows

    return rows(attn, x, positions, Beside(), layer)


@bug("wiring", "a layer that adds up the rows, without any attention", kind="cheapest")
def adds_up_the_rows(attn, x, positions, cache, layer):
    """It reads the rows and nothing else, whatever their order."""
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, attn.rotate(k_rope.unsqueeze(1), positions))
    return x + rows.sum(dim=(1, 2))[:, None, None]


bug = MUSEUM.section("latent_attention_layer", check="nothing_is_expanded")


@bug("softmax", "a layer in which every row counts for the same", kind="cheapest")
def takes_the_plain_mean(attn, x, positions, cache, layer):
    """The plain mean of the latents, made into values: without scores there is little to write."""
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, attn.rotate(k_rope.unsqueeze(1), positions))
    mean = rows[..., : attn.rank].mean(dim=1, keepdim=True)  # (B, 1, rank)
    return attn.wo(attn.up_v(mean)).expand(x.shape)


@bug("cost", "a layer that makes keys and values of all cached tokens", kind="cost")
def expands_at_each_step(attn, x, positions, cache, layer):
    """As the popular teaching code does: the latents are kept, and all keys and values are made of them
    at every step."""
    H, D, R = attn.n_heads, attn.head_dim, attn.d_rope
    q = split_heads(attn.wq(x), H)  # noqa: F821
    q = torch.cat([q[..., :D], attn.rotate(q[..., D:], positions)], dim=-1)
    c, shared = attn.down(x).split([attn.rank, R], dim=-1)
    rows = cache.append(layer, c, attn.rotate(shared.unsqueeze(1), positions))
    latents, turned = rows[..., : attn.rank], rows[:, None, :, attn.rank :]
    keys = split_heads(attn.up_k(latents), H)  # noqa: F821
    values = split_heads(attn.up_v(latents), H)  # noqa: F821
    keys = torch.cat([keys, turned.expand(-1, H, -1, -1)], dim=-1)
    mask = causal_mask(x.shape[1], rows.shape[1], x.device)  # noqa: F821
    scores = (q @ keys.transpose(2, 3) / (D + R) ** 0.5).masked_fill(~mask, float("-inf"))
    return attn.wo(merge_heads(scores.softmax(dim=-1) @ values))  # noqa: F821
