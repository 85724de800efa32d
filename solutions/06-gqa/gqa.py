# %% [markdown]
# # 06 · Fewer keys, same answer
#
# {{badge}}
#
# Lesson 05 showed that a decode step waits for memory; with a batch of long texts, most bytes are cache.
# Does every query head need its own keys and values? In most models, no.
#
# **After this lesson you can**
#
# * let groups of query heads share keys and values, without copying any,
# * turn a trained model into one with fewer KV heads, and say what that costs,
# * tell how many conversations fit beside a model's weights.
#
# **You build:** attention that shares keys, heads that are pooled, and who fits in memory.
# **Time:** 80 minutes. **Points:** 10. **Needs:** lessons 01, 03 and 05 (your answers, or ours).
# No GPU is used.
#
# > **Predict.** Our story model has {{8 = MiniGPT.from_weights("story").config.n_kv_heads}} KV heads and
# > tells where a lamp was put 100 tokens ago or more in
# > {{98 = 100 * METRICS["story"]["recall_place_far"]}} of 100 cases. A sibling has *one*, and so
# > an eighth of the cache. How often will it recall correctly:
# > {{98 = 100 * METRICS["story-g4"]["recall_place_far"]}},
# > {{85 = 100 * METRICS["story-g2"]["recall_place_far"]}} or
# > {{28 = 100 * METRICS["story-g1"]["recall_place_far"]}} of 100? And a surname from equally far back,
# > which the full model gets right in {{100 = 100 * METRICS["story"]["recall_surname_far"]}} of 100
# > cases? Write both down.

# %% tags=["setup"]

# %% tags=["export"]
import math

from torch import Tensor

from course.model.bounds import check_between
from course.model.config import GPTConfig
from course.model.bounds import check_grouped, check_heads, check_pooling
from course.minigpt.kv_cache import kv_cache_bytes

# %%
import sys
from dataclasses import replace

import torch
from tqdm.auto import tqdm

from course import weights
from course.measure.allocations import watch_new_tensors
from course.checks import gqa as checks
from course.world.evaluation import evaluate, held_out
from course.measure.datasheets import DATASHEETS
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import causal_mask
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.minigpt.roofline import attainable, phase_cost
from course.model import MiniGPT
from course.plots.gqa import draw_decode_points, draw_published, draw_quality, draw_sharing
from course.plots.style import show
from course.published.models import LATENT, PUBLISHED
from course.world.tokenizer import decode, encode
from course.widgets.gqa import play_with_memory

# %% [markdown]
# ## The picture

# %%
show(draw_sharing(n_heads=8, kv_heads=(8, 2, 1)))

# %% [markdown]
# Left: multi-head attention (MHA) has one KV head per query head. Right: multi-query attention (MQA;
# Shazeer 2019) has one for all. Between them lies grouped-query attention (GQA; Ainslie et al. 2023): `H`
# query heads read `G` KV heads, and head `h` reads KV head `h // (H // G)`. The number of query heads and
# scores is unchanged. Only the cache shrinks, along with the two matrices that fill it, wk and wv.
#
# > **Spot the slip.** A popular article computes cache size as 2 × layers × **heads** × head width ×
# > tokens × batch × 2 bytes, and later says that GQA shrinks it drastically. By that formula, could it?
#
# <details><summary>Answer</summary>
# No: GQA keeps every query head. The factor must be G: Llama-3-70B (H = {{64 =
# PUBLISHED["Llama-3-70B"].config.n_heads}}, G = {{8 = PUBLISHED["Llama-3-70B"].config.n_kv_heads}}) needs
# an eighth of the formula's result.
# </details>
#
# ## 1 · A row of copies
#
# *Difficulty 1 of 5 · importance 3 of 5 · 5 minutes*
#
# The simplest way to share, as in lesson 03, copies each KV head for every query head that reads it. It
# saves no work but is easy to get right, so it is our reference.
#
# **The common wrong answer** is `repeat`, which tiles: a b a b instead of a a b b. Head 1 of 4 then reads
# KV head 1, which was trained for heads 2 and 3. Every shape still fits.
#
# Write `repeat_kv`, which copies each KV head for all the query heads that read it.
#
# <details><summary>Hint 1: the idea</summary>
# Neighbours share. Where must one head's copies go?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (B, G, S, D) → (B, G · n_rep, S, D). New head j is old head j // n_rep.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One tensor method, whose name says that it interleaves the copies; or a new axis behind G,
# <code>expand</code>, <code>reshape</code>.
# </details>


