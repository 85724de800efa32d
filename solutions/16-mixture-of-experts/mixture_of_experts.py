# %% [markdown]
# # 16 · Which weights are read?
#
# {{badge}}
#
# In a *mixture of experts* each layer has many feed-forwards, the *experts*, and a *router*, which picks
# a few of them for each token. Such a model holds many weights and uses few. But a pass reads every
# expert that *any* of its tokens chose. In lessons 11 and 12 one more row in a pass was nearly free; here
# it is not.
#
# **After this lesson you can**
#
# * route tokens, and call each expert once for all its tokens,
# * say how many bytes a pass of some tokens reads,
# * say for which batch sizes guessed tokens pay off.
#
# **You build:** a mixture of experts, and the count of its bytes. **Time:** 65 minutes.
# **Points:** 10. **Needs:** lessons 05, 11 and 12 (your answers, or ours).
#
# > **Predict.** Qwen3-30B-A3B has 30 billion weights; a token uses 3 billion of them, 8 of 128 experts
# > in each layer. 16 chats share a pass, one token each. Does this pass read 1, 2, 6 or 16 times as many
# > bytes as a pass of one chat?

# %% tags=["setup"]

# %% tags=["export"]
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course.given.experts import (
    check_experts,
    check_read,
    check_routing,
    check_tokens_and_experts,
)
from course.measure.limits import Machine
from course.published.experts import MoESize

# %%
from statistics import median

from course.checks import mixture_of_experts as checks
from course.given.experts import MixtureOfExperts, MoEGPT
from course.measure.datasheets import DATASHEETS
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import generate_cached
from course.minigpt.speculative import expected_tokens, lookup_draft, speculate
from course.model.layers import SwiGLU
from course.plots.mixture_of_experts import (
    draw_bytes,
    draw_gains,
    draw_measured,
    draw_strip,
)
from course.plots.style import show
from course.published.experts import EXPERTS, as_mixture
from course.published.models import PUBLISHED
from course.widgets.mixture_of_experts import choose_pass
from course.world.evaluation import held_out
from course.world.tokenizer import decode, encode

# %% [markdown]
# ## 1 · The router chooses
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# The router is one matrix, which maps a token's vector to N logits, one per expert. Each token uses the k
# experts with the largest logits. Their weights are the **softmax over these k logits** alone, so they
# add up to 1 (Jiang et al. 2024).
#
# **The common wrong answer** takes k weights from a softmax over all N: they add up to less than 1. Some
# models are trained that way. Ours was not: its outputs would be too small.
#
# Write `route`.
#
# <details><summary>Hint 1: the idea</summary>
# First choose, then weigh what was chosen. Does your softmax overflow?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# From (n, N) to two tensors (n, k). <code>chosen</code> holds indices, 0 … N - 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>topk</code> gives both values and indices; one softmax over the last axis.
# </details>


