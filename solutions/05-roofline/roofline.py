# %% [markdown]
# # 05 · Why decode waits for memory
#
# {{badge}}
#
# **Prefill** reads all tokens of a prompt at once; **decode** writes one token after another.
#
# **After this lesson you can**
#
# * write the bill of a forward pass from a model's sizes,
# * draw a machine's roofline, place prefill and decode under it, and match the measured points,
# * time a device that returns before it has finished.
#
# **You build:** the bill of a forward pass, a roofline, and a clock that waits.
# **Time:** 75 minutes. **Points:** 10. **Needs:** lessons 00, 01 and 03 (your answers, or ours).
#
# > **Predict.** One token goes through a matrix of 16,384 × 4,096 numbers of 16 bits, on a machine
# > that can do 100 FLOPs while one byte arrives. What fraction of its time does it spend calculating?

# %% tags=["setup"]

# %% tags=["export"]
import statistics
from collections.abc import Callable

from course.model.bounds import check_between
from course.model.config import GPTConfig
from course.measure.costs import Cost, Parts
from course.measure.devices import Device
from course.measure.limits import Machine

# %%
import sys

import torch
from tqdm.auto import tqdm

from course.checks import roofline as checks
from course.measure.devices import device_of
from course.fast.decode import FastDecoder
from course.measure.limits import measure_machine
from course.measure.machine import one_thread
from course.minigpt.start import matmul_bytes, matmul_flops
from course.model import MiniGPT
from course.plots.roofline import draw_bytes, draw_matrix, draw_phases, draw_queue, draw_third_roof
from course.plots.style import show
from course.measure.recorded import recordings
from course.published.models import PUBLISHED
from course.published.sizes import build_random, check_room, choose_size
from course.fast.steps import Operations, count_operations, step
from course.widgets.roofline import play_with_the_roof

# %% [markdown]
# ## The picture
#
# The x-axis is the **arithmetic intensity**, the FLOPs done per byte moved; the y-axis is the FLOPs per
# second reached. Left of the **ridge**, memory sets the pace; right of it, the arithmetic unit. The
# dots show that matrix with ever more tokens.

# %%
imagined = Machine("a machine of 100 FLOP/byte", flops_per_second=100e12, bytes_per_second=1e12)
show(draw_matrix(imagined, matmul_flops, matmul_bytes, 16_384, 4_096, tokens=(1, 16, 256)))

# %%
flops, weights = matmul_flops(1, 16_384, 4_096), 16_384 * 4_096 * 2
busy = (flops / imagined.flops_per_second) / (weights / imagined.bytes_per_second)
print(f"{flops:,} FLOPs, {weights:,} bytes: {flops / weights:.0f} FLOP/byte")
print(f"busy {busy:.0%} of the time, idle {1 - busy:.0%}")

# %% [markdown]
# One token uses each weight once: {{1 = matmul_flops(1, 16_384, 4_096) / (2 * 16_384 * 4_096)}}
# FLOP/byte. The unit idles
# **{{99 = 100 * (1 - attainable(1.0, Machine("100 FLOP/byte", 100e12, 1e12)) / 100e12)}} %** of the
# time. 256 tokens use each weight 256 times.
#
# ## 1 · The roof
#
# *Difficulty 1 of 5 · importance 5 of 5 · 5 minutes*
#
# The ridge lies at the machine's **balance**: FLOPs per second over bytes per second.
#
# Write `attainable`: the FLOPs per second that work of given intensity can reach.
#
# <details><summary>Hint 1: the idea</summary>
# Two things limit the rate. Which one counts?
# </details>
# <details><summary>Hint 2: the units</summary>
# FLOP/byte times byte/s is FLOP/s.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>return</code>; a choice between two rates.
# </details>


# %% nbgrader={"grade_id": "attainable", "solution": true}
def attainable(intensity: float, machine: Machine) -> float:
    """The most FLOP/s that work of some intensity can get.

    Args:
        intensity: FLOP/byte of the work, above 0.
        machine: its `flops_per_second` and `bytes_per_second`.

    Returns:
        FLOP/s. Source: Williams, Waterman & Patterson 2009.
    """
    ### BEGIN SOLUTION
    return min(machine.flops_per_second, intensity * machine.bytes_per_second)
    ### END SOLUTION


# %% nbgrader={"grade_id": "roof_has_two_parts", "points": 1}
checks.roof_has_two_parts(attainable)

