# %% [markdown]
# # 02 · Decode, the slow way
#
# {{badge}}
#
# **Why is the second token faster than the first?** In this lesson it is *slower*. You let the model
# write in the simplest possible way and count what that costs.
#
# **After this lesson you can**
#
# * write the loop that turns a model into a writer,
# * say which work is done again at every step, and why its result never changes,
# * count that work for any prompt and any answer, and see where popular counts err.
#
# **You build:** naive generation, and a count of its waste.
# **Time:** 60 minutes. **Points:** 10. **Needs:** lesson 01 (your answers, or ours).
#
# > **Predict before you read on.** The prompt "The cat sat" has 3 tokens. The model writes 4 more, and
# > for each of them reads everything so far. For every token it reads, each layer computes one row of
# > keys and one of values. How many rows of keys does one layer compute? How many were needed?

# %% tags=["setup"]

# %% tags=["export"]
import torch
from torch import Tensor

from course.model.bounds import check_between
from course.minigpt.mini_gpt import greedy_next
from course.model import MiniGPT

# %%
import sys

from tqdm.auto import tqdm

from course.measure import machine
from course.checks import naive_decode as checks
from course.measure.counting import count_kv_rows
from course.plots.naive_decode import draw_grid, draw_same_keys, draw_staircases, draw_step_times
from course.plots.style import show
from course.world.tokenizer import decode, encode
from course.widgets.naive_decode import play_with_the_grid

model = MiniGPT.from_weights("mini")

# %% [markdown]
# ## One word
#
# The model gives logits for every position. Those of the **last** position predict the next token.

# %%
logits = model(encode("The cat sat"))  # (1, 3, V)
print("The cat sat …", decode(greedy_next(logits[:, -1])))

# %% [markdown]
# ## Many words
#
# For the next word, append this one to the text and ask again. Such writing is called
# **autoregressive**: the model reads what it wrote. No step can start until the previous one is done.
#
# Here are the first two of four steps. Each column is one forward pass over everything so far:

# %%
words = ["The", "cat", "sat", "on", "the", "mat", "."]
show(draw_grid(3, 4, words, n_shown=2))

# %% [markdown]
# ## 1 · The loop
#
# *Difficulty 2 of 5 · importance 5 of 5 · 15 minutes*
#
# Write `generate_naive`. It takes a batch: every row gets its own next token. Refuse impossible
# requests (`model.check_tokens`, `check_between`) **before** the first forward pass; the caller should
# hear now, not after a minute.
#
# <details><summary>Hint 1: the idea</summary>
# Start with a copy of the prompt. n_new times: compute logits, take the last position's likeliest
# token, append it.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# tokens (B, n) → logits (B, n, V) → last position (B, V) → new (B,) → (B, 1) → tokens (B, n + 1).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>model.check_tokens</code> refuses an empty prompt; <code>check_between(name, value, low,
# high)</code> refuses a value below low or above high, and names it. How many places are
# left? Then a <code>for</code> loop with <code>greedy_next</code>, <code>unsqueeze(1)</code> and
# <code>torch.cat</code>.
# </details>


# %% nbgrader={"grade_id": "generate_naive", "solution": true}
def generate_naive(model: MiniGPT, prompt: Tensor, n_new: int) -> Tensor:
    """Continue each row of the prompt by its likeliest tokens, reading everything at every step.

    Args:
        prompt: (B, P) int64; it is left as it is.
        n_new: tokens to write, 0 or more; `<end>`, a story's last token, does not stop it.

    Returns:
        A tensor of its own, (B, P + n_new) int64: the prompt, then the new tokens.

    Raises:
        ValueError: before any forward pass: the prompt is empty, n_new is not a whole number ≥ 0, or
            P + n_new is more than model.config.max_seq_len. The message names n_new; for the last,
            P + n_new or the limit will do as well.
    """
    ### BEGIN SOLUTION
    model.check_tokens(prompt)  # a prompt that no forward pass can take, an empty one for example
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    tokens = prompt.clone()
    for _ in range(n_new):
        new = greedy_next(model(tokens)[:, -1])  # (B,)
        tokens = torch.cat([tokens, new.unsqueeze(1)], dim=1)  # (B, n), (B, 1) -> (B, n + 1)
    return tokens
    ### END SOLUTION


