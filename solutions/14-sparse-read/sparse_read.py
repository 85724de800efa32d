# %% [markdown]
# # 14 · Which rows must a step read?
#
# {{badge}}
#
# Every step reads the whole cache but gives nearly all of its attention to a few rows. Could it read only
# those? They differ from step to step, and to find them, must it not read all rows?
#
# **After this lesson you can**
#
# * bound the score of a whole page with two vectors,
# * read only the pages that a query may need,
# * say how choosing at each step differs from choosing once and for all.
#
# **You build:** a read that skips pages, and a cache that throws rows away. **Time:** 65 minutes.
# **Points:** 10. **Needs:** lessons 06 and 09 (your answers, or ours).
#
# > **Predict.** A head may read 24 rows of some 155. Of 100 places that a story asks for, how many does
# > our model find (a) if each step chooses its 24 rows anew, (b) if we keep the 24 most attended rows,
# > and throw the others away before the question?

# %% tags=["setup"]

# %% tags=["export"]
import math

import torch
from torch import Tensor

from course.given.sparse import (
    check_bounds,
    check_choice,
    check_paged,
    check_pages_read,
    check_shrinking,
)
from course.minigpt.split_read import attend_part, finish

# %%
from course.checks import sparse_read as checks
from course.given.sparse import questions_about_places, share_found
from course.measure.machine import interleaved, one_thread
from course.model import MiniGPT
from course.plots.sparse_read import draw_bytes, draw_found, draw_marks
from course.plots.style import show
from course.plots.times import draw_times
from course.widgets.sparse_read import read_or_keep

model = MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture

# %%
show(draw_marks(model, layer=2, head=5))

# %% [markdown]
# A step needs few rows, and the next step needs others. So there are two ways to read less:
#
# * **skip**: all rows stay, and each step chooses what it reads;
# * **evict**: choose once, and throw the others away, as lesson 08's window does by age. This frees
#   memory, and cannot be undone.
#
# ## 1 · Two vectors that stand for a page
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# To choose rows by their scores, a step would have to read every key, which is half of the cache that it
# wants to skip. So group rows into **pages** of `size`, as in lesson 10, and keep two vectors for each
# page: the least and the largest value of each of the D numbers (Tang et al. 2024, *Quest*). A full
# page's bounds never change.
#
# **The common wrong answer** pads the last page with zeros: then 0 may become a bound.
#
# Write `page_bounds`.
#
# <details><summary>Hint 1: the idea</summary>
# Over which axis is the least of a page taken? What does the last page hold?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Keys (B, G, S, D); one page (B, G, up to size, D); its bounds (B, G, D); all of them (B, G, P, D).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>split</code> along the tokens; <code>amin</code> and <code>amax</code> of each page;
# <code>torch.stack</code>.
# </details>