# %% [markdown]
# ## 2 · The bill: attention
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# `T` new tokens come after `P` cached ones. A new token looks at every cached one, at the new ones
# before it, and at itself. For each look, a query head computes a score (`D` multiply-adds) and a
# weighted value (`D` more).
#
# **The common wrong answer** for a prompt is T · T looks, nearly twice as many: it ignores the causal
# mask.
#
# Write `attention_flops`, for all layers, heads and rows.
#
# <details><summary>Hint 1: the idea</summary>
# Count the pairs that may look, then what one pair costs in one head.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Pairs: a block of T × P, and a triangle with its diagonal. B rows, L layers, H heads: GQA shares keys,
# but every query head still computes scores.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One line for the pairs, one product.
# </details>


# %% nbgrader={"grade_id": "attention_flops", "solution": true}
def attention_flops(config: GPTConfig, n_new: int, n_past: int, batch: int = 1) -> int:
    """FLOPs of attention in one forward pass: scores, and weighted sums of values.

    Softmax is left out. A multiply-add is 2 FLOPs. A float that equals a whole number will do.

    Args:
        config: sizes of the model. Nothing is run: T + P may be above its max_seq_len.
        n_new, n_past: T new tokens and P cached ones, of each row.
        batch: B, rows.
    """
    ### BEGIN SOLUTION
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return batch * config.n_layers * config.n_heads * pairs * 4 * config.head_dim
    ### END SOLUTION


# %% nbgrader={"grade_id": "attention_is_causal", "points": 1}
checks.attention_is_causal(attention_flops)

# %% [markdown]
# ## 3 · The bill: everything else
#
# *Difficulty 3 of 5 · importance 5 of 5 · 25 minutes*
#
# Count the whole forward pass by these conventions:
#
# | part | what counts |
# |---|---|
# | `flops` | attention, and every matrix product; **logits of the last position only**, one per row |
# | `weight_bytes` | every matrix, read **once** per forward pass for all B · T tokens |
# | `kv_written_bytes` | keys and values of the new tokens, G heads |
# | `kv_read_bytes` | keys and values of all P + T tokens, once |
# | `activation_bytes` | vectors into and out of each matrix; what three read counts three times |
#
# The matrices: `wq`, `wk`, `wv`, `wo`, `gate`, `up`, `down` in each layer, and `lm_head`. The bill
# leaves out embedding lookups (but a *tied* table is `lm_head`, and read as such), norms, rotations,
# softmax, and the bytes of scores, which a fused kernel (FlashAttention) never writes.
#
# Write `phase_cost`, which fills in these five numbers.
#
# <details><summary>Hint 1: the idea</summary>
# Lesson 00: (m, k) times (k, n). Weights are k · n, rows in and out m · (k + n), FLOPs 2 · m · k · n.
# Only m differs: B · T, but B for the last matrix.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# wq, wo: C × C. wk, wv: C × G·D. gate, up: C × f. down: f × C. lm_head: C × V.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A list of seven pairs; one sum of k · n over it, one of k + n; then five fields. If
# <code>attention_flops</code> is missing, leave it out for now: three of four checks do not need it.
# </details>