# %% nbgrader={"grade_id": "route", "solution": true}
def route(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The experts that each token uses, and their weights.

    Args:
        logits: (n, N), n tokens' logits for N experts; those of a token may be hundreds apart.
        k: experts that each token uses, 1 … N.

    Returns:
        chosen: (n, k) int64. Indices of the k different experts with the largest logits, in any order;
            where logits are equal, any choice among them is right.
        weights: (n, k), of the dtype of logits: the softmax over the chosen logits. weights[i, j] is the
            weight of expert chosen[i, j].
    """
    check_routing(logits, k)
    ### BEGIN SOLUTION
    largest, chosen = logits.topk(k, dim=-1)
    return chosen, largest.softmax(dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "routing_takes_the_best", "points": 1}
checks.routing_takes_the_best(route)

# %% nbgrader={"grade_id": "weights_of_the_chosen", "points": 1}
checks.weights_of_the_chosen(route)

# %% [markdown]
# ## 2 · Experts called in groups
#
# *Difficulty 4 of 5 · importance 5 of 5 · 20 minutes*
#
# A row's output is the sum of its experts' outputs, each times its weight. Computing token by token reads
# an expert's matrices again for every token. So turn it around: **for each expert, gather the rows that
# chose it, call it once, and add what it gives to these rows.**
#
# Do not call an expert that no row chose, not even with zero rows: calling it reads its matrices.
#
# **Two common wrong answers.** Calling all experts with all rows, with the weight 0 for most outputs, is
# correct but reads every weight. With `out[rows] = …` instead of adding, only the last of a row's experts
# counts.
#
# Write `moe_grouped`.
#
# <details><summary>Hint 1: the idea</summary>
# Where in <code>chosen</code> does an expert's index occur? The place gives the row and the slot, the
# column that also holds its weight.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>torch.where(chosen == number)</code> gives two lists of one length: rows and slots. A weight must
# multiply all C numbers of its row.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Zeros like x; a loop over the experts; rows and slots; skip experts without rows; call, multiply,
# <code>index_add_</code>.
# </details>


# %% nbgrader={"grade_id": "moe_grouped", "solution": true}
def moe_grouped(
    x: Tensor,
    experts: Sequence[Callable[[Tensor], Tensor]],
    chosen: Tensor,
    weights: Tensor,
) -> Tensor:
    """Outputs of all rows: for each the sum of its experts' outputs, times their weights.

    Each chosen expert is called exactly once, with one (m, C) tensor of all rows that chose it, in any
    order. None is left out, added or repeated: equal rows all go in, and a weight of 0 is a choice as
    well. The other experts are not called.

    Args:
        x: (n, C), n at least 1.
        experts: N functions from (m, C) to (m, C), m at least 1. One may return what it was given.
        chosen: (n, k) int64; the k indices of a row are different.
        weights: (n, k), of the dtype of x. They are used as they are, also where they do not add up to 1.

    Returns:
        (n, C), of the dtype of x; a new tensor, which shares no memory with x.
    """
    check_experts(x, experts, chosen, weights)
    ### BEGIN SOLUTION
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, slots = torch.where(chosen == number)
        if len(rows):
            out.index_add_(0, rows, weights[rows, slots].unsqueeze(1) * expert(x[rows]))
    return out
    ### END SOLUTION


# %% nbgrader={"grade_id": "grouped_as_token_by_token", "points": 1}
checks.grouped_as_token_by_token(moe_grouped)

# %% nbgrader={"grade_id": "unchosen_experts_are_not_called", "points": 1}
checks.unchosen_experts_are_not_called(moe_grouped)

# %% nbgrader={"grade_id": "each_expert_once", "points": 1}
checks.each_expert_once(moe_grouped)

# %% nbgrader={"grade_id": "other_rows_change_nothing", "points": 1}
checks.other_rows_change_nothing(moe_grouped)

# %% [markdown]
# We made a sibling of our story model: each feed-forward was cut into two halves, each half copied four
# times. So there are 8 experts, of which a token uses 2. At first it computed the same: a token chose a
# copy of each half, with weight ½, and outputs were doubled. Then it was trained for {{200 =
# METRICS["story-moe-8-2"]["steps"]}} steps, with an extra loss that rewards using all experts equally
# often (Fedus et al. 2021). A token still uses as many weights of its feed-forward as before, but the
# model holds four times as many.
#
# It tells stories as well as its parent: loss {{0.41 = METRICS["story-moe-8-2"]["loss"]}} nats a token
# (story: {{0.42 = METRICS["story"]["loss"]}}), and of the places that were named 100 tokens ago or more
# it recalls {{98 = 100 * METRICS["story-moe-8-2"]["recall_place_far"]}} %
# ({{98 = 100 * METRICS["story"]["recall_place_far"]}}).
#
# Nothing that you built needs a change: neither the cache nor the loop sees the feed-forward.

# %%
model = MoEGPT.from_weights("story-moe-8-2", route, moe_grouped)
prompt = encode(" ".join(held_out(1)[0].text.split()[:6]))[0]
text = generate_cached(model, prompt.unsqueeze(0), 40)[0]
guessed = speculate(model, lookup_draft, prompt, 40, 4)
print(decode(text))
print("with guesses the same text:", torch.equal(text, guessed))

# %% [markdown]
# Which experts do the words of a story choose, in the third layer?

# %%
words = held_out(1)[0].text.split()[:14]
model(encode(" ".join(words)))
show(draw_strip(words, model.chosen()[2], n_experts=8))

# %% [markdown]
# ## 3 · How many experts are read?
#
# *Difficulty 2 of 5 · importance 5 of 5 · 8 minutes*
#
# One token leaves a given expert unread with probability 1 - k / N. With what probability do all n tokens
# of a pass leave it unread, if they choose independently and each expert is equally likely? So how many
# experts are read on average?
#
# Write `expected_experts`.
#
# <details><summary>Hint 1: the idea</summary>
# A mean number of experts is a sum of probabilities, one for each expert.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Between k, for one token, and N. Two tokens may choose the same expert; the k of one token differ.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One line: N times (1 - a power).
# </details>


# %% nbgrader={"grade_id": "expected_experts", "solution": true}
def expected_experts(n_experts: int, k: int, n_tokens: int) -> float:
    """Mean number of different experts that the tokens of a pass use together.

    Each token chooses k different ones, all equally likely, independently of the others.

    Args:
        n_experts: N, at least 1.
        k: 1 … N.
        n_tokens: 0 or more, also thousands.

    Returns:
        A float from 0.0, for no token, to N.
    """
    check_tokens_and_experts(n_experts, k, n_tokens)
    ### BEGIN SOLUTION
    return n_experts * (1 - (1 - k / n_experts) ** n_tokens)
    ### END SOLUTION


# %% nbgrader={"grade_id": "expectation_is_the_mean", "points": 1}
checks.expectation_is_the_mean(expected_experts)

# %% [markdown]
# Is real routing like that? The sibling reads stories that it never saw:

# %%
read = {1: [], 5: [], 16: []}
with one_thread():
    for story in held_out(20):
        model(encode(story.text))
        for chosen in model.chosen():
            for n, counts in read.items():
                counts += [len(part.unique()) for part in chosen.split(n) if len(part) == n]
for n, counts in read.items():
    mean, formula = sum(counts) / len(counts), expected_experts(8, 2, n)
    print(f"tokens in a row: {n:2d}, experts read {mean:.2f} of 8; by the formula {formula:.2f}")

# %% [markdown]
# The formula holds, though consecutive words are not independent: this model was trained for equal use.
# In a copy that was trained as long *without* that loss (and writes as well:
# {{0.41 = METRICS["story-moe-8-2-unbalanced"]["loss"]}}), 5 tokens read
# {{4.9 = METRICS["story-moe-8-2-unbalanced"]["experts_read_of_5"]}} experts and 16 tokens
# {{6.8 = METRICS["story-moe-8-2-unbalanced"]["experts_read_of_16"]}}, and the busiest expert is used
# {{2.7 = METRICS["story-moe-8-2-unbalanced"]["busiest_expert"]}} times as often as the mean. **Equal use
# reads the most.** Why train for it? Rarely used experts learn little, and where experts are spread over
# GPUs, all GPUs wait for the one with the busiest.
#
# ## 4 · The bill
#
# *Difficulty 2 of 5 · importance 5 of 5 · 10 minutes*
#
# Write `step_bytes`: the bytes of weights that a pass reads. Some models also have a *shared* expert,
# which every token uses without the router.
#
# **The common wrong answer** multiplies everything by k / N, but attention and `lm_head` are read whole.
#
# <details><summary>Hint 1: the idea</summary>
# Which matrices does each token need in any case? Which only if a token chose them?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# wq and wo: C · H · D each; wk and wv: C · G · D each; the router: N · C; an expert: 3 · C · d_expert;
# <code>lm_head</code>: V · C.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One sum for a layer, times L; <code>lm_head</code> once; times the bytes of a number.
# </details>


# %% nbgrader={"grade_id": "step_bytes", "solution": true}
def step_bytes(size: MoESize, experts_read: float, bytes_per_element: int = 2) -> float:
    """Bytes of the weights that a pass reads.

    These are wq, wk, wv, wo, the router, the three matrices of each expert that is read and of the
    shared one, in every layer; and lm_head. The table of embeddings (of which a pass reads a few rows),
    norms, activations and the cache are left out.

    Args:
        size: its vocab_size, n_layers, d_model, n_heads, n_kv_heads, head_dim, d_expert, n_experts and
            d_shared, 0 without a shared expert. n_heads * head_dim need not be d_model.
        experts_read: in each layer, 0 … n_experts; a mean, so it need not be a whole number.
        bytes_per_element: of a weight, the same for all matrices.
    """
    check_read(size.n_experts, experts_read, bytes_per_element)
    ### BEGIN SOLUTION
    heads = 2 * (size.n_heads + size.n_kv_heads) * size.head_dim
    widths = experts_read * size.d_expert + size.d_shared
    layer = size.d_model * (heads + size.n_experts + 3 * widths)
    return float((size.n_layers * layer + size.d_model * size.vocab_size) * bytes_per_element)
    ### END SOLUTION


# %% nbgrader={"grade_id": "bill_of_a_step", "points": 2}
checks.bill_of_a_step(step_bytes)

# %% [markdown]
# Now check your prediction, beside a dense model: a mixture with one expert, used by every token:

# %%
qwen3, dense = EXPERTS["Qwen3-30B-A3B"], as_mixture(PUBLISHED["Llama-2-7B"].config)
tokens = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def pass_bytes(size, n_tokens):
    return step_bytes(size, expected_experts(size.n_experts, size.k, n_tokens))


for n in (1, 2, 5, 16, 64):
    share = expected_experts(128, 8, n) / 128
    times = pass_bytes(qwen3, n) / pass_bytes(qwen3, 1)
    print(f"tokens: {n:2d}; {share:4.0%} of the experts, {times:.1f} times the bytes of one token")
ratios = [[pass_bytes(size, n) / pass_bytes(size, 1) for n in tokens] for size in (qwen3, dense)]
show(draw_bytes(tokens, *ratios))

# %% [markdown]
# More than six times. This affects not only batches: in lesson 11, a chunk of 64 prompt tokens beside
# somebody's step was nearly free. Here these 65 tokens read
# {{59.6 = step_bytes(EXPERTS["Qwen3-30B-A3B"], expected_experts(128, 8, 65)) / 1e9}} GB instead of
# {{6.1 = step_bytes(EXPERTS["Qwen3-30B-A3B"], 8) / 1e9}}.
#
# ## 5 · How many tokens make a pass compute-bound?
#
# *Difficulty 3 of 5 · importance 4 of 5 · 10 minutes*
#
# A pass of n tokens does 2 FLOPs for each weight that a token uses, n times over. Its bytes grow too,
# until all experts are read. From how many tokens on does arithmetic take at least as long as reading
# memory (lesson 05)?
#
# Write `compute_bound_from`.
#
# <details><summary>Hint 1: the idea</summary>
# Intensity is FLOPs divided by bytes; the machine's own is its <code>balance</code>.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# How many weights does a token use? <code>step_bytes</code> with k experts and one byte a number.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Intensity rises with n: count n up from 1 until it is enough.
# </details>


# %% nbgrader={"grade_id": "compute_bound_from", "solution": true}
def compute_bound_from(size: MoESize, machine: Machine, bytes_per_element: int = 2) -> int:
    """Fewest tokens, at least 1, with which a pass does at least the machine's balance of FLOP/byte.

    FLOPs: for each token 2 for each weight that `step_bytes` counts with k experts read. Bytes:
    `step_bytes` with the expected number of experts. What attention does with the cache is left out.

    Args:
        size: sizes of the model.
        machine: its `balance`, in FLOP/byte.
        bytes_per_element: of a weight.
    """
    ### BEGIN SOLUTION
    flops, n = 2 * step_bytes(size, size.k, 1), 1
    while True:
        n_read = expected_experts(size.n_experts, size.k, n)
        if n * flops / step_bytes(size, n_read, bytes_per_element) >= machine.balance:
            return n
        n += 1
    ### END SOLUTION


# %% nbgrader={"grade_id": "first_compute_bound_pass", "points": 1}
checks.first_compute_bound_pass(compute_bound_from)

# %%
h200 = DATASHEETS["H200"]
for name, size in {"dense, 7B": dense, **EXPERTS}.items():
    print(f"{name:<14} is compute-bound from {compute_bound_from(size, h200):5,} tokens a pass on")

# %% [markdown]
# Each token takes few FLOPs, so **more tokens are needed** to keep a GPU's arithmetic busy: a mixture of
# experts pays off with many users.
#
# > **Predict.** Take lesson 12's guesses: four at a time, each right with probability 0.76. With them, a
# > dense model writes one chat {{3.1 = expected_tokens(0.76, 4)}} times as fast, counting only the
# > reading of weights. On Qwen3-30B-A3B, do guesses pay off for one chat, or for 64 chats at a time?


# %%
def seconds(size, n):
    flops = n * 2 * step_bytes(size, size.k, 1)
    return max(pass_bytes(size, n) / h200.bytes_per_second, flops / h200.flops_per_second)


def gain(size, batch):
    return expected_tokens(0.76, 4) * seconds(size, batch) / seconds(size, 5 * batch)


gains = [[gain(size, n) for n in tokens] for size in (qwen3, dense)]
show(draw_gains(tokens, *gains))

# %% [markdown]
# This reverses lesson 12. One chat gains next to nothing, because each guess reads mostly its own
# experts. Where most experts are read anyway, guesses are free until arithmetic is busy, which happens
# much earlier in the dense model.
#
# On a real machine: one layer of 64 experts, 4 for each token, against a dense layer with as many
# weights per token:

# %%
torch.manual_seed(0)
experts = MixtureOfExperts(768, 384, 64, 4, route, moe_grouped)
feed_forward = SwiGLU(768, 4 * 384)
measured = {"experts": {}, "dense": {}}
with one_thread(), torch.no_grad():
    for n in (1, 2, 4, 8, 16, 32):
        x = torch.randn(1, n, 768)
        calls = {"experts": lambda x=x: experts(x), "dense": lambda x=x: feed_forward(x)}
        for name, times in interleaved(calls, rounds=9).items():
            measured[name][n] = median(times)
formula = [expected_experts(64, 4, n) / 4 for n in measured["dense"]]
show(draw_measured(measured, formula))

# %% [markdown]
# With many tokens the time follows the experts read; with few, fixed costs hide it.
#
# Try other models, chats and guesses:

# %%
choose_pass(expected_experts, step_bytes, compute_bound_from)

# %% [markdown]
# > **Spot the slip.** "The active parameters determine inference speed, not the total ones."
#
# <details><summary>Answer</summary>
# For one token only. 64 read
# {{59.5 = step_bytes(EXPERTS["Qwen3-30B-A3B"], expected_experts(128, 8, 64)) / 1e9}} of the
# {{60.4 = step_bytes(EXPERTS["Qwen3-30B-A3B"], 128) / 1e9}} GB.
# </details>
#
# <details><summary>One paper finds speculation ineffective for mixtures of experts, since verifying takes
# 2 to 3 times as long (Saxena et al. 2025); another that they gain more than dense models, up to 2.3
# times (Huang et al. 2025). Who is right?</summary>
# Both: the first for one request at a time, the second for medium batches. <em>Common wrong answer:</em>
# one of them measured badly.
# </details>
#
# **Not shown here.** Our sibling is not faster: its step makes more calls. We did not train the parent
# for as many extra steps, so nothing shows that experts improve text. The calculated gains leave out
# drafts and caches; weights have 16 bits (gpt-oss-120b was released with 4.25).
#
# ## Check yourself
#
# <details><summary>Fewer bytes are read. Is less memory needed?</summary>
# No: the next token may choose any expert, so all {{60 = step_bytes(EXPERTS["Qwen3-30B-A3B"], 128) /
# 1e9}} GB must stay in memory. <em>Common wrong answer:</em> a tenth of it.
# </details>
# <details><summary>Does a neighbour in the batch change my text?</summary>
# No, apart from rounding: a row's output depends on its own experts. <em>Common wrong answer:</em> yes,
# it takes up room in the experts. That is a <em>capacity</em>, with which some models are trained: rows
# beyond it are dropped.
# </details>
# <details><summary>With k = 1, does the router learn from the loss of the text?</summary>
# No: a softmax over one logit is always 1, so no gradient reaches it. <em>Common wrong answer:</em> yes,
# the better expert gets a higher logit.
# </details>
# <details><summary>Which batch reads the most bytes per token?</summary>
# One token: everything is read for it alone. <em>Common wrong answer:</em> the largest, since it reads
# all experts. But many tokens share their cost.
# </details>
#
# ## Next
#
# Attention still keeps one row for each token. Lesson 17 keeps one matrix instead, however long the text.
