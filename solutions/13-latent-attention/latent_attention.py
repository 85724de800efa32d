# %% [markdown]
# # 13 · Latent attention: the cache shrunk by design
#
# {{badge}}
#
# Lesson 06 shared keys among heads, in the extreme one KV head for all. Here all heads share one row that
# is key *and* value.
#
# **After this lesson you can**
#
# * keep one short row per token and layer, and compute with it as if every head had its own keys,
# * move a matrix from the keys to the query, and say why that is exact,
# * say why the rotated part must stay separate,
# * say what latent attention saves, and what it does not.
#
# **You build:** a cache of latents, and attention that reads them where they lie.
# **Time:** 85 minutes. **Points:** 10. **Needs:** lessons 01, 03 and 06 (your answers,
# or ours).
#
# > **Predict.** With one KV head, 32 numbers per token and layer, lesson 06's model recalls
# > {{28 = 100 * METRICS["story-g1"]["recall_place_far"]}} of 100 places. How many are recalled if these
# > 32 numbers are one row for all heads? Write your number down.

# %% tags=["setup"]

# %% tags=["export"]
import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import CacheFull, KVCacheLike
from course.model.config import GPTConfig
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

# %%


from course import weights
from course.checks import latent_attention as checks
from course.engine import Engine
from course.given.latent import LatentGPT, forward_latent
from course.measure.machine import interleaved, one_thread
from course.minigpt.gqa import grouped_attention
from course.minigpt.kv_cache import generate_cached
from course.model import MiniGPT
from course.plots.latent_attention import (
    SHARED,
    draw_bytes,
    draw_recall,
    draw_regrouping,
    trained_latents,
)
from course.plots.style import show
from course.plots.times import draw_times
from course.published.models import LATENT
from course.widgets.latent_attention import play_with_widths
from course.world.evaluation import evaluate, held_out
from course.world.tokenizer import decode, encode

story = LatentGPT.from_weights("story-latent-16-16")

# %% [markdown]
# ## The picture
#
# For one head, a matrix `U` (its rows of `up_k`, see the table) makes the keys from short latents `c`.

# %%
show(draw_regrouping(head_dim=16, rank=8, n_tokens=24))

# %% [markdown]
# Above, a key for every token; below, the query, changed once. Products may be regrouped: **q · (U c) =
# (q U) · c**. Nothing is approximated; the keys need never exist. This is called *absorbing* the matrix.
# Values work the same way: average the latents first, then apply the head's value matrix once.
#
# The design is *multi-head latent attention*, MLA, from DeepSeek-V2 (DeepSeek-AI 2024). The published
# version also normalises the latent and compresses the queries; we leave both out; absorbing works with
# them. Ours:
#
# | part | shape | what it does |
# |---|---|---|
# | `down` | (rank + R, C) | maps x to the latent `c`, followed by one key of R numbers to be rotated |
# | `up_k`, `up_v` | (H · D, rank) | head after head, D rows each: a head's key and value from `c` |
# | `wq` | (H · (D + R), C) | per head: D numbers for the content, R to be rotated |
# | `wo` | (C, H · D) | as ever |
#
# **Why a separate key?** A rotated key would be rotate(U c, p): the matrix between q and U depends on the
# position p and differs for each token, so U cannot move to the query. Positions get their own small key:
# R numbers, rotated once, shared by all heads.
#
# A score is the content's dot product plus the positions', divided by √(D + R), the root of a head's
# query length. A cached *row* is `[c | rotated key]`, rank + R numbers.
#
# ## 1 · The bytes
#
# *Difficulty 1 of 5 · importance 4 of 5 · 5 minutes*
#
# Write `latent_cache_bytes`: how many bytes do the rows take?
#
# <details><summary>Hint 1: the idea</summary>
# One row for each layer, token and text of the batch.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# A row has two parts, of <code>rank</code> and of <code>d_rope</code> numbers. Heads play no part.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One product of whole numbers; compare lesson 03's <code>kv_cache_bytes</code>.
# </details>


# %% nbgrader={"grade_id": "latent_cache_bytes", "solution": true}
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
    ### BEGIN SOLUTION
    return n_layers * (rank + d_rope) * n_tokens * batch * bytes_per_element
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_of_rows", "points": 1}
checks.bytes_of_rows(latent_cache_bytes)