# %% nbgrader={"grade_id": "result_starts_with_the_prompt", "points": 1}
checks.result_starts_with_the_prompt(generate_naive)

# %% nbgrader={"grade_id": "every_new_token_is_the_likeliest", "points": 2}
checks.every_new_token_is_the_likeliest(generate_naive)

# %% nbgrader={"grade_id": "prompt_is_left_alone", "points": 1}
checks.prompt_is_left_alone(generate_naive)

# %% nbgrader={"grade_id": "bad_requests_are_refused", "points": 1}
checks.bad_requests_are_refused(generate_naive)

# %% nbgrader={"grade_id": "each_step_reads_everything", "points": 1}
checks.each_step_reads_everything(generate_naive)

# %% [markdown]
# ### Listen to it

# %%
print(decode(generate_naive(model, encode("The cat sat"), 4)))
print(decode(generate_naive(model, encode("The cat sat on the mat ."), 20)))

# %% [markdown]
# Now count: `count_kv_rows` sees every row that goes through a layer's key matrix. Were you right?

# %%
with count_kv_rows(model) as count:
    generate_naive(model, encode("The cat sat"), 4)
print("rows of each step:", count.per_call)
print("together:         ", count.rows)
show(draw_grid(3, 4, words))

# %% [markdown]
# ## Is it really the *same* work?
#
# {{18 = kv_rows_naive(3, 4)}} rows were computed; {{6 = kv_rows_needed(3, 4)}} would do. Below are the
# keys of "The cat sat", computed while the text was 3 tokens long, and again when it was 6.

# %%
show(draw_same_keys(model, encode("The cat sat"), encode("The cat sat on the mat")))

# %% [markdown]
# **Why must they be equal?** In lesson 01 nothing to the left of a changed token moved: position i sees
# only itself and earlier positions. So in every layer its hidden state depends on tokens 0 … i only,
# and its key and value are computed from that. Tokens written later cannot change them.
#
# **A common wrong answer** is "because the weights do not change". They do not; but without the
# causal mask every new word would still change all keys but those of block 0.

# %% [markdown]
# ## 2 · Count the rows
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# Take a prompt of `p` tokens, `g` new ones, one layer and one row of the batch. Write `kv_rows_naive`,
# which counts every filled cell of the grid, and `kv_rows_needed`, which counts each row once. Both
# must also be right for `g = 0`.
#
# <details><summary>Hint 1: the idea</summary>
# Write down the height of each column, for p = 3 and g = 4. For the second count, look at the grid from
# the side: which tokens have any filled cell?
# </details>
# <details><summary>Hint 2: the sizes</summary>
# The columns are p, p + 1, …, p + g - 1. There are g of them. The sum 0 + 1 + … + (g-1) is g(g-1)/2.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One line each. Use <code>//</code> only on a number that is surely even. With g = 0 no forward pass
# happens at all.
# </details>


# %% nbgrader={"grade_id": "kv_rows_naive", "solution": true}
def kv_rows_naive(p: int, g: int) -> int:
    """Rows of keys that one layer computes to write g tokens after p, reading everything each time.

    p is at least 1, g at least 0, and both may be thousands.
    """
    ### BEGIN SOLUTION
    return g * p + g * (g - 1) // 2
    ### END SOLUTION


# %% nbgrader={"grade_id": "kv_rows_needed", "solution": true}
def kv_rows_needed(p: int, g: int) -> int:
    """Rows of keys that one layer must compute at least once to write g tokens after p.

    p is at least 1, g at least 0, and both may be thousands.
    """
    ### BEGIN SOLUTION
    return p + g - 1 if g > 0 else 0
    ### END SOLUTION


# %% nbgrader={"grade_id": "naive_rows_add_up", "points": 1}
checks.naive_rows_add_up(kv_rows_naive)

# %% nbgrader={"grade_id": "needed_rows_add_up", "points": 2}
checks.needed_rows_add_up(kv_rows_needed)

# %% [markdown]
# Now try longer texts. The last column is another ratio you will often see: naive / (p + g).

# %%
print("    p     g      naive   needed   ratio    with p + g")
for p, g in [(3, 4), (100, 50), (500, 200), (1000, 500), (2000, 1000)]:
    naive, needed = kv_rows_naive(p, g), kv_rows_needed(p, g)
    print(f"{p:5} {g:5} {naive:10,} {needed:8,} {naive / needed:6.1f}× {naive / (p + g):11.1f}×")

