# %% [markdown]
# # 04 · Prefill and decode
#
# {{badge}}
#
# **Why does a first token cost so much more than the second?** And how do serving engines handle that?
#
# **After this lesson you can**
#
# * tell the two phases apart by shape and timing,
# * feed a prompt in chunks, stream tokens, and report TTFT and ITL as engines do,
# * decode prompts of different lengths in one batch, each as if it were alone.
#
# **You build:** chunked prefill, streams, latency, ragged batches.
# **Time:** 95 minutes. **Points:** 10. **Needs:** lesson 03 (your answers, or ours). No GPU is
# used.
#
# > **Predict.** A prompt of 500 tokens goes in. The first token takes how many times as long as the
# > second: 500, 100 or 20? (Do not look back.)

# %% tags=["setup"]

# %% tags=["export"]
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from course.model.bounds import check_between, check_prompts
from course.model.cache import CacheFull, KVCacheLike
from course.measure.latency import Latency, check_stamps
from course.minigpt.kv_cache import causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.model.layers import Attention
from course.model import MiniGPT

# %%
import time
from functools import partial

from course.checks import prefill_and_decode as checks
from course.measure.machine import one_thread, seconds
from course.minigpt.kv_cache import KVCache, generate_cached, kv_cache_bytes
from course.plots.prefill_and_decode import (
    draw_masks,
    draw_padding,
    draw_phases,
    draw_reading,
    draw_timeline,
)
from course.plots.style import show
from course.published.models import PUBLISHED
from course.world.stories import tell
from course.world.tokenizer import PAD, decode, encode
from course.widgets.prefill_and_decode import share_a_machine

storyteller = MiniGPT.from_weights("story")
prompt = torch.cat([encode(tell(seed).text) for seed in (7, 8)], dim=1)[:, :500]

# %% [markdown]
# ## The picture
#
# Layers and weights are the same. What differs is `T`, the number of new tokens: the whole prompt in
# **prefill**, one in **decode**.

# %%
show(draw_phases(storyteller.config, prompt_len=12, n_past=15))

# %% [markdown]
# In prefill every weight that is read serves 12 rows; in decode it serves one. The scores of a
# decode step are `n_past + 1` wide: its own key is appended first.
#
# ## 1 · Prefill, in chunks
#
# *Difficulty 2 of 5 · importance 5 of 5 · 10 minutes*
#
# You can feed the prompt whole or in pieces: `forward_cached` accepts both. Only the last position's
# logits matter: they choose the first new token. **A prompt that does not fit is refused before
# anything is fed.**
#
# Write `prefill`: feed the chunks, and return the logits after the last token.
#
# <details><summary>Hint 1: the idea</summary>
# Check for room once, for the whole prompt. Then feed the chunks; the cache knows where each begins.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# prompt (B, P) → chunks (B, chunk_size), the last one perhaps shorter → logits (B, T, V) → (B, V).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>if … raise CacheFull</code>; a loop over <code>Tensor.split</code> along dimension 1;
# one index into the last logits.
# </details>


# %% nbgrader={"grade_id": "prefill", "solution": true}
def prefill(model: MiniGPT, prompt: Tensor, cache: KVCacheLike, chunk_size: int = 256) -> Tensor:
    """Feed a prompt chunk by chunk; the logits after its last token.

    Args:
        prompt: (B, P) int64; it follows what the cache holds.
        cache: holds P tokens more afterwards.
        chunk_size: tokens that go into one forward pass, at least 1; the last chunk has what is
            left. No other passes are made.

    Returns:
        (B, V), of the model's dtype, from which the first new token is chosen.

    Raises (before any forward pass is made; the cache holds what it held):
        ValueError: tokens that the model cannot take, or a chunk_size below 1.
        CacheFull: no room for the whole prompt.
    """
    model.check_tokens(prompt)
    check_between("chunk_size", chunk_size, 1, 2**31)
    ### BEGIN SOLUTION
    needed = len(cache) + prompt.shape[1]
    if needed > cache.max_len:
        raise CacheFull(f"{needed} tokens are more than the {cache.max_len} places of this cache")
    for chunk in prompt.split(chunk_size, dim=1):  # (B, T) each
        logits = forward_cached(model, chunk, cache)  # (B, T, V)
    return logits[:, -1]  # (B, V)
    ### END SOLUTION