# %% [markdown]
# ## 2 · A cache of rows
#
# *Difficulty 2 of 5 · importance 4 of 5 · 12 minutes*
#
# You use it like lesson 03's cache; it keeps nothing but rows. A full cache refuses the whole block.
#
# **The common wrong answer** stores keys and values beside the rows, "to save time": the bytes come back.
#
# Write the methods of `LatentKVCache`.
#
# <details><summary>Hint 1: the idea</summary>
# Lesson 03's <code>KVCache</code> with one storage in place of two, and no axis of heads.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Storage (L, B, max_len, rank + R). The key (B, 1, T, R) loses its axis of one head.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>append</code>: find the end; check the room; assign two slices of the new places, the first
# <code>rank</code> numbers and the others; return a view up to the end.
# </details>


# %% nbgrader={"grade_id": "LatentKVCache", "solution": true}
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
        ### BEGIN SOLUTION
        shape = (config.n_layers, batch, max_len, rank + d_rope)
        self.rows = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, max_len, rank + R)
        ### END SOLUTION

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, c: Tensor, k_rope: Tensor) -> Tensor:
        """Copy latents c (B, T, rank) and rotated keys k_rope (B, 1, T, R) behind what is held; return
        all rows so far, (B, S, rank + R), latent first, as a view: no older row is copied."""
        check_latent_block(
            self.n_layers, self.batch, self.rank, self.d_rope, self.dtype, layer, c, k_rope
        )
        ### BEGIN SOLUTION
        end = self.length + c.shape[1]
        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
        self.rows[layer, :, self.length : end, : self.rank] = c
        self.rows[layer, :, self.length : end, self.rank :] = k_rope[:, 0]
        return self.rows[layer, :, :end]  # (B, S, rank + R)
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        check_between("n", n, 0, self.max_len - len(self))
        self.length += n

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget the rest."""
        check_between("n", n, 0, len(self))
        ### BEGIN SOLUTION
        self.length = n
        ### END SOLUTION

    def reset(self) -> None:
        """Forget every token."""
        ### BEGIN SOLUTION
        self.length = 0
        ### END SOLUTION

    def nbytes(self) -> int:
        """Bytes that the storage occupies, whether filled or not."""
        ### BEGIN SOLUTION
        return self.rows.nbytes
        ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_match_the_rows", "points": 1}
checks.bytes_match_the_rows(LatentKVCache)

# %% nbgrader={"grade_id": "rows_come_back", "points": 1}
checks.rows_come_back(LatentKVCache)

# %% nbgrader={"grade_id": "full_changes_nothing", "points": 1}
checks.full_changes_nothing(LatentKVCache)

# %% nbgrader={"grade_id": "can_go_back", "points": 1}
checks.can_go_back(LatentKVCache)

# %% [markdown]
# What would each design keep per token and layer? DeepSeek-V2 has 60 layers, 128 heads of 128, rank 512
# and R = 64.

# %%
kept = {"MHA, 128 heads": 2 * 128 * 128, "GQA, 8 heads": 2 * 8 * 128, "latent": 512 + 64}
kept["MQA, 1 head"] = 2 * 128
show(draw_bytes(kept, "numbers of one token in one layer, heads of 128"))
newer = LATENT["DeepSeek-V3"]
print(
    f"DeepSeek-V3, {newer.n_layers} layers: {latent_cache_bytes(61, 512, 64, 1):,} bytes a token, 16 bits"
)

# %% [markdown]
# DeepSeek-V2's 60 layers keep {{34,560 = 60 * (512 + 64)}} numbers per token, where MHA
# would keep {{1,966,080 = 60 * 2 * 128 * 128}}: {{56.9 = 60 * 2 * 128 * 128 / (60 * (512 + 64))}} times
# fewer, and as many as GQA with {{2.25 = (512 + 64) / (2 * 128)}} KV heads. It is *more* than MQA: {{576
# = 512 + 64}} > {{256 = 2 * 128}} per layer.
#
# > **Spot the slip.** "MLA cuts the cache by 93.3 %."
#
# <details><summary>Answer</summary>
# The comparison is with DeepSeek 67B: 95 layers, 8 KV heads of 128, {{194,560 = 95 * 2 * 8 * 128}}
# numbers a token. The latent alone gives {{82.2 = 100 * (1 - 60 * 576 / (95 * 2 * 8 * 128))}} %. With
# V2's quantized cache, 6 bits a number against 16, it is {{93.3 = 100 * (1 - 60 * 576 * 6 / (95 * 2 * 8
# * 128
# * 16))}} % (our arithmetic, from both configurations and the paper's section on inference).
# </details>
#
# ## 3 · Queries go to the latents
#
# *Difficulty 4 of 5 · importance 5 of 5 · 18 minutes*
#
# Write `absorb`, which turns a head's content query into a query for latents, and `attend_latent`, which
# needs nothing but rows: its result is a weighted mean of *latents*.
#
# **The common wrong answer** cuts `up_k` so that the rows of all heads alternate. As in lesson 01, head h
# owns D consecutive rows.
#
# <details><summary>Hint 1: the idea</summary>
# Of the three factors, which two do not depend on a cached token? What do all heads read in common?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Per head, multiply (T, D) by (D, rank). For attention, stack the heads' queries: (B, H · T, rank + R)
# against (B, rank + R, S). Values are (B, S, rank).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>absorb</code>: cut the matrix into heads, one batched product. <code>attend_latent</code>:
# lesson 06's <code>grouped_attention</code> with one group, another scale, and values that are a slice.
# </details>


# %% nbgrader={"grade_id": "absorb", "solution": true}
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
    ### BEGIN SOLUTION
    H, D = q_nope.shape[1], q_nope.shape[3]
    heads = up_k.reshape(H, D, -1)  # (H, D, rank)
    return q_nope @ heads  # (B, H, T, rank)
    ### END SOLUTION


# %% nbgrader={"grade_id": "attend_latent", "solution": true}
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
    ### BEGIN SOLUTION
    B, H, T, W = q.shape
    below = q.reshape(B, H * T, W)  # all queries of a text, below one another
    scores = (below @ rows.transpose(1, 2)).view(B, H, T, -1) * scale  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, H * T, -1)  # (B, H * T, S)
    return (shares @ rows[..., :rank]).view(B, H, T, rank)
    ### END SOLUTION


# %% nbgrader={"grade_id": "absorbed_scores_are_the_scores", "points": 2}
checks.absorbed_scores_are_the_scores(absorb, attend_latent)

# %% [markdown]
# ## 4 · The layer
#
# *Difficulty 4 of 5 · importance 5 of 5 · 15 minutes*
#
# Now all of it: write `latent_attention_layer`. The layer remembers nothing, not even a matrix: it reads
# *all* tokens, new ones included, from the rows `append` returns. It expands nothing: with one new token,
# new tensors take fewer numbers than the keys of all heads, B · S · H · D, would. (PyTorch's `matmul`
# copies what it broadcasts: `q @ rows[:, None]` copies the rows for each head.)
#
# **The common wrong answer** divides by √D, or by the root of the row's length, rank + R. However
# computed, these are scores of keys of D + R numbers.
#
# <details><summary>Hint 1: the idea</summary>
# Cut and rotate; append; absorb and attend; from the mean of latents to the values of each head; merge.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Queries (B, H, T, D + R), cut at D. <code>attn.down(x)</code> (B, T, rank + R), cut at rank; the key
# gets an axis of one head before it is rotated. After attention, (B, H, T, rank) by (H, rank, D) gives
# (B, H, T, D).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>split_heads</code>, two slices, <code>attn.rotate</code> twice, <code>cache.append</code>,
# <code>cat</code> of absorbed and rotated queries, <code>causal_mask</code> of T and S on x's device,
# <code>attend_latent</code>, <code>up_v</code> cut into heads, transposed, <code>merge_heads</code>.
# </details>

# %%
attn, x = story.blocks[0].attn, torch.randn(1, 3, story.config.d_model)
print(
    "queries", tuple(split_heads(attn.wq(x), attn.n_heads).shape), "down", tuple(attn.down(x).shape)
)
print(f"D {attn.head_dim}, rank {attn.rank}, R {attn.d_rope}, up_k {tuple(attn.up_k.weight.shape)}")


# %% nbgrader={"grade_id": "latent_attention_layer", "solution": true}
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
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% nbgrader={"grade_id": "every_split_equals_the_paper", "points": 1}
checks.every_split_equals_the_paper(latent_attention_layer, LatentKVCache)

# %% nbgrader={"grade_id": "rows_are_the_only_memory", "points": 1}
checks.rows_are_the_only_memory(latent_attention_layer)

# %% nbgrader={"grade_id": "nothing_is_expanded", "points": 1}
checks.nothing_is_expanded(latent_attention_layer)

# %% [markdown]
# ## 5 · What it remembers
#
# The sibling `story-latent-16-16` was converted from lesson 06's story model: a singular value
# decomposition of its key and value matrices gives the latent, the mean of its keys the rotated part. It
# was trained for {{500 = METRICS["story-latent-16-16"]["steps"]}} steps, exactly like lesson 06's
# siblings (`python -m course.world.train_latent`). Your layer reads new stories with it:


# %%
def read_with_latents(tokens):
    cache = LatentKVCache(story.config, *tokens.shape, story.rank, story.d_rope)
    return forward_latent(story, tokens, cache, latent_attention_layer)


quality = evaluate(read_with_latents, held_out(25))
print(f"places after 100 tokens or more: {quality['recall_place_far']:.0%} of these 25 stories,")
print(f"surnames: {quality['recall_surname_far']:.0%}")

# %% [markdown]
# On 200 stories, beside lesson 06's line:

# %%
recorded = {name: weights.metrics(name) for name in (*SHARED, *trained_latents())}
show(draw_recall(recorded))

# %% [markdown]
# Your prediction: as one shared row, 32 numbers recall
# {{91 = 100 * METRICS["story-latent-16-16"]["recall_place_far"]}} of 100 places; as one KV head,
# {{28 = 100 * METRICS["story-g1"]["recall_place_far"]}}. Right after the conversion it was
# {{0 = 100 * METRICS["story-latent-16-16"]["recall_place_far_converted"]}}: the training achieved that.
#
# But 48 + 16, twice the numbers, recalls only
# {{65 = 100 * METRICS["story-latent-48-16"]["recall_place_far"]}}, and 24 + 8, with a smaller rotated
# part, {{51 = 100 * METRICS["story-latent-24-8"]["recall_place_far"]}}. **One run each is no proof.** The
# paper finds MLA *better* than MHA.
#
# Choose other widths:

# %%
play_with_widths(latent_cache_bytes)

# %% [markdown]
# ## 6 · What it costs
#
# Popular teaching code keeps latents but expands all keys and values from them at every step. Take one
# layer, 16 heads of 64, latent 128 + 32, one new token.
#
# > **Predict.** With 8,192 tokens cached, how many times slower is expanding than absorbing?


# %%
H, D, rank, R = 16, 64, 128, 32
up_k, up_v = torch.randn(2, H * D, rank) / rank**0.5
q_nope, q_rope = torch.randn(1, H, 1, D), torch.randn(1, H, 1, R)
q_mha = torch.randn(1, H, 1, D)


def absorbed(rows):
    q = torch.cat([absorb(q_nope, up_k), q_rope], dim=-1)
    return attend_latent(q, rows, rank, (D + R) ** -0.5) @ up_v.view(H, D, rank).transpose(1, 2)


def expanded(rows):
    keys, values = (split_heads(rows[..., :rank] @ up.T, H) for up in (up_k, up_v))
    shared = rows[:, None, :, rank:].expand(-1, H, -1, -1)
    q, keys = torch.cat([q_nope, q_rope], dim=-1), torch.cat([keys, shared], dim=-1)
    return (q @ keys.transpose(2, 3) * (D + R) ** -0.5).softmax(dim=-1) @ values


times = {}
with one_thread(), torch.no_grad():
    for S in (2048, 8192):
        rows, heads = torch.randn(1, S, rank + R), torch.randn(2, 1, H, S, D)
        ways = {
            "absorbed": lambda rows=rows: absorbed(rows),
            "expanded at each step": lambda rows=rows: expanded(rows),
            "MHA cache": lambda heads=heads: grouped_attention(q_mha, *heads),
            "GQA cache, G = 4": lambda heads=heads: grouped_attention(q_mha, *heads[:, :, :4]),
        }
        times[S] = interleaved(ways, rounds=5)
        apart = (absorbed(rows) - expanded(rows)).abs().max()
        slower = min(times[S]["expanded at each step"]) / min(times[S]["absorbed"])
        print(f"{S:,} tokens: expanding takes {slower:.0f} times as long; max |Δ| {apart:.0e}")
show(draw_times(times[8192], "one token on 8,192 in one layer", beside="absorbed"))

# %% [markdown]
# Expanding gives the same numbers at many times the price. Absorbed, a step costs about as much as with a
# GQA cache. Per cached token and head it takes 2 · rank + R = {{288 = 2 * 128 + 32}} multiplications
# where MHA takes 2 · D = {{128 = 2 * 64}}. It saves *bytes*, which decode waits for (lesson 05), not
# FLOPs. So engines absorb in decode and expand, once, in a prefill.
#
# With many heads this matters: 128 heads read each byte of DeepSeek-V3's rows of 512 + 64 numbers in 16
# bits, and do {{242 = 128 * (2 * (512 + 64) + 2 * 512) / (2 * (512 + 64))}} FLOPs with it. That nearly is
# an H100's balance of {{295 = 989 / 3.35}}: there memory alone no longer decides.
#
# ## Check yourself
#
# <details><summary>Is absorption an approximation?</summary>
# No: a product of matrices may be grouped in any way; only rounding differs. <em>Common wrong
# answer:</em> "yes, as the rank is small". The rank limits what keys <em>can be</em>.
# </details>
# <details><summary>Does it save FLOPs?</summary>
# Not in attention: each head's products are rank + R long, more than D. <em>Common wrong answer:</em>
# "yes, as rows are shorter than all keys together". But every head reads the whole row.
# </details>
# <details><summary>Why not rotate the latent?</summary>
# rotate(q) · U rotate(c) depends on both positions. With qU rotated, only their difference counts; but
# the same rows are the values, which would turn. <em>Common wrong answer:</em> "a latent is too short
# for it".
# </details>
#
# ## What you have built: an engine
#
# Thirteen lessons make one engine: `course/engine.py` puts your functions together. Prompts enter in
# chunks, all decoding texts share a pass, keys and values lie in pages, a common beginning is prefilled
# once. A single text takes lesson 05's fast path, with lesson 12's guesses where they pay. Eight that
# begin with the same 100 words:

# %%
gpt = MiniGPT.from_weights("story")
words = [text.text.split() for text in held_out(9)]
prompts = [
    encode(" ".join([*words[8][:100], *own[: 5 + 3 * i]]))[0] for i, own in enumerate(words[:8])
]
engine = Engine(gpt)


def together():
    return engine.serve([prompt.tolist() for prompt in prompts], 60)


def one_by_one():
    return [generate_cached(gpt, prompt[None], 60)[0, len(prompt) :].tolist() for prompt in prompts]


print("the same texts:", together() == one_by_one())
with one_thread():
    timed = interleaved({"one by one": one_by_one, "together": together}, rounds=3)
show(draw_times(timed, "eight texts of 60 tokens", "one by one"))
print("one conversation, as it is written:")
for written in engine.run([engine.conversation(prompts[0].tolist(), 20)]):
    print(decode([token for _, token in written]), end=" ", flush=True)

# %% [markdown]
# A real model runs through the same functions:
#
# ```python
# from course.engine import main
# main(["Once upon a time", "--model", "HuggingFaceTB/SmolLM2-135M"])
# ```
#
# In a terminal, `python -m course.engine "Anna Stone found a red kite ."` runs our functions, with
# `--mine` yours; with `--serve`, clients share your passes and pages
# (docs/engine.md).
#
# Each part came with a number for what it saves and what it costs. Now open an engine that serves real
# users, vLLM or SGLang, and look for the scheduler, the block table, the sampler:
# you know what each must do, and which mistake it must not make. **14** asks which rows to read, **15**
# which prefixes to keep, **16** which weights to read, **17** what replaces rows.
