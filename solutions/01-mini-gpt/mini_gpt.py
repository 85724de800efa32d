# %% [markdown]
# # 01 · A mini-GPT that talks
#
# {{badge}}
#
# A language model reads words and predicts the next one. You build **attention**, the part in which
# words exchange information, and then the model talks.
#
# **After this lesson you can**
#
# * name every axis of the tensors inside a model,
# * write causal attention by hand, with KV heads that several query heads share,
# * choose the next word: the likeliest, or one by chance,
# * say which numbers a new word changes, and why.
#
# **You build:** heads, causal attention, sampling.
# **Time:** 90 minutes. **Points:** 10. **Needs:** lesson 00 and matrix products in PyTorch.
#
# > **Predict before you read on.** A model has read *The cat sat on the mat*. Now replace *sat* by
# > *dog*. For which words do the model's internal numbers change: all six, only *dog*, or some?

# %% tags=["setup"]

# %% tags=["export"]
import math

import torch
from torch import Tensor

from course.model.layers import Attention

# %%
from collections.abc import Callable
from functools import partial
from textwrap import fill

from torch.nn.functional import silu

from course.checks import mini_gpt as checks
from course.minigpt.start import rms_norm
from course.model import MiniGPT
from course.plots.mini_gpt import draw_angles, draw_attention, draw_heads, draw_weights
from course.plots.style import show
from course.world.tokenizer import decode, encode
from course.widgets.mini_gpt import play_with_causality, play_with_sampling

# %% [markdown]
# ## Words in, words out
#
# Our models know 243 words. Each word or punctuation mark is one **token**, a number. The model returns
# **logits**: for each token, one number for every possible next word, larger for likelier words.

# %%
tokens = encode("The cat sat")
print(tokens, "shape", tuple(tokens.shape))
print(repr(decode(tokens)))

# %% [markdown]
# The lessons use these letters. The column *here* describes this text in our model `mini`:
#
# | letter | counts | here | | tensor | shape |
# |---|---|---|---|---|---|
# | B | texts side by side (batch) | 1 | | tokens | (B, T) |
# | T | tokens | 3 | | x, one vector a token | (B, T, C) |
# | C | numbers in a token's vector | 64 | | queries | (B, H, T, D) |
# | H | query heads | 4 | | keys, values | (B, G, T, D) |
# | G | key/value heads (KV heads) | 4 | | logits | (B, T, V) |
# | D | numbers in a head, C / H | {{16 = 64 // 4}} | | | |
# | V | words in the vocabulary | 243 | | | |
# | L | blocks, also called layers | 2 | | | |
#
# `embed` turns a token into a vector x. Each **block** adds to it twice (x is the *residual stream*):
# `attention(attn_norm(x))`, what the token gathers from others, then `mlp(mlp_norm(x))`, what it
# computes from its own vector. At the end, `norm` and `lm_head` turn the vector into logits.
#
# The weights are trained. **What an attention layer does with them is up to you**: you hand the model
# a function. We begin with one that does nothing.


