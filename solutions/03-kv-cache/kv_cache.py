# %% [markdown]
# # 03 · The KV cache
#
# {{badge}}
#
# **Why is the second token faster than the first?** In lesson 02 you watched a model compute the
# same keys and values again at every step. Here you store them.
#
# **After this lesson you can**
#
# * say which numbers a decoder may keep between two tokens, and why exactly those,
# * build a KV cache, and get *the same logits* as without one,
# * tell how many bytes it takes, for this model and for one of 70 billion parameters.
#
# **You build:** the cache, and proof that nothing changed.
# **Time:** 75 minutes. **Points:** 10. **Needs:** lessons 01 and 02; their answers are given.
#
# > **Predict.** A prompt has 3 tokens and the model writes 4 more. Lesson 02 computed
# > {{18 = kv_rows_naive(3, 4)}} rows of keys. With a cache, how many? Write it down; you will
# > count.

# %% tags=["setup"]

# %% tags=["export"]
import torch
import torch.nn.functional as F
from torch import Tensor

from course.bounds import check_between
from course.cache import CacheFull, KVCacheLike, check_block, check_cache_sizes
from course.config import GPTConfig
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads
from course.layers import Attention
from course.model import MiniGPT

# %%
import sys

from tqdm.auto import tqdm

from course.checks import kv_cache as checks
from course.measure.counting import count_kv_rows
from course.measure.machine import interleaved, one_thread
from course.minigpt.naive_decode import generate_naive
from course.plots.kv_cache import draw_bytes, draw_masks, draw_race, draw_rows
from course.plots.style import show
from course.world.tokenizer import decode, encode
from course.widgets.kv_cache import watch_a_cache_fill

model = MiniGPT.from_weights("mini")

# %% [markdown]
# ## The picture
#
# Each column is one step of the decoder. A filled cell is a row of keys and values computed there.

# %%
show(draw_rows(prompt_len=3, n_new=4))

# %% [markdown]
# On the left every step starts again. On the right a row is computed once, kept, and only *read*
# later.
#
# Why may a row be kept? Lesson 01's causality map said it: nothing to the left of a changed token
# moves. The key of token 2 is the same at step 1 and at step 1,000. Its rotary position is inside
# it: its product with a query depends only on the *difference* of their positions.
#
# > **Spot the slip.** A popular explanation calls a cached step O(1). Which part of it is not?
#
# <details><summary>Answer</summary>
# The projections and the MLP work on one row, whatever the context. Attention reads <em>every</em>
# cached row: at step 4 above, six of them. It has lost its redo, not its reading.
# </details>

# %% [markdown]
# ## 1 · A mask that is not square
#
# *Difficulty 1 of 5 · importance 5 of 5 · 8 minutes*
#
# `T` new tokens look at `S` visible ones: what is cached, plus themselves. The **last** new token is
# the last visible one, so the triangle sits at the **right** edge.

# %%
show(draw_masks([(5, 5), (2, 5), (1, 5)]))

# %% [markdown]
# **The common wrong answer** puts the triangle at the top *left*, as `is_causal=True` does in PyTorch.
# One new token then sees only the oldest of five. The text still looks like text.
#
# <details><summary>Hint 1: the idea</summary>
# Number the visible tokens 0 … S-1. Which number has new token t?
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
# ## 2 · The container
#
# *Difficulty 2 of 5 · importance 5 of 5 · 15 minutes*
#
# The plainest cache grows by `torch.cat`, and so copies *every old row at every step*: half a million
# rows for 1,000 tokens. We allocate once, at full size, and write in place.
#
# | part | shape | note |
# |---|---|---|
# | keys, values | (L, B, G, max_len, D) each | G key/value heads, not H query heads |
# | one `append` | (B, G, T, D) in, (B, G, S, D) out | keys come rotated |
# | what is held | the first `len(cache)` places | the rest is room, not zeros to attend to |
#
# `append` is called once per *layer*, so it must not move the length; `advance` does, once per
# forward pass. `truncate` forgets the newest tokens. **A full cache refuses and changes nothing.**
# The lines above the gaps are given: they refuse wrong sizes with a clear error.
#
# <details><summary>Hint 1: the idea</summary>
# Storage and a length. Every method but <code>append</code> is one line.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>keys[layer]</code> is (B, G, max_len, D). The new rows go to places length … length + T - 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# In <code>append</code>: compute the end; refuse if it is beyond <code>max_len</code>; write keys and
# values into a slice; return the slice from 0 to the end (a view: nothing is copied).
# </details>


