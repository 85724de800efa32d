"""Check the numbers of a stream: first token and gaps apart, percentiles between two gaps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
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


# Worked out by hand, in ms: the stamps after the start, and the five numbers (the last a second).
BY_HAND = {
    2: ((250, 270), (250, 20, 20, 20, 50)),
    3: ((80, 90, 120), (80, 20, 20, 29.8, 50)),
    5: ((300, 310, 360, 380, 400), (300, 25, 20, 49.1, 40)),
    6: ((90, 100, 160, 180, 190, 215), (90, 25, 20, 58.6, 40)),
    1: ((500,), (500, None, None, None, None)),
}


def draw_streams(seed: int) -> Challenge:
    """List streams (start, stamps) in seconds, of a clock that has run for days; the last, of one whose
    clock starts with it."""
    start = 86_400.0 * (10 + seed)
    times = [stamps for stamps, _ in BY_HAND.values()]
    streams = [(start, [start + ms / 1e3 for ms in stamps]) for stamps in times]
    return {"streams": [*streams, (0.0, [ms / 1e3 for ms in times[1]])]}


def worked_by_hand(start: float, stamps: list[float]) -> Latency:
    """Look up the right numbers of a stream of `draw_streams`, which is known by its length."""
    *times, rate = BY_HAND[len(stamps)][1]
    return Latency(*(None if ms is None else ms / 1e3 for ms in times), rate)


def numbers(result: Any) -> list[Any]:
    """Turn a Latency into five plain numbers; describe anything else in words."""
    if not isinstance(result, tuple) or len(result) != len(FIELDS):
        return [f"a {type(result).__name__}"]
    return [None if value is None else plain(value) for value in result]


def probe_latency(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Measure every stream, and offer two that are none."""
    found = [
        numbers(student.latency_metrics(start, list(stamps)))
        for start, stamps in challenge["streams"]
    ]
    start, stamps = challenge["streams"][2]
    refused = [
        outcome(lambda case=case: student.latency_metrics(start, case))
        for case in ([], [*stamps, stamps[0]])
    ]
    return {"numbers": found, "refused": refused}


def latency_form(challenge: Challenge) -> Evidence:
    number = (*NUMBER_OR_WORDS, type(None))
    return {"numbers": [Each(number)] * len(challenge["streams"]), "refused": [str] * 2}


def judge_latency(
    challenge: Challenge, evidence: Evidence, truth: Callable[[float, list[float]], Latency]
) -> Verdict:
    for (start, stamps), got in zip(challenge["streams"], evidence["numbers"], strict=True):
        first = ", ".join(f"{(stamp - start) * 1e3:.1f}" for stamp in stamps[:9])
        more = " …" if len(stamps) > 9 else ""
        case = f"{len(stamps)} tokens, {first}{more} ms after a start at {start:,.0f} s"
        if len(got) != len(FIELDS):
            return failed(f"{case}: wanted is a Latency, got {str(got).strip('[]')}.")
        for name, value, right in zip(FIELDS, got, truth(start, stamps), strict=True):
            problem = _wrong_number(f"{case}: {name}", name, value, right)
            if problem:
                return problem
    kinds = ("no stamps", "stamps that go back")
    for what, came in zip(kinds, evidence["refused"], strict=True):
        if came != "ValueError":
            return failed(
                f"{what}: {came}, wanted is ValueError, as the line above the gap has it."
            )
    return passed("First token, gaps, percentiles and rate are right.")


def _wrong_number(case: str, name: str, value: Any, right: float | None) -> Verdict | None:
    if right is None:
        if value is None:
            return None
        return failed(f"{case} is {value}, wanted is None. Between which two tokens is that gap?")
    if value is None or isinstance(value, str):
        return failed(f"{case} is {value}, wanted is a number.")
    if not abs(value - right) <= 1e-6 * right:
        unit, factor = ("", 1) if name == "tokens_per_second" else (" ms", 1e3)
        return failed(
            f"{case} is {value * factor:.6g}{unit}, wanted is {right * factor:.6g}{unit}. "
            f"{QUESTIONS[name]}"
        )
    return None


first_token_is_no_gap = Check(
    "first_token_is_no_gap",
    ("latency_metrics",),
    draw_streams,
    probe_latency,
    judge_latency,
    evidence=latency_form,
    truth=worked_by_hand,
)
