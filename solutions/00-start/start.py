# %% [markdown]
# # 00 · Start here
#
# {{badge}}
#
# **Why is the second token faster than the first?** Ask a chatbot something: it waits, then the
# words flow. In this course you build a small language model, watch it write slowly, find out why,
# and make it fast, one notebook after another. This notebook shows how a lesson works.
#
# **After this lesson you can**
#
# * run a lesson, check an answer, read a failing check and hand your work in,
# * say what your machine is made of, and which models fit into it,
# * count the operations and the bytes of a matrix product, and say which one makes you wait,
# * write a function that other code can rely on.
#
# **You build:** FLOPs and bytes of a matrix product, and a norm by the house rules.
# **Time:** 40 minutes. **Points:** 10. **Needs:** a little Python; nothing about language models.
#
# > **Predict before you read on.** You multiply a row of 4,096 numbers by a matrix of 4,096 × 4,096
# > numbers of 16 bits. The matrix must be read from memory, and every number in it is used. Which is
# > larger: the number of **bytes** read, or the number of **operations** (multiplications and
# > additions)? By what factor?

# %% tags=["setup"]

# %% [markdown]
# ## How a lesson works
#
# The cell above prepares the notebook; running it twice does no harm. Run a cell with
# **Shift + Enter**, and run them from top to bottom.
#
# 1. **Predict**, where a box like the one above asks. A wrong guess teaches more than none.
# 2. **Write.** Where a cell says `raise NotImplementedError()`, put your own code in its place.
# 3. **Check.** The cell below your code calls a check. It prints PASS, or it says what is wrong.
# 4. **Hand in.** At the end, save the notebook and submit it.
#
# <details><summary>If something is stuck</summary>
# <b>JupyterLab:</b> Kernel → Restart Kernel and Run All Cells. <b>Colab:</b> Runtime → Restart
# session and run all. Both clear all variables, which cures most trouble.
# </details>

# %% tags=["export"]
import torch

# %%
import statistics

from course.measure import machine
from course.checks import start as checks
from course.checks.check import CheckFailed
from course.plots.start import draw_card, draw_product, draw_time_per_token, draw_work_and_bytes
from course.plots.style import show
from course.widgets.start import play_with_a_product

# %% [markdown]
# ## Your machine
#
# Every lesson runs on a laptop's CPU. A GPU helps later but is never required. Here is what you have:

# %%
show(draw_card(machine.card()))

# %% [markdown]
# Each orange mark is a model: its weights (*parameters*), two bytes apiece. Each label on the scale is
# 1,000 times the previous one. **A mark beyond the end of your bar is a model that this machine cannot
# even hold.** In lesson 03, something else will also need that memory.

# %% [markdown]
# ## A model is mostly matrix products
#
# A text is split into **tokens** (roughly, words), each token becomes a row of numbers, and these rows
# are multiplied by large matrices of **weights**, one after another. Here is one such product:

# %%
show(draw_product(1, 6, 6))

# %% [markdown]
# To get **one** number of the output, go along the row and down one column, multiply the pairs, and add
# up the products.
#
# The field counts each multiplication and each addition as one floating-point operation, a **FLOP**.
# Multiplying a pair and adding the product to the sum is a **multiply-add**: 2 FLOPs. (Adding the
# first product to 0 counts as well; that keeps the formula simple.)
#
# > **Predict.** Multiply two rows of three numbers by a 3 × 4 matrix of weights. How many numbers come
# > out? How many FLOPs is that?

# %% [markdown]
# ## 1 · Count the operations
#
# *Difficulty 1 of 5 · importance 5 of 5 · 5 minutes*
#
# Write `matmul_flops`: the FLOPs of `(m, k)` times `(k, n)`.
#
# <details><summary>Hint 1: the idea</summary>
# First count the numbers in the output. Then count what <i>one</i> of them costs.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (m, k) times (k, n) is (m, n). Each output number comes from k pairs.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>return</code>, and one product of four factors.
# </details>


# %% nbgrader={"grade_id": "matmul_flops", "solution": true}
def matmul_flops(m: int, k: int, n: int) -> int:
    """Floating-point operations of the product of an (m, k) and a (k, n) matrix.

    A multiply-add counts as 2.
    """
    ### BEGIN SOLUTION
    return 2 * m * k * n
    ### END SOLUTION


# %% [markdown]
# The next two cells are **graded**: they are locked, and each tests one property. Here it is tested on
# small numbers, and by the grader on numbers that are drawn only after you have handed in.

# %% nbgrader={"grade_id": "flops_of_one_dot_product", "points": 1}
checks.flops_of_one_dot_product(matmul_flops)

# %% nbgrader={"grade_id": "flops_of_any_product", "points": 2}
checks.flops_of_any_product(matmul_flops)

# %% [markdown]
# Compare with your guess: 2 · 4 = {{8 = 2 * 4}} numbers come out, each from 3 multiply-adds, which
# makes {{48 = matmul_flops(2, 3, 4)}} FLOPs.
#
# ### How a failing check reads
#
# This function adds the sizes, which is wrong:


# %%
def flops_by_adding(m: int, k: int, n: int) -> int:
    return m + k + n


try:
    checks.flops_of_any_product(flops_by_adding)
except CheckFailed as failure:  # so that the notebook goes on
    print("FAIL ", failure)

# %% [markdown]
# It names **a small case** that failed, **your number**, **the expected number** and what all your wrong
# numbers have in common, if anything. **One question** points at the cause. Work the small case out on
# paper before you change the code. The last three lines, run in a new cell, show what your function was
# given.

# %% [markdown]
# ## 2 · Count the bytes
#
# *Difficulty 1 of 5 · importance 5 of 5 · 5 minutes*
#
# A processor reads both matrices from memory and writes the output back. We count each number **once**,
# the least that any machine can move. A number takes 4 bytes as `float32`, 2 as `float16`, 1 as `int8`.
#
# > **Predict.** For one token and a 4,096 × 4,096 matrix: which of the three matrices accounts for
# > nearly all the bytes?
#
# Write `matmul_bytes`: the fewest bytes that such a product can move.
#
# <details><summary>Hint 1: the idea</summary>
# Three grids in the picture. Two are read, one is written.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (m, k), (k, n) and (m, n). Every number in all three is equally wide.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A sum of three products in brackets, then the width.
# </details>


# %% nbgrader={"grade_id": "matmul_bytes", "solution": true}
def matmul_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Bytes that the product of an (m, k) and a (k, n) matrix must move at least.

    Both matrices are read once and the output is written once; all have elements of the same width.
    """
    ### BEGIN SOLUTION
    return (m * k + k * n + m * n) * bytes_per_element
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_of_three_matrices", "points": 2}
checks.bytes_of_three_matrices(matmul_bytes)

# %% nbgrader={"grade_id": "bytes_follow_the_element_size", "points": 1}
checks.bytes_follow_the_element_size(matmul_bytes)

# %% [markdown]
# Compare with your guess: the weights do, with {{16,777,216 = 4096 ** 2}} numbers; the input and output
# rows have {{4,096 = 4096}} each.
#
# ### Play with it
#
# *Your* two functions compute the title, at 2 bytes a number. When does a product do a lot of work per
# byte, and when little?

# %%
play_with_a_product(matmul_flops, matmul_bytes)

# %% [markdown]
# It does a lot where all three sizes are large, and little where one of them is 1.
#
# ## The answer to the first question
#
# One token, one matrix of 4,096 × 4,096 numbers of 16 bits:

# %%
flops = matmul_flops(1, 4096, 4096)
moved = matmul_bytes(1, 4096, 4096, bytes_per_element=2)
in_and_out = 2 * (4096 + 4096)  # the token's row, and the output's, two bytes a number
print(f"operations        {flops:>12,} FLOPs")
print(f"the matrix        {moved - in_and_out:>12,} bytes")
print(f"the two rows      {in_and_out:>12,} bytes")
print(f"FLOP per byte     {flops / moved:>12.3f}")

# %% [markdown]
# **{{33,554,432 = matmul_flops(1, 4096, 4096)}} FLOPs and {{33,554,432 = 2 * 4096 * 4096}} bytes.** The
# two are equal because each weight takes 2 bytes, is read once, and is used for one multiply-add, 2
# FLOPs. The input and output rows add {{0.05 = 100 * (matmul_bytes(1, 4096, 4096, 2) / (2 * 4096 *
# 4096) - 1)}} %. So one token does **{{1 = matmul_flops(1, 4096, 4096) / matmul_bytes(1, 4096, 4096,
# 2)}} FLOP for each byte**, and this ratio is called **arithmetic intensity**.
#
# Is that a lot? Count what happens when more tokens go through *together*:

# %%
show(draw_work_and_bytes(matmul_flops, matmul_bytes))

# %% [markdown]
# The matrix is read once, however many tokens go through. So 64 tokens take {{64 = matmul_flops(64,
# 4096, 4096) / matmul_flops(1, 4096, 4096)}} times the work for nearly the same bytes.
#
# > **Predict.** On one core, 64 tokens go together through such a matrix of 32-bit numbers. How much of
# > the time of a single token does each cost: all of it? A 64th? Something between?

# %%
weights = torch.randn(4096, 4096)
rows = {m: torch.randn(m, 4096) for m in (1, 16, 64)}  # (m, 4096) each
with machine.one_thread():
    times = machine.interleaved({m: lambda x=x: x @ weights for m, x in rows.items()}, rounds=5)
show(draw_time_per_token(times))
for m, seconds in times.items():
    flops, moved = matmul_flops(m, 4096, 4096), matmul_bytes(m, 4096, 4096, bytes_per_element=4)
    giga = 1e9 * statistics.median(seconds)
    print(f"{m:2} tokens: {moved / giga:5.1f} GB/s, {flops / giga:6.1f} GFLOP/s")

# %% [markdown]
# Something between, on most machines: together, each token is several times cheaper. The operations per
# second show why: if they rise with the tokens, the core had been waiting for the matrix. Your
# neighbour's numbers differ, so **no grade in this course depends on a stopwatch**. We count work.
#
# A model can *read* your question many tokens at a time. It can *write* its answer only one token after
# another, because each word depends on the one before.

# %% [markdown]
# ## House rules
#
# Other code calls your functions, in later lessons too. So in every lesson and every check:
#
# * Never change an argument, or a result that you have already returned. A result shares no memory with
#   another result; it may share an argument's, or be a view where the task asks for one.
# * Results have the dtype and device of the inputs.
# * A tensor may be a slice or a transpose (not contiguous), and sizes may be 0 or 1.
# * If you refuse a call, raise before you change anything or draw a random number.
# * Two objects share no data. (`[x] * 3` is one `x` three times.)
#
# Between its products, a model brings every row back to one size: it divides the row by the root of the
# mean of its squares. This function does that, and the numbers are right.
#
# > **Predict.** Which of the rules does it break?


# %%
def rms_norm_carelessly(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape)
    for number, row in enumerate(x):
        row /= row.square().mean().sqrt()
        out[number] = row
    return out


mine = torch.tensor([[3, 4], [0.1, 0.7]], dtype=torch.float64)
print("comes back:", rms_norm_carelessly(mine))
print("and mine, which I still need:", mine)

# %% [markdown]
# It writes into the caller's tensor: `row` is a view of `x`, and `/=` changes it. And `torch.zeros` makes
# float32 numbers on the CPU, whatever `x` is. Besides, it takes a `(2, 3, 4)` tensor for two rows, and
# divides zeros by 0.
#
# ## 3 · Keep the house rules
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# Write `rms_norm`, which every layer of the model in lesson 01 uses.
#
# <details><summary>Hint 1: the idea</summary>
# <code>x / y</code> makes a new tensor, of the dtype and on the device of its inputs.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# x is (..., D). The mean of each row is (..., 1), if it keeps its axis: <code>keepdim=True</code>.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Squares, their mean along the last axis, and one division by a root.
# </details>


# %% nbgrader={"grade_id": "rms_norm", "solution": true}
def rms_norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Divide each row by the root of (the mean of its squares, plus eps). Zhang & Sennrich 2019.

    Args:
        x: rows of D numbers, of any floating-point type: (..., D), with any axes before the last.
        eps: a small number, for which a row of zeros stays zeros.

    Returns:
        A new tensor of the same shape, dtype and device.
    """
    ### BEGIN SOLUTION
    mean_squares = x.square().mean(dim=-1, keepdim=True)  # (..., 1)
    return x / (mean_squares + eps).sqrt()
    ### END SOLUTION