# %%
def no_attention(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
    return torch.zeros_like(x)  # (B, T, C)


lonely = MiniGPT.from_weights("mini", attention_layer=no_attention)
for name, weight in lonely.state_dict().items():
    if "blocks.1" not in name:  # block 1 is built like block 0
        print(f"{name:28} {tuple(weight.shape)}")


# %%
def norm(x: Tensor, weight: Tensor) -> Tensor:
    """The norms: lesson 00's, so that what follows never meets huge numbers, and a learned weight."""
    return rms_norm(x, eps=1e-5) * weight  # weight (C,)


def swiglu(x: Tensor, mlp: torch.nn.Module) -> Tensor:
    """The mlp, in which a token works on its own vector: 64 numbers become 128, and 64 again."""
    candidates = mlp.up(x)  # (B, T, 128)
    lets_pass = silu(mlp.gate(x))  # silu(z) = z · sigmoid(z): near 0 it closes a candidate's gate
    return mlp.down(lets_pass * candidates)  # (B, T, C)


def size(x: Tensor) -> Tensor:
    return (x * x).mean(dim=-1).sqrt()  # (B, T): root mean square


x, block = lonely.embed(tokens), lonely.blocks[0]
louder = x * torch.tensor([[1.0], [10], [100]])  # as if blocks had added much to two of the tokens
print("sizes:", size(louder), "after the norm:", size(norm(louder, torch.ones(64))))
normed, through_mlp = norm(x, block.mlp_norm.weight), swiglu(x, block.mlp)
print("the model's own norm is this one:", torch.allclose(normed, block.mlp_norm(x), atol=1e-5))
print("the model's own mlp is this one: ", torch.allclose(through_mlp, block.mlp(x), atol=1e-5))

# %% [markdown]
# ## 1 · The likeliest word
#
# *Difficulty 1 of 5 · importance 3 of 5 · 5 minutes*
#
# Write `greedy_next`. It gets the logits of each text's last token, (B, V). Refuse any other shape
# with a `ValueError`.
#
# <details><summary>Hint 1: the idea</summary>
# Find the index of the row's largest number.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (B, V) → (B,): the vocabulary axis goes away.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>if</code> the tensor does not have two axes: <code>raise</code>. Then one call with
# <code>dim=…</code>.
# </details>


# %% nbgrader={"grade_id": "greedy_next", "solution": true}
def greedy_next(logits: Tensor) -> Tensor:
    """The likeliest next token of each row: logits (B, V) -> (B,) int64.

    Raises:
        ValueError: logits of another shape.
    """
    ### BEGIN SOLUTION
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")
    return logits.argmax(dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "greedy_takes_the_likeliest", "points": 1}
checks.greedy_takes_the_likeliest(greedy_next)

# %% [markdown]
# > **Predict.** In training it saw *The cat sat on the mat .* very often. But without attention no
# > token sees the others. What will it say after *The cat sat*?


# %%
def tell(model: MiniGPT, text: str, n_words: int, choose: Callable[[Tensor], Tensor]) -> str:
    """Ask for the next word, write it down, ask again."""
    for _ in range(n_words):
        logits = model(encode(text))[:, -1]  # (1, V): what may follow the last word
        text += " " + decode(choose(logits))
    return text


print(tell(lonely, "The cat sat", 10, greedy_next))

# %% [markdown]
# It goes in circles: it chooses each word from the previous one alone. **Tokens must look at each
# other.**
#
# ## 2 · Heads
#
# A token's vector is cut into **heads**, which look at the text independently.

# %%
show(draw_heads())

# %% [markdown]
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Write `split_heads` and its inverse `merge_heads`. Here every size is at least 1.
#
# <details><summary>Hint 1: the idea</summary>
# In memory, a token's numbers lie side by side, head after head. Cut there, then rearrange.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (B, T, H · D) → (B, T, H, D) → (B, H, T, D), and back.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Each takes two steps: one call splits or merges the last axes, one swaps two axes. Cutting straight to
# (B, H, T, D) gives the right shape but mixes tokens. To merge, PyTorch has to copy:
# <code>reshape</code> does, <code>view</code> refuses.
# </details>


# %% nbgrader={"grade_id": "split_heads", "solution": true}
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut each token's vector into heads: x (B, T, n_heads * D) -> (B, n_heads, T, D)."""
    ### BEGIN SOLUTION
    B, T, width = x.shape
    x = x.view(B, T, n_heads, width // n_heads)  # (B, T, H, D)
    return x.transpose(1, 2)  # (B, H, T, D)
    ### END SOLUTION


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads of each token side by side again: x (B, H, T, D) -> (B, T, H * D)."""
    ### BEGIN SOLUTION
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)  # (B, T, H, D) -> (B, T, H * D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "heads_split_and_merge", "points": 1}
checks.heads_split_and_merge(split_heads, merge_heads)

# %% [markdown]
# ## 3 · Causal attention
#
# Each token contributes a **value** and receives an average of the values it may see: its own and
# earlier ones. Later tokens are what it must predict.

# %%
values = torch.tensor([[1.0], [2.0], [6.0]])  # of The, cat, sat: (T, 1)

# A loop: each token averages what has come so far.
print("loop   ", torch.tensor([values[: t + 1].mean() for t in range(3)]))

# The same as a matrix product: 1 where a token may look, then each row divided by its sum.
seen = torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 1]])  # (T, T): rows look, columns are seen
average = seen / seen.sum(dim=1, keepdim=True)
print("matrix ", (average @ values).flatten())

# The same by softmax, e^score divided by the row's sum: e^0 is 1, and e^-infinity is 0.
scores = torch.where(seen == 1, 0.0, -torch.inf)
print("softmax", (scores.softmax(dim=1) @ values).flatten())

# Scores need not be equal. Now sat prefers cat.
scores[2, 1] = 1.5
print("chosen ", (scores.softmax(dim=1) @ values).flatten())
steps = {"seen": seen, "average": average, "chosen": scores.softmax(dim=1)}
show(draw_weights(["The", "cat", "sat"], {**steps, "chosen × 10": (10 * scores).softmax(dim=1)}))

# %% [markdown]
# In attention, the tokens produce the scores: each searches with its **query** and is found by its
# **key**.
#
# 1. A **score** for each pair: query · key, divided by √D. The typical size of a sum of D products
#    grows like √D, and large scores leave all the weight to one word (last panel).
# 2. Where the key comes later than the query, the score is −∞.
# 3. **Softmax** over each row.
# 4. The output is the average of the values with these weights.
#
# $$\mathrm{softmax}\left(\frac{QK^\top}{\sqrt{D}} + \mathrm{mask}\right)V$$
#
# G KV heads may serve H query heads: head h reads KV head `h // (H // G)`. For H = 4 and G = 2, heads
# 0 1 2 3 read {{0 = 0 // (4 // 2)}} {{0 = 1 // (4 // 2)}} {{1 = 2 // (4 // 2)}} {{1 = 3 // (4 // 2)}}.
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# Write `causal_attention` with matrix products, a mask and a softmax, not with a ready-made call.
#
# <details><summary>Hint 1: the idea</summary>
# First give every query head a KV head. Then do steps 1 to 4 for all heads and tokens at once.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# k and v (B, G, T, D) → (B, H, T, D), each head H // G times in a row. Scores (B, H, T, T). The mask
# (T, T) is a lower triangle with its diagonal.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>repeat_interleave</code> along the head axis; <code>@</code> with the last two axes of k
# exchanged; a boolean <code>tril</code>; <code>masked_fill</code>; <code>softmax</code>;
# <code>@</code>.
# </details>


# %% nbgrader={"grade_id": "causal_attention", "solution": true}
def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in which token t sees tokens 0 … t.

    Args:
        q: queries (B, H, T, D).
        k, v: keys and values (B, G, T, D); query head h reads KV head h // (H // G).

    Returns:
        (B, H, T, D).
    """
    ### BEGIN SOLUTION
    H, T, D = q.shape[1:]
    group = H // k.shape[1]  # query heads that read the same KV head
    k = k.repeat_interleave(group, dim=1)  # (B, G, T, D) -> (B, H, T, D)
    v = v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, T): one row a query
    visible = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(dim=-1) @ v  # (B, H, T, D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "attention_sees_no_future", "points": 1}
checks.attention_sees_no_future(causal_attention)

# %% nbgrader={"grade_id": "attention_weighs_by_softmax", "points": 1}
checks.attention_weighs_by_softmax(causal_attention)

# %% nbgrader={"grade_id": "query_heads_share_kv_heads", "points": 1}
checks.query_heads_share_kv_heads(causal_attention)

# %% [markdown]
# ## 4 · The attention layer
#
# A query cannot yet tell the order of the keys. So we rotate both by their positions, each pair of
# numbers by its own angle:


# %%
def angles(position: int, D: int = 16) -> Tensor:
    """D/2 angles, in radians: pair 0 turns by 1 a position, each next pair more slowly."""
    return position * 10_000 ** (-2 * torch.arange(D // 2) / D)


def turned(x: Tensor, position: int) -> Tensor:
    """Turn one vector (D,): numbers i and i + D/2 are a point in a plane."""
    cos, sin = angles(position).cos(), angles(position).sin()
    first, second = x.chunk(2)
    return torch.cat([first * cos - second * sin, first * sin + second * cos])


q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
for m, n in [(5, 3), (25, 23), (5, 4)]:
    print(f"query at {m}, key at {n}: query · key = {turned(q, m) @ turned(k, n):.4f}")
show(draw_angles(angles, [(5, 3), (25, 23)]))

# %% [markdown]
# The product depends only on the **difference of positions**. Values are carried, not compared, so they
# are not rotated. `attn.rotate(heads, positions)` rotates all heads and tokens at once.
#
# *Difficulty 3 of 5 · importance 5 of 5 · 8 minutes*
#
# Write `attention_layer`, which maps a normed x (B, T, C) to what the model adds to the residual
# stream.
#
# <details><summary>Hint 1: the idea</summary>
# Project three times, split into heads, rotate two, attend, merge, project once more.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# x (B, T, C) → q (B, H, T, D), k and v (B, G, T, D) → heads (B, H, T, D) → (B, T, H · D) → (B, T, C).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Three times <code>split_heads(attn.w…(x), attn.n_…)</code>, twice <code>attn.rotate</code>, then
# your functions inside one another, and <code>attn.wo</code> around them. The model adds x itself.
# </details>


# %% nbgrader={"grade_id": "attention_layer", "solution": true}
def attention_layer(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
    """One attention layer, with no cache.

    Args:
        attn: its matrices wq, wk, wv, wo, its sizes n_heads and n_kv_heads, and
            rotate(heads, positions), which turns (B, H, T, D) or (B, G, T, D).
        x: (B, T, C).
        positions: (T,) int64, the place of each token in its text.

    Returns:
        (B, T, C).
    """
    ### BEGIN SOLUTION
    q = split_heads(attn.wq(x), attn.n_heads)  # (B, H, T, D)
    k = split_heads(attn.wk(x), attn.n_kv_heads)  # (B, G, T, D)
    v = split_heads(attn.wv(x), attn.n_kv_heads)  # (B, G, T, D)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))  # (B, T, C)
    ### END SOLUTION


# %% nbgrader={"grade_id": "layer_joins_its_parts", "points": 1}
checks.layer_joins_its_parts(attention_layer)

# %% nbgrader={"grade_id": "layer_obeys_positions", "points": 1}
checks.layer_obeys_positions(attention_layer)

# %% [markdown]
# ## It talks
#
# Here is the same loop with your layer. Every story draws new surnames, so the model cannot know them
# by heart.
#
# > **Predict.** To say her surname, at which word must the second *Mia* look?

# %%
model = MiniGPT.from_weights("mini", attention_layer=attention_layer)
print(tell(model, "The cat sat", 4, greedy_next))
story = "Mia Wood came in from the rain with a red key . Mia"
print(tell(model, story, 1, greedy_next))
show(draw_attention(model, story, causal_attention, looks=[(0, 1, "Wood"), (1, 1, "Mia")]))

# %% [markdown]
# It looks at *Wood*, the word after the first *Mia*. This takes **two blocks**. In block 0, *Wood*
# looks one word back and notes: "I follow *Mia*". In block 1 an **induction head** lets the second
# *Mia* search for this note, find *Wood*, and copy it. It could not do so in block 0: there the key of
# *Wood* comes from *Wood* alone. Hide *Mia* from *Wood* in all heads of block 0, and the probability of
# *Wood* falls from 99 % to 19 %; hide it in head 1 alone, and nothing is lost: the other heads have
# noted it too.
#
# ## What moves when a word changes
#
# Now check your guess from the beginning. A cell is coloured where the **hidden state**, the token's
# vector at that depth, changed. The lower map has no mask.

# %%
play_with_causality(model, "The cat sat on the mat . It was a cold", j=2)

# %% [markdown]
# **Left of the change nothing moves, at any depth**; *dog* moves at every depth, and all later tokens
# move from block 0's output on. A hidden state depends on its own token and on those before it. Keys
# and values are computed from hidden states. So **keys and values of the past never change**. Without
# the mask, each new word would change those of every block but block 0.
#
# ## 5 · A word by chance
#
# Greedy decoding tells only one story. **Sampling** draws from softmax(logits / temperature): a low
# temperature stretches the distances between logits, a high one shrinks them. `top_k` keeps the k
# likeliest words. (`top_p`, which you will meet elsewhere, keeps the likeliest words that together
# reach probability p.)
#
# *Difficulty 3 of 5 · importance 3 of 5 · 10 minutes*
#
# Write `sample_next`. Refuse a temperature of 0 or below, a `top_k` outside 1 … V, and logits that are
# not (B, V). Change no argument.
#
# <details><summary>Hint 1: the idea</summary>
# Refuse; keep the top k; divide; softmax; draw once per row.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (B, V) → weights → draw (B, 1) → (B,). A draw from the k best, (B, k), is a place among them, not yet
# a token.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>topk</code> gives values and tokens; <code>torch.multinomial(…, 1, generator=generator)</code>
# draws; <code>gather</code> turns places into tokens.
# </details>


# %% nbgrader={"grade_id": "sample_next", "solution": true}
def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw the next token of each row from softmax(logits / temperature): (B, V) -> (B,) int64.

    Args:
        temperature: above 0; small is nearly greedy, 1 is what the model learned.
        top_k: draw only among the top_k likeliest tokens, 1 … V; None is all of them. Where
            tokens tie for the last place, keep exactly top_k or all that tie, as you like.
        generator: where the random numbers come from, so that a draw can be repeated; each call
            takes the next ones.

    Raises:
        ValueError: logits of another shape, or a temperature or top_k out of range.
    """
    ### BEGIN SOLUTION
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")
    V = logits.shape[-1]
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; see greedy_next")
    if top_k is not None and not 1 <= top_k <= V:
        raise ValueError(f"top_k must lie in 1 … {V}, got {top_k}")
    scores, tokens = logits.topk(V if top_k is None else top_k, dim=-1)  # (B, K) each
    weights = (scores / temperature).softmax(dim=-1)
    place = torch.multinomial(weights, 1, generator=generator)  # (B, 1), in 0 … K-1
    return tokens.gather(-1, place).squeeze(-1)  # (B,)
    ### END SOLUTION


# %% nbgrader={"grade_id": "sample_follows_temperature", "points": 1}
checks.sample_follows_temperature(sample_next)

# %% nbgrader={"grade_id": "sample_stays_in_top_k", "points": 1}
checks.sample_stays_in_top_k(sample_next)

# %% nbgrader={"grade_id": "bad_arguments_are_refused", "points": 1}
checks.bad_arguments_are_refused(greedy_next, sample_next)

# %% [markdown]
# > **Predict.** At which temperature does the grammar break: 0.5, 1.5 or 3?

# %%
for temperature in (0.5, 1.5, 3.0):
    generator = torch.Generator().manual_seed(1)
    choose = partial(sample_next, temperature=temperature, generator=generator)
    text = tell(model, "The cat sat on the mat .", 60, choose)
    print(fill(f"Temperature {temperature}: {text}", width=90), end="\n\n")
cat = "The cat sat on the mat . "
mia = "Mia Wood came in from the rain with a red"
prompts = [cat + "It was a", cat + mia, "The cat sat on the"]
play_with_sampling(model, sample_next, prompts)

# %% [markdown]
# At 3 the grammar breaks at once, at 1.5 now and then: find the place above, or try other seeds.
#
# ## Check yourself
#
# **1. Four words are read, a fifth is added. Why do keys and values of the first four stay the same?**
# <details><summary>Answer</summary>
# The mask hides the fifth word from them, so their hidden states h stay the same in every block, and
# with them wk(h) and wv(h). <b>Common wrong answer:</b> “because the weights are fixed”. They are
# fixed without the mask too, and yet all keys and values but block 0's would move.
# </details>
#
# **2. Is the key of *sat* in block 1 computed from the word *sat* alone?**
# <details><summary>Answer</summary>
# No. In block 0 it has looked at <i>The</i> and <i>cat</i>: change one of them, and the key changes.
# <b>Common wrong answer:</b> “yes, each token has its own key”. It is its own, but depends on its past
# too. So a stored key belongs to one past only.
# </details>
#
# ## Next
#
# For every new word, `tell` sends the **whole** text through the model again, although the past did
# not change. Count what that costs in lesson 02, *Decode, the slow way*.
