"""Known wrong answers to lesson 11: iterations and goodput."""

from __future__ import annotations

import heapq

from autograder.lessons.serving.museum import MUSEUM
from course.serving.request import check_lengths, check_seconds

bug = MUSEUM.section("static_steps", check="static_batches_wait")


@bug("formula", "a batch that takes as long as its answers on average")
def static_by_the_mean(n_new, batch):
    """Each batch counts with the mean of its lengths, rounded up."""
    check_lengths(n_new, batch)
    cuts = [n_new[first : first + batch] for first in range(0, len(n_new), batch)]
    return sum(-(-sum(cut) // len(cut)) for cut in cuts)


@bug("formula", "answers that are written one after the other")
def static_one_by_one(n_new, batch):
    """All tokens of all answers, as if a batch had one row."""
    check_lengths(n_new, batch)
    return sum(n_new)


@bug("formula", "batches that all take as long as the longest answer of all")
def static_by_the_longest_of_all(n_new, batch):
    """Every batch runs for as long as the longest of all answers."""
    check_lengths(n_new, batch)
    return -(-len(n_new) // batch) * max(n_new, default=0)


@bug("off by one", "answers behind the last full batch that nobody writes")
def static_without_the_rest(n_new, batch):
    """Only full batches count."""
    check_lengths(n_new, batch)
    full = len(n_new) // batch * batch
    return sum(max(n_new[first : first + batch]) for first in range(0, full, batch))


@bug("formula", "answers that were sorted before they were batched")
def static_sorted(n_new, batch):
    """Sorting by length makes fewer holes, but the order is that in which they came."""
    check_lengths(n_new, batch)
    rows = sorted(n_new)
    return sum(max(rows[first : first + batch]) for first in range(0, len(rows), batch))


@bug("arguments", "a list of answers that the count has emptied", kind="arguments")
def static_empties_the_list(n_new, batch):
    """Takes batch after batch off the caller's own list."""
    check_lengths(n_new, batch)
    steps = 0
    while len(n_new):
        steps += max(n_new[:batch])
        del n_new[:batch]
    return steps


bug = MUSEUM.section("continuous_steps", check="continuous_batches_fill_holes")


@bug("formula", "rows that can share the tokens of one answer")
def continuous_without_holes(n_new, batch):
    """All tokens over all rows, rounded up: as if the end had no holes either."""
    check_lengths(n_new, batch)
    return -(-sum(n_new) // batch)


@bug("formula", "rows that each answer was given in turn")
def continuous_in_turn(n_new, batch):
    """Answer i goes to row i % batch, free or not."""
    check_lengths(n_new, batch)
    return max((sum(n_new[row::batch]) for row in range(batch)), default=0)


@bug("formula", "a bound in the place of a count")
def continuous_by_a_bound(n_new, batch):
    """The longest answer, or all tokens over all rows: no order does better, this one does worse."""
    check_lengths(n_new, batch)
    return max([-(-sum(n_new) // batch), *n_new])


@bug("formula", "the longest answers first")
def continuous_longest_first(n_new, batch):
    """The best order, not the one in which they came."""
    check_lengths(n_new, batch)
    free_at = [0] * batch
    for n in sorted(n_new, reverse=True):
        heapq.heapreplace(free_at, free_at[0] + n)
    return max(free_at)


@bug("formula", "the same count as for a static batch")
def continuous_is_static(n_new, batch):
    """Waits for the longest of each batch."""
    check_lengths(n_new, batch)
    return sum(max(n_new[first : first + batch]) for first in range(0, len(n_new), batch))


bug = MUSEUM.section("goodput", check="goodput_meets_both_limits")


@bug("formula", "gaps that are short on average")
def goodput_by_the_mean_gap(latencies, seconds, max_ttft, max_gap):
    """itl_mean hides the one long gap that a user notices."""
    check_seconds(seconds)
    good = sum(
        one.ttft <= max_ttft and (one.itl_mean is None or one.itl_mean <= max_gap)
        for one in latencies
    )
    return good / seconds


@bug("formula", "requests among which equal ones are one", kind="batch")
def goodput_of_different_ones(latencies, seconds, max_ttft, max_gap):
    """Puts the good ones into a set, which holds equal ones once."""
    check_seconds(seconds)
    good = {
        one
        for one in latencies
        if one.ttft <= max_ttft and (one.itl_p99 is None or one.itl_p99 <= max_gap)
    }
    return len(good) / seconds


@bug("formula", "the median gap in the place of the 99th percentile")
def goodput_by_the_median_gap(latencies, seconds, max_ttft, max_gap):
    """itl_p50: half of the gaps may be as long as they like."""
    check_seconds(seconds)
    good = sum(
        one.ttft <= max_ttft and (one.itl_p50 is None or one.itl_p50 <= max_gap)
        for one in latencies
    )
    return good / seconds


@bug("formula", "a share of all requests, not a rate")
def goodput_as_a_share(latencies, seconds, max_ttft, max_gap):
    """Divides by the number of requests."""
    check_seconds(seconds)
    good = [
        one.ttft <= max_ttft and (one.itl_p99 is None or one.itl_p99 <= max_gap)
        for one in latencies
    ]
    return sum(good) / max(1, len(good))


@bug("formula", "an answer without a gap counted as one that is too slow")
def goodput_refuses_one_token(latencies, seconds, max_ttft, max_gap):
    """None is no number, so such requests are left out."""
    check_seconds(seconds)
    good = sum(
        one.itl_p99 is not None and one.ttft <= max_ttft and one.itl_p99 <= max_gap
        for one in latencies
    )
    return good / seconds