# %% nbgrader={"grade_id": "phase_cost", "solution": true}
def phase_cost(
    config: GPTConfig, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> Cost:
    """What one forward pass of T new tokens after P cached ones costs, in each of B rows.

    Logits are computed for the last position of each row only.

    Args:
        config: its n_layers, d_model, n_kv_heads, head_dim, d_ff and vocab_size. Nothing is run: T + P
            may be above its max_seq_len.
        n_new, n_past: T, at least 1, and P.
        batch: B, rows.
        bytes_per_element: of weights, cache and activations alike.

    Raises:
        ValueError: a size out of these bounds.
    """
    check_between("n_new", n_new, 1, 2**31)
    check_between("n_past", n_past, 0, 2**31)
    check_between("batch", batch, 1, 2**31)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    ### BEGIN SOLUTION
    C, f, V, L = config.d_model, config.d_ff, config.vocab_size, config.n_layers
    GD = config.n_kv_heads * config.head_dim  # the width of keys and of values
    layer = [(C, C), (C, GD), (C, GD), (C, C), (C, f), (C, f), (f, C)]
    weights = L * sum(k * n for k, n in layer)
    widths = L * sum(k + n for k, n in layer)
    rows = batch * n_new
    token_bytes = 2 * L * GD * bytes_per_element  # of one token: keys and values
    return Cost(
        flops=2 * (rows * weights + batch * C * V) + attention_flops(config, n_new, n_past, batch),
        weight_bytes=(weights + C * V) * bytes_per_element,
        kv_read_bytes=batch * (n_past + n_new) * token_bytes,
        kv_written_bytes=rows * token_bytes,
        activation_bytes=(rows * widths + batch * (C + V)) * bytes_per_element,
    )
    ### END SOLUTION


# %% nbgrader={"grade_id": "matrices_match_the_counter", "points": 1}
checks.matrices_match_the_counter(phase_cost, attention_flops)

# %% nbgrader={"grade_id": "weights_are_read_once", "points": 1}
checks.weights_are_read_once(phase_cost)

# %% nbgrader={"grade_id": "cache_is_read_and_written", "points": 1}
checks.cache_is_read_and_written(phase_cost)

# %% nbgrader={"grade_id": "activations_go_in_and_out", "points": 1}
checks.activations_go_in_and_out(phase_cost)

# %% [markdown]
# > **Predict.** A model of {{6.7 = PUBLISHED["Llama-2-7B"].parameters / 1e9}} billion parameters
# > decodes for one user after 4,096 tokens, and then for 16 users. Where do most bytes come from in
# > each case?

# %%
older, today = PUBLISHED["Llama-2-7B"].config, PUBLISHED["Qwen3-8B"].config
show(
    draw_bytes(
        {
            "prefill, 1,024 tokens": phase_cost(older, 1024, 0),
            "decode, 1 user, 4,096 cached": phase_cost(older, 1, 4096),
            "decode, 16 users, 128 cached": phase_cost(older, 1, 128, batch=16),
            "decode, 16 users, 4,096 cached": phase_cost(older, 1, 4096, batch=16),
            "the same, Qwen3-8B": phase_cost(today, 1, 4096, batch=16),
        }
    )
)

# %% [markdown]
# For one user, from the weights; for 16, from the caches, {{34 =
# phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 4096, 16).kv_read_bytes / 1e9}} GB against {{13 =
# phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 4096, 16).weight_bytes / 1e9}}. A batch shares the
# weights; nobody shares a cache. The last bar is a 2025 model with a quarter of the KV heads (lesson
# 06).
#
# ## 4 · Which roof?
#
# *Difficulty 1 of 5 · importance 4 of 5 · 3 minutes*
#
# Write `bound_by`: does a forward pass, taken as a whole, wait for memory or for arithmetic?
#
# <details><summary>Hint 1: the idea</summary>
# On which side of the ridge does the work lie?
# </details>
# <details><summary>Hint 2: the units</summary>
# A <code>Cost</code> knows its intensity, a <code>Machine</code> its balance: FLOP/byte both.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One comparison, two words.
# </details>


# %% nbgrader={"grade_id": "bound_by", "solution": true}
def bound_by(cost: Cost, machine: Machine) -> str:
    """What a forward pass waits for on a machine: "memory" or "compute".

    Args:
        cost: its `flops`, its `bytes` and their ratio, `intensity`.
        machine: its two rates and their ratio, `balance`.
    """
    ### BEGIN SOLUTION
    return "memory" if cost.intensity < machine.balance else "compute"
    ### END SOLUTION


# %% nbgrader={"grade_id": "bound_is_the_lower_roof", "points": 1}
checks.bound_is_the_lower_roof(bound_by)

# %% [markdown]
# ### Play with it
#
# Matrices and attention wait for each other, layer by layer. So each has a dot, and **their seconds add
# up**. (One sum for all would assume that they overlap perfectly.) The roofs come
# from datasheets. **Which batch makes decode compute-bound on an H200?** Try 16 tokens of context, then
# 1,024.

# %%
play_with_the_roof(phase_cost, attention_flops, attainable, bound_by)

# %% [markdown]
# For Llama-2-7B decode's *matrices* are compute-bound from {{224 = next( B for B in range(1, 3000) if
# bound_by(phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 16, B).parts(
# attention_flops(PUBLISHED["Llama-2-7B"].config, 1, 16, B)).matrices, Machine("H200", 989e12, 4800e9))
# == "compute")}} rows on, with any context: all rows share them (not so in lesson 16).
# Its *attention* never is: every row brings its own cache, so FLOPs and bytes grow together, at {{1.0 =
# phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 1024, 64).parts(
# attention_flops(PUBLISHED["Llama-2-7B"].config, 1, 1024, 64)).attention.intensity}} FLOP/byte. The
# common wrong answer, "a batch as large as the balance" ({{206 = Machine("H200", 989e12,
# 4800e9).balance}}), is nearly right for the matrices, whose rows go in and out as bytes, and wrong for
# attention. On the right, total throughput rises and each user's falls, until memory is full.
#
# ## 5 · A clock for work that is queued
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# A GPU call only queues work and returns at once.

# %%
show(draw_queue())

# %% [markdown]
# Three rules: **wait** for an empty queue before each reading of the clock; discard the **first calls**;
# take the **median**, because something always disturbs one call.
#
# The checks use a simulated device, so seconds are never graded, only what you read, and when.
#
# Write `time_on_device`: the median seconds of one call.
#
# <details><summary>Hint 1: the idea</summary>
# Each repeat has its own start and its own end, and the queue is empty at both.
# </details>
# <details><summary>Hint 2: the parts</summary>
# The device gives <code>now()</code> in seconds, and <code>synchronize()</code> to wait.
# <code>statistics</code> has a median.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Two loops. Six lines in the second one at most; a list collects.
# </details>


# %% nbgrader={"grade_id": "time_on_device", "solution": true}
def time_on_device(
    fn: Callable[[], object], device: Device, warmup: int = 2, repeats: int = 5
) -> float:
    """Median seconds of one call of fn, from an empty queue until its work is done.

    Args:
        fn: called warmup + repeats times.
        device: `now()` is its clock, in seconds; `synchronize()` returns when its queue is empty.
        warmup: first calls, which do not count; 0 or more.
        repeats: calls that count, each timed on its own; 1 or more. Of an even number, the median is
            midway between the two in the middle. Not rounded: work may last millionths of a second.

    Raises:
        ValueError: a number out of these bounds; then fn was not called.
    """
    check_between("warmup", warmup, 0, 2**31)
    check_between("repeats", repeats, 1, 2**31)
    ### BEGIN SOLUTION
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)
    ### END SOLUTION


