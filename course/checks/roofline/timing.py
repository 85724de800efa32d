"""A timer is asked on fake devices, and judged by what it did: no stopwatch decides.

What comes back is the seconds that the timer says, and the log of its device: the order in which it
queued calls, waited, and read the clock. The verdict plays the log once more on a device of the same
pace; so it knows what each reading showed, and what was still queued.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise, takewhile
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.recording import one_each
from course.checks.roofline import questions
from course.checks.roofline.fake_device import LAUNCH, READ, WAIT, FakeDevice, Pace
from course.checks.roofline.misread import Result, first_wrong, question_about

READING = 1e-5
"""Of the right number of seconds: how far a timer may be off. The clock is exact; the mildest
mistake of the museum is off by more than a thousandth (tests/test_margins_of_timers.py)."""

BY_DEFAULT = (2, 5)
"""The warmup and repeats that the signature names."""
Case = dict[str, Any]


# --- the three kinds of trouble ------------------------------------------------------------------


def lay_out(warmup: int, repeats: int, **pace: Any) -> Case:
    """Write down one case: what the timer is told, and how fast the device is."""
    return {"warmup": warmup, "repeats": repeats, "pace": pace}


def draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def draw_even_work(seed: int) -> Challenge:
    """Draw idle devices on which every call takes as long, seconds on some, millionths on one: what
    matters is when, and how precisely, the clock is read. One device is timed twice; the clock of two
    has run for months."""
    rng = np.random.default_rng(seed)
    drawn = [
        lay_out(0, repeats, seed=draw_seed(rng), start=float(rng.uniform(1e7, 2e7)))
        for repeats in (1, 3)
    ]
    drawn.append({**drawn[-1], "again": True})
    drawn.append(lay_out(0, 4, seed=draw_seed(rng), unit=float(rng.uniform(1e-5, 1e-4))))
    return {"cases": drawn}


def draw_slow_start(seed: int) -> Challenge:
    """Draw a device that is busy already, and calls of which the first are slow; for the last one
    neither warmup nor repeats is given."""
    rng = np.random.default_rng(seed)
    drawn = [lay_out(0, 1, seed=draw_seed(rng), queued_before=float(rng.uniform(12, 36)))]
    for warmup, repeats in ((1, 1), (3, 1), (int(rng.integers(21, 30)), 1), (4, 3), BY_DEFAULT):
        drawn.append(lay_out(warmup, repeats, seed=draw_seed(rng), slow=warmup))
    drawn[-1]["by_default"] = True
    return {"cases": drawn}


def draw_outlier(seed: int) -> Challenge:
    """Draw repeats that differ, one of which was disturbed: an odd number, an even one, and many."""
    rng = np.random.default_rng(seed)
    drawn = []
    for repeats in (5, 6, 7, int(rng.integers(21, 30))):
        while True:
            disturbed = int(rng.integers(1, repeats - 1))
            case = lay_out(0, repeats, seed=draw_seed(rng), even=False, disturbed=disturbed)
            if repeats > 10 or is_telling([sum(s) for s in seconds_of_calls(case)]):
                break
        drawn.append(case)
    return {"cases": drawn}


def seconds_of_calls(case: Case) -> list[tuple[float, float]]:
    """List the seconds of each call: to queue it, and to do its work."""
    pace = Pace(**case["pace"])
    return [pace.seconds(call) for call in range(case["warmup"] + case["repeats"])]


def is_telling(seconds: list[float]) -> bool:
    """Tell whether the median lies far from what is taken for it: the first repeat, the last, the one in
    the middle of the list, the two beside it, and means of some of them."""
    n, ordered = len(seconds), sorted(seconds)
    middle = statistics.median(seconds)
    others = [seconds[0], seconds[-1], seconds[n // 2], ordered[(n - 1) // 2 - 1]]
    others += [ordered[n // 2 + 1], statistics.fmean(ordered[1:-1]), statistics.fmean(ordered[:-1])]
    others += [statistics.median(seconds[1:])]
    if n % 2 == 0:
        others += [statistics.median_low(seconds), statistics.median_high(seconds)]
    return min(abs(other - middle) for other in others) > 0.01 * middle


# --- running a timer -----------------------------------------------------------------------------

REFUSED = ({"warmup": -1, "repeats": 1}, {"warmup": 1, "repeats": 0})
"""Numbers of which one is out of the bounds that the docstring names."""


def probe_timer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    readings = []
    for case in challenge["cases"]:
        if not case.get("again"):
            device = FakeDevice(Pace(**case["pace"]))
        device.log = ""
        given = {} if case.get("by_default") else {n: case[n] for n in ("warmup", "repeats")}
        seconds = student.time_on_device(device.launch, device, **given)
        readings.append({"seconds": plain(seconds), "log": device.log})
    return {"readings": readings}


def probe_warm_up(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Time as `probe_timer` does, and ask for numbers that cannot be."""
    refused = []
    for wrong in REFUSED:
        device = FakeDevice(Pace(seed=0))
        ending = outcome(lambda w=wrong, d=device: student.time_on_device(d.launch, d, **w))
        refused.append({"outcome": ending, "log": device.log})
    return {**probe_timer(student, challenge), "refused": refused}