# %% nbgrader={"grade_id": "every_chunk_size_gives_the_same_logits", "points": 1}
checks.every_chunk_size_gives_the_same_logits(prefill)

# %% nbgrader={"grade_id": "too_long_a_prompt_changes_nothing", "points": 1}
checks.too_long_a_prompt_changes_nothing(prefill)

# %% [markdown]
# You discard all but the last row of those logits. With a 128,256-token vocabulary, the logits of 2,048
# prompt tokens take {{1.05 = 2048 * 128_256 * 4 / 1e9}} GB in float32, so an engine sends only the last
# row through `lm_head`.
#
# ## 2 · A stream
#
# *Difficulty 3 of 5 · importance 5 of 5 · 10 minutes*
#
# Users read along, so you send a token as soon as you know it. In Python that is a *generator*: `yield`
# hands out a token and pauses until the next one is asked for.
#
# **The common wrong answer** prefills all but the last prompt token and lets a decode step choose
# the first new one. Same text, but one pass too many: *the first token belongs to prefill*.
#
# Write `stream`, which yields each token as soon as it is known.
#
# <details><summary>Hint 1: the idea</summary>
# Two phases, two places that yield: one after the prefill, one in the loop.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# logits (B, V) → token (B,) → fed as a column (B, 1) → logits (B, 1, V).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Return if n_new is 0; check for room; choose and yield; then n_new - 1 times: forward, choose, yield.
# </details>


# %% nbgrader={"grade_id": "stream", "solution": true}
def stream(
    model: MiniGPT, prompt: Tensor, n_new: int, cache: KVCacheLike, chunk_size: int = 256
) -> Iterator[Tensor]:
    """Continue a prompt greedily, and give out each token as soon as it is known.

    Nothing is computed before a token is asked for: the first takes the prefill, each further one
    a decode step. The last one is never fed. A text goes on after `<end>`.

    Args:
        prompt: (B, P) int64; it follows what the cache holds.
        n_new: tokens to write, from 0 to the model's max_seq_len. For 0 nothing is fed, so no room
            is needed.
        cache: holds P + n_new - 1 tokens more afterwards; for n_new = 0, what it held.
        chunk_size: of the prefill.

    Yields:
        (B,) int64, n_new times; later steps do not change them.

    Raises (at the latest when the first token is asked for, and before any forward pass is made):
        ValueError: n_new out of its bounds, or tokens that the model cannot take; where a token is
            wanted, a chunk_size below 1.
        CacheFull: n_new above 0, and no room for all P + n_new - 1 tokens.
    """
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    model.check_tokens(prompt)
    ### BEGIN SOLUTION
    if n_new == 0:
        return
    needed = len(cache) + prompt.shape[1] + n_new - 1
    if needed > cache.max_len:
        raise CacheFull(f"{needed} tokens are more than the {cache.max_len} places of this cache")
    token = greedy_next(prefill(model, prompt, cache, chunk_size))  # (B,)
    yield token
    for _ in range(n_new - 1):
        logits = forward_cached(model, token.unsqueeze(1), cache)  # (B, 1, V)
        token = greedy_next(logits[:, -1])  # (B,)
        yield token
    ### END SOLUTION


# %% nbgrader={"grade_id": "stream_writes_the_uncached_text", "points": 1}
checks.stream_writes_the_uncached_text(stream)

# %% nbgrader={"grade_id": "no_step_before_it_is_asked_for", "points": 1}
checks.no_step_before_it_is_asked_for(stream)

# %% [markdown]
# ## 3 · What the user waits for
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# * **TTFT**, time to first token: from the request to the first token.
# * **ITL**, inter-token latency: the gaps *between* tokens, so n - 1 of them. Median (p50), p99 (one
#   gap in a hundred is worse), and mean, also called **TPOT**, time per output token.
# * **Tokens per second** of the decode phase: tokens after the first, divided by the seconds since the
#   first.
#
# Percentile q (50, 99) of m sorted gaps lies at index q / 100 · (m - 1), counted from 0; between two,
# interpolate linearly.
#
# Write `latency_metrics`, which computes these numbers from the tokens' stamps.
#
# <details><summary>Hint 1: the idea</summary>
# The first stamp ends the prefill and starts the decode phase. It belongs to no gap before it.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# n stamps → n - 1 gaps → three numbers. One stamp: no gap, so <code>None</code>, not 0.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>np.diff</code>, <code>np.percentile</code>, and the case of a single stamp. Stay in float64:
# a clock that has run for days leaves no digits for milliseconds in float32.
# </details>