# %% nbgrader={"grade_id": "repeat_kv", "solution": true}
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    """Each KV head n_rep times in a row: x (B, G, S, D) -> (B, G * n_rep, S, D), perhaps a view of x.

    Raises:
        ValueError: x of another number of axes, or one of them 0; n_rep below 1.
    """
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    ### BEGIN SOLUTION
    return x.repeat_interleave(n_rep, dim=1)  # (B, G * n_rep, S, D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "heads_stand_in_a_row", "points": 1}
checks.heads_stand_in_a_row(repeat_kv)

# %% [markdown]
# ## 2 · Attention that shares
#
# *Difficulty 4 of 5 · importance 5 of 5 · 20 minutes*
#
# Copying a 2-head cache out to 16 heads at every step moves *more* bytes than only reading a 16-head
# cache. So rearrange the queries instead: stack the H // G heads of a group **below one another**, and
# the matrix product sees T · H // G queries of one head. The keys stay in place. Spell out the steps
# yourself: PyTorch's `enable_gqa=True` is not accepted.
#
# | tensor | shape |
# |---|---|
# | q, k, v | (B, H, T, D), (B, G, S, D), (B, G, S, D) |
# | q, its groups stacked | (B, G, H // G · T, D) |
# | scores | (B, G, H // G · T, S), the same numbers as (B, H, T, S) |
# | mask | None, or bool that broadcasts to (B, H, T, S); True: may look |
#
# **Two common wrong answers.** Cutting H into (H // G, G) instead of (G, H // G): this tiles again;
# prefill and decode make the same mistake, so comparing them reveals nothing. And a matrix product of
# queries (B, G, H // G, T, D) with keys (B, G, **1**, D, S): the numbers are right, but where batch axes
# differ, PyTorch *copies the keys*. Your code does not show the copy; the last check counts it.
#
# Write `grouped_attention`, which copies none of them.
#
# <details><summary>Hint 1: the idea</summary>
# The heads of a group are neighbours. Joining their axis with the adjacent token axis keeps both in
# order.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# For products and softmax: (B, G, H // G · T, ·). For the mask, view the same scores as (B, H, T, S). At
# the end: (B, H, T, D).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# reshape q; product with k transposed, over √D; view as (B, H, T, S); <code>masked_fill</code> where
# the mask is False; softmax; view as groups; product with v; view as heads.
# </details>


