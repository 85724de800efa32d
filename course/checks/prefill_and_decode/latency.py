"""Check the numbers of a stream: first token and gaps apart, percentiles between two gaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.measure.latency import Latency

FIELDS = Latency._fields
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
    (500,),
)
"""Stamps after the start, in milliseconds: whole ones and others, two tokens at one moment, a single
one."""


def draw_streams(seed: int) -> Challenge:
    """List streams (start, stamps) in seconds, each on a clock that has run an hour longer; the last,
    of one whose clock starts with it. The clocks have run for a day: what float32 leaves of them are
    wrong gaps, but never gaps of 0 alone, by which nobody could divide."""
    starts = [86_400.0 + 3600 * hour + seed for hour in range(1, len(MS) + 1)]
    streams = [
        (start, [start + ms / 1e3 for ms in times]) for start, times in zip(starts, MS, strict=True)
    ]
    return {"streams": [*streams, (0.0, [ms / 1e3 for ms in MS[1]])]}


def numbers(result: Any) -> list[Any]:
    """Turn a Latency into five plain numbers; describe anything else in words."""
    if not isinstance(result, tuple) or len(result) != len(FIELDS):
        return [f"a {type(result).__name__}"]
    return [None if value is None else plain(_scalar(value)) for value in result]


def _scalar(value: Any) -> Any:
    """A tensor of one number is a number."""
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value


NO_STREAMS = ("no stamps", "stamps that go back", "stamps all at one moment", "a stamp that is NaN")


def no_streams(stamps: list[float]) -> list[list[float]]:
    """List the stamps of NO_STREAMS, made of those of a stream."""
    return [[], [*stamps, stamps[0]], [stamps[0]] * 2, [*stamps, math.nan]]


def probe_latency(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Measure every stream, its stamps in a list or a tuple by turns; and offer some that are none."""
    found = [
        numbers(student.latency_metrics(start, (list, tuple)[place % 2](stamps)))
        for place, (start, stamps) in enumerate(challenge["streams"])
    ]
    start, stamps = challenge["streams"][2]
    refused = [
        outcome(lambda case=case: student.latency_metrics(start, case))
        for case in no_streams(list(stamps))
    ]
    return {"numbers": found, "refused": refused}


def latency_form(challenge: Challenge) -> Evidence:
    number = (*NUMBER_OR_WORDS, type(None))
    return {
        "numbers": [Each(number)] * len(challenge["streams"]),
        "refused": [str] * len(NO_STREAMS),
    }


@check("latency_metrics", draw=draw_streams, probe=probe_latency, evidence=latency_form)
def first_token_is_no_gap(
    challenge: Challenge, evidence: Evidence, truth: Callable[[float, list[float]], Latency]
) -> Verdict:
    for (start, stamps), got in zip(challenge["streams"], evidence["numbers"], strict=True):
        first = ", ".join(f"{(stamp - start) * 1e3:.1f}" for stamp in stamps[:9])
        more = " …" if len(stamps) > 9 else ""
        tokens = f"{len(stamps)} token{'s' * (len(stamps) > 1)}"
        case = f"{tokens}, {first}{more} ms after a start at {start:,.0f} s"
        if len(got) != len(FIELDS):
            return failed(f"{case}: wanted is a Latency, got {str(got).strip('[]')}.")
        for name, value, right in zip(FIELDS, got, truth(start, stamps), strict=True):
            problem = _wrong_number(f"{case}: {name}", name, value, right, start)
            if problem:
                return problem
    for what, came in zip(NO_STREAMS, evidence["refused"], strict=True):
        if came != "ValueError":
            return failed(
                f"{what}: {came}, wanted is ValueError, as the line above the gap has it."
            )
    return passed("First token, gaps, percentiles and rate are right.")


def _wrong_number(
    case: str, name: str, value: Any, right: float | None, start: float
) -> Verdict | None:
    if right is None:
        if value is None:
            return None
        return failed(f"{case} is {value}, wanted is None. Between which two tokens is that gap?")
    if value is None or isinstance(value, str):
        return failed(f"{case} is {value}, wanted is a number. {QUESTIONS[name]}")
    if abs(value - right) <= 1e-6 * right:
        return None
    unit, factor = ("", 1) if name == "tokens_per_second" else (" ms", 1e3)
    question = QUESTIONS[name]
    if any(abs(value - times * right) <= 1e-6 * times * right for times in (1e3, 1e-3)):
        question = (
            "It is off by a factor of 1,000. In which unit are the stamps, and what comes back?"
        )
    if _is_coarse(value, right, start):
        question = f"Which type keeps {start:,.0f} s and milliseconds in one number?"
    return failed(
        f"{case} is {value * factor:.6g}{unit}, wanted is {right * factor:.6g}{unit}. {question}"
    )


def _is_coarse(value: float, right: float, start: float) -> bool:
    """Tell whether a wrong gap is as near as float32 gets: off by less than two of its steps there, and
    a multiple of half a step."""
    step = float(np.spacing(np.float32(start)))
    return abs(value - right) < 2 * step and (2 * value / step).is_integer()