# %% nbgrader={"grade_id": "latency_metrics", "solution": true}
def latency_metrics(start: float, stamps: Sequence[float]) -> Latency:
    """The latency of one stream.

    Args:
        start: when the request came, in seconds.
        stamps: when each token came out, in seconds of the same clock; any sequence.

    Returns:
        Latency(ttft, itl_mean, itl_p50, itl_p99, tokens_per_second). The gaps are those between
        neighbouring tokens; percentiles by linear interpolation; the rate is that of the decode
        phase, tokens after the first by seconds after the first. With one stamp the last four are
        None.

    Raises:
        ValueError: no stamps; times that go back or are not finite; two stamps or more, all of them
            at one moment (two of several may be).
    """
    check_stamps(start, stamps)
    ### BEGIN SOLUTION
    ttft, gaps = stamps[0] - start, np.diff(stamps)  # (n - 1,)
    if len(gaps) == 0:
        return Latency(ttft, None, None, None, None)
    p50, p99 = np.percentile(gaps, [50, 99])
    return Latency(ttft, gaps.mean(), p50, p99, len(gaps) / gaps.sum())
    ### END SOLUTION


# %% nbgrader={"grade_id": "first_token_is_no_gap", "points": 1}
checks.first_token_is_no_gap(latency_metrics)

# %% [markdown]
# Now measure the answer on your machine. Was it 500, 100 or 20?

# %%
cache = KVCache(storyteller.config, batch=1, max_len=600)
with one_thread():
    list(stream(storyteller, prompt[:, :50], 4, cache))  # warm-up
    cache.reset()
    start, stamps = time.perf_counter(), []
    for _ in stream(storyteller, prompt, 40, cache, chunk_size=500):
        stamps.append(time.perf_counter())
    longer = torch.cat([prompt, prompt[:, :1]], dim=1)  # one token more, whichever
    uncached = []
    for text in (prompt, longer):  # a new cache each time is as good as none
        empty = partial(KVCache, storyteller.config, batch=1, max_len=600)
        uncached += [min(seconds(lambda t=text, new=empty: forward_cached(storyteller, t, new())))]
latency = latency_metrics(start, stamps)
print(f"TTFT {latency.ttft * 1e3:.1f} ms for {prompt.shape[1]} prompt tokens")
print(f"ITL  {latency.itl_p50 * 1e3:.1f} ms median, {latency.itl_p99 * 1e3:.1f} ms p99")
print(f"     {latency.tokens_per_second:.0f} tokens per second in the decode phase")
show(draw_timeline(prompt.shape[1], start, stamps, uncached))

# %% [markdown]
# Without a cache the second token computes 501 rows, and takes as long as the first. With a cache it
# computes *one* row, where the first computed 500. It is not 500 times faster: a step still launches
# every operation and reads every weight. (Of 39 gaps, p99 is nearly the worst.)
#
# > **Spot the slip.** A popular table says: prefill time is "linear in N", and decode is limited by
# > "cache reads". Test both with a 70B model in fp16: {{140 = 70e9 * 2 / 1e9}} GB of weights,
# > {{327,680 = kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 1)}} bytes of cache per token (8 KV
# > heads serve 64 query heads: lesson 06), {{8,192 = PUBLISHED["Llama-3-70B"].config.d_model}} numbers
# > a token, {{80 = PUBLISHED["Llama-3-70B"].config.n_layers}} layers.
#
# <details><summary>Answer</summary>
# Prefill is not linear: attention has N² / 2 scores per head, if only visible pairs are computed. Its
# FLOPs are {{1.9 = 100 * 2000 * 8192 * 80 / 70e9}} % of the matrices' at 2,000 tokens, and {{94 = 100 *
# 100_000 * 8192 * 80 / 70e9}} % at 100,000. Nor do cache reads limit decode: at 2,000 tokens a step
# reads {{0.66 = kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 2000) / 1e9}} GB of cache and {{140 =
# 70e9 * 2 / 1e9}} GB of weights; only with about {{200 = round(70e9 * 2 /
# kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 2000), -2)}} such users do cache reads equal the
# weights.
# </details>
#
# ## 4 · Why input is priced below output
#
# For one token in a text of 2,000, a 70B model reads:

