"""Check the numbers of a stream: first token and gaps apart, percentiles between two gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.counts import in_words
from course.checks.recording import Place
from course.measure.latency import Latency

QUESTIONS = {
    "ttft": "From when to when does somebody wait for the first token?",
    "itl_mean": "How many gaps are there, and between which tokens?",
    "itl_p50": "Sort the gaps. Which place is half way, and what lies there?",
    "itl_p99": "Sort the gaps. Which place is 99 % of the way, and between which two of them is it?",
    "tokens_per_second": "How many tokens did the decode phase write, and in how many seconds?",
}
MS = (
    (250, 370.4),
    (80, 90.4, 120),
    (300, 310, 360, 360, 400),
    (90, 100, 160, 180, 190, 215),
    (125, 250, 375, 500, 2500),
    (0, 40, 100),
    (500,),
)
"""Stamps after the start, in milliseconds: whole ones and others, two tokens at one moment, gaps that are
equal to the last bit, a first token at once, a single one."""


def calls_of(streams: Iterable[tuple[float, list[float]]]) -> Iterator[Case]:
    """Measure streams (start, stamps), the stamps in a list or a tuple by turns; and, with stamps of the
    last one, what is no stream."""
    for place, (start, stamps) in enumerate(streams):
        yield call("latency_metrics", start, stamps, tuple=place % 2 == 1)
    question = "Does the line above the gap stand where it stood?"
    for none, begin, wrong in (
        ("no stamps", start, []),
        ("stamps that go back", start, [*stamps, stamps[0]]),
        ("stamps all at one moment", start, [stamps[0]] * 2),
        ("a stamp that is NaN", start, [*stamps, math.nan]),
        ("a stamp that is infinite", start, [*stamps, math.inf]),
        ("a start after the first token", stamps[0] + 0.001, stamps),
    ):
        refused = {"refuses": "ValueError", "question": question, "none": none}
        yield call("latency_metrics", begin, wrong, **refused)


def draw_streams(rng: np.random.Generator) -> Iterator[Case]:
    """List streams in seconds, each on a clock that has run an hour longer; the last, of one whose clock
    starts with it. The clocks have run for a day: what float32 leaves of them are wrong gaps, but never
    gaps of 0 alone, by which nobody could divide."""
    starts = [86_400.0 + 3600 * hour + int(rng.integers(9)) for hour in range(1, len(MS) + 1)]
    pairs = [*zip(starts, MS, strict=True), (0.0, MS[1])]
    yield from calls_of((start, [start + ms / 1e3 for ms in times]) for start, times in pairs)


def run_latency(latency_metrics: Callable[..., Any], case: Case) -> Any:
    start, stamps = case["arguments"]
    result = latency_metrics(start, tuple(stamps) if case.get("tuple") else list(stamps))
    return result if isinstance(result, Latency) else f"{in_words(result)}, no Latency"


def describe_stream(case: Case) -> str:
    """Write down the stamps of a stream, or why they are none."""
    start, stamps = case["arguments"]
    first = ", ".join(f"{(stamp - start) * 1e3:.1f}" for stamp in stamps[:9])
    tokens = f"{len(stamps)} token{'s' * (len(stamps) > 1)}"
    stream = f"{tokens}, {first}{' …' * (len(stamps) > 9)} ms after a start at {start:,.0f} s"
    return f"{case.get('none', stream)}: latency_metrics"


@check_calls(
    "latency_metrics",
    draw=draw_streams,
    run=run_latency,
    describe=describe_stream,
    tolerance=1e-8,
    praise="First token, gaps, percentiles and rate are right.",
)
def first_token_is_no_gap(case: Case, result: list[Any], expected: Latency, place: Place) -> Words:
    (i,), start = place, case["arguments"][0]
    name, value, right = Latency._fields[i], result[i], expected[i]
    if right is None:
        return f"gave {name} {value}, wanted is None.", (
            (name == "tokens_per_second", "How many tokens came after the first, in which time?"),
            (True, "Between which two tokens is that gap?"),
        )
    if value is None or isinstance(value, str):
        return f"gave {name} {value}, wanted is a number.", ((True, QUESTIONS[name]),)
    unit, factor = ("", 1) if name == "tokens_per_second" else (" ms", 1e3)
    thousand = any(math.isclose(value, times * right, rel_tol=1e-6) for times in (1e3, 1e-3))
    return f"gave {name} {value * factor:.6g}{unit}, wanted is {right * factor:.6g}{unit}.", (
        (
            abs(value - right) < 1e-3 and value == round(value, 5),
            "Did somebody ask for rounded numbers?",
        ),
        (
            _is_coarse(value, right, start),
            f"Which type keeps {start:,.0f} s and milliseconds in one number?",
        ),
        (
            thousand,
            "It is off by a factor of 1,000. In which unit are the stamps, and what comes back?",
        ),
        (True, QUESTIONS[name]),
    )


def _is_coarse(value: float, right: float, start: float) -> bool:
    """Tell whether a wrong gap is as near as float32 gets: off by less than two of its steps there, and
    a multiple of half a step."""
    step = float(np.spacing(np.float32(start)))
    return abs(value - right) < 2 * step and (2 * value / step).is_integer()
