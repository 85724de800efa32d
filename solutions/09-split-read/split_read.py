# %% [markdown]
# # 09 · Attention in parts
#
# {{badge}}
#
# Lesson 07's tiled read processed the cache in tiles and was exact. How can a softmax, which divides by a
# sum over *all* keys, be computed from parts?
#
# **After this lesson you can**
#
# * say in D + 2 numbers what a query found in some of its keys,
# * merge such parts in any order, and show that nothing is approximated,
# * read keys where they lie: in blocks, or once for many chats.
#
# **You build:** attention over parts of the cache, merged exactly.
# **Time:** 75 minutes. **Points:** 10. **Needs:** lessons 03, 06 and 07 (your answers, or ours).
#
# > **Predict.** Attention over the first half of a query's keys alone gives 2; over the second half alone
# > it gives 4. Which of 1, 2.1, 3 and 6 can attention over all keys give?

# %% tags=["setup"]

# %% tags=["export"]
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from course.model.bounds import check_grouped
from course.given.parts import Part, check_blocks, check_cut, check_pair, check_part, check_shared

# %%
from concurrent.futures import ThreadPoolExecutor

from course.checks import split_read as checks
from course.fast.paged_tiles import attend_tiles, make_scratch
from course.measure.machine import interleaved, one_thread
from course.minigpt.gqa import grouped_attention
from course.plots.split_read import draw_three_parts
from course.plots.style import show
from course.plots.times import draw_times
from course.widgets.split_read import cut_and_merge

# %% [markdown]
# ## The picture

# %%
show(draw_three_parts())

# %% [markdown]
# Softmax subtracts the largest score, because exp of a large score overflows. A part knows only its *own*
# largest score, its **top**. It weighs its keys by exp(score - top) and keeps two sums: of the weights
# (**total**) and of the weighted values (**out**). Against a higher top, every weight of the part shrinks
# by the same factor, exp(old top - new top), and so do both sums: they **fade**. Here part A's factor is
# {{0.14 = math.exp(2 - 4)}}.
#
# The prediction: 2.1 and 3 are possible, like anything between 2 and 4. The whole is a weighted mean of
# the parts' results, with weights exp(top) · total. In the picture, part A alone gives {{4.92 =
# (math.exp(-1) * 2 + 6) / (math.exp(-1) + 1)}}, but the whole gives only {{3.03 = (math.exp(1) * 2 +
# math.exp(2) * 6 + math.exp(4) * 3 + math.exp(3) * 1 + math.exp(3.5) * 4 + math.exp(0.5) * 5 +
# math.exp(2.5) * 2) / (math.exp(1) + math.exp(2) + math.exp(4) + math.exp(3) + math.exp(3.5) +
# math.exp(0.5) + math.exp(2.5))}}.
#
# ## 1 · One part
#
# *Difficulty 2 of 5 · importance 5 of 5 · 12 minutes*
#
# `attend_part` is lesson 06's `grouped_attention`, stopped before the division. It returns a `Part`
# (given, `course/given/parts.py`), a named tuple of `out`, `top` and `total`. A query that sees none
# of these keys gets top `-inf`, total 0, out 0.
#
# **The common wrong answer** also subtracts the top there: `-inf` minus `-inf` is NaN.
#
# <details><summary>Hint 1: the idea</summary>
# What does softmax do in its three steps? Which of them is left out here?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Scores (B, H, T, S); top and total (B, H, T, 1); for both products the heads of a group are stacked,
# (B, G, H // G · T, ·).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Scores and mask as in lesson 06; <code>amax</code> with <code>keepdim</code>; subtract it, or something
# finite where it is -inf; <code>exp</code>; a sum; a product with v.
# </details>