# %% [markdown]
# > **Spot the slip.** A popular explanation draws the grid of "The cat sat" and counts
# > {{6 = kv_rows_needed(3, 4)}} needed rows. For longer texts its table divides by p + g,
# > {{7 = 3 + 4}} for that grid, and gets
# > {{41.5 = kv_rows_naive(100, 50) / 150}}×, {{171 = kv_rows_naive(500, 200) / 700}}×,
# > {{416 = kv_rows_naive(1000, 500) / 1500}}× and {{833 = kv_rows_naive(2000, 1000) / 3000}}×. Which
# > count is right, the grid's or the table's?
# >
# > <details><summary>Answer</summary>
# > The grid: p + g - 1. The last token is chosen but never fed in, so nobody needs its key and value.
# > For long texts the ratios hardly differ.
# > </details>
#
# > **Spot the slip.** The same text then multiplies these ratios by GPT-3's 96 layers and 96
# > heads, {{9,216 = 96 * 96}} in all. What happens to a *ratio* when both its counts are
# > multiplied by {{9,216 = 96 * 96}}?
# >
# > <details><summary>Answer</summary>
# > Nothing. The counts grow: {{9,216 = 96 * 96}} times as many rows are computed, and
# > {{9,216 = 96 * 96}} times as many are needed.
# > 171× stays {{171 = 96 * 96 * kv_rows_naive(500, 200) / (96 * 96 * 700)}}×.
# > </details>

# %% [markdown]
# ### Play with the grid
#
# Try a long prompt and a short answer, then the reverse. When is almost everything REDO?

# %%
play_with_the_grid()

# %% [markdown]
# ## 3 · Who looks at whom
#
# *Difficulty 1 of 5 · importance 4 of 5 · 5 minutes*
#
# Computing rows is one part of a step's work. In attention, the last token fed in each step also
# **looks at** every position so far, its own included: p of them at the first step, one more at each
# later one. Write `attention_visits`, the sum over all steps. After a prompt of one token, 8 new ones
# make 1 + 2 + … + 8.
#
# <details><summary>Hint 1: the idea</summary>
# You have met this sum today.
# </details>
# <details><summary>Hint 2: the sizes</summary>
# g steps; the first is p, the last is p + g - 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One line: the average of first and last, times g; multiply before you halve. Or <code>sum</code> of a
# <code>range</code>.
# </details>


# %% nbgrader={"grade_id": "attention_visits", "solution": true}
def attention_visits(p: int, g: int) -> int:
    """Positions that the last token fed looks at, in each of g steps after p tokens, all added up.

    p is at least 1, g at least 0, and both may be thousands.
    """
    ### BEGIN SOLUTION
    return g * p + g * (g - 1) // 2
    ### END SOLUTION


# %% nbgrader={"grade_id": "visits_add_up", "points": 1}
checks.visits_add_up(attention_visits)

# %% [markdown]
# > **Predict.** Double the new tokens: by what factor do visits grow after a prompt of 1? Of 2,000?

# %%
for p, g in [(1, 8), (1, 16), (2000, 200), (2000, 400)]:
    print(f"prompt {p:5,}, new tokens {g:3}: {attention_visits(p, g):9,} visits")
show(draw_staircases([(1, 8), (1, 16), (2000, 200)]))

# %% [markdown]
# After a prompt of 1, twice the tokens take *nearly four times* the work, {{36 = attention_visits(1,
# 8)}} and {{136 = attention_visits(1, 16)}}: quadratic growth. After a long prompt, doubling the answer
# little more than doubles the cost. The areas show why.
#
# This sum has two meanings. **Rows computed again** are waste, and lesson 03 removes them. **Positions
# looked at** are attention itself: in this model a new token looks at everything before it, cached or
# not. So even a step that recomputes nothing is not free.

# %% [markdown]
# ### A small model in numbers
#
# In one projection of a mini-GPT with C = 64, a row costs C² multiply-adds (twice that in FLOPs). After
# p = 8 prompt tokens come g = 20 new ones: each step reads p rows and the 0, 1, … g - 1 written before
# it. Textbooks round g(g - 1)/2 to g²/2, and p + g - 1 rows to p + g. Does that matter?