# %%
config, weights = PUBLISHED["Llama-3-70B"].config, 70e9 * 2
cache_of_2000 = kv_cache_bytes(config, 2000)
show(
    draw_reading(
        {
            "input, 2,000 together": (weights / 2000, cache_of_2000 / 2000),
            "output, alone": (weights, cache_of_2000),
            "output, 64 users together": (weights / 64, cache_of_2000),
        }
    )
)

# %% [markdown]
# The FLOPs are the same: {{140 = 2 * 70e9 / 1e9}} billion for the matrices. The bytes are not: even
# among 64 users, output reads {{40 = round((140e9 / 64 + kv_cache_bytes(PUBLISHED["Llama-3-70B"].config,
# 2000)) / (140e9 / 2000 + kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 1)), -1)}} times as many,
# since 64 are fewer than 2,000 and each reads its own cache. Input waits too, but for arithmetic. By
# the datasheet of an H100 (989 TFLOP/s, 3,350 GB/s) these FLOPs take {{0.14 = 140e9 / 989e12 * 1e3}}
# ms, and the bytes of one user among 64 take {{0.85 = (140e9 / 64 +
# kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 2000)) / 3350e9 * 1e3}} ms: {{6 = round((140e9 / 64 +
# kv_cache_bytes(PUBLISHED["Llama-3-70B"].config, 2000)) / 3350e9 / (140e9 / 989e12))}} to 1.
#
# ## 5 · What chunks are for
#
# While a machine prefills 500 tokens at once, it serves nobody else. Cut the prompt into chunks, and
# each iteration can carry a chunk *and* everybody's next token.
#
# > **Predict.** Another user's prompt arrives while your answer is streaming. What do smaller chunks do
# > to your longest gap, and to the newcomer's TTFT?

# %%
share_a_machine(storyteller, forward_cached, KVCache, prompt)

# %% [markdown]
# Smaller chunks give shorter gaps but a later first token, for two reasons: each chunk reads all
# weights again, and the other stream's steps intervene. Here chunks and tokens alternate; an engine puts
# both into one pass (lesson 11).
#
# ## 6 · Going back
#
# A user edits the last question. You need not recompute what both texts share: `truncate` to the common
# prefix, then feed the rest. If nothing is left to feed, feed the last token again: its logits were not
# kept.


# %%
def n_shared(a: Tensor, b: Tensor) -> int:
    """How many tokens two texts (1, ·) share from their beginning."""
    n = min(a.shape[1], b.shape[1])
    differ = (a[0, :n] != b[0, :n]).nonzero()
    return int(differ[0]) if len(differ) else n


past = "Mia Stone came in from the rain with a red key. She put the red key in the box. Tom Reed "
past += "came up the path with a blue ball. He put the blue ball in the jar. Where is the "
first, edited = encode(past + "red key? In the"), encode(past + "blue ball? In the")
cache = KVCache(storyteller.config, batch=1, max_len=100)
print("asked: ", decode(torch.cat(list(stream(storyteller, first, 2, cache)))))
cache.truncate(min(n_shared(first, edited), edited.shape[1] - 1))
rest = edited[:, len(cache) :]
print("edited:", decode(torch.cat(list(stream(storyteller, rest, 2, cache)))))
print(f"fed for it: {rest.shape[1]} of {edited.shape[1]} prompt tokens")

# %% nbgrader={"grade_id": "rollback_equals_a_fresh_start", "points": 1}
checks.rollback_equals_a_fresh_start(stream)

# %% [markdown]
# ## 7 · Prompts of different lengths
#
# *Three functions · difficulty 3 of 5 · importance 4 of 5 · 20 minutes*
#
# Such a batch is called *ragged*. It is one tensor, so you pad short prompts **on the left**. Then
# every prompt ends in the last column, and one column of new tokens continues all rows.

# %%
show(draw_padding(["The cat", "The dog slept by the", "Good night"]))

# %% [markdown]
# A pad is not a token: no token may see it, and no position counts it.
#
# Write `pad_prompts`, which returns the batch and the number of pads in each row.
#
# <details><summary>Hint 1: the idea</summary>
# A tensor full of pads; write each prompt to the end of its row. Count pads by lengths: an id equal
# to <code>pad_id</code> may be a token of the prompt.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# tokens (B, T) with T the longest length; n_pads (B,).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>torch.full</code>, a loop with one slice assignment, a tensor of differences.
# </details>