# %% nbgrader={"grade_id": "grouped_attention", "solution": true}
def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention in which groups of query heads read the same keys and values, where they lie.

    Neither k nor v is copied or converted, whole or head by head: for one or two new tokens, with a
    mask or without, fewer numbers are written into new tensors than k has. Only PyTorch
    operations, for only these can be counted, but not its `enable_gqa`.

    Args:
        q: queries (B, H, T, D).
        k, v: keys and values (B, G, S, D); query head h reads KV head h // (H // G).
        mask: bool, (T, S) or anything that broadcasts to (B, H, T, S), True where a query may
            look; every query sees at least one key. None: each query sees all.

    Returns:
        (B, H, T, D), in the type of q, k and v. In float32 scores may be of any size; what is
        hidden has no share in any case. Ainslie et al. 2023.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0, or a mask that is not bool.
    """
    check_grouped(q, k, v, mask)
    ### BEGIN SOLUTION
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, H // G * T, D)  # the queries of a group, below one another
    scores = rows @ k.transpose(-2, -1) / math.sqrt(D)  # (B, G, H // G * T, S)
    scores = scores.view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, G, H // G * T, S)
    return (shares @ v).view(B, H, T, D)  # (B, G, H // G * T, D), and back to heads
    ### END SOLUTION


# %% nbgrader={"grade_id": "grouped_equals_repeated", "points": 1}
checks.grouped_equals_repeated(grouped_attention)

# %% nbgrader={"grade_id": "masks_reach_every_head", "points": 1}
checks.masks_reach_every_head(grouped_attention)

# %% nbgrader={"grade_id": "nothing_is_expanded", "points": 1}
checks.nothing_is_expanded(grouped_attention)

# %% [markdown]
# > **Predict.** One new token, 16 query heads on 2 KV heads, 8,192 tokens cached. If keys and values are
# > repeated first, how many times more numbers are written? How much longer does it take?

# %%
q, (k, v) = torch.randn(1, 16, 1, 64), torch.randn(2, 1, 2, 8192, 64)
calls = {
    "repeat, then attend": lambda: grouped_attention(q, repeat_kv(k, 8), repeat_kv(v, 8)),
    "grouped": lambda: grouped_attention(q, k, v),
}
numbers = {}
for name, call in calls.items():
    with watch_new_tensors(q, k, v) as made:
        call()
    numbers[name] = made.numbers
with one_thread():
    times = interleaved(calls, rounds=7)
for name, count in numbers.items():
    print(f"{name:<20} {count:>12,} new numbers {min(times[name]) * 1e3:8.2f} ms at best")

# %% [markdown]
# {{44 = 1 + 2 * 16 * 8192 * 64 / (3 * 16 * 8192 + 16 * 64)}} to {{65 = 1 + 2 * 16 * 8192 * 64 / (2 * 16 *
# 8192 + 2 * 16 * 64)}} times the numbers (both sides include the scores, and scaling queries writes fewer
# new numbers than scaling the scores). The time grows less, since both read the cache.
#
# Whether `enable_gqa=True` copies depends on the version, the device and the mask.
#
# Now in a model: lesson 01's layer around *your* attention, in the sibling with two KV heads.


# %%
def grouped_layer(attn, x, positions):
    queries = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    keys = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    values = split_heads(attn.wv(x), attn.n_kv_heads)
    T = x.shape[1]
    return attn.wo(merge_heads(grouped_attention(queries, keys, values, causal_mask(T, T))))


def continuation(model, text, n_new):
    tokens = encode(text)
    for _ in range(n_new):
        best = model(tokens)[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, best], dim=1)
    return decode(tokens[:, -n_new:])


STORY = (
    "The cat sat on the mat. Kenji Snow came in from the rain with a black lamp. "
    "He smiled and put the black lamp in the shed. The bread was warm and the tea was hot. "
    "Where is the black lamp? In the"
)
said = continuation(MiniGPT.from_weights("story-g2", grouped_layer), STORY, n_new=1)
print(f"Where is the black lamp? In the … {said} (it was put in the shed)")

# %% [markdown]
# ## 3 · From eight heads to fewer
#
# *Difficulty 3 of 5 · importance 4 of 5 · 12 minutes*
#
# Nobody wants to train a model twice. Ainslie et al. make each new KV head the **mean** of the heads it
# replaces (they found this better than picking one), then train briefly. All query heads remain.
#
# A weight of `wk` is (G · D, C): the first D *rows* make KV head 0, the next D head 1.
#
# **The common wrong answer** averages neighbouring *rows*: the shape is right, but every head mixes
# unrelated features.
#
# Write `mean_pool_kv_heads`, from the weights of one model to those of the other.
#
# <details><summary>Hint 1: the idea</summary>
# New head g serves the query heads of old heads g · n … g · n + n - 1. Those are averaged, feature by
# feature.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (old heads · D, C) → (new heads, n, D, C) → mean over n → (new heads · D, C).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A new dict with all weights; for names that end with "wk.weight" or "wv.weight": <code>view</code>,
# <code>mean</code> over one axis, <code>reshape</code>.
# </details>


# %% nbgrader={"grade_id": "mean_pool_kv_heads", "solution": true}
def mean_pool_kv_heads(
    state: dict[str, Tensor], config: GPTConfig, n_kv_heads: int
) -> dict[str, Tensor]:
    """Weights of a model in which each KV head is the mean of the neighbouring ones it replaces.

    Args:
        state: weights of a model, named as in `state_dict()`; they are not written to. Keys and
            values come from "….wk.weight" and "….wv.weight", (heads * D, C) each.
        config: the sizes of that model; it has `config.n_kv_heads` heads to pool.
        n_kv_heads: how many there shall be, a divisor of that.

    Returns:
        A new dict with the same names and types; what is not pooled may be the same tensors.
        Ainslie et al. 2023.

    Raises:
        ValueError: the heads cannot be cut into so many groups of one size.
    """
    check_pooling(config, n_kv_heads)
    ### BEGIN SOLUTION
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            C, D = config.d_model, config.head_dim
            groups = weight.view(n_kv_heads, -1, D, C)  # (G, heads of a group, D, C)
            pooled[name] = groups.mean(dim=1).reshape(n_kv_heads * D, C)  # (G * D, C)
    return pooled
    ### END SOLUTION


# %% nbgrader={"grade_id": "pooled_heads_are_means", "points": 2}
checks.pooled_heads_are_means(mean_pool_kv_heads)

# %% nbgrader={"grade_id": "pooling_keeps_the_rest", "points": 1}
checks.pooling_keeps_the_rest(mean_pool_kv_heads)

# %% [markdown]
# ## 4 · What it costs
#
# Each shipped sibling was pooled this way and trained for {{500 = METRICS["story-g1"]["steps"]}} steps:
# 150 on random words that repeat, to relearn copying, and 350 on stories. (The parent had {{2,150 =
# METRICS["story"]["steps"]}}.) Now all read new stories, along with models pooled by *your* function and
# not retrained.

# %%
config, state = weights.read("story")
stories = held_out(20)
trained = {8: evaluate(MiniGPT.from_weights("story", grouped_layer), stories)}
pooled, cache = dict(trained), {8: kv_cache_bytes(config, 1, bytes_per_element=4)}
for G in tqdm([4, 2, 1], desc="reading stories", file=sys.stdout):
    fewer = replace(config, n_kv_heads=G)
    just_pooled = MiniGPT.from_state(fewer, mean_pool_kv_heads(state, config, G), grouped_layer)
    pooled[G] = evaluate(just_pooled, stories)
    trained[G] = evaluate(MiniGPT.from_weights(f"story-g{G}", grouped_layer), stories)
    cache[G] = kv_cache_bytes(fewer, 1, bytes_per_element=4)
show(draw_quality(cache, trained, pooled))

# %%
for G, name in {8: "story", 4: "story-g4", 2: "story-g2", 1: "story-g1"}.items():
    record = weights.metrics(name)  # of 200 stories
    places, surnames = record["recall_place_far"], record["recall_surname_far"]
    n_places, n_surnames = record["questions_place_far"], record["questions_surname_far"]
    print(f"G = {G}, 100 tokens back or more: {places:.0%} of {n_places} places,", end=" ")
    print(f"{surnames:.0%} of {n_surnames} surnames")

# %% [markdown]
# Averaging alone breaks the model, even for G = 4 (dotted). A short training run repairs it. Half the
# cache loses nothing here (though G = 4 had 350 more steps of stories than G = 8). A quarter keeps the
# surnames and loses places, {{98 = 100 * METRICS["story"]["recall_place_far"]}} % → {{85 = 100 *
# METRICS["story-g2"]["recall_place_far"]}} %; an eighth keeps the surnames, and {{28 = 100 *
# METRICS["story-g1"]["recall_place_far"]}} % of the places. Compare your two numbers. Perplexity hardly
# moves, because such words are rare. **Measure what you need, not what is easy to average.**
#
# ## 5 · How many fit
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# A server's memory holds the weights once, and a cache for every sequence. (Activations are ignored.)
#
# Write `max_batch_that_fits`: how many sequences fit.
#
# <details><summary>Hint 1: the idea</summary>
# How much memory do the weights leave, and how much does one sequence need?
# </details>
# <details><summary>Hint 2: the units</summary>
# Everything in bytes; 80 GB is 80 · 10⁹, not 80 · 2³⁰. Whole sequences only, never fewer than zero.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>kv_cache_bytes</code> of lesson 03, one subtraction, one division that rounds down, one
# <code>max</code>.
# </details>


# %% nbgrader={"grade_id": "max_batch_that_fits", "solution": true}
def max_batch_that_fits(
    config: GPTConfig,
    memory_bytes: int,
    n_tokens: int,
    weight_bytes: int,
    bytes_per_element: int = 2,
) -> int:
    """How many sequences fit into a memory beside the weights, an int: 0 if the weights alone do not.

    Args:
        config: sizes of the model.
        memory_bytes: of the device, at least 1.
        n_tokens: S, that each sequence may grow to, at least 1; config.max_seq_len is no bound.
        weight_bytes: of the model, 0 or more; its weights are there once.
        bytes_per_element: of keys and values.

    Raises:
        ValueError: a number out of these bounds, or not a whole one.
    """
    check_between("memory_bytes", memory_bytes, 1, 2**63)
    check_between("n_tokens", n_tokens, 1, 2**31)
    check_between("weight_bytes", weight_bytes, 0, 2**63)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    ### BEGIN SOLUTION
    one_sequence = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(0, memory_bytes - weight_bytes) // one_sequence
    ### END SOLUTION


# %% nbgrader={"grade_id": "batch_fills_the_memory", "points": 1}
checks.batch_fills_the_memory(max_batch_that_fits)

# %% nbgrader={"grade_id": "edge_of_the_memory", "points": 2}
checks.edge_of_the_memory(max_batch_that_fits)

# %% [markdown]
# Published models: cache bytes per token, and how many 8,192-token sequences fit into 80 GB, all in 16
# bits.

# %%
print(
    f"{'model':<14}{'L':>4}{'H':>4}{'G':>4}{'D':>5}{'B/token':>10}{'in 80 GB':>10}{'if G = H':>10}"
)
per_token = {}
for name, size in PUBLISHED.items():
    c = size.config
    per_token[name] = kv_cache_bytes(c, 1)
    fits = max_batch_that_fits(c, 80 * 10**9, 8192, size.weight_bytes)
    alone = max_batch_that_fits(
        replace(c, n_kv_heads=c.n_heads), 80 * 10**9, 8192, size.weight_bytes
    )
    print(
        f"{name:<14}{c.n_layers:>4}{c.n_heads:>4}{c.n_kv_heads:>4}{c.head_dim:>5}"
        f"{per_token[name]:>10,}{fits:>10,}{alone:>10,}"
    )
latent = LATENT["DeepSeek-V3"]  # a latent cache: of each layer and token one row, for all heads
row = f"1 row of {latent.row}"
print(f"{'DeepSeek-V3':<14}{latent.n_layers:>4}{row:>13}{latent.bytes_per_token:>10,}")
show(draw_published({name: PUBLISHED[name].config for name in per_token}, per_token))

# %% [markdown]
# Llama-2-7B caches more per token than Llama-2-70B because it shares nothing. Where 0 fit, the weights
# alone ({{141 = PUBLISHED["Llama-3-70B"].weight_bytes / 1e9}} GB for a 70B) exceed 80 GB; servers use
# several GPUs. (Llama-2 was made for {{4,096 = PUBLISHED["Llama-2-7B"].config.max_seq_len}} tokens; its
# rows are arithmetic.)
#
# Sharing also buys speed. A step reads a full memory once, however many conversations fill it: at an
# H100's 3.35 TB/s, lesson 05's cost model allows {{2,512 = 59 * 3.35e12 /
# phase_cost(PUBLISHED["Llama-3-8B"].config, 1, 8191, 59).bytes}} tokens/s for 59 conversations with
# Llama-3-8B, and for the 14 that fit without sharing {{610 = 14 * 3.35e12 / phase_cost(GPTConfig(128_256,
# 32, 4096, 32, 32, 14_336), 1, 8191, 14).bytes}}.

# %%
play_with_memory(max_batch_that_fits)

# %% [markdown]
# ## 6 · The point on the roof
#
# The batch shares weights; only a group's heads share keys. What is the intensity of each?
#
# > **Predict.** 32 conversations with Llama-3-8B (H = 32) grow from 1,000 to 131,000 tokens. Where does
# > the whole decode step move on lesson 05's roof, for G = 32, 8 and 1?

# %%
llama = PUBLISHED["Llama-3-8B"]
h100 = DATASHEETS["H100"]


def fits_into_80_gb(config, batch, n_tokens):
    return batch <= max_batch_that_fits(config, 80 * 10**9, n_tokens, llama.weight_bytes)


show(
    draw_decode_points(
        phase_cost,
        attainable,
        fits_into_80_gb,
        h100,
        {G: replace(llama.config, n_kv_heads=G) for G in (32, 8, 1)},
        contexts=[1024, 4096, 16_384, 65_536, 131_072],
        batch=32,
    )
)

# %% [markdown]
# Weights give B FLOP/byte, and the cache gives H / G, *whatever the batch*. As the context grows, the
# step approaches H / G: {{1 = PUBLISHED["Llama-3-8B"].config.n_heads // 32}} and {{4 =
# PUBLISHED["Llama-3-8B"].config.n_heads // 8}}. For G = 1 weights and cache both give {{32 =
# PUBLISHED["Llama-3-8B"].config.n_heads // 1}}: the point does not move. Fewer KV heads stop a long
# context from undoing the gain from batching, and leave room for the batch.
#
# ## Check yourself
#
# <details><summary>Cached equals uncached to the last digit. Is the order of the heads right?</summary>
# Not proven. <em>Common wrong answer:</em> "yes, tested". Both sides tile alike; only trained weights, or
# another program, reveal the order.
# </details>
# <details><summary>Does GQA save FLOPs in attention?</summary>
# No: H heads still score S keys each. <em>Common wrong answer:</em> "H / G times fewer". Only the wk and
# wv projections shrink.
# </details>
# <details><summary>Why not G = 1 everywhere?</summary>
# Here it lost the places. Also, 8 GPUs that share a model need 8 copies of a single KV head; with G = 8
# each keeps its own. <em>Common wrong answer:</em> "one head is too slow".
# </details>
#
# ## Next
#
# Must every cached number have 16 bits? **Lesson 07** stores 8, 4 and 2, and asks again what the model
# remembers.
