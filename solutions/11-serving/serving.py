# %% [markdown]
# # 11 · Serving: continuous batching
#
# {{badge}}
#
# Many users ask at once, and one model answers. Which tokens go through the next forward pass? A few
# lines of Python decide how long everyone waits.
#
# **After this lesson you can**
#
# * count the iterations of a static batch, and those that a continuous one saves,
# * plan a pass by a token budget, with long prompts cut into chunks,
# * build a scheduler whose users get *the same text* as if each were alone,
# * judge a server by its goodput.
#
# **You build:** the scheduler of a serving engine.
# **Time:** 90 minutes. **Points:** 10. **Needs:** lessons 03 and 04 (your answers, or ours).
#
# > **Predict.** A pass may take 2,048 tokens, 128 or 24, prompts and answers together. Which of the three
# > serves most users within limits on the time to first token (TTFT) and on every gap? Which writes most
# > tokens per second?

# %% tags=["setup"]

# %% tags=["export"]
import heapq
from collections.abc import Callable, Sequence

from torch import Tensor

from course.measure.latency import Latency
from course.minigpt.mini_gpt import greedy_next
from course.serving.request import (
    Piece,
    Request,
    check_lengths,
    check_new,
    check_room,
    check_seconds,
)

# %%
import sys

import torch
from tqdm.auto import tqdm

from course.checks import serving as checks
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import generate_cached
from course.minigpt.prefill_and_decode import latency_metrics
from course.model import MiniGPT
from course.plots.serving import draw_batch_sizes, draw_budgets, draw_holes, draw_loads, draw_texts
from course.plots.style import show
from course.serving.clock import STORY, draw_trace, serve, serve_virtually
from course.serving.mixed import Slots, forward_mixed
from course.widgets.serving import tune_the_server
from course.world.evaluation import held_out
from course.world.tokenizer import decode, encode

story = MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture
#
# Eight answers of different lengths share three rows, the places of a batch. One column is one forward
# pass.

# %%
show(draw_holes())

# %% [markdown]
# A **static** batch runs until its longest answer is complete; finished rows are holes. A **continuous**
# batch gives a free row to the next request before the next pass (Yu et al. 2022, Orca).
#
# Why batch at all? Each pass reads the weights and launches operations once, however many rows it has
# (lesson 05; a mixture of experts differs: lesson 16):

# %%
sizes = (1, 2, 4, 8, 16, 32, 64)
prompt = encode(" ".join(held_out(1)[0].text.split()[:40]))[0].tolist()


def full_batch(n):
    """n requests in one pass each, all behind their prompts."""
    slots, requests = Slots(story, n, 48), [Request(i, prompt, 8) for i in range(n)]
    for request in requests:
        forward_mixed(story, [(request, len(prompt))], slots)
        request.fed, request.out = len(prompt), [5]
    return lambda: forward_mixed(story, [(request, 1) for request in requests], slots)


with one_thread():
    steps = interleaved({n: full_batch(n) for n in tqdm(sizes, file=sys.stdout)}, rounds=9)
show(draw_batch_sizes(steps))

# %% [markdown]
# Throughput rises, and so does the gap between a user's tokens, the inter-token latency (ITL). Beyond the
# orange point each further row adds less, and every user waits more than twice as long as alone.
#
# ## 1 · Count the iterations
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# Prompts cost nothing here: an answer of n tokens takes n iterations (passes) of one row.
#
# Write `static_steps`, which takes answers in their order, `batch` at a time, and `continuous_steps`,
# which gives a row that became free to the next answer, so that it writes in the very next iteration.
#
# <details><summary>Hint 1: the idea</summary>
# Static: what does one batch wait for? Continuous: each row becomes free at some moment. Which row does
# the next answer get?
# </details>
# <details><summary>Hint 2: the numbers</summary>
# [1, 4, 2] in 2 rows. Static: 4 + 2. Continuous: the third answer begins after iteration 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Static: a <code>sum</code> over slices. Continuous: a list of <code>batch</code> moments; each answer
# goes to the smallest of them. <code>heapq</code> keeps the smallest in front.
# </details>