# %% nbgrader={"grade_id": "clock_waits_for_the_work", "points": 1}
checks.clock_waits_for_the_work(time_on_device)

# %% nbgrader={"grade_id": "warm_up_is_not_timed", "points": 1}
checks.warm_up_is_not_timed(time_on_device)

# %% nbgrader={"grade_id": "one_slow_repeat_changes_nothing", "points": 1}
checks.one_slow_repeat_changes_nothing(time_on_device)

# %% [markdown]
# ## 6 · Predict, then measure
#
# First measure your machine's two limits, then build a model whose random weights outgrow every CPU
# cache. Predicted seconds are FLOPs over *attainable* FLOP/s, summed over matrices and attention.

# %%
device = "cuda" if torch.cuda.is_available() else "cpu"
prompts, batches = ((16, 64, 256), (1, 4, 64))
if device == "cuda":
    prompts, batches = ((16, 256, 2048), (1, 16, 256))
size = choose_size(device)
print(check_room(size, device, batch=max(batches), context=129))
decoder = FastDecoder(build_random(size, device), batch=1, max_len=1)  # sizes change below
here = measure_machine(device, size.dtype)
print(f"{here.name}: {here.flops_per_second:.3g} FLOP/s, {here.bytes_per_second:.3g} bytes/s")
print(f"balance {here.balance:.1f} FLOP/byte; weights {size.weight_bytes:,} bytes")

# %%
phases = {f"prefill, T = {T}": {"n_new": T} for T in prompts}
phases |= {f"decode, B = {B}": {"batch": B, "n_past": 128} for B in batches}
phases["decode, 4,000 cached"] = {"n_past": 4000}


def bill(batch: int = 1, n_new: int = 1, n_past: int = 0) -> Parts:
    sizes = (size.config, n_new, n_past, batch)
    return phase_cost(*sizes, size.dtype.itemsize).parts(attention_flops(*sizes))


# %%
show(draw_phases(attainable, here, {name: bill(**phase) for name, phase in phases.items()}))

# %% [markdown]
# These are *your* predictions; nothing has run yet. More rows move the matrices along the roof;
# decode's attention stays left.
#
# > **Predict.** Which will your machine miss by more than a factor of 2?

# %%
bills = {name: bill(**phase) for name, phase in phases.items()}
calls = {name: step(decoder, **phase) for name, phase in phases.items()}
times = dict.fromkeys(phases, float("inf"))
with one_thread():
    for _ in tqdm(range(3), desc="rounds", file=sys.stdout):  # disturbances come and go: take turns
        for name, call in calls.items():
            median = time_on_device(call, device_of(device), warmup=1, repeats=3)
            times[name] = min(times[name], median)
show(draw_phases(attainable, here, bills, times, recordings()))
del call, calls  # their decoders hold caches and, on a GPU, recorded steps