form_of_readings = one_each(readings={"seconds": NUMBER_OR_WORDS, "log": str})


def form_of_warm_up(challenge: Challenge) -> Any:
    refused = [{"outcome": str, "log": str}] * len(REFUSED)
    return {**form_of_readings(challenge), "refused": refused}


# --- what a timer did ----------------------------------------------------------------------------


class Stop(NamedTuple):
    """One reading of the clock: what it showed, and whether the queue was empty."""

    seconds: float
    idle: bool


class Seen(NamedTuple):
    """What a timer said and did in one case.

    Attributes:
        case: what it was told.
        returned: the seconds that it returned.
        warmup: its calls before the first repeat.
        stops: its readings of the clock: before the first call, and after each.
        log: what it did, a letter each.
    """

    case: Case
    returned: float
    warmup: int
    stops: list[list[Stop]]
    log: str

    def before(self) -> list[Stop]:
        """Return the readings between the warm-up and the first repeat."""
        return self.stops[self.warmup]

    def after_repeats(self) -> list[list[Stop]]:
        """Return the readings behind each repeat."""
        return self.stops[self.warmup + 1 :]

    def repeats(self, end: int = -1) -> list[float]:
        """List the seconds from the last reading before each repeat to one behind it; none where a
        reading is missing.

        Args:
            end: which reading behind a repeat: 0 for the first one, -1 for the last one.
        """
        return self._between(self.stops[self.warmup :], end)

    def all_calls(self) -> list[float]:
        """List the seconds of each call, those of the warm-up included, as `repeats` does."""
        return self._between(self.stops, -1)

    def _between(self, around: list[list[Stop]], end: int) -> list[float]:
        if not all(around):
            return []
        return [after[end].seconds - before[-1].seconds for before, after in pairwise(around)]


def play(device: FakeDevice, log: str) -> list[list[Stop]]:
    """Do on a device what a log says; return what the clock showed between the calls."""
    stops: list[list[Stop]] = [[]]
    moves = {LAUNCH: device.launch, WAIT: device.synchronize}
    for did in log:
        if did in moves:
            moves[did]()
        if did == LAUNCH:
            stops.append([])
        if did == READ:
            stops[-1].append(Stop(device.now(), device.idle))
    return stops


def name_case(case: Case) -> str:
    """Say what a timer was told."""
    told = f"warmup={case['warmup']}, repeats={case['repeats']}"
    if case.get("by_default"):
        return f"neither warmup nor repeats given, so {told}"
    return f"{told}, the second time on the same device" if case.get("again") else told


def look(
    challenge: Challenge, evidence: Evidence, more: bool = False
) -> tuple[list[Seen], str | None]:
    """Play all logs; return what was seen, and what is wrong before it comes to the clock: no number, or
    another number of calls.

    Args:
        more: whether calls that nobody asked for may stand there: one check alone counts them, for one
            mistake shall cost the points of one check.
    """
    seen = []
    for case, reading in zip(challenge["cases"], evidence["readings"], strict=True):
        returned, log = reading["seconds"], reading["log"]
        if isinstance(returned, str):
            return seen, f"{name_case(case)}: the timer gave {returned}; wanted are seconds. Which?"
        if wrong := wrong_calls(case, log, more):
            return seen, wrong
        if not case.get("again"):
            device = FakeDevice(Pace(**case["pace"]))
        stops = play(device, log)
        seen.append(Seen(case, returned, calls_to_warm_up(case, stops), stops, log))
    return seen, None


def calls_to_warm_up(case: Case, stops: list[list[Stop]]) -> int:
    """Count the calls before the first repeat: those asked for, and of any that are too many those before
    which no clock was read."""
    asked, too_many = case["warmup"], len(stops) - 1 - case["warmup"] - case["repeats"]
    untimed = takewhile(lambda readings: not readings, stops[asked : asked + max(0, too_many)])
    return asked + len(list(untimed))


