# %% [markdown]
# # 03 · The KV cache
#
# {{badge}}
#
# **Why is the second token faster than the first?** In lesson 02 a model computed the same keys and
# values again at every step. Here you store them.
#
# **After this lesson you can**
#
# * say which numbers a decoder may keep between two tokens, and why exactly those,
# * build a KV cache in two ways, and get *the same logits* as without one,
# * count what a cache copies, and how many bytes it takes, here and in published models.
#
# **You build:** two caches, and proof that nothing changed.
# **Time:** 110 minutes. **Points:** 10. **Needs:** lessons 01 and 02 (your answers, or ours).
#
# > **Predict.** A prompt has 3 tokens and the model writes 4 more. Lesson 02 computed
# > {{18 = kv_rows_naive(3, 4)}} rows of keys and needed {{6 = kv_rows_needed(3, 4)}}. With a cache, how
# > many times in total are stored rows *read*?

# %% tags=["setup"]

# %% tags=["export"]
import torch
import torch.nn.functional as F
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import CacheFull, KVCacheLike, check_block, check_cache_sizes
from course.model.config import GPTConfig
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads
from course.model.layers import Attention
from course.model import MiniGPT

# %%
import statistics
import sys
import time

from tqdm.auto import tqdm

from course.checks import kv_cache as checks
from course.measure.copies import count_copied
from course.measure.counting import count_kv_rows
from course.measure.machine import interleaved, one_thread
from course.measure.wrong_caches import wrong_caches
from course.minigpt.naive_decode import generate_naive
from course.plots.kv_cache import draw_bytes, draw_copies, draw_masks, draw_race, draw_rows
from course.plots.style import show
from course.published.models import PUBLISHED
from course.world.tokenizer import decode, encode
from course.widgets.kv_cache import watch_a_cache_fill

model, storyteller = MiniGPT.from_weights("mini"), MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture
#
# Each column is a decode step; each filled cell is a row of keys and values computed there.

# %%
show(draw_rows(prompt_len=3, n_new=4))

# %% [markdown]
# On the left, every step starts over. On the right, rows are computed once, then only *read*,
# {{12 = kv_rows_naive(3, 4) - kv_rows_needed(3, 4)}} times in all.
#
# Why may a row be kept? Lesson 01's causality map showed it: nothing to the left of a changed token
# moves. The key of token 2 is the same at step 1 and at step 1,000, its rotation included, because its
# position stays 2. One rotation serves every later query, since their product depends only on the
# *difference* of the positions.
#
# A cached step is often called O(1). It is not: attention reads *every* row so far, six at step 4, its
# own included.
#
# ## 1 · A mask that is not square
#
# *Difficulty 1 of 5 · importance 5 of 5 · 8 minutes*
#
# `T` new tokens look at `S` visible ones: the cached ones and themselves. The **last** new token is the
# last visible one, so the triangle sits at the **right** edge.

# %%
show(draw_masks([(5, 5), (2, 5), (1, 5)]))

# %% [markdown]
# **The common wrong answer** puts the triangle at the top *left*, as PyTorch's `is_causal=True` does. One
# new token then sees only the oldest of five, and nothing fails: the shapes fit.
#
# Write `causal_mask`, True where a new token may see a token.
#
# <details><summary>Hint 1: the idea</summary>
# Number the visible tokens 0 … S-1. Which is new token t?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Compare a column of own numbers, (T, 1), with a row of visible numbers, (1, S).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Two <code>torch.arange</code>, one <code>unsqueeze</code>, one comparison. Or
# <code>tril</code> of ones with its <code>diagonal</code> argument.
# </details>


# %% nbgrader={"grade_id": "causal_mask", "solution": true}
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
    ### BEGIN SOLUTION
    own = torch.arange(n_visible - n_new, n_visible, device=device).unsqueeze(1)  # (T, 1)
    return torch.arange(n_visible, device=device) <= own  # (S,) against (T, 1): (T, S)
    ### END SOLUTION


# %% nbgrader={"grade_id": "mask_is_rectangular", "points": 1}
checks.mask_is_rectangular(causal_mask)