# %% nbgrader={"grade_id": "page_bounds", "solution": true}
def page_bounds(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Find the least and the largest of each number over the rows of each page.

    Args:
        keys: (B, G, S, D). Page p holds tokens p · size … p · size + size - 1; the last one may be
            shorter, and then has its own rows only.
        size: tokens of a page, at least 1; it may be more than S.

    Returns:
        least, largest: (B, G, P, D) each, where P = ceil(S / size), in the type of the keys and in memory
        of their own.

    Raises:
        ValueError: keys of another form; size below 1.
    """
    check_paged(keys, size)
    ### BEGIN SOLUTION
    pages = keys.split(size, dim=2)
    least = torch.stack([page.amin(dim=2) for page in pages], dim=2)
    return least, torch.stack([page.amax(dim=2) for page in pages], dim=2)
    ### END SOLUTION


# %% nbgrader={"grade_id": "bounds_of_each_page", "points": 1}
checks.bounds_of_each_page(page_bounds)

# %% [markdown]
# ## 2 · A score that no row exceeds
#
# *Difficulty 3 of 5 · importance 5 of 5 · 10 minutes*
#
# How large can q · k be, if each number of k lies between its bounds? Each product is largest at one of
# the two ends, depending on the sign of q: with q = (2, -1) and bounds (0, 1) to (3, 5) it is at most
# {{5 = max(2 * 0, 2 * 3) + max(-1 * 1, -1 * 5)}}. No single row need reach this bound, which combines the
# best of different rows.
#
# The query heads of a group share a list of pages, so a page's score is the largest over these heads.
#
# **Two common wrong answers.** Taking the larger of q · least and q · largest uses one end for all
# numbers. Averaging over the group may skip a page that one head needs.
#
# Write `page_scores`.
#
# <details><summary>Hint 1: the idea</summary>
# Take one number of q and its two ends: which product is larger, and what does that depend on?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Queries as (B, G, H // G, D), bounds (B, G, P, D); a product of matrices sums over D and leaves
# (B, G, H // G, P).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Multiply positive numbers of q by one end, negative ones by the other (<code>clamp_min</code>,
# <code>clamp_max</code>), and add; <code>amax</code> over the heads of a group; scale as in lesson 01.
# </details>


# %% nbgrader={"grade_id": "page_scores", "solution": true}
def page_scores(q: Tensor, least: Tensor, largest: Tensor) -> Tensor:
    """Bound what the scores of one query can be in each page.

    Args:
        q: (B, H, 1, D), the newest token's queries; head h reads KV head h // (H // G).
        least, largest: (B, G, P, D), of the keys of each page.

    Returns:
        (B, G, P): for each head the sum over d of the larger of q[d] · least[d] and q[d] · largest[d],
        divided by √D; of the heads of a group the largest. So no q · k / √D of the group, with a key
        of this page, lies above it. In the type of q.

    Raises:
        ValueError: shapes that do not belong together; more than one query.
    """
    check_bounds(q, least, largest)
    ### BEGIN SOLUTION
    (B, H, _, D), G = q.shape, least.shape[1]
    heads = q.reshape(B, G, H // G, D)
    up, down = heads.clamp_min(0), heads.clamp_max(0)  # each number of q wants one of the two ends
    bounds = up @ largest.mT + down @ least.mT  # (B, G, H // G, P)
    return bounds.amax(dim=2) / math.sqrt(D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "no_score_is_above", "points": 1}
checks.no_score_is_above(page_scores)

# %% nbgrader={"grade_id": "bound_is_tight", "points": 1}
checks.bound_is_tight(page_scores)

# %% [markdown]
# ## 3 · Choosing
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Always read the newest page: it is still growing, and tokens attend mostly to their neighbours. Add the
# pages with the highest scores. Each KV head of each text has its own list.
#
# One function serves both ways: it chooses pages to read now or rows to keep for ever.
#
# Write `choose`.
#
# <details><summary>Hint 1: the idea</summary>
# Once the newest have their places, who competes for how many?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Scores of the others (B, G, P - newest); their numbers (B, G, n - newest); the last ones
# <code>arange</code>, expanded to (B, G, newest).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Both numbers cut to P; <code>topk</code> on a slice that is right for newest = 0, too;
# <code>torch.cat</code>;
# <code>sort</code>.
# </details>


# %% nbgrader={"grade_id": "choose", "solution": true}
def choose(scores: Tensor, n: int, newest: int) -> Tensor:
    """Choose the newest, and of the others those with the largest scores.

    Args:
        scores: (B, G, P), finite or -inf; not changed.
        n: how many are chosen for each text and KV head; all, if P is smaller.
        newest: how many of these are the last ones, whatever their scores, 0 … n; all, if P is smaller.

    Returns:
        (B, G, min(n, P)) int64, on the device of the scores: numbers of the chosen, rising, each once.
        Of equal scores any may be taken; those of -inf only where no others are left.

    Raises:
        ValueError: n below 1; newest not from 0 to n.
    """
    check_choice(scores, n, newest)
    ### BEGIN SOLUTION
    B, G, P = scores.shape
    n, newest = min(n, P), min(newest, P)
    best = scores[:, :, : P - newest].topk(n - newest).indices
    last = torch.arange(P - newest, P, device=scores.device).expand(B, G, newest)
    return torch.cat([best, last], dim=2).sort(dim=2).values
    ### END SOLUTION


# %% nbgrader={"grade_id": "newest_and_best", "points": 1}
checks.newest_and_best(choose)

# %% [markdown]
# ## 4 · Reading what was chosen
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# Attend to the rows of the chosen pages alone. A mask over all rows would save nothing, so gather the
# chosen ones, or take them page by page and merge (lesson 09).
#
# **The common wrong answer** reads beyond the last page's end: the last row then counts several
# times, or rows of the first page are read.
#
# Write `attend_pages`.
#
# <details><summary>Hint 1: the idea</summary>
# Which tokens does page p hold, and which of these exist?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Row numbers (B, G, n · size); for <code>gather</code>, expanded to (B, G, n · size, D); a mask
# (B, H, 1, n · size).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>pages * size</code> plus an <code>arange</code>; rows beyond the end are clamped and hidden;
# <code>gather</code>; <code>attend_part</code> and <code>finish</code>.
# </details>


# %% nbgrader={"grade_id": "attend_pages", "solution": true}
def attend_pages(q: Tensor, k: Tensor, v: Tensor, pages: Tensor, size: int) -> Tensor:
    """Attend to the rows of the chosen pages alone.

    Other rows are not read: they may hold anything, also NaN. What is written into new tensors grows
    with the rows chosen, not with S: for 64 rows of 4,096 they hold fewer numbers than a quarter of k.
    Operations of PyTorch alone, for only these can be counted.

    Args:
        q: (B, H, 1, D).
        k, v: (B, G, S, D).
        pages: (B, G, n) int64, n at least 1; the numbers of one list are distinct, in any order. A page
            has `size` tokens; the last page of all may be shorter.

    Returns:
        (B, H, 1, D), in the type of q.

    Raises:
        ValueError: shapes that do not belong together, more than one query, no such page, no page.
    """
    check_pages_read(q, k, v, pages, size)
    ### BEGIN SOLUTION
    (H, D), (G, S) = (q.shape[1], q.shape[3]), k.shape[1:3]
    rows = pages[..., None] * size + torch.arange(size, device=pages.device)  # (B, G, n, size)
    rows = rows.flatten(2)
    seen = (rows < S).repeat_interleave(H // G, dim=1)[:, :, None]  # (B, H, 1, n * size)
    at = rows.clamp_max(S - 1)[..., None].expand(-1, -1, -1, D)
    return finish(attend_part(q, k.gather(2, at), v.gather(2, at), seen))
    ### END SOLUTION


# %% nbgrader={"grade_id": "chosen_pages_alone", "points": 2}
checks.chosen_pages_alone(attend_pages)

# %% nbgrader={"grade_id": "the_rest_is_not_read", "points": 1}
checks.the_rest_is_not_read(attend_pages)

# %% [markdown]
# > **Predict.** One layer of a large model (32 heads on 8 KV heads, D = 128) reads {{64 = 1024 // 16}}
# > pages of 16, once out of 4,096 tokens and once out of 16,384. What fraction of the time of reading all
# > does this take?


# %%
def ways_to_read(S, size=16, n=64):
    q, (k, v) = torch.randn(1, 32, 1, 128), torch.randn(2, 1, 8, S, 128)
    bounds = page_bounds(k, size)

    def chosen():
        return attend_pages(q, k, v, choose(page_scores(q, *bounds), n, 1), size)

    return {"all rows": lambda: finish(attend_part(q, k, v)), "1,024 rows": chosen}


for S in (4096, 16_384):
    with one_thread():
        times = interleaved(ways_to_read(S), rounds=5)
    show(draw_times(times, f"one token to attend to {S:,}", beside="all rows"))

# %% [markdown]
# On our machine reading a quarter of the rows does not pay: choosing and gathering cost too much. A
# sixteenth does, by less than sixteen times. The bounds were computed beforehand, as an engine does when
# a page is full.
#
# ## 5 · Throwing away
#
# *Difficulty 3 of 5 · importance 4 of 5 · 12 minutes*
#
# H2O (Zhang et al. 2023) keeps the rows that got most attention so far; SnapKV (Li et al. 2024) keeps
# those the prompt's last queries attended to most. In essence both are one function: a row's score is the
# attention that T queries gave it.
#
# Memory is freed only if nothing holds it: a view keeps the whole storage alive.
#
# Write `shrink`.
#
# <details><summary>Hint 1: the idea</summary>
# Which rows does each of the last T tokens see? What do its weights add up to?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Weights (B, H, T, S); summed over the queries and the heads of a group, scores (B, G, S).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Scores of all heads, a causal mask with its corner at the bottom right, <code>softmax</code>,
# <code>sum</code>; <code>choose</code>; <code>gather</code>.
# </details>


# %% nbgrader={"grade_id": "shrink", "solution": true}
def shrink(
    q: Tensor, k: Tensor, v: Tensor, budget: int, recent: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Keep the rows that the last T tokens attended to most, and drop the others for ever.

    A row's score is its softmax weight, with scores q · k / √D, added up over the T queries and the heads
    of its group. Of the rows that are not recent, those with the largest scores are kept.

    Args:
        q: (B, H, T, D), of the last T of the S tokens; each sees itself and what is before it.
        k, v: (B, G, S, D); not changed.
        budget: rows that are kept for each KV head; all, where there are fewer.
        recent: how many of these are the newest ones, 0 … budget.

    Returns:
        keys, values: (B, G, m, D) with m = min(budget, S), in the order of the text and the type of k,
        in new memory that holds nothing else, also where all rows are kept.
        rows: (B, G, m) int64, the numbers that these rows had among the S, rising.

    Raises:
        ValueError: shapes that do not belong together, T above S, budget below 1, recent not from 0 to
            budget.
    """
    check_shrinking(q, k, v, budget, recent)
    ### BEGIN SOLUTION
    (H, T, D), (G, S) = q.shape[1:], k.shape[1:3]
    scores = q @ k.repeat_interleave(H // G, dim=1).mT / math.sqrt(D)  # (B, H, T, S)
    seen = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    attended = weights.unflatten(1, (G, H // G)).sum(dim=(2, 3))  # (B, G, S)
    rows = choose(attended, budget, recent)
    at = rows[..., None].expand(-1, -1, -1, D)
    return k.gather(2, at), v.gather(2, at), rows
    ### END SOLUTION


# %% nbgrader={"grade_id": "kept_are_the_most_attended", "points": 2}
checks.kept_are_the_most_attended(shrink)

# %% nbgrader={"grade_id": "freed", "points": 1}
checks.freed(shrink)

# %% [markdown]
# ## 6 · What the model still finds
#
# Your functions now answer questions about stories the model never saw. Up to "Where" every row is read;
# then a head reads 16, 24, 32 or 64 rows, chosen in five ways. The last is no real method: it keeps rows
# the queries *still to come* will attend to most.
#
# > **Predict.** How many places does this last way find with 24 rows?


# %%
def read_all(q, k, v):
    return finish(attend_part(q, k, v))


def read_newest(n):
    return lambda q, k, v: read_all(q, k[:, :, -n:], v[:, :, -n:])


def skipping(n, size=4):
    def read(q, k, v):
        scores = page_scores(q, *page_bounds(k, size))
        return attend_pages(q, k, v, choose(scores, n // size, 1), size)

    return read


def evicting(n, last=None):
    def keep(q, k, v, where):
        q, k, v = (x[:, :, :where] for x in (q, k, v))
        return shrink(q if last is None else q[:, :, -last:], k, v, n, recent=4)

    return keep


def in_hindsight(n):
    def keep(q, k, v, where):
        to_come = q.shape[2] - where  # their own rows are kept as "recent", then taken off again
        keys, values, rows = shrink(q[:, :, where:], k, v, n + to_come, to_come)
        return keys[:, :, :-to_come], values[:, :, :-to_come], rows[:, :, :-to_come]

    return keep


asked = questions_about_places(20)
ways = {
    "the newest": lambda n: (read_newest(n), None),
    "skip: pages of 4, by their bounds": lambda n: (skipping(n), None),
    "evict: by all attention so far": lambda n: (read_all, evicting(n)),
    "evict: by the last 32 queries": lambda n: (read_all, evicting(n, last=32)),
    "evict: by the queries to come": lambda n: (read_all, in_hindsight(n)),
}
budgets = (16, 24, 32, 64)
with one_thread():  # so small tensors gain nothing by more
    found = {
        name: [share_found(model, asked, *way(n)) for n in budgets] for name, way in ways.items()
    }
show(draw_found(found, budgets, len(asked)))

# %% [markdown]
# With 24 rows, skipping finds about nine of ten places. Rows kept by all attention so far find about a
# quarter, those kept by the last 32 queries over half, by hindsight nearly all: 24 rows are enough, and
# the rule is right. Only the moment is wrong: before the question, nobody knows what it will be.
#
# At 64 rows every choice but the newest loses little, perhaps because our stories only ask for places.
#  SCBench (Li et al.
# 2025) finds that methods which forget fall behind in later turns that ask about something else.
#
# ## 7 · How large is a page?
#
# A page's bounds take as many numbers as one row's key and value. So a step that reads n pages of p rows
# fetches S / p rows' worth of bounds and n · p rows. For a fixed n, the sum is least at **p = √(S / n)**.

# %%
show(draw_bytes(S=131_072, n=128))

# %% [markdown]
# Take Llama 3.1 8B with 131,072 tokens in float16. The whole cache is
# {{17.2 = 131072 * 131072 / 1e9}} GB per step; 128 pages of 16 with all bounds are
# {{1.34 = 131072 * (131072 // 16 + 128 * 16) / 1e9}} GB, four fifths of it bounds; pages of
# {{32 = math.isqrt(131072 // 128)}} are {{1.07 = 131072 * (131072 // 32 + 128 * 32) / 1e9}} GB, half of
# it bounds.
#
# Try other pages and budgets:

# %%
read_or_keep(model, page_bounds, page_scores, choose, attend_pages, shrink)

# %% [markdown]
# > **Spot the slip.** An abstract promises "up to 2.23x self-attention speedup, which reduces inference
# > latency by 7.03x". Can a whole step gain more than the one part that was changed?
#
# <details><summary>Answer</summary>
# No: the two numbers are swapped. Attention became 7.03 times as fast and the step 2.23 times, so, if
# nothing else changed, attention was {{64 = 100 * (1 - 1 / 2.23) / (1 - 1 / 7.03)}} % of the step
# (lesson 05's bill).
# </details>
#
# > **Spot the slip.** "Most old tokens contribute almost nothing to the next prediction", so drop them.
#
# <details><summary>Answer</summary>
# True of <em>one</em> prediction, not of all that are still to come: see the picture at the top.
# </details>
#
# **Not shown here.** Our model gains no time: with 155 rows, choosing costs more than reading. And it
# lacks the learned indexer of DeepSeek V3.2 (DeepSeek-AI 2025), a small second head that scores every
# row.
#
# ## Check yourself
#
# <details><summary>Does skipping save memory?</summary>
# No: it adds the bounds. <em>Common wrong answer:</em> yes, since fewer rows are read. All rows stay
# stored.
# </details>
# <details><summary>Does the page with the largest bound hold the row with the largest score?</summary>
# Not always: a bound combines the best of different rows. <em>Common wrong answer:</em> yes, or it would
# be no bound. A bound only says that no score lies above.
# </details>
# <details><summary>All P pages are chosen. Is the result exact?</summary>
# Yes, up to rounding, and dearer than reading all. <em>Common wrong answer:</em> no,
# since pages are an approximation.
# </details>
# <details><summary>24 rows were kept of 155. May the next token stand at position 24?</summary>
# No: kept keys stay rotated by their old positions (lesson 03), so the next one is 155.
# <em>Common wrong answer:</em> yes, since the cache holds 24.
# </details>
#
# ## Next
#
# You can now measure what such a method saves and loses. **Lesson 15** asks what to keep for the next
# user.