def wrong_calls(case: Case, log: str, more: bool) -> str | None:
    """Tell whether fn was called another number of times than asked for, or less often."""
    calls, expected = log.count(LAUNCH), case["warmup"] + case["repeats"]
    if len(log) > 4 * (calls + 1):
        return f"{name_case(case)}: what the device wrote down cannot have been. Who wrote it?"
    if calls == expected or (more and calls > expected):
        return None
    question = "How often before the clock, and how often beside it?"
    if case.get("by_default"):
        question = "What does the signature say where nothing is given?"
    if case.get("again"):
        question = "Was fn run anew, and as often as the first time?"
    return f"{name_case(case)}: fn was called {calls} times; wanted is {expected}. {question}"


def describe(seen: Seen) -> str:
    """Tell what a device does, in seconds."""
    pace, calls = Pace(**seen.case["pace"]), seconds_of_calls(seen.case)
    whole = [f"{queueing + work:.4g}" for queueing, work in calls]
    text = (
        f"{name_case(seen.case)}, on a pretended device: until their work is done, calls take "
        f"{', '.join(whole[:8])}{', …' * (len(whole) > 8)} s; the first one is queued in "
        f"{calls[0][0]:.3g} s"
    )
    if pace.queued_before:
        text += f". Somebody else queued {pace.queued_before:.3g} s of work before you came"
    if pace.start:
        text += f". The clock shows {pace.start:,.0f} s at first"
    return f"{text}. It says {seen.returned:.4g} s."


def steps(log: str) -> str:
    """Write the first steps of a log in words."""
    names = {LAUNCH: "fn", WAIT: "synchronize", READ: "now"}
    words = ", ".join(names[did] for did in log[:12] if did in names)
    return f"Your timer did: {words or 'nothing'}{', …' * (len(log) > 12)} (idle waits left out)."


def is_near(got: float, expected: float) -> bool:
    return abs(got - expected) <= READING * abs(expected)


WHOSE_CLOCK = "Whose clock did you read, and when?"
ALONE = "Was each repeat timed on its own, with a start and an end?"


# --- when the clock is read ----------------------------------------------------------------------


def wrong_end(seen: Seen) -> str:
    """Ask about the first repeat behind which no clock was read on an empty queue; "" for none."""
    if READ not in seen.log:
        return WHOSE_CLOCK
    if not seen.before():
        return "When does the first repeat begin? Nobody read the clock then."
    for number, stops in enumerate(seen.after_repeats(), start=1):
        which = f"repeat {number} of {seen.case['repeats']}"
        if not stops:
            return f"When did {which} end? Was each one timed on its own?"
        if not any(stop.idle for stop in stops):
            return f"When fn returns in {which}, is its work done, or has it only been queued?"
    return ""


def wrong_start(seen: Seen) -> str:
    """Ask what was in the queue when the first repeat began; "" where it was empty."""
    stops = seen.before()
    if READ not in seen.log:
        return WHOSE_CLOCK
    if not stops:
        return "When does the first repeat begin? Nobody read the clock then."
    if any(stop.idle for stop in stops):
        return ""
    between = seen.log.split(LAUNCH)[seen.warmup]
    if between.endswith(WAIT):
        return "The clock runs while you wait. What did it count before fn was called?"
    if seen.case["warmup"]:
        return "When is the work of the warm-up calls finished: before you first read the clock?"
    return "Was the device idle when you first read the clock?"


# --- which number is returned --------------------------------------------------------------------


def wrong_number(timers: list[Seen]) -> str | None:
    """Tell the first case in which a timer returns another number than the median of its own repeats,
    and ask for what all its numbers look like."""
    results = []
    for seen in timers:
        if not seen.repeats():
            question = ALONE if READ in seen.log else WHOSE_CLOCK
            return f"{describe(seen)} {steps(seen.log)} {question}"
        own = [statistics.median(seen.repeats(end)) for end in (0, -1)]
        right = own[0] if is_near(seen.returned, own[0]) else own[1]
        results.append(Result(describe(seen), seen.returned, right, taken_for_the_median(seen)))
    if (one := first_wrong(results, is_near)) is None:
        return None
    question = question_about(results, questions.NUMBER, is_near) or question_by_digits(timers)
    if any(is_near(one.got, other.right) for other in results[: results.index(one)]):
        question = "It was right the time before. What do you keep from one timing to the next?"
    return f"{one.case} {question or questions.NUMBER['']}"