# %% [markdown]
# ## 2 · The plain cache
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# The simplest cache keeps one tensor of keys and one of values per layer, and appends new tokens with
# `torch.cat`. Write its `append`. It is called once per *layer*, so it must not change the length;
# `advance` does, once per forward pass.
#
# But `torch.cat` copies every old row into a **new** tensor. Write `numbers_copied`, which counts those
# old numbers.
#
# > **Predict.** 512 tokens arrive one at a time. How many times is the first row copied?
#
# <details><summary>Hint 1: the idea</summary>
# Old and new become one tensor, which is kept. How many old rows does step 1 find, and step 2?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (B, G, S, D) and (B, G, T, D) make (B, G, S + T, D). A token has a key and a value, of G·D numbers each,
# in every layer.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Call <code>torch.cat</code> twice along the tokens; return what you keep. The count is lesson 02's
# triangle times the numbers per token times B.
# </details>


# %% nbgrader={"grade_id": "GrowingKVCache", "solution": true}
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
        ### BEGIN SOLUTION
        self.keys[layer] = torch.cat([self.keys[layer], k], dim=2)  # (B, G, S + T, D)
        self.values[layer] = torch.cat([self.values[layer], v], dim=2)  # (B, G, S + T, D)
        return self.keys[layer], self.values[layer]
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        self.length += n


# %% nbgrader={"grade_id": "growing_cache_returns_everything", "points": 0.5}
checks.growing_cache_returns_everything(GrowingKVCache)