# %% [markdown]
# The best of three rounds' medians counts, as for the limits. In memory-bound phases, predicted over
# measured time is the **MBU** (model bandwidth utilization) that others report.
#
# **Within a factor of 2**, on an idle machine: one row (decode, with little and with much
# context) and 64 rows or more.
#
# **Missed, on a CPU: 4 and 16 rows.** They reached under half of the roof here:
# too many rows for code that streams a matrix past one row, too few to fill the blocks of fast matrix
# products. A roof says what is possible, not what is programmed.
#
# **On a GPU** (the diamonds: an H200), one row of decode reached 57 % of the bandwidth with 6.7B
# parameters, but 31 % with 1.3B: each of some 20 kernels a layer starts up and drains. Prefills of few
# tokens miss by more: their kernels are launched one by one (section 7), a decode step as one.
# `benchmarks/roofline.py --record` adds a run on your GPU.
#
# ## 7 · The third roof
#
# Our `mini` model moves {{0.47 = phase_cost(MiniGPT.from_weights("mini").config, 1, 64, 1, 4).bytes /
# 1e6}} MB a step.
#
# > **Predict.** At 20 GB/s that takes
# > {{23 = phase_cost(MiniGPT.from_weights("mini").config, 1, 64, 1, 4).bytes / 20e9 * 1e6}}
# > millionths of a second. What does a stopwatch say?

# %%
mini = MiniGPT.from_weights("mini").to(device)
numbers = torch.zeros(8, device=device)


def price(operation: Callable[[], object]) -> float:
    def a_thousand_times() -> None:
        for _ in range(1000):
            operation()

    return time_on_device(a_thousand_times, device_of(device)) / 1000


ways = {
    "lesson 03's layers": step(mini, n_past=64),
    "FastDecoder": step(FastDecoder(mini, batch=1, max_len=1), n_past=64),
}
with one_thread():
    prices = Operations(views=price(numbers.t), kernels=price(numbers.neg_))
    asked = {name: count_operations(call) for name, call in ways.items()}
    taken = {name: time_on_device(call, device_of(device), 5, 21) for name, call in ways.items()}
show(draw_third_roof(phase_cost(mini.config, 1, 64, 1, 4), here, prices, asked, taken))

# %% [markdown]
# It takes many times longer. The time goes into *asking*: each operation costs Python and PyTorch a
# millionth of a second or more, however small it is. The orange bars show a third limit: views (the
# same memory, described anew) and kernels (which compute), each at the price of the cheapest. That is
# the smaller part of what was measured: a product with a 64 × 64 matrix costs several times as much as
# the cheapest kernel, and the Python between the operations costs as well.
#
# `course/fast/decode.py` launches fewer kernels and lays weights out for one row. On a GPU it also
# records a step as a **CUDA graph** and launches it whole. On an H200 the blue bars are 0.3 ns and 0.1
# µs; lesson 03's layers took 870 µs, the recorded step 109 µs.
#
# ## Check yourself
#
# <details><summary>A 4,096 × 4,096 matrix in FP16, one token: how many FLOP/byte?</summary>
# {{33,554,432 = matmul_flops(1, 4096, 4096)}} FLOPs, {{33,554,432 = 2 * 4096 * 4096}} bytes:
# {{1 = matmul_flops(1, 4096, 4096) / (2 * 4096 * 4096)}}.
# <em>Common wrong answer:</em> {{0.5 = 4096 * 4096 / (2 * 4096 * 4096)}}, which counts a multiply-add
# as one.
# </details>
# <details><summary>A GPU has twice the FLOP/s and the same memory. How much faster does one user's text
# come?</summary>
# Not at all: it waits for bytes. <em>Common wrong answer:</em> twice. Only long prefills come near.
# </details>
# <details><summary>By the roofs of an H200, a step of Llama-2-7B for 64 users takes 1.3 times as long
# as for one if each has 128 tokens cached, and 3.5 times if each has 1,024. Why?</summary>
# The weights are read once for all of them; the 64 caches are not shared, and at 1,024 tokens they are
# {{2.6 = phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 1024, 64).kv_read_bytes /
# phase_cost(PUBLISHED["Llama-2-7B"].config, 1, 1024, 64).weight_bytes}} times as many bytes as the
# weights.
# <em>Common wrong answer:</em> "they run in parallel". Bytes add up.
# </details>
# <details><summary>20 µs by your stopwatch, 3 ms by the roofline: what happened?</summary>
# The clock was read before the work was done. <em>Common wrong answer:</em> "caching". Nothing beats the
# roof 150 times.
# </details>
#
# ## Next
#
# A batch shares the weights; each row brings a cache. **Lesson 06** shrinks the cache: fewer keys, same
# answer.