# %%
p, g, C = 8, 20, 64
linear = g * p * C**2  # the prompt, at every step
quadratic = g**2 * C**2 // 2  # the growing part, rounded
once = (p + g) * C**2  # rounded as well
print(f"{linear:,} + {quadratic:,} = {linear + quadratic:,} against {once:,}")
print(f"that is {(linear + quadratic) / once:.1f} times as much")
exact = kv_rows_naive(p, g) * C**2, kv_rows_needed(p, g) * C**2
print(f"counted exactly: {exact[0]:,} against {exact[1]:,}, {exact[0] / exact[1]:.1f} times")

# %% [markdown]
# > **Spot the slip.** A popular explanation claims that at p = 1,024 and g = 200 the quadratic term,
# > g²/2, is far larger than the linear one, g · p. Put the numbers in.
# >
# > <details><summary>Answer</summary>
# > g · p = {{204,800 = 200 * 1024}} and g²/2 = {{20,000 = 200**2 // 2}}: the linear term
# > is ten times <i>larger</i>; the width multiplies both. The quadratic term wins once the answer is
# > longer than twice the prompt.
# > </details>

# %% [markdown]
# ## Feel it
#
# A step that reads n tokens computes n rows in every matrix of the model. So rows predict a straight
# line: a fixed cost plus a cost per row. (On a busy machine the points zigzag.)
#
# > **Predict.** We fit the line to the steps of up to 128 tokens. At 1,000 tokens, will a step lie on
# > the line, below it or above it?

# %%
text = torch.randint(model.config.vocab_size, (1, 1000))  # any words: the time is the same
times = {}
with machine.one_thread():
    for n in tqdm([16, 32, 64, 96, 128, 256, 384, 512, 640, 768, 896, 999], file=sys.stdout):
        # The default keeps this n: a lambda would look n up when it is called.
        times[n] = machine.seconds(lambda n=n: generate_naive(model, text[:, :n], 1), repeats=7)
show(draw_step_times(times, fit_to=128))

# %% [markdown]
# The points rise above the line. What did the rows leave out? In a naive step not only the last token
# looks back. All n tokens do so again: code that masks a full matrix scores n² pairs in every head and
# layer. Weight matrices hide this cost in short texts; it dominates long ones.
#
# The pairs are quadratic in each step, so **cubic over a run** from one token: 1² + 2² + … +
# n² is about n³/3. Your visits, about n²/2, are what remains if only the last token looks.

# %% [markdown]
# ## Check yourself
#
# **1.** You write 100 tokens after a prompt of 100. How many times is the key of token 0 computed?
#
# <details><summary>Answer</summary>
# 100 times: once in each forward pass, and there is one for each new token.<br>
# <b>The common wrong answer</b> is {{200 = 100 + 100}}, the length of the final text. Reading the prompt
# takes one pass, not 100.
# </details>
#
# **2.** Why do the *rows* of naive decoding grow with the square of the number of new tokens?
#
# <details><summary>Answer</summary>
# Each step reads everything so far, so each step is one row longer, and their sum is a triangle.<br>
# <b>The common wrong answer</b> is "because models have many layers". Layers multiply the cost; they do
# not change how it grows.
# </details>
#
# **3.** Does the prompt still cost anything once the answer has begun?
#
# <details><summary>Answer</summary>
# Yes: here its rows are computed again at each step, and with a cache, too, every new token looks at all
# of it. <b>The common wrong answer</b> is "no, it is paid for in the first pass".
# </details>
#
# **4.** By hand: the visits for 32 new tokens after one token, and after a prompt of 1,024.
#
# <details><summary>Answer</summary>
# 1 + … + 32 = {{528 = attention_visits(1, 32)}}, and 1,024 + … + {{1,055 = 1024 + 32 - 1}} =
# {{33,264 = attention_visits(1024, 32)}}. <b>Common slip:</b> ending at {{1,056 = 1024 + 32}}. The 32nd
# step looks at the prompt and the {{31 = 32 - 1}} tokens written so far.
# </details>
#
# ## Next
#
# {{12 = kv_rows_naive(3, 4) - kv_rows_needed(3, 4)}} of {{18 = kv_rows_naive(3, 4)}} rows were computed
# only to be thrown away and computed again. In **lesson 03** you keep them:
# that is the KV cache, and it makes the second token faster than the first.