# %% nbgrader={"grade_id": "static_steps", "solution": true}
def static_steps(n_new: Sequence[int], batch: int) -> int:
    """Iterations until all answers are complete, batch after batch.

    Args:
        n_new: tokens of each answer, at least 1; perhaps no answers at all.
        batch: rows, at least 1.
    """
    check_lengths(n_new, batch)
    ### BEGIN SOLUTION
    return sum(max(n_new[first : first + batch]) for first in range(0, len(n_new), batch))
    ### END SOLUTION


# %% nbgrader={"grade_id": "continuous_steps", "solution": true}
def continuous_steps(n_new: Sequence[int], batch: int) -> int:
    """Iterations until all answers are complete, where a free row is taken before the next iteration.

    Args:
        n_new: tokens of each answer, at least 1, in the order in which they begin; perhaps none.
        batch: rows, at least 1.
    """
    check_lengths(n_new, batch)
    ### BEGIN SOLUTION
    free_at = [0] * batch
    for n in n_new:
        heapq.heapreplace(free_at, free_at[0] + n)
    return max(free_at)
    ### END SOLUTION


# %% nbgrader={"grade_id": "static_batches_wait", "points": 1}
checks.static_batches_wait(static_steps)

# %% nbgrader={"grade_id": "continuous_batches_fill_holes", "points": 1}
checks.continuous_batches_fill_holes(continuous_steps)

# %%
draw = torch.Generator().manual_seed(3)
print("96 answers, batch 8    static  continuous  ratio")
for share in (0, 10, 25, 50, 100):
    long = torch.rand(96, generator=draw) < share / 100
    few = torch.randint(5, 31, (96,), generator=draw)
    answers = torch.where(long, torch.randint(100, 201, (96,), generator=draw), few).tolist()
    static, continuous = static_steps(answers, 8), continuous_steps(answers, 8)
    print(f"{share:3} % of them long    {static:8,}{continuous:12,}{static / continuous:7.1f}")

# %% [markdown]
# The gain is largest when some answers are long, but not most.
#
# ## 2 · Plan a pass
#
# *Difficulty 4 of 5 · importance 5 of 5 · 20 minutes*
#
# One pass may hold one token for each user waiting for the next word and a piece of another user's prompt
# (*chunked prefill*, Agrawal et al. 2024). A long prompt in one piece would block everyone while it runs.
# So each pass has a **budget** of tokens:
#
# 1. one token for each running request that decodes, the oldest first,
# 2. then prompts under way,
# 3. then requests that wait, in their order, while fewer than `max_running` run.
#
# A prompt takes as much of the remaining budget as it can and continues in the next pass. **Nobody
# overtakes**: no later *prompt* gets budget that an earlier one could use.
#
# A `Request` says `fed` (tokens that went through the model), `left` (known and not fed yet) and
# `decodes` (its prompt is behind it).
#
# **The common wrong answer** feeds prompts first, "so that nobody waits for the first token". In one real
# engine 250 users waited 24 seconds from one decode pass to the next (sglang, issue 32549).
#
# Write `plan_step`, which says how many tokens of whom go through the next pass.
#
# <details><summary>Hint 1: the idea</summary>
# Keep one number, the remaining budget, and lower it. Go through three groups, in order.
# </details>
# <details><summary>Hint 2: the numbers</summary>
# Budget 10; two requests decode, one prompt has 6 tokens left, one of 9 waits: 1, 1, 6, 2.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Put the candidates into one list: those that decode, those under way, and as many waiting ones as there
# is room. Then one loop with <code>min(request.left, budget)</code>.
# </details>


