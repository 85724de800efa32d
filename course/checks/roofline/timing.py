"""A timer is asked on fake devices, for which the right reading is known: no stopwatch decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import plain
from course.checks.roofline.fake_device import FakeDevice

READING = 1e-3
"""Of the right number of seconds: how far a reading may be off. The clock is exact; the mildest
mistake of the museum is off by more than a hundredth (tests/test_margins_of_timers.py)."""

BY_DEFAULT = (2, 5)
"""The warmup and repeats that the signature names."""

Median = Callable[[list[float]], float]


# --- the three kinds of trouble ------------------------------------------------------------------


def draw_even_work(seed: int) -> Challenge:
    """Draw devices on which every call queues the same work, and whose clock has run for months: what
    matters is when, and how precisely, it is read."""
    rng = np.random.default_rng(seed)
    drawn = []
    for warmup, repeats in ((0, 1), (1, 3), (2, 5)):
        work = float(rng.uniform(1, 3))
        drawn.append(
            {
                "warmup": warmup,
                "repeats": repeats,
                "works": [work],
                "queueing": work * float(rng.uniform(0.1, 0.3)),
                "queued_before": 0.0,
                "start": float(rng.uniform(1e7, 2e7)),
            }
        )
    return {"cases": drawn}


def draw_slow_start(seed: int) -> Challenge:
    """Draw a device that is busy already, and calls of which the first are slow; for the last one
    neither warmup nor repeats is given."""
    rng = np.random.default_rng(seed)
    drawn = []
    for warmup, repeats in ((0, 1), (1, 1), (3, 1), (4, 3), BY_DEFAULT):
        work = float(rng.uniform(1, 3))
        slow = (work * rng.uniform(10, 30, warmup)).tolist()
        drawn.append(
            {
                "warmup": warmup,
                "repeats": repeats,
                "works": [*slow, work],
                "queueing": work * float(rng.uniform(0.1, 0.3)),
                "queued_before": 0.0 if warmup else 12 * work,
                "start": 0.0,
            }
        )
    drawn[-1]["by_default"] = True
    return {"cases": drawn}


def draw_outlier(seed: int) -> Challenge:
    """Draw repeats that differ by a little, one of which was disturbed."""
    rng = np.random.default_rng(seed)
    drawn = []
    for repeats in (5, 7):
        base = float(rng.uniform(1, 3))
        works = base * (1 + 0.1 * np.arange(repeats))
        works[-1] *= 30
        wanted = works[repeats // 2]
        while wanted in (works[0], works[repeats // 2], works[-1]) or works[-1] == works.min():
            works = rng.permutation(works)
        drawn.append(
            {
                "warmup": 0,
                "repeats": repeats,
                "works": works.tolist(),
                "queueing": base * float(rng.uniform(0.02, 0.05)),
                "queued_before": 0.0,
                "start": 0.0,
            }
        )
    return {"cases": drawn}


# --- running a timer, and judging it -------------------------------------------------------------


def probe_timer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    readings = []
    for case in challenge["cases"]:
        device = FakeDevice(
            case["works"], case["queueing"], case["queued_before"], start=case["start"]
        )
        given = {} if case.get("by_default") else {n: case[n] for n in ("warmup", "repeats")}
        seconds = student.time_on_device(device.launch, device, **given)
        readings.append({"seconds": plain(seconds), "calls": device.calls})
    return {"readings": readings}


def measured_works(case: dict[str, Any]) -> list[float]:
    """List the seconds of work of each call that counts."""
    works, warmup = case["works"], case["warmup"]
    calls = range(warmup, warmup + case["repeats"])
    return [works[min(call, len(works) - 1)] for call in calls]


def wrong_reading(
    challenge: Challenge,
    evidence: Evidence,
    median: Median,
    tolerance: float,
    ask: Callable[[dict[str, Any], float, float], str],
) -> str | None:
    """Tell the first case in which a timer calls too often or reads another time; None for none."""
    for case, seen in zip(challenge["cases"], evidence["readings"], strict=True):
        warmup, repeats, got = case["warmup"], case["repeats"], seen["seconds"]
        asked = f"warmup={warmup}, repeats={repeats}"
        question = "How often before the clock, and how often beside it?"
        if case.get("by_default"):
            asked = f"neither warmup nor repeats given, so {asked}"
            question = "What does the signature say where nothing is given?"
        if isinstance(got, str):
            return f"{asked}: the timer gave {got}; wanted are seconds. What do you return?"
        if seen["calls"] != warmup + repeats:
            wanted = f"fn was called {seen['calls']} times; wanted is {warmup + repeats}"
            return f"{asked}: {wanted}. {question}"
        right = right_seconds(case, median)
        if not abs(got - right) <= tolerance * right:
            return (
                f"{asked}, on a pretended device: {describe(case)} Your timer says {got:.4g} s; "
                f"right is {right:.4g} s. {ask_about_the_clock(case, got) or ask(case, got, right)}"
            )
    return None


def right_seconds(case: dict[str, Any], median: Median) -> float:
    """Add up what a timer should read: queueing, and the work of the middle repeat."""
    return median(measured_works(case)) + case["queueing"]


def middle(seconds: list[float]) -> float:
    """Find the middle one of an odd number of times by taking the outermost pairs away."""
    left = list(seconds)
    while len(left) > 1:
        left.remove(max(left))
        left.remove(min(left))
    return left[0]


def describe(case: dict[str, Any]) -> str:
    """Tell what the device does, in seconds."""
    text = f"to queue a call takes {case['queueing']:.3g} s, and its work then takes "
    works, warmup = case["works"], case["warmup"]
    if len(works) == 1:
        text += f"{works[0]:.3g} s"
    elif warmup:
        text += f"{', '.join(f'{work:.3g}' for work in works[:warmup])} s the first times, "
        text += f"{works[-1]:.3g} s from then on"
    else:
        text += f"{', '.join(f'{work:.3g}' for work in works)} s, one after another"
    if case["queued_before"]:
        text += f". Somebody else queued {case['queued_before']:.3g} s of work before you came"
    if case["start"]:
        text += f". The clock shows {case['start']:,.0f} s at first"
    return f"{text}."


def ask_about_the_clock(case: dict[str, Any], got: float) -> str:
    """Ask how the clock is read at all; "" when that looks right."""
    if abs(got - case["queueing"]) < 0.01 * case["queueing"]:
        return "When fn returns, is its work done, or has it only been queued?"
    if got <= 0.5 * case["queueing"]:
        return "Whose clock did you read, and what happened between its two readings?"
    return ""


def ask_about_waiting(case: dict[str, Any], got: float, right: float) -> str:
    if abs(got - right) < 1e-7 * case["start"]:
        return (
            "In which type do you keep a reading of this clock, and what is left of its fractions?"
        )
    if got > right * 1.01 and case["repeats"] > 1 and got > 1.5 * right:
        return "Is this the time of one call, or of all of them?"
    if case["repeats"] > 1 and got < right:
        return (
            "Did the calls overlap: was one of them queued while another was still at work? When is "
            "the queue empty?"
        )
    return "What is waited for between the two readings of the clock?"


def ask_about_warming_up(case: dict[str, Any], got: float, right: float) -> str:
    if case["queued_before"]:
        return "Was the device idle when you first read the clock?"
    if got >= sum(case["works"][: case["warmup"]]):
        return "When is the work of the warm-up calls finished: before you first read the clock?"
    return "Which calls are measured, and which only run before?"


def ask_about_the_median(case: dict[str, Any], got: float, right: float) -> str:
    works = [work + case["queueing"] for work in measured_works(case)]
    if abs(got - sum(works) / len(works)) < 0.02 * right or got > 2 * right:
        return "One call was disturbed. Which number of all the repeats does it hardly move?"
    if got < min(works) * 1.01:
        return "That is the luckiest call. Which one stands in the middle?"
    return "Which one stands in the middle, when they stand in order?"


# --- the checks ----------------------------------------------------------------------------------


def judge_waiting(
    challenge: Challenge, evidence: Evidence, truth: Median, tolerance: float
) -> Verdict:
    if wrong := wrong_reading(challenge, evidence, truth, tolerance, ask_about_waiting):
        return failed(wrong)
    return passed("The clock stops when the work is done, for each call on its own.")


def judge_warming_up(
    challenge: Challenge, evidence: Evidence, truth: Median, tolerance: float
) -> Verdict:
    if wrong := wrong_reading(challenge, evidence, truth, tolerance, ask_about_warming_up):
        return failed(wrong)
    return passed("Whatever was queued before is finished when the clock starts.")


def judge_outlier(
    challenge: Challenge, evidence: Evidence, truth: Median, tolerance: float
) -> Verdict:
    if wrong := wrong_reading(challenge, evidence, truth, tolerance, ask_about_the_median):
        return failed(wrong)
    return passed("One disturbed repeat hardly moves the result.")


def form_of_readings(challenge: Challenge) -> Any:
    reading = {"seconds": (int, float, str), "calls": int}
    return {"readings": [reading] * len(challenge["cases"])}


def timer_check(
    name: str, draw: Callable[[int], Challenge], verdict: Callable[..., Verdict]
) -> Check:
    return Check(
        name,
        ("time_on_device",),
        draw,
        probe_timer,
        verdict,
        evidence=form_of_readings,
        truth=middle,
        tolerance=READING,
    )


clock_waits_for_the_work = timer_check("clock_waits_for_the_work", draw_even_work, judge_waiting)
warm_up_is_not_timed = timer_check("warm_up_is_not_timed", draw_slow_start, judge_warming_up)
one_slow_repeat_changes_nothing = timer_check(
    "one_slow_repeat_changes_nothing", draw_outlier, judge_outlier
)