# %% nbgrader={"grade_id": "KVCache", "solution": true}
class KVCache:
    """Keys and values of the tokens so far, in storage that is allocated once; no other floats.

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
        views: no older row is copied."""
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

# %% nbgrader={"grade_id": "cache_can_go_back", "points": 1}
checks.cache_can_go_back(KVCache)

# %% [markdown]
# ## 3 · An attention layer that remembers
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# Lesson 01's layer, with two changes: the new keys and values go through the cache and come back
# with all the old ones, and the mask is the rectangular one.
#
# Shapes: q (B, H, T, D) · k, v from the cache (B, G, S, D) · scores (B, H, T, S) · out (B, T, C).
#
# Keys are rotated before they are stored: once in their life. For attention you may call
# `F.scaled_dot_product_attention(q, k, v, attn_mask=...)`, where True means "may look".
#
# <details><summary>Hint 1: the idea</summary>
# Project, split, rotate, <em>append</em>, attend, merge, project.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Query head h reads KV head h // (H // G): each KV head stands H // G times in a row. Do this
# <em>after</em> the cache, which stores G heads.
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
        positions: (T,) int64, their places in the whole text.
        cache: keys and values of the tokens before; this layer's part of it is extended.
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
    mask = causal_mask(q.shape[2], k.shape[2], device=x.device)  # (T, S)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, T, D)
    return attn.wo(merge_heads(heads))
    ### END SOLUTION


# %% nbgrader={"grade_id": "layer_equals_uncached", "points": 1}
checks.layer_equals_uncached(attention_layer_cached, KVCache)

# %% [markdown]
# ## 4 · The whole model, a chunk at a time
#
# *Difficulty 3 of 5 · importance 5 of 5 · 10 minutes*
#
# `MiniGPT.forward` (see `course/model.py`) with your layer in it. It takes a chunk of any length: a
# whole prompt, or one token.
#
# **The common wrong answer** lets positions start at 0 in every call. The first call is right, so a
# quick test passes; then every new token believes that it is the first.
#
# <details><summary>Hint 1: the idea</summary>
# How many tokens came before this chunk? The cache knows.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# tokens (B, T) → embed (B, T, C) → L blocks, (B, T, C) each → norm, lm_head (B, T, V).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Is there room? Positions from <code>len(cache)</code>; a loop over
# <code>enumerate(model.blocks)</code> with two residual lines; <code>cache.advance</code> once, after
# the loop.
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
        CacheFull: no room for T tokens, which is seen before any position is needed; the cache holds
            what it held.
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

# %% [markdown]
# The next check fills your cache with random keys and values that belong to no token. There is nothing
# to recompute them from: the logits must come from the cache alone.

# %% nbgrader={"grade_id": "cache_is_the_only_memory", "points": 1}
checks.cache_is_the_only_memory(forward_cached, KVCache)

# %% nbgrader={"grade_id": "two_conversations_stay_apart", "points": 1}
checks.two_conversations_stay_apart(forward_cached, KVCache)