# %% nbgrader={"grade_id": "attend_part", "solution": true}
def attend_part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Part:
    """Attend to some of the keys, ready to be merged with what the same queries find in others.

    No key and no value is copied or converted: for one new token and many keys, all new tensors
    together hold fewer numbers than k. Only PyTorch operations, for only these can be counted.

    Args:
        q: queries (B, H, T, D).
        k, v: some keys and values (B, G, S, D); query head h reads KV head h // (H // G).
        mask: bool, broadcasts to (B, H, T, S), True where a query may look; None: each sees all.

    Returns:
        top (B, H, T, 1): the largest score, q · k / √D, of what a query sees;
        total (B, H, T, 1): exp(score - top), added up over these keys;
        out (B, H, T, D): their values, each times exp(score - top), added up.
        For a query that sees none of these keys: top -inf, total 0, out 0. All in the type of q.

    Raises:
        ValueError: shapes that do not belong together, an axis of 0, a mask that is not bool.
    """
    check_grouped(q, k, v, mask)
    ### BEGIN SOLUTION
    (B, H, T, D), G = q.shape, k.shape[1]
    rows = q.reshape(B, G, -1, D) / math.sqrt(D)  # (B, G, H // G * T, D)
    scores = (rows @ k.transpose(-2, -1)).view(B, H, T, -1)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(dim=-1, keepdim=True)  # (B, H, T, 1)
    weights = (scores - top.clamp_min(torch.finfo(top.dtype).min)).exp()  # -inf - -inf is NaN
    out = (weights.view(B, G, H // G * T, -1) @ v).view(B, H, T, D)
    return Part(out, top, weights.sum(dim=-1, keepdim=True))
    ### END SOLUTION


# %% nbgrader={"grade_id": "parts_say_their_sums", "points": 1}
checks.parts_say_their_sums(attend_part)

# %% [markdown]
# ## 2 · Merging
#
# *Difficulty 3 of 5 · importance 5 of 5 · 15 minutes*
#
# Two parts of the same queries become one part, which can be merged again. `finish` turns a part into
# attention output; every query saw some key.
#
# **Two common wrong answers.** Taking the mean of both finished outputs: a part in which nothing matters
# then counts half. And adding sums without fading: they refer to different tops.
#
# Write `merge`, from two parts to one, and `finish`, from a part to attention.
#
# <details><summary>Hint 1: the idea</summary>
# Which top does the merged part use? By what factor do each part's sums shrink?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Tops and fades are (B, H, T, 1): each query has its own, and they broadcast over D.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>torch.maximum</code> of the tops; two factors, each <code>exp</code> of a difference, with care
# where both tops are -inf; new sums, each of two products. Nothing in place.
# </details>


# %% nbgrader={"grade_id": "merge", "solution": true}
def merge(a: Part, b: Part) -> Part:
    """Merge what the same queries found in two disjoint sets of keys.

    Args:
        a, b: parts of one shape; neither is changed. A query may have seen nothing in one of them, or
            in both: then nothing changes, or the whole has top -inf, total 0, out 0 as well.

    Returns:
        The part that attention to both sets at once would give: its top is the larger of both, for
        each query, and total and out are counted from that.

    Raises:
        ValueError: parts of other shapes.
    """
    check_pair(a, b)
    ### BEGIN SOLUTION
    top = torch.maximum(a.top, b.top)
    level = top.clamp_min(torch.finfo(top.dtype).min)  # finite, also where nobody saw a key
    keep_a, keep_b = (a.top - level).exp(), (b.top - level).exp()  # (B, H, T, 1)
    total = a.total * keep_a + b.total * keep_b
    return Part(a.out * keep_a + b.out * keep_b, top, total)
    ### END SOLUTION


# %% nbgrader={"grade_id": "finish", "solution": true}
def finish(part: Part) -> Tensor:
    """Turn sums into attention, (B, H, T, D); every query saw some key. The part stays as it is."""
    check_part(part)
    ### BEGIN SOLUTION
    return part.out / part.total
    ### END SOLUTION


# %% nbgrader={"grade_id": "any_cut_any_order", "points": 2}
checks.any_cut_any_order(merge, finish)

# %% nbgrader={"grade_id": "far_apart_scores", "points": 1}
checks.far_apart_scores(attend_part, merge, finish)

# %% nbgrader={"grade_id": "inputs_stay", "points": 1}
checks.inputs_stay(merge, finish)

# %% [markdown]
# Move the cuts, change the order, make scores a hundred times as large. Then switch off the maximum.

# %%
cut_and_merge(attend_part, merge, finish)

# %% [markdown]
# > **Predict.** Eight parts, merged in three random orders. How far is the result from attention over all
# > keys: 0, 1e-7, or 1e-3? Is it the same in every bit for all three?

# %%
q, (k, v) = torch.randn(1, 8, 1, 64), torch.randn(2, 1, 2, 4096, 64)
dense = grouped_attention(q, k, v)
merged = []
for order in range(3):
    parts = [attend_part(q, *pair) for pair in zip(k.chunk(8, 2), v.chunk(8, 2), strict=True)]
    left = [parts[i] for i in torch.randperm(8, generator=torch.Generator().manual_seed(order))]
    while len(left) > 1:
        left = [*left[2:], merge(left[0], left[1])]
    merged.append(finish(left[0]))
    print(f"order {order}: max |Δ| {(merged[-1] - dense).abs().max():.1e}")
print("in every bit as in order 0:", [torch.equal(merged[0], other) for other in merged[1:]])

# %% [markdown]
# So the merge is exact up to rounding: a "running softmax" (Milakov and Gimelshein 2018) loses nothing.
# The same algebra underlies FlashAttention, flash-decoding (keys split over processors; Dao et al. 2023)
# and ring attention. In `course/fast/tiled_read.py` of lesson 07, `maximum`, `total` and `out` are your
# `Part`.
#
# > **Spot the slip.** A popular page says that flash-decoding "avoids recomputing the full attention
# > matrix for each new token". Who avoided that long before?
#
# <details><summary>Answer</summary>
# The KV cache (lesson 03): a new token computes one row. Flash-decoding splits the <em>reading</em> of
# that row's keys over otherwise idle processors.
# </details>
#
# ## 3 · A few keys at a time
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Now write the loop: read `size` keys, merge, read the next `size`. Slice the mask with the keys. A
# causal chunk or a window hides whole parts from some queries.
#
# Write `attend_in_parts`: attention to `size` keys at a time.
#
# <details><summary>Hint 1: the idea</summary>
# What do you hold after merging the last keys?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Keys (B, G, up to size, D); take the same columns of the mask, along its last axis.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>range</code> with a step; slices, which may run past the end; start with the first part and merge
# the others into it.
# </details>


# %% nbgrader={"grade_id": "attend_in_parts", "solution": true}
def attend_in_parts(
    q: Tensor, k: Tensor, v: Tensor, size: int, mask: Tensor | None = None
) -> Tensor:
    """Attend to `size` keys at a time; the last part may be shorter.

    For one new token and parts of some hundred keys, no new tensor holds as many numbers as there
    are keys (S), and all new ones together hold fewer than k. Only PyTorch operations.

    Args:
        q: (B, H, T, D); k, v: (B, G, S, D).
        size: keys of a part, from 1 to more than there are.
        mask: bool (…, S), broadcasts to (B, H, T, S); every query sees some key, but perhaps none of
            a whole part. None: each sees all.

    Returns:
        (B, H, T, D), as `grouped_attention` gives.

    Raises:
        ValueError: shapes that do not belong together; size below 1.
    """
    check_cut(q, k, v, size, mask)
    ### BEGIN SOLUTION
    whole = None
    for first in range(0, k.shape[2], size):
        cut = slice(first, first + size)
        seen = None if mask is None else mask[..., cut]
        part = attend_part(q, k[:, :, cut], v[:, :, cut], seen)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)
    ### END SOLUTION


# %% nbgrader={"grade_id": "parts_nobody_sees", "points": 2}
checks.parts_nobody_sees(merge, attend_in_parts)

# %% nbgrader={"grade_id": "nothing_large_is_made", "points": 1}
checks.nothing_large_is_made(attend_in_parts)

# %% [markdown]
# > **Predict.** {{16 = 65536 // 4096}} parts instead of one read of 65,536 tokens: how many times as long
# > does it take? And with two threads, each taking half the keys?


# %%
def in_two_threads(pool):
    halves = pool.map(
        lambda pair: attend_part(q, *pair), zip(k.chunk(2, 2), v.chunk(2, 2), strict=True)
    )
    return finish(merge(*halves))


q, (k, v) = torch.randn(1, 8, 1, 64), torch.randn(2, 1, 2, 65_536, 64)
with one_thread(), ThreadPoolExecutor(2) as pool:
    times = interleaved(
        {
            "one read": lambda: finish(attend_part(q, k, v)),
            "16 parts": lambda: attend_in_parts(q, k, v, 4096),
            "2 parts, 2 threads": lambda: in_two_threads(pool),
        },
        rounds=9,
    )
show(draw_times(times, "one token to attend", beside="one read"))

# %% [markdown]
# Parts cost little. Two threads help only if a second core is free and memory bandwidth is left; on a
# busy machine they lose. An H100 has 132 processors (NVIDIA 2022), but one chat with an 8-KV-head model
# keeps only 8 busy unless its keys are split; there the split pays.
#
# ## 4 · Blocks where they lie
#
# *Difficulty 3 of 5 · importance 4 of 5 · 10 minutes*
#
# The next lesson stores all conversations in one pool of blocks, using whichever are free. A **table**
# lists a conversation's blocks: token 9, in blocks of 4, is token {{1 = 9 % 4}} of block `table[{{2 = 9
# // 4}}]`. Gathering them first would copy the whole cache at every step.
#
# The pool is shared: past `length`, the last block holds whatever another conversation left.
#
# Write `attend_blocks`: attention to the first `length` tokens of the table's blocks.
#
# <details><summary>Hint 1: the idea</summary>
# Order does not affect the result. When does a token belong to this conversation?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>keys[number]</code> is a view (G, size, D). A part wants (1, G, held, D).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Loop over the blocks that <code>length</code> needs: count this one's tokens, take views, compute a
# part, merge.
# </details>


# %% nbgrader={"grade_id": "attend_blocks", "solution": true}
def attend_blocks(
    q: Tensor, keys: Tensor, values: Tensor, table: Sequence[int], length: int
) -> Tensor:
    """Attend to the tokens of one conversation in the blocks where they lie.

    With blocks of 64 tokens and D = 64, all new tensors together hold fewer numbers than the
    conversation's keys. Only PyTorch operations.

    Args:
        q: (1, H, T, D); every query sees all `length` tokens.
        keys, values: (n_blocks, G, size, D), of all conversations.
        table: numbers of this one's blocks, in the order of its tokens; perhaps more than it needs.
        length: tokens that it holds. The last block need not be full.

    Returns:
        (1, H, T, D).

    Raises:
        ValueError: shapes that do not belong together; a table too short for so many tokens.
    """
    check_blocks(q, keys, values, table, length)
    ### BEGIN SOLUTION
    size, whole = keys.shape[2], None
    for place, first in enumerate(range(0, length, size)):
        held = min(size, length - first)
        k, v = (pool[table[place]][None, :, :held] for pool in (keys, values))  # (1, G, held, D)
        part = attend_part(q, k, v)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)
    ### END SOLUTION