# %% nbgrader={"grade_id": "rows_come_to_one_size", "points": 2}
checks.rows_come_to_one_size(rms_norm)

# %% nbgrader={"grade_id": "dtype_and_device_are_kept", "points": 1}
checks.dtype_and_device_are_kept(rms_norm)

# %% nbgrader={"grade_id": "any_shape_and_layout_will_do", "points": 1}
checks.any_shape_and_layout_will_do(rms_norm)

# %% [markdown]
# ## Handing in
#
# Restart the kernel and run all cells: code that depends on an old variable works for nobody else. Then
# save the notebook, and submit it as your instructor says.
#
# Leave the locked cells as they are, and do not duplicate answer cells. Cells of your own are welcome.
# If a function is defined several times, the definition with the most points counts. A half-finished
# lesson is worth handing in. Later lessons bring right answers to earlier ones along, so you can never
# get stuck.

# %% [markdown]
# ## Check yourself
#
# **1.** A projection matrix is 4,096 × 4,096, stored in FP16. One token is decoded. How many bytes are
# loaded for this matrix, and how many FLOPs are done?
#
# <details><summary>Answer</summary>
# 4,096 · 4,096 · 2 = {{33,554,432 = 4096 * 4096 * 2}} bytes and 2 · 4,096 · 4,096 =
# {{33,554,432 = matmul_flops(1, 4096, 4096)}} FLOPs:
# {{1 = matmul_flops(1, 4096, 4096) / (4096 * 4096 * 2)}} FLOP per byte.<br>
# <b>The common wrong answer</b> is {{16,777,216 = 4096 * 4096}} FLOPs. It counts weights, not operations:
# each weight is multiplied <i>and</i> its product is added.
# </details>
#
# **2.** 100 tokens go through that matrix together. What happens to the bytes and to the FLOPs?
#
# <details><summary>Answer</summary>
# {{100 = matmul_flops(100, 4096, 4096) / matmul_flops(1, 4096, 4096)}} times the FLOPs. The bytes hardly
# change: the matrix is still read once, and only the rows going in and out become 100 times as many
# ({{1,638,400 = matmul_bytes(100, 4096, 4096, 2) - 2 * 4096 * 4096}} bytes beside
# {{33,554,432 = 2 * 4096 * 4096}}).<br>
# <b>The common wrong answer</b> is "both grow 100 times". Then serving many people at once would gain
# nothing.
# </details>
#
# ## Next
#
# In **lesson 01** you put such products together into a model that continues a story, and write its
# attention yourself.