# %% nbgrader={"grade_id": "plan_step", "solution": true}
def plan_step(
    running: Sequence[Request], waiting: Sequence[Request], budget: int, max_running: int
) -> list[Piece]:
    """Choose whose tokens go through the next pass.

    Args:
        running: requests that were admitted, the oldest first; some decode, of others the prompt is under
            way.
        waiting: requests that are not running, in the order in which they came.
        budget: tokens of a pass, all requests together, at least 1.
        max_running: requests that may run at once, those that end in this pass included, at least 1.

    Returns:
        (request, n) for each request that takes part, n from 1 to `request.left`, each request once.
        Those of `waiting` that stand there are admitted by it. Lists and requests stay as they are.
    """
    check_room(budget, max_running)
    ### BEGIN SOLUTION
    decoding = [request for request in running if request.decodes]
    under_way = [request for request in running if not request.decodes]
    admitted = waiting[: max(0, max_running - len(running))]
    pieces = []
    for request in (*decoding, *under_way, *admitted):
        n = min(request.left, budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    return pieces
    ### END SOLUTION


# %% nbgrader={"grade_id": "within_budget_and_room", "points": 1}
checks.within_budget_and_room(plan_step)

# %% nbgrader={"grade_id": "decodes_come_first", "points": 1}
checks.decodes_come_first(plan_step)

# %% nbgrader={"grade_id": "nobody_overtakes", "points": 1}
checks.nobody_overtakes(plan_step)

# %% nbgrader={"grade_id": "nothing_is_left_idle", "points": 1}
checks.nothing_is_left_idle(plan_step)

# %% [markdown]
# ## 3 · The scheduler
#
# *Difficulty 4 of 5 · importance 5 of 5 · 20 minutes*
#
# `forward(pieces)` is given: it feeds the next n tokens of each request and returns the logits after the
# last token of each piece, (pieces, V). Your scheduler carries out plans. After a pass, every request in
# the plan has been fed n more tokens. **A request whose known tokens are all fed gets its next token**
# (greedy): a prompt whose last chunk was fed gets its first one. An earlier chunk gives no token:
# discard the logits after a chunk that is not the last.
#
# A newly admitted request goes behind those that run. A finished request leaves at once; its place is
# free in the next pass. If `forward` raises, nothing has changed.
#
# Write `add` and `step` of `Scheduler`.
#
# <details><summary>Hint 1: the idea</summary>
# Keep two lists. Plan, feed, count, emit tokens, clean up, in this order.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>logits[i]</code> belongs to piece i. Prompt of 5, n_new 2: fed 5, emits one token; fed 6, emits
# the second, done. The last token is never fed.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>request.fed += n</code>; then <code>request.left == 0</code> tells who emits a token, also for
# prompts; append to <code>request.out</code>, and keep those that are not <code>done</code>.
# </details>


# %% nbgrader={"grade_id": "Scheduler", "solution": true}
class Scheduler:
    """Serve requests with one forward pass a step.

    Args:
        budget: tokens of a pass, at least 1.
        max_running: requests that run at once, at least 1.
    """

    def __init__(self, budget: int, max_running: int) -> None:
        check_room(budget, max_running)
        self.budget, self.max_running = budget, max_running
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    def add(self, request: Request) -> None:
        """Let a request wait for its turn, behind those that came before.

        Raises:
            ValueError: it has begun already, or one with its id is here.
        """
        check_new(request, [*self.running, *self.waiting])
        ### BEGIN SOLUTION
        self.waiting.append(request)
        ### END SOLUTION

    def step(self, forward: Callable[[list[Piece]], Tensor]) -> list[tuple[int, int]]:
        """Plan one pass and carry it out: `fed` and `out` of its requests move on.

        Args:
            forward: takes the pieces of a plan, of requests that it leaves as they are; gives logits
                (n, V), a row for each piece. Whatever it raises reaches the caller, and nothing changed.

        Returns:
            (id, token) for each request that got a token. With nothing to do: [], and no pass.
        """
        ### BEGIN SOLUTION
        pieces = plan_step(self.running, self.waiting, self.budget, self.max_running)
        if not pieces:
            return []
        tokens = greedy_next(forward(pieces)).tolist()
        said = []
        for (request, n), token in zip(pieces, tokens, strict=True):
            request.fed += n
            if request.left == 0:
                request.out.append(token)
                said.append((request.id, token))
        there = [*self.running, *self.waiting]
        self.running = [r for r in there if r.fed > 0 and not r.done]
        self.waiting = [r for r in there if r.fed == 0]
        return said
        ### END SOLUTION


# %%
def print_pieces(pieces):
    """A forward pass without a model: it prints its pieces, and token 0 always follows."""
    print([(request.id, n) for request, n in pieces])
    return torch.zeros(len(pieces), 2)


by_hand = Scheduler(budget=4, max_running=2)
by_hand.add(Request(7, [1] * 6, n_new=2))
for _ in range(3):
    print("tokens chosen:", by_hand.step(print_pieces))

# %% nbgrader={"grade_id": "every_request_as_if_alone", "points": 2}
checks.every_request_as_if_alone(Scheduler)

# %% nbgrader={"grade_id": "leaves_and_joins_at_once", "points": 1}
checks.leaves_and_joins_at_once(Scheduler)

# %% [markdown]
# Now with the model. `forward_mixed` multiplies the tokens of all pieces by the weights together; only
# attention runs request by request (*selective batching*).

# %%
stories = [text.text.split() for text in held_out(12)]
orders = [
    Request(i, encode(" ".join(words[: 12 + 5 * i]))[0].tolist(), 10 + 5 * (i % 3), 0.004 * i)
    for i, words in enumerate(stories)
]
slots = Slots(story, 4, 160)
server = Scheduler(budget=32, max_running=4)
served = serve(server, orders, lambda pieces: forward_mixed(story, pieces, slots))
same = 0
for request in served.requests:
    alone = generate_cached(story, torch.tensor([request.prompt]), request.n_new)
    same += alone[0, len(request.prompt) :].tolist() == request.out
print(f"{same} of {len(orders)} texts are those of generate_cached, one by one")
print(decode(served.requests[0].out))
show(draw_texts(served))

# %% [markdown]
# The tokens are equal, though perhaps not the bits: matrices of another shape may sum in another order.
# (`Slots` reserves 160 places for each request. Lesson 13's engine instead admits the next request if
# pages suffice.)
#
# ## 4 · How large a budget?
#
# *Difficulty 2 of 5 · importance 5 of 5 · 15 minutes*
#
# Real timings vary with whatever else runs. So we time plans on a noise-free **virtual clock**: a linear
# fit to timings of the story model charges each pass 1.2 ms to begin, plus a cost per request, per token
# and per token attended to.
#
# What makes a good server? Users notice TTFT and gaps. A **service level objective (SLO)** limits both;
# **goodput** (Zhong et al. 2024) counts requests per second that met both.
#
# Write `goodput`, from the latencies of all requests.
#
# <details><summary>Hint 1: the idea</summary>
# Count requests, then divide by the time in which all were served.
# </details>
# <details><summary>Hint 2: the numbers</summary>
# Exactly at the limit counts as within. <code>itl_p99</code> is None for an answer of one token: no gap,
# no violation.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Over the latencies, <code>sum</code> one condition, <code>A and B</code>; divide by
# <code>seconds</code>.
# </details>


# %% nbgrader={"grade_id": "goodput", "solution": true}
def goodput(latencies: Sequence[Latency], seconds: float, max_ttft: float, max_gap: float) -> float:
    """Requests a second whose TTFT was at most max_ttft, and the 99th percentile of whose gaps
    (`itl_p99`) was at most max_gap. An answer without a gap has None there, and none that is too long.

    Args:
        latencies: of all requests; perhaps none.
        seconds: in which they were served, above 0.
        max_ttft, max_gap: limits in seconds.
    """
    check_seconds(seconds)
    ### BEGIN SOLUTION
    good = sum(
        one.ttft <= max_ttft and (one.itl_p99 is None or one.itl_p99 <= max_gap)
        for one in latencies
    )
    return good / seconds
    ### END SOLUTION


# %% nbgrader={"grade_id": "goodput_meets_both_limits", "points": 1}
checks.goodput_meets_both_limits(goodput)

# %% [markdown]
# 70 requests arrive per second, every eighth with a prompt of 400 to 500 tokens; 16 run at once. The
# limits are 100 ms for TTFT and 8 ms for the p99 gap. Check your prediction:

# %%
trace = draw_trace(per_second=70, seconds=6)
rows = {}
for budget in tqdm((2048, 1024, 256, 128, 64, 24), file=sys.stdout):
    found = serve_virtually(Scheduler(budget, 16), trace, STORY)
    latencies = found.latencies(latency_metrics)
    rows[budget] = (
        found.longest_gap,
        sorted(one.ttft for one in latencies)[int(0.99 * len(latencies))],
        goodput(latencies, found.seconds, 0.1, 0.008),
        found.tokens_per_second,
    )
show(draw_budgets(rows))

# %% [markdown]
# As the budget shrinks, so does the longest gap, but newcomers wait longer and tokens per second fall a
# little, or a lot once the server is full. Goodput peaks in the middle: with too large a budget, gaps
# break the limit; with too small a budget, first tokens do.
#
# How many users can it handle? Compare whole prompts with a budget of 64 as load grows:


# %%
def at_load(budget, load):
    found = serve_virtually(Scheduler(budget, 16), draw_trace(load, seconds=4), STORY)
    latencies = found.latencies(latency_metrics)
    gaps = [one.itl_p99 for one in latencies if one.itl_p99 is not None]
    late = [sorted(times)[int(0.99 * len(times))] for times in ([x.ttft for x in latencies], gaps)]
    return *late, goodput(latencies, found.seconds, 0.1, 0.008)


settings = {"whole prompts": 2048, "budget 64": 64}
loads = range(10, 121, 10)
rows = {name: {n: at_load(budget, n) for n in loads} for name, budget in settings.items()}
show(draw_loads(rows, limits=(0.1, 0.008)))

# %% [markdown]
# The wait for the first token stays short and then, beyond a certain load, only grows, like the queue.
# Gaps do not: with whole prompts they grow with the load, with a budget they stay bounded.
#
# > **Spot the slip.** "Throughput is up 20 %, so the new setting is better."
#
# <details><summary>Answer</summary>
# It may be worse: a larger batch or budget gives more tokens per second but longer gaps, so fewer
# requests meet their limits. Ask for goodput.
# </details>
#
# Raise the load until the server breaks:

# %%
tune_the_server(Scheduler, goodput)

# %% [markdown]
# ## Check yourself
#
# <details><summary>Input is cheaper than output (lesson 04). What does the cost of a pass say?</summary>
# A prompt's tokens share one pass, which reads the weights once; each token of an answer needs a pass. On
# the virtual clock a prompt of 256 costs {{9 = (1.2 + 0.11 + 0.016 * 256 + 0.000098 * 256 * 257 / 2)}}
# ms, 256 passes of one row cost {{339 = 256 * (1.2 + 0.11 + 0.016)}} ms and more. <em>Common wrong
# answer:</em> "reading is easier than writing". A token costs the same arithmetic.
# </details>
# <details><summary>Why is the first token slow, and what does a cached prefix change?</summary>
# It waits for its turn and for the whole prompt. A cached prefix (lesson 10) removes most of the prompt's
# work, not the queue. <em>Common wrong answer:</em> "the cache makes decode faster".
# </details>
# <details><summary>Does batching change the text?</summary>
# No row looks at another, so the text is the same unless two logits are nearly equal. <em>Common wrong
# answer:</em> "users influence one another".
# </details>
# <details><summary>May a request starve?</summary>
# Not with this plan: the oldest requests come first and finish. <em>Common wrong answer:</em> "a long
# prompt waits for ever behind short ones". It would if anything that fits could go first.
# </details>
#
# ## Next
#
# Every token still costs a pass. **12 · Guess, then verify** writes several per pass.
