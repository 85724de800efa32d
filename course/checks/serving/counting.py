"""Check what is counted: iterations of two ways to fill a batch, and requests that were served well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.counts import counted
from course.checks.recording import Place
from course.measure.latency import Latency


def draw_answers(function: str, rng: np.random.Generator) -> Iterator[Case]:
    """Draw lengths of answers and rows of a batch: none, one, few, a full batch, and one answer more;
    in a list, and last in a tuple."""
    for lengths, batch in (([], 2), ([3], 1), ([2, 5], 1), ([1, 4, 2], 2)):
        yield call(function, lengths, batch)
    for batch in (2, 3, 4):
        for n in (batch, 2 * batch, 3 * batch + 1):
            lengths = rng.integers(1, 9, n)
            lengths[rng.integers(n)] = rng.integers(20, 30)  # one that all others wait for
            yield call(function, lengths.tolist(), batch)
    yield call(function, rng.integers(1, 30, 12).tolist(), 5)
    yield call(function, rng.integers(1, 30, 7).tolist(), 3, tuple=True)


def run_steps(count: Callable[..., Any], case: Case) -> Any:
    lengths, batch = case["arguments"]
    return count(tuple(lengths) if case.get("tuple") else list(lengths), batch)


@check_calls(
    "static_steps",
    draw=partial(draw_answers, "static_steps"),
    run=run_steps,
    praise="Each batch takes as long as its longest answer.",
)
def static_batches_wait(case: Case, result: float, expected: int, place: Place) -> Words:
    lengths, batch = case["arguments"]
    return counted(result, expected), (
        (result == sum(lengths), "How many answers does one iteration bring forward?"),
        (True, f"The first batch has {lengths[:batch]}: how long does it take, and who is next?"),
    )


@check_calls(
    "continuous_steps",
    draw=partial(draw_answers, "continuous_steps"),
    run=run_steps,
    praise="A row that becomes free is taken before the next iteration.",
)
def continuous_batches_fill_holes(case: Case, result: float, expected: int, place: Place) -> Words:
    lengths, batch = case["arguments"]
    both = "Can two rows write one answer? What does the longest one need at least?"
    longest = max(lengths, default=0)
    return counted(result, expected), (
        (result == -(-sum(lengths) // batch), both),
        (result < longest, f"One answer alone takes {longest} iterations. When are all complete?"),
        (
            result < expected,
            "When an answer is complete, who takes its row, and which row is the last one to end?",
        ),
        (True, "When an answer is complete, who takes its row, and in which iteration?"),
    )


# --- goodput -------------------------------------------------------------------------------------


def draw_latencies(rng: np.random.Generator) -> Iterator[Case]:
    """Draw latencies on both sides of two limits: alone, one that is well served, one that is late, one
    that halts, one just on both limits, one late by the last digits, and of a single token one in time
    and one late; then three that are equal, none, few and many."""
    alone = (
        (0.5, 0.3, 0.9),
        (1.2, 0.3, 0.5),
        (0.5, 0.3, 1.2),
        (1.0, 0.3, 1.0),
        (1 + 1e-10, 0.3, 1.0),
        (1.0, 0.3, 1 + 1e-10),
    )
    single = (0.5, None, None), (1.2, None, None)
    few, many = (
        np.stack([
            rng.choice((0.4, 1.0, 1.1, 3.0), n),
            rng.uniform(0.1, 0.4, n),
            rng.choice((0.5, 0.9, 1.0, 1.2, 2.0), n),
        ], axis=1).tolist()
        for n in (6, 12)
    )  # fmt: skip
    many[int(rng.integers(6))] = (0.5, None, None)
    for shares in (*([one] for one in (*alone, *single)), [alone[0]] * 3, [], few, many):
        ttft, gap = (float(limit) for limit in rng.uniform((0.05, 0.005), (0.2, 0.02)))
        rows = [
            (first * ttft, *(None if share is None else share * gap for share in (mean, mean, p99)))
            for first, mean, p99 in shares
        ]
        yield call("goodput", rows, float(rng.uniform(2, 9)), ttft, gap)
    yield call("goodput", rows, 0.25, ttft, gap)
    yield call("goodput", rows, 4.0, 0.0, gap)


def run_goodput(goodput: Callable[..., Any], case: Case) -> Any:
    rows, *limits = case["arguments"]
    return goodput([Latency(*row, None) for row in rows], *limits)


def describe_requests(case: Case) -> str:
    """Write down the requests that goodput is told of, and the limits."""
    rows, seconds, ttft, gap = case["arguments"]
    texts = [
        f"TTFT {1e3 * first:.0f} ms{' and a little' * (0 < first - ttft < 1e-6)}"
        + (
            f", p99 gap {1e3 * p99:.1f} ms{' and a little' * (0 < p99 - gap < 1e-6)}"
            if p99
            else ", one token"
        )
        for first, _, _, p99 in rows[:3]
    ]
    told = "; ".join(texts) + " …" * (len(rows) > 3)
    return (
        f"{len(rows)} request(s) in {seconds:.2f} s ({told or 'none'}), limits {1e3 * ttft:.0f} and "
        f"{1e3 * gap:.1f} ms: goodput"
    )


@check_calls(
    "goodput",
    draw=draw_latencies,
    run=run_goodput,
    describe=describe_requests,
    tolerance=1e-9,
    praise="Requests a second that met both limits.",
)
def goodput_meets_both_limits(case: Case, result: float, expected: float, place: Place) -> Words:
    rows, _, ttft, gap = case["arguments"]
    on_a_limit = [first == ttft or p99 == gap for first, _, _, p99 in rows]
    return f"gave {result:.4g} a second, counted one by one it is {expected:.4g}.", (
        (result == 0 and on_a_limit == [True], "This one is just on a limit. Is that within it?"),
        (True, "Which of these requests were served well, and over which time?"),
    )