# %% [markdown]
# ## 5 · Write text with it
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Feed the prompt once; then each new token alone. Go back to your number: 3 prompt tokens, 4 new
# ones. The last new token is *printed*. Is it ever fed?
#
# <details><summary>Hint 1: the idea</summary>
# What is fed first? And after that? Only the last position's logits choose the next token.
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
        n_new: tokens to write, 0 or more; a text goes on after `<end>`.
        cache: may hold an earlier part of the text, which the prompt continues. Left out, a new
            one of just the right size and of the model's dtype is made.

    Returns:
        A tensor of its own, (B, P + n_new) int64: the prompt and the new tokens. The cache then
        holds all but the last of them, which was never fed. For n_new = 0 nothing is fed.

    Raises:
        ValueError: a prompt that the model cannot take; n_new below 0, or P + n_new above
            model.config.max_seq_len, whatever the cache holds.
        CacheFull: before any pass: the cache given has no room for P + n_new - 1 tokens more.
    """
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    ### BEGIN SOLUTION
    B, P = prompt.shape
    if n_new == 0:
        return prompt.clone()
    n_fed = P + n_new - 1
    if cache is None:
        weight = model.embed.weight
        cache = KVCache(model.config, B, n_fed, dtype=weight.dtype, device=weight.device)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull(
            f"{n_fed} tokens are to be fed, but {len(cache)} of {cache.max_len} places are taken"
        )
    text, feed = [prompt], prompt
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

# %% [markdown]
# Six, not seven: the last token is never fed. Watch it happen. Each row is one place of the cache,
# with the real keys.

# %%
watch_a_cache_fill(model, forward_cached, KVCache, "The cat sat", n_new=9)

# %% [markdown]
# ## 6 · The race
#
# > **Predict.** For 3 + 256 tokens the naive decoder computes
# > {{129 = kv_rows_naive(3, 256) / kv_rows_needed(3, 256)}} times as many rows of keys. How many
# > times faster will the cached one be on your machine?

# %%
prompt, times = encode("The cat sat"), {}
for n in tqdm([16, 32, 64, 128, 256], desc="racing", file=sys.stdout):
    with one_thread():
        times[n] = interleaved(
            {
                "naive": lambda n=n: generate_naive(model, prompt, n),
                "cached": lambda n=n: generate_cached(model, prompt, n),
            },
            rounds=3,
        )
show(draw_race(prompt_len=3, times=times))

# %% [markdown]
# The work fell a hundredfold; the time by far less. A step on one row costs nearly as much as a step
# on fifty: it does not wait for arithmetic. What it does wait for: lessons 04 and 05.
#
# ## 7 · What is in the cache is what the model knows
#
# A story puts a lamp somewhere; a question comes later. Between the two, the cache is the only witness.
# What will the model say when that sentence is gone?

# %%
storyteller = MiniGPT.from_weights("story")
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

# %% [markdown]
# It says *something*: a model does not notice what it has forgotten.
#
# ## 8 · The price
#
# *Difficulty 1 of 5 · importance 4 of 5 · 5 minutes*
#
# Speed was bought with memory. Count what `KVCache` allocates.
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
with_8_kv_heads = GPTConfig(128_256, 80, 8192, 64, 8, 28_672, max_seq_len=131_072)
with_64_kv_heads = GPTConfig(128_256, 80, 8192, 64, 64, 28_672, max_seq_len=131_072)
caches = {
    "our mini-GPT, 28 tokens, fp32": kv_cache_bytes(model.config, 28, bytes_per_element=4),
    "GPT-3, 2,048 tokens, fp16": kv_cache_bytes(gpt3, 2048),
    "70B, 128k tokens, fp16, G = 8": kv_cache_bytes(with_8_kv_heads, 131_072),
    "70B, 128k tokens, fp16, G = H = 64": kv_cache_bytes(with_64_kv_heads, 131_072),
}
for name, n_bytes in caches.items():
    print(f"{name:<35} {n_bytes:>15,} bytes")
show(draw_bytes(caches))

# %% [markdown]
# > **Spot the slip.** A popular formula for these bytes has `n_heads` in it, and puts a 70B model at
# > 128k tokens at "tens of gigabytes". Which bar is its formula, and which its number?
#
# <details><summary>Answer</summary>
# The formula gives the last bar,
# {{344 = kv_cache_bytes(GPTConfig(128_256, 80, 8192, 64, 64, 28_672), 131_072) / 1e9}} GB. The number
# fits the bar above, {{43 = kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 131_072) / 1e9}} GB, where
# 8 key/value heads serve 64 query heads. The factor is H / G = {{8 = 64 // 8}}: lesson 06.
# </details>
#
# ## Check yourself
#
# <details><summary>Why does token 5 not change the keys of tokens 0 to 4?</summary>
# Their hidden states depend on tokens to their left only, in every layer. <em>Common wrong answer:</em>
# "the weights are frozen". Without the causal mask frozen weights would still give other keys.
# </details>
# <details><summary>Why is there no query cache?</summary>
# A query is used in its own step and never again. <em>Common wrong answer:</em> "queries are
# smaller". They are larger: H heads against G.
# </details>
# <details><summary>How wide are the scores of a decode step with n_past tokens cached?</summary>
# n_past + 1: the new token sees itself too. <em>Common wrong answer:</em> n_past.
# </details>
# <details><summary>The first test compared only the text, and passed. Is the cache right?</summary>
# Not yet. Greedy text hides small errors. <em>Common wrong answer:</em> "the same words, so the same
# numbers". Compare logits, for several splits.
# </details>
#
# ## Next
#
# The prompt went in as one chunk, and then came single tokens: two phases with opposite habits.
# **Lesson 04** looks at both, and answers the question at the top.