# %% nbgrader={"grade_id": "blocks_where_they_lie", "points": 1}
checks.blocks_where_they_lie(attend_blocks)

# %% [markdown]
# > **Predict.** You read 8,192 tokens in blocks of 16: gathered first, block by block with your loop, or
# > in tiles of 512. Which comes closest to contiguous keys?


# %%
def ways_to_read(H, G, S, D, size=16):
    q, (keys, values) = torch.randn(1, H, 1, D), torch.randn(2, S // size, G, size, D)
    table = torch.randperm(S // size).tolist()
    scratch, (k, v) = make_scratch(keys), torch.randn(2, 1, G, S, D)
    numbers = torch.tensor(table)

    def gathered():  # heads first, so that all is written once
        heads_first = (pool.transpose(0, 1).index_select(1, numbers) for pool in (keys, values))
        k, v = (rows.view(1, G, S, D) for rows in heads_first)
        return finish(attend_part(q, k, v))

    return {
        "gathered first": gathered,
        "block by block": lambda: attend_blocks(q, keys, values, table, S),
        "in tiles": lambda: attend_tiles(
            q, keys, values, table, S, scratch, attend_part, merge, finish
        ),
        "contiguous": lambda: finish(attend_part(q, k, v)),
    }


for S, sizes in {8192: {"H": 32, "G": 8, "D": 128}, 1024: {"H": 8, "G": 8, "D": 16}}.items():
    with one_thread():
        times = interleaved(ways_to_read(S=S, **sizes), rounds=5)
    what = f"one token to attend to {S:,}, D = {sizes['D']}"
    show(draw_times(times, what, beside="contiguous"))

# %% [markdown]
# In the first picture tiles come closest. Your loop copies nothing, yet launches some twenty operations
# per block; a kernel avoids that cost (PagedAttention, Kwon et al. 2023). A **tile** copies a few blocks
# at a time into a scratch buffer (`course/fast/paged_tiles.py`) that stays in the processor's cache, as
# in lesson 07. The second picture is a short text of our story model. All its keys fit into that cache,
# so gathering beats tiles, which only add operations.
#
# ## 5 · One prefix, many chats
#
# *Difficulty 3 of 5 · importance 4 of 5 · 10 minutes*
#
# Sixteen chats start with the same 8,192 tokens. Each needs them at every step. Must you read them
# sixteen times? The prefix is one batch row of keys, and sixteen chats are sixteen queries to it.
#
# Write `attend_shared`: attention to the prefix and to each row's own keys.
#
# <details><summary>Hint 1: the idea</summary>
# Which axis may grow without another key being read?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# q (B, H, 1, D) → (1, H, B, D) for the prefix; the part's three tensors go back the same way.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>transpose</code>, not <code>view</code>: a view would mix chats and heads. Two parts, merge,
# finish.
# </details>


# %% nbgrader={"grade_id": "attend_shared", "solution": true}
def attend_shared(
    q: Tensor, prefix_k: Tensor, prefix_v: Tensor, own_k: Tensor, own_v: Tensor
) -> Tensor:
    """Attend to one prefix that all rows share, and to each row's own keys.

    The prefix is read once for all rows: not copied or expanded for each, nor read row by row.
    Only PyTorch operations.

    Args:
        q: (B, H, 1, D), the newest token of each of B chats.
        prefix_k, prefix_v: (1, G, P, D).
        own_k, own_v: (B, G, S, D), which follow it.

    Returns:
        (B, H, 1, D).

    Raises:
        ValueError: shapes that do not belong together, an axis of 0.
    """
    check_shared(q, prefix_k, prefix_v, own_k, own_v)
    ### BEGIN SOLUTION
    chats = attend_part(q.transpose(0, 2), prefix_k, prefix_v)  # (1, H, B, ·)
    prefix = Part(*(x.transpose(0, 2) for x in chats))  # (B, H, 1, ·)
    return finish(merge(prefix, attend_part(q, own_k, own_v)))
    ### END SOLUTION


# %% nbgrader={"grade_id": "prefix_is_read_once", "points": 1}
checks.prefix_is_read_once(attend_shared)

# %% [markdown]
# With four KV heads of 64 numbers and 128 own tokens per chat, separate reads take {{273 = 16 * (8192
# + 128) * 2 * 4 * 64 * 4 / 1e6}} MB of floats a step; shared reads take {{21 = (8192 + 16 * 128) * 2 *
# 4 * 64 * 4 / 1e6}} MB.
#
# > **Predict.** {{13 = 16 * (8192 + 128) / (8192 + 16 * 128)}} times fewer bytes: how many times
# > faster?

# %%
B, P, S = 16, 8192, 128
q, prefix, own = torch.randn(B, 16, 1, 64), torch.randn(2, 1, 4, P, 64), torch.randn(2, B, 4, S, 64)
k, v = torch.cat([prefix.expand(2, B, 4, P, 64), own], dim=3)  # a copy of the prefix for each chat
with one_thread():
    times = interleaved(
        {
            "each its own": lambda: finish(attend_part(q, k, v)),
            "shared prefix": lambda: attend_shared(q, *prefix, *own),
        },
        rounds=5,
    )
show(draw_times(times, f"one step of {B} chats", beside="each its own"))

# %% [markdown]
# Sharing gains less than the bytes promise. The number of multiplications is unchanged, and each number
# of the prefix now serves 16 chats: multiplications and exponentials now take longer than reading, so the
# read has become compute-bound (lesson 05).
#
# ## Check yourself
#
# <details><summary>A processor read a part of 10,000 keys. How many numbers does it send?</summary>
# D + 2 for each query: out, top, total. Kernels send D + 1: the part's own softmax output, and its
# log-sum-exp (<code>lse</code>), top + log(total), say the same. <em>Common wrong answer:</em> 10,000
# scores. It sums them where the keys are.
# </details>
# <details><summary>Is the result bit-equal to one read?</summary>
# No: it adds the same terms in another order, with different rounding. <em>Common wrong answer:</em> yes,
# since merging is exact. Engines choose the split by batch size, so the same prompt can give different
# last digits in another batch: they are not <em>batch-invariant</em>.
# </details>
# <details><summary>May parts be of different length?</summary>
# Yes, of any: <code>total</code> knows. <em>Common wrong answer:</em> no, or a mean would weigh them
# wrongly. Nothing here is a mean before <code>finish</code>.
# </details>
# <details><summary>Why does a mean of outputs fail even for parts of equal length?</summary>
# Their weights differ: one part may hold all that matters. <em>Common wrong answer:</em> it only fails
# where lengths differ. It is right where exp(top) · total is the same in both, or where the outputs are.
# </details>
# <details><summary>gpt-oss learns one more score for each head, a <em>sink</em>, to which no key and no
# value belong. Which part is it?</summary>
# top: that score; total: 1; out: 0. Merge it with the others.
# <em>Common wrong answer:</em> none, since it has no value. It takes weight away from all that have one.
# </details>
#
# ## Next
#
# You can read blocks wherever they lie, or just some of them (lesson 14). **Lesson 10** keeps the cache
# in blocks, letting conversations share what they have in common.