# %% nbgrader={"grade_id": "pad_prompts", "solution": true}
def pad_prompts(prompts: Sequence[Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    """One batch of prompts of different lengths, filled up on the left.

    Args:
        prompts: B tensors (P,) int64, P of at least 1 each.
        pad_id: what to fill with; it may be an id that prompts contain.

    Returns:
        tokens (B, T) int64, T the longest length, rows in the order of the prompts, in memory of
        their own; and the number of pads of each row, (B,) int64.

    Raises:
        ValueError: no prompts, an empty one, or one that is no (P,) int64.
    """
    check_prompts(prompts)
    ### BEGIN SOLUTION
    device = prompts[0].device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)  # (B,)
    T = max(map(len, prompts))
    tokens = torch.full((len(prompts), T), pad_id, dtype=torch.int64, device=device)  # (B, T)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[T - len(prompt) :] = prompt
    return tokens, T - lengths
    ### END SOLUTION


# %% nbgrader={"grade_id": "pads_stand_on_the_left", "points": 1}
checks.pads_stand_on_the_left(pad_prompts)

# %% [markdown]
# Now the mask. A token sees its own row's tokens up to itself. What a *pad* sees does not matter, but
# it must see **something**: softmax over nothing is 0 / 0 = NaN, and in the next layer 0 · NaN is NaN
# for tokens that mask that pad.

# %%
show(draw_masks())

# %% [markdown]
# The triangle ends in the lower right corner, with or without cached places; the pads are the first
# columns.
#
# Write `ragged_mask`, True where a place may see a place.
#
# <details><summary>Hint 1: the idea</summary>
# Three conditions: not after me; not a pad; and each place may see itself, pad or not.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Causal (T, S) against places (S,) compared with n_pads as (B, 1, 1, 1) gives (B, 1, T, S).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>causal_mask</code> of lesson 03, one comparison with <code>&</code>, one with
# <code>|</code>.
# </details>


# %% nbgrader={"grade_id": "ragged_mask", "solution": true}
def ragged_mask(n_new: int, n_visible: int, n_pads: Tensor) -> Tensor:
    """Which visible places each new place of each row may see.

    Args:
        n_new: T, the last T of the visible places.
        n_visible: S, at least T.
        n_pads: (B,) int64: places 0 … n_pads[b] - 1 of row b are pads; may be all S and more, in
            an early chunk.

    Returns:
        (B, 1, T, S) bool, True where a new place may look. No token sees a pad. What a pad sees is
        open, but it sees at least one place.
    """
    check_between("n_new", n_new, 1, n_visible)
    ### BEGIN SOLUTION
    places = torch.arange(n_visible, device=n_pads.device)  # (S,)
    token = places >= n_pads.view(-1, 1, 1, 1)  # (B, 1, 1, S)
    itself = places == places[-n_new:].unsqueeze(1)  # (T, S)
    return causal_mask(n_new, n_visible, n_pads.device) & token | itself  # (B, 1, T, S)
    ### END SOLUTION


# %% nbgrader={"grade_id": "pads_are_never_seen", "points": 1}
checks.pads_are_never_seen(ragged_mask)

# %% [markdown]
# > **Predict.** Rotary attention sees only *differences* of positions. Which mistake does it
# > forgive: (a) counting pads as positions, always; (b) counting them in decode only?
#
# <details><summary>Answer</summary>
# (a): the whole row shifts, so no difference changes. (b) moves the new token away from its prompt by
# the number of pads. Models with <em>learned</em> positions forgive neither, so we count right.
# </details>
#
# Write `ragged_positions`: where each new place stands in its own row's text.
#
# <details><summary>Hint 1: the idea</summary>
# Subtract the row's pad count from the place.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Places (T,), the last T of S; pads (B, 1); positions (B, T).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>arange</code>, one difference, one <code>clamp</code>: a pad's position must not be
# negative.
# </details>


# %% nbgrader={"grade_id": "ragged_positions", "solution": true}
def ragged_positions(n_new: int, n_visible: int, n_pads: Tensor) -> Tensor:
    """The position of each new place in its own row's text.

    Args:
        n_new, n_visible, n_pads: as for ragged_mask.

    Returns:
        (B, T) int64: i for the row's own token i, counted from 0. Of pads any number from 0 to
        S - 1.
    """
    check_between("n_new", n_new, 1, n_visible)
    ### BEGIN SOLUTION
    places = torch.arange(n_visible - n_new, n_visible, device=n_pads.device)  # (T,)
    return (places - n_pads.unsqueeze(1)).clamp(min=0)  # (B, T)
    ### END SOLUTION


# %% nbgrader={"grade_id": "positions_count_own_tokens", "points": 1}
checks.positions_count_own_tokens(ragged_positions)

# %% [markdown]
# Here are lesson 03's layer with your mask and positions, and the forward pass.


# %% tags=["export"]
def attend_ragged(
    attn: Attention, x: Tensor, positions: Tensor, mask: Tensor, cache: KVCacheLike, layer: int
) -> Tensor:
    """x (B, T, C), positions (B, T), mask (B, 1, T, S) -> (B, T, C)."""
    (B, T, _), D = x.shape, attn.head_dim
    q, k, v = (w(x).view(B, T, -1, D).transpose(1, 2) for w in (attn.wq, attn.wk, attn.wv))
    held = cache.append(layer, attn.rotate(k, positions), v)  # (B, G, S, D) each
    k, v = (part.repeat_interleave(attn.n_heads // attn.n_kv_heads, dim=1) for part in held)
    scores = attn.rotate(q, positions) @ k.mT / math.sqrt(D)  # (B, H, T, S)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return attn.wo((weights @ v).transpose(1, 2).reshape(B, T, -1))


def forward_ragged(model: MiniGPT, tokens: Tensor, n_pads: Tensor, cache: KVCacheLike) -> Tensor:
    """Logits (B, T, V) of tokens (B, T), in rows that begin with n_pads (B,) pads."""
    model.check_tokens(tokens)
    n_new, n_visible = tokens.shape[1], len(cache) + tokens.shape[1]
    positions = ragged_positions(n_new, n_visible, n_pads)
    mask = ragged_mask(n_new, n_visible, n_pads)
    hidden = model.embed(tokens)  # (B, T, C)
    for i, block in enumerate(model.blocks):
        normed = block.attn_norm(hidden)
        hidden = attend_ragged(block.attn, normed, positions, mask, cache, i) + hidden
        hidden = block.mlp(block.mlp_norm(hidden)) + hidden
    cache.advance(n_new)
    logits = model.lm_head(model.norm(hidden))
    return logits


# %% nbgrader={"grade_id": "each_row_equals_itself_alone", "points": 1}
checks.each_row_equals_itself_alone(pad_prompts, forward_ragged)

# %%
texts = ["The cat", "Where is the red key ?", "The dog slept by the"]
tokens, n_pads = pad_prompts([encode(text)[0] for text in texts], PAD)
together = KVCache(storyteller.config, batch=3, max_len=20)
feed, written = tokens, []
for _ in range(4):
    feed = greedy_next(forward_ragged(storyteller, feed, n_pads, together)[:, -1]).unsqueeze(1)
    written.append(feed)
for text, row in zip(texts, torch.cat(written, dim=1), strict=True):
    alone = generate_cached(storyteller, encode(text), 4)[0, -4:]
    print(f"{text:<24} together: {decode(row):<22} alone: {decode(alone)}")

# %% [markdown]
# Pads still cost compute, cache space and waiting time: here 5 of 18 places of the prompts. Lessons 10
# and 11 get rid of them.
#
# ## Check yourself
#
# <details><summary>Why is the second token faster than the first?</summary>
# Because the prompt's keys and values are kept, it computes one row; the first had to compute all.
# <em>Common wrong answer:</em> "the prompt has been read". Without a cache it is read again.
# </details>
# <details><summary>After a prompt of P, how wide are the scores of the first step?</summary>
# P + 1: P cached, and its own. <em>Common wrong answer:</em> P + 2. The second token is chosen, not
# fed.
# </details>
# <details><summary>101 tokens: 1 s to the first, 3 s in all. Tokens per second?</summary>
# 100 / 2 = {{50 = latency_metrics(0.0, [1 + step / 50 for step in range(101)]).tokens_per_second}}.
# <em>Another common definition:</em> 101 / 3 = {{34 = 101 / 3}}, which mixes the phases and falls as
# the prompt grows.
# </details>
#
# ## Next
#
# **Lesson 05** turns FLOPs and bytes into seconds.