# %% nbgrader={"grade_id": "numbers_copied", "solution": true}
def numbers_copied(config: GPTConfig, n_tokens: int, batch: int = 1) -> int:
    """Old numbers that GrowingKVCache copies in all while tokens come one at a time.

    Each step copies what was held before it, keys and values, in every layer. The new token's own
    numbers do not count.

    Args:
        config: sizes of the model.
        n_tokens: tokens appended to an empty cache, 0 or more.
        batch: B, rows.
    """
    ### BEGIN SOLUTION
    per_token = 2 * config.n_layers * config.n_kv_heads * config.head_dim  # keys and values
    return batch * per_token * (n_tokens * (n_tokens - 1) // 2)  # 0 + 1 + … + (n_tokens - 1) tokens
    ### END SOLUTION


# %% nbgrader={"grade_id": "copies_add_up", "points": 1}
checks.copies_add_up(numbers_copied)

# %% [markdown]
# The first row is copied {{511 = 512 - 1}} times. A Llama-3-70B that wrote 8,192 tokens like this would
# copy {{11 = numbers_copied(PUBLISHED["Llama-3-70B"].config, 8192) * 2 / 1e12}} terabytes of 16-bit
# numbers.
#
# ## 3 · The cache in place
#
# *Difficulty 2 of 5 · importance 5 of 5 · 12 minutes*
#
# So allocate once, and write each block into its places.
#
# | part | shape | note |
# |---|---|---|
# | keys, values | (L, B, G, max_len, D) each | G key/value heads, not H query heads |
# | one `append` | (B, G, T, D) in, (B, G, S, D) out | keys come rotated |
# | what is held | the first `len(cache)` places | the rest is unused, not zeros to attend to |
#
# `truncate(n)` keeps the first n tokens. **A full cache refuses and changes
# nothing.** Wrong sizes are refused.
#
# Write the methods of `KVCache`.
#
# <details><summary>Hint 1: the idea</summary>
# Keep storage and a length. Every method but <code>__init__</code> and <code>append</code> is one line.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>keys[layer]</code> is (B, G, max_len, D). New rows go to places length … length + T - 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# In <code>append</code>: compute the end; refuse if it is beyond <code>max_len</code>; write into a
# slice; return the slice from 0 to the end, a view.
# </details>


# %% nbgrader={"grade_id": "KVCache", "solution": true}
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
        ### BEGIN SOLUTION
        shape = (config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, G, max_len, D)
        self.values = torch.zeros(shape, dtype=dtype, device=device)  # (L, B, G, max_len, D)
        self.length = 0
        ### END SOLUTION

    def __len__(self) -> int:
        """Tokens held."""
        ### BEGIN SOLUTION
        return self.length
        ### END SOLUTION

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy k and v (B, G, T, D) behind what is held; return all so far, (B, G, S, D) each, as
        views: no older row is copied. Appended again before `advance`, the new ones replace the old."""
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        ### BEGIN SOLUTION
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} places are taken, {k.shape[2]} more do not fit"
            )
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, G, S, D)
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        check_between("n", n, 0, self.max_len - len(self))
        ### BEGIN SOLUTION
        self.length += n
        ### END SOLUTION

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
        """Bytes that the storage of keys and values occupies, whether filled or not."""
        ### BEGIN SOLUTION
        return self.keys.nbytes + self.values.nbytes
        ### END SOLUTION


# %% nbgrader={"grade_id": "cache_returns_what_it_was_given", "points": 1}
checks.cache_returns_what_it_was_given(KVCache)

# %% nbgrader={"grade_id": "full_cache_changes_nothing", "points": 1}
checks.full_cache_changes_nothing(KVCache)

# %% nbgrader={"grade_id": "cache_can_go_back", "points": 0.5}
checks.cache_can_go_back(KVCache)

# %%
copied = {
    "torch.cat": count_copied(GrowingKVCache(model.config, batch=1), model.config, n_tokens=512),
    "in place": count_copied(KVCache(model.config, 1, max_len=512), model.config, n_tokens=512),
}
print(f"counted {sum(copied['torch.cat']):,}, your formula {numbers_copied(model.config, 512):,}")
show(draw_copies(copied))

# %% [markdown]
# Lesson 02's triangle again: the plain cache *moves* every old row at every step. In place, the line
# stays at 0.
#
# ## 4 · An attention layer that remembers
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# Lesson 01's layer, with two changes: new keys and values go through the cache and come back with all
# the old ones, and the mask is rectangular.
#
# Shapes: q (B, H, T, D) · k, v from the cache (B, G, S, D) · scores (B, H, T, S) · out (B, T, C).
#
# Rotate keys once, before you store them. You may call `F.scaled_dot_product_attention(q, k, v,
# attn_mask=...)`, which divides by √D itself; True means "may look".
#
# Write `attention_layer_cached`, which maps x (B, T, C) to what is added to x.
#
# <details><summary>Hint 1: the idea</summary>
# Project, split, rotate, <em>append</em>, attend, merge, project.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Query head h reads KV head h // (H // G): repeat each KV head H // G times in a row, <em>after</em>
# the cache, which stores G.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Three <code>split_heads</code>, two <code>attn.rotate</code>, one <code>cache.append</code>, two
# <code>repeat_interleave(…, dim=1)</code>, one attention, one <code>merge_heads</code>.
# </details>


# %% nbgrader={"grade_id": "attention_layer_cached", "solution": true}
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
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% nbgrader={"grade_id": "layer_equals_uncached", "points": 1}
checks.layer_equals_uncached(attention_layer_cached, KVCache)

# %% [markdown]
# ## 5 · The whole model, a chunk at a time
#
# *Difficulty 3 of 5 · importance 5 of 5 · 10 minutes*
#
# This is `MiniGPT.forward` (`??MiniGPT.forward` shows it) with your layer. It takes a chunk of any
# length; the past comes from the cache alone.
#
# **The common wrong answer** lets positions start at 0 in every call. The first call is right; then every
# new token believes that it is the first.
#
# Write `forward_cached`, which returns logits and adds the new tokens to the cache.
#
# <details><summary>Hint 1: the idea</summary>
# How many tokens came before this chunk? The cache knows.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# tokens (B, T) → embed (B, T, C) → L blocks, (B, T, C) each → norm, lm_head (B, T, V).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Is there room (<code>cache.max_len</code>)? Positions from <code>len(cache)</code>; a loop over
# <code>enumerate(model.blocks)</code>, two lines that add to x, as in each block;
# <code>cache.advance</code> after it.
# </details>


# %% nbgrader={"grade_id": "forward_cached", "solution": true}
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
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% nbgrader={"grade_id": "every_split_equals_uncached", "points": 1}
checks.every_split_equals_uncached(forward_cached, KVCache)

# %% nbgrader={"grade_id": "cache_is_the_only_memory", "points": 0.5}
checks.cache_is_the_only_memory(forward_cached, KVCache)

# %% nbgrader={"grade_id": "two_conversations_stay_apart", "points": 0.5}
checks.two_conversations_stay_apart(forward_cached, KVCache)

# %% [markdown]
# ## 6 · Write text with it
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Feed the prompt once; then each new token alone. The last one is *printed*. Is it ever fed?
#
# Write `generate_cached`, which returns the prompt and the new tokens behind it.
#
# <details><summary>Hint 1: the idea</summary>
# What is fed first, and what then? Only the last position's logits matter.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# logits (B, T, V) → last position (B, V) → <code>greedy_next</code> (B,) → a column (B, 1).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# n_new times: forward what is to be fed, choose, collect, and feed the chosen column next.
# </details>


# %% nbgrader={"grade_id": "generate_cached", "solution": true}
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
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% nbgrader={"grade_id": "no_row_is_computed_twice", "points": 1}
checks.no_row_is_computed_twice(generate_cached, KVCache)

# %%
with count_kv_rows(model) as count:
    print(decode(generate_cached(model, encode("The cat sat"), 4)))
print(f"rows of keys computed: {count.rows}, in calls of {count.per_call}")
watch_a_cache_fill(model, forward_cached, KVCache, "The cat sat", n_new=9)

# %% [markdown]
# Six, not seven: the last token is never fed. In the picture each row is a place in the cache; only
# framed rows are new.
#
# ## 7 · The race
#
# > **Predict.** For 3 + 256 tokens the naive decoder computes
# > {{129 = kv_rows_naive(3, 256) / kv_rows_needed(3, 256)}} times as many rows of keys. How many times
# > faster will the cached one be, with `mini` and with the larger `story`? And for one step after 1,000
# > tokens?

# %%
racers = {"mini": model, "story": storyteller}
runs, steps = {"mini": {}, "story": {}}, {"mini": {}, "story": {}}
prompt, text = encode("The cat sat"), torch.randint(model.config.vocab_size, (1, 1001))


def race(naive, cached, rounds):
    """Median seconds of both, which take turns."""
    times = interleaved({"naive": naive, "cached": cached}, rounds)
    return statistics.median(times["naive"]), statistics.median(times["cached"])


with one_thread(), torch.inference_mode():  # neither records anything for gradients
    for n in tqdm([32, 64, 128, 256], desc="whole texts", file=sys.stdout):
        for name, racer in racers.items():
            runs[name][n] = race(
                lambda racer=racer, n=n: generate_naive(racer, prompt, n),
                lambda racer=racer, n=n: generate_cached(racer, prompt, n),
                rounds=2,
            )
    for n in tqdm([64, 256, 512, 1000], desc="single steps", file=sys.stdout):
        for name, racer in racers.items():
            cache = KVCache(racer.config, batch=1, max_len=n + 6)  # tokens of the rounds, too
            forward_cached(racer, text[:, :n], cache)
            steps[name][n] = race(
                lambda racer=racer, n=n: racer(text[:, : n + 1]),
                lambda racer=racer, cache=cache: forward_cached(racer, text[:, -1:], cache),
                rounds=5,
            )
show(draw_race(runs, steps))

# %% [markdown]
# For texts of 256 tokens the rows fell {{129 = kv_rows_naive(3, 256) / kv_rows_needed(3, 256)}}-fold,
# the time by much less: a few rows cost little more than one. But the speedup
# per step grows with the text.
#
# Now for the question at the top, after a prompt of 500 tokens:


# %%
def timed(function, *arguments):
    start = time.perf_counter()
    logits = function(*arguments)
    return logits, 1e3 * (time.perf_counter() - start)


tokens, cache = text[:, :500], KVCache(storyteller.config, batch=1, max_len=504)
feed = tokens
with one_thread(), torch.inference_mode():
    storyteller(tokens)  # the first call of all takes longer
    for number in range(1, 6):
        _, naive = timed(storyteller, tokens)
        logits, cached = timed(forward_cached, storyteller, feed, cache)
        feed = logits[:, -1:].argmax(dim=-1)  # (1, 1)
        tokens = torch.cat([tokens, feed], dim=1)
        print(f"token {number}: naive {naive:6.1f} ms, cached {cached:6.1f} ms")

# %% [markdown]
# The first token waits for the prompt's 500 rows, with or without a cache (lesson 01's attention is
# slower). For the second, the naive decoder computes 501 again; the cached one computes a single row.
#
# ## 8 · What is in the cache is what the model knows
#
# A story puts a lamp somewhere. What will the model say when that sentence is gone from the cache? And
# what does a wrong cache write? Four slips (`??wrong_caches`) leave every shape intact.
#
# > **Predict.** Which can you spot from the text alone?

# %%
past = encode(
    "The cat sat on the mat. Kenji Snow came in from the rain with a black lamp. "
    "He smiled and put the black lamp in the shed. The bread was warm and the tea was hot."
)
question = encode("Where is the black lamp? In the")
cache = KVCache(storyteller.config, batch=1, max_len=64)
_ = forward_cached(storyteller, past, cache)
print("with the whole story:", decode(generate_cached(storyteller, question, 1, cache)[0, -1:]))

cache.truncate(19)  # up to "... with a black lamp .": the lamp came, and nobody put it anywhere
print("after truncate(19):  ", decode(generate_cached(storyteller, question, 1, cache)[0, -1:]))

print("\nHow it goes on:")
prompt = past[:, :20]  # up to "He"
for name, kind in {"right": KVCache, **wrong_caches(KVCache, storyteller)}.items():
    written = generate_cached(storyteller, prompt, 20, kind(storyteller.config, 1, max_len=64))
    print(f"{name:<23}", decode(written[0, prompt.shape[1] :]))

# %% [markdown]
# It says *something*: no model notices what it has forgotten, nor what is wrong. The last story reads
# well throughout. Comparing logits, split by split, finds
# all four.
#
# ## 9 · The price
#
# *Difficulty 1 of 5 · importance 4 of 5 · 5 minutes*
#
# Write `kv_cache_bytes`: count what `KVCache` allocates.
#
# <details><summary>Hint 1: the idea</summary>
# Name every axis of the storage.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Keys <em>and</em> values, (L, B, G, n_tokens, D) each.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One product of seven factors.
# </details>


# %% nbgrader={"grade_id": "kv_cache_bytes", "solution": true}
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
    ### BEGIN SOLUTION
    per_token = 2 * config.n_layers * config.n_kv_heads * config.head_dim  # keys and values
    return per_token * n_tokens * batch * bytes_per_element
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_match_the_storage", "points": 1}
checks.bytes_match_the_storage(kv_cache_bytes, KVCache)

# %%
gpt3 = GPTConfig(50_257, 96, 12_288, 96, 96, 49_152, max_seq_len=2048)
small, medium = PUBLISHED["Llama-3.2-1B"].config, PUBLISHED["Qwen3-8B"].config
with_8_kv_heads = GPTConfig(128_256, 80, 8192, 64, 8, 28_672, max_seq_len=131_072)
with_64_kv_heads = GPTConfig(128_256, 80, 8192, 64, 64, 28_672, max_seq_len=131_072)
caches = {
    "our mini-GPT, 28 tokens, 32 bits": kv_cache_bytes(model.config, 28, bytes_per_element=4),
    "GPT-3, 2,048 tokens, 16 bits": kv_cache_bytes(gpt3, 2048),
    "Llama-3.2-1B, 128k tokens, 16 bits": kv_cache_bytes(small, small.max_seq_len),
    "Qwen3-8B, 32k tokens, 16 bits": kv_cache_bytes(medium, medium.max_seq_len),
    "70B, 128k tokens, 16 bits, G = 8": kv_cache_bytes(with_8_kv_heads, 131_072),
    "70B, 128k tokens, 16 bits, G = H = 64": kv_cache_bytes(with_64_kv_heads, 131_072),
}
for name, n_bytes in caches.items():
    print(f"{name:<38} {n_bytes:>15,} bytes")
show(draw_bytes(caches))

# %% [markdown]
# > **Spot the slip.** A popular formula contains `n_heads` and claims "tens of gigabytes" for a 70B
# > model at 128k tokens. Which bar does the formula give, and which bar fits the number?
#
# <details><summary>Answer</summary>
# The formula gives the last bar,
# {{344 = kv_cache_bytes(GPTConfig(128_256, 80, 8192, 64, 64, 28_672), 131_072) / 1e9}} GB. The number
# fits the bar above, {{43 = kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 131_072) / 1e9}} GB, where 8
# key/value heads serve 64 query heads. The factor is H / G = {{8 = 64 // 8}}: lesson 06.
# </details>
#
# ## Check yourself
#
# <details><summary>Why does token 5 not change the keys of tokens 0 to 4?</summary>
# Their hidden states depend on tokens to their left only. <em>Common wrong answer:</em> "the weights are
# frozen". Without the causal mask frozen weights would still give other keys.
# </details>
# <details><summary>Why is there no query cache?</summary>
# A query is used only in its own step. <em>Common wrong answer:</em> "queries are smaller". They are
# never smaller: H heads against G.
# </details>
#
# ## Next
#
# The prompt went in as one chunk, followed by single tokens. **Lesson 04** looks at both phases.