def taken_for_the_median(seen: Seen) -> dict[str, float]:
    """List what a timer may return of its own readings in the place of their median, by name."""
    seconds = seen.repeats()
    ordered, middle, n = sorted(seconds), statistics.median(seconds), len(seconds)
    starts = [stops[-1].seconds for stops in seen.stops[seen.warmup : -1]]
    ends = [stops[-1].seconds for stops in seen.after_repeats()]
    return {
        "milliseconds": 1e3 * middle,
        "microseconds": 1e6 * middle,
        "negative": -middle,
        "sum": sum(seconds),
        "one start": statistics.median(ends) - starts[0],
        "medians of readings": statistics.median(ends) - statistics.median(starts),
        "all calls": statistics.median(seen.all_calls() or seconds),
        "mean": statistics.fmean(seconds),
        "mean without the longest": statistics.fmean(ordered[:-1] or seconds),
        "mean without both ends": statistics.fmean(ordered[1:-1] or seconds),
        "without the first": statistics.median(seconds[1:] or seconds),
        "shortest": ordered[0],
        "longest": ordered[-1],
        "lower": statistics.median_low(seconds),
        "upper": statistics.median_high(seconds),
        "first": seconds[0],
        "last": seconds[-1],
        "middle of the list": seconds[n // 2],
        "half of it": middle / 2,
        "nothing": 0.0,
    }


def question_by_digits(timers: list[Seen]) -> str:
    """Ask about whole or rounded seconds, or about readings of which a clock that has run for months
    leaves only whole steps; "" where none of it is seen."""
    if all(seen.returned == int(statistics.median(seen.repeats())) for seen in timers):
        return "Are whole seconds fine enough? Work may last millionths of one."
    late = [seen for seen in timers if seen.case["pace"].get("start")]
    if late and all(seen.returned % step_of_float32(seen) == 0 for seen in late):
        return "In which type do you keep a reading of this clock? What is left of its fractions?"
    for digits in range(7):
        if all(
            seen.returned == round(statistics.median(seen.repeats()), digits) for seen in timers
        ):
            return "Did somebody ask for rounded seconds? Work may last millionths of one."
    return ""


def step_of_float32(seen: Seen) -> float:
    """Return how far apart two numbers of 32 bits are that are as large as what the clock shows."""
    return float(np.spacing(np.float32(seen.case["pace"]["start"])))


# --- the checks ----------------------------------------------------------------------------------


@check("time_on_device", draw=draw_even_work, probe=probe_timer, evidence=form_of_readings)
def clock_waits_for_the_work(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether each repeat ends, and each but the first begins, on an empty queue."""
    timers, wrong = look(challenge, evidence, more=True)
    if wrong := wrong_order(timers, wrong_end) or wrong or wrong_number(timers):
        return failed(wrong)
    return passed("The clock stops when the work is done, for each call on its own.")


@check("time_on_device", draw=draw_slow_start, probe=probe_warm_up, evidence=form_of_warm_up)
def warm_up_is_not_timed(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge how often fn is called, and whether the first repeat begins on an empty queue; which number
    is made of several repeats is another check's."""
    timers, wrong = look(challenge, evidence)
    alone = [seen for seen in timers if seen.case["repeats"] == 1]
    if wrong := (
        wrong_order(timers, wrong_start)
        or wrong
        or wrong_number(alone)
        or wrong_refusal(evidence["refused"])
    ):
        return failed(wrong)
    return passed("Whatever was queued before is finished when the clock starts.")


def wrong_order(timers: list[Seen], ask: Callable[[Seen], str]) -> str | None:
    """Tell the first case in which the clock is read at a wrong moment."""
    for seen in timers:
        if question := ask(seen):
            return f"{describe(seen)} {steps(seen.log)} {question}"
    return None


def wrong_refusal(refused: list[dict[str, str]]) -> str | None:
    """Tell the first impossible number that was not refused, or not before anything was done."""
    for numbers, seen in zip(REFUSED, refused, strict=True):
        told = ", ".join(f"{name}={number}" for name, number in numbers.items())
        if seen["outcome"] != "ValueError":
            ending = "returned" if seen["outcome"] == "returned" else f"raised {seen['outcome']}"
            return (
                f"{told}: the timer {ending}; wanted is a ValueError. Which bounds does the docstring "
                f"name?"
            )
        if seen["log"]:
            return (
                f"{told}: refused, but only after something was done. {steps(seen['log'])} When can "
                f"you know that a number is out of bounds?"
            )
    return None


@check("time_on_device", draw=draw_outlier, probe=probe_timer, evidence=form_of_readings)
def one_slow_repeat_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge which number is made of the repeats, wherever they begin and end."""
    timers, wrong = look(challenge, evidence, more=True)
    if wrong := wrong or wrong_number(timers):
        return failed(wrong)
    return passed("One disturbed repeat hardly moves the result.")
