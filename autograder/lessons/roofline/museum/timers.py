"""Wrong answers to `time_on_device`."""

from __future__ import annotations

import itertools
import statistics
import time
from types import SimpleNamespace

import torch

from autograder.lessons.roofline.museum import MUSEUM
from course.minigpt import roofline as right
from course.model.bounds import check_between

WARM_UP = "    for _ in range(warmup):\n        fn()\n"
WAIT = "device.synchronize()\n        "
START = "start = device.now()\n        "
STOP = "seconds.append(device.now() - start)\n"
MEDIAN = "statistics.median(seconds)"
BOUNDS = (
    '    check_between("warmup", warmup, 0, 2**31)\n'
    '    check_between("repeats", repeats, 1, 2**31)\n'
)

# --- the end of a repeat -------------------------------------------------------------------------

bug, patch = MUSEUM.section("time_on_device", check="clock_waits_for_the_work")

patch(
    "never_waits",
    "timing",
    "a clock that never waits for the work",
    "No synchronize around the repeats: microseconds for anything.",
    (WAIT + START, START),
    (WAIT + STOP, STOP),
)
patch(
    "waits_before_all_repeats",
    "timing",
    "a clock that waits for what was queued before, and not for the work",
    "One synchronize between the warm-up and the repeats, and none in the loop.",
    (WAIT + START, START),
    (WAIT + STOP, STOP),
    ("    seconds = []", "    device.synchronize()\n    seconds = []"),
)
patch(
    "waits_before_and_not_after",
    "timing",
    "a clock that waits before each call and not after it",
    "One synchronize a repeat, at its start.",
    (WAIT + STOP, STOP),
)


@bug("timing", "readings that are kept in too few digits for this clock")
def keeps_readings_in_float32(fn, device, warmup=2, repeats=5):
    """torch.tensor makes float32 of the readings: a clock that has run for months loses its
    digits."""
    clock = SimpleNamespace(now=lambda: torch.tensor(device.now()), synchronize=device.synchronize)
    return float(right.time_on_device(fn, clock, warmup, repeats))


patch(
    "stops_the_clock_first",
    "timing",
    "a clock that is stopped before the work is waited for",
    "Reads the clock, then synchronizes.",
    (WAIT + STOP, STOP + "        device.synchronize()\n"),
)


@bug("timing", "a clock that is read once for all repeats, whose calls overlap")
def waits_once_for_all(fn, device, warmup=2, repeats=5):
    """One synchronize after the loop, divided by the repeats: calls overlap, and an outlier
    counts."""
    return all_in_one(fn, device, warmup, repeats) / repeats


@bug("timing", "the time of all repeats, whose calls overlap, together")
def waits_once_and_does_not_divide(fn, device, warmup=2, repeats=5):
    """One synchronize after the loop, and no division."""
    return all_in_one(fn, device, warmup, repeats)


def all_in_one(fn, device, warmup, repeats):
    """Read the clock before all repeats, and after all of them."""
    start_of_repeats(fn, device, warmup, repeats)
    start = device.now()
    for _ in range(repeats):
        fn()
    device.synchronize()
    return device.now() - start


def start_of_repeats(fn, device, warmup, repeats):
    """Check the numbers, warm up and wait, as is right."""
    check_between("warmup", warmup, 0, 2**31)
    check_between("repeats", repeats, 1, 2**31)
    for _ in range(warmup):
        fn()
    device.synchronize()


@bug("timing", "the time of all repeats together")
def all_repeats_together(fn, device, warmup=2, repeats=5):
    """Forgets to divide: the time of all calls."""
    start_of_repeats(fn, device, warmup, repeats)
    start = device.now()
    for _ in range(repeats):
        fn()
        device.synchronize()
    return device.now() - start


@bug("timing", "a clock that is stopped before the work of the last repeat is waited for")
def last_repeat_is_not_waited_for(fn, device, warmup=2, repeats=5):
    """Reads the clock at each start and takes the next start for an end: the last end is read at once."""
    start_of_repeats(fn, device, warmup, repeats)
    stamps = []
    for _ in range(repeats):
        device.synchronize()
        stamps.append(device.now())
        fn()
    stamps.append(device.now())
    return statistics.median(end - start for start, end in itertools.pairwise(stamps))


@bug("timing", "a clock that is not the device's")
def another_clock(fn, device, warmup=2, repeats=5):
    """time.perf_counter, or time.process_time as here: the device has a clock of its own."""
    clock = SimpleNamespace(now=time.process_time, synchronize=device.synchronize)
    return right.time_on_device(fn, clock, warmup, repeats)


@bug("timing", "a timer that never reads the clock", kind="evidence")
def looks_inside_the_device(fn, device, warmup=2, repeats=5):
    """Takes from the device's own attributes what its clock would have shown."""

    def look():
        return max(n for n in vars(device).values() if isinstance(n, float))

    start_of_repeats(fn, device, warmup, repeats)
    seconds = []
    for _ in range(repeats):
        start = look()
        fn()
        device.synchronize()
        seconds.append(look() - start)
    return statistics.median(seconds)


patch(
    "one_start_for_all",
    "timing",
    "repeats that are all measured from one start",
    "Starts the clock before the loop: each repeat carries all before it.",
    (WAIT + START, ""),
    ("    seconds = []", "    device.synchronize()\n    start, seconds = device.now(), []"),
)
patch(
    "starts_after_the_call",
    "timing",
    "a clock that starts when fn has returned",
    "fn() before the first reading: what is timed is the wait.",
    (START + "fn()\n", "fn()\n        start = device.now()\n"),
)
patch(
    "two_calls_a_repeat",
    "timing",
    "a repeat of two calls",
    "fn() stands in the loop twice, once to see whether it works.",
    (START + "fn()\n", START + "fn()\n        fn()\n"),
)
patch(
    "all_the_seconds",
    "form",
    "a list of seconds where one number was asked for",
    "Leaves the median to the caller.",
    (MEDIAN, "seconds"),
)
patch(
    "milliseconds",
    "form",
    "milliseconds where seconds were asked for",
    "As a table shows them.",
    (MEDIAN, f"1000 * {MEDIAN}"),
)
patch(
    "seconds_below_zero",
    "form",
    "a difference of two readings the wrong way round",
    "Start less end.",
    ("device.now() - start", "start - device.now()"),
)
patch(
    "whole_seconds",
    "rounding",
    "whole seconds",
    "int(…): nothing is left of what a GPU does.",
    (MEDIAN, f"int({MEDIAN})"),
    kind="sizes",
)
patch(
    "rounded_seconds",
    "rounding",
    "seconds that are rounded to milliseconds",
    "Looks tidy.",
    (MEDIAN, f"round({MEDIAN}, 3)"),
    kind="sizes",
)
patch(
    "always_two_and_five",
    "arguments",
    "a timer that uses its own numbers of calls",
    "The defaults, written into the loops.",
    ("range(warmup)", "range(2)"),
    ("range(repeats)", "range(5)"),
    kind="sizes",
)
KNOWN = {}


@bug("state", "seconds that are kept from an earlier timing of the same function", kind="results")
def remembers_a_function(fn, device, warmup=2, repeats=5):
    """A dict of results by function: the second time nothing is run."""
    if fn not in KNOWN:
        KNOWN[fn] = right.time_on_device(fn, device, warmup, repeats)
    return KNOWN[fn]


patch(
    "collects_in_a_default",
    "state",
    "repeats that are kept from one timing to the next",
    "A list as a default is made once: the second timing takes the median of both.",
    ("repeats: int = 5", "repeats: int = 5, seconds: list = []"),
    ("    seconds = []\n", ""),
    kind="results",
)

# --- the start of the first repeat ---------------------------------------------------------------

bug, patch = MUSEUM.section("time_on_device", check="warm_up_is_not_timed")

patch(
    "starts_while_busy",
    "timing",
    "a clock that starts while earlier work is still queued",
    "No synchronize before the loop: the first repeat pays for the warm-up's queue.",
    (WAIT + START, START),
)
patch(
    "waits_before_the_warm_up",
    "timing",
    "a wait that comes before the warm-up and not after it",
    "Synchronizes first and warms up then.",
    (WARM_UP, "    device.synchronize()\n" + WARM_UP),
    (WAIT + START, START),
)
patch(
    "clock_before_the_wait",
    "timing",
    "a clock that runs while old work is waited for",
    "Reads the clock, then synchronizes, then calls.",
    (WAIT + START, START + WAIT),
)
patch(
    "warm_up_counts",
    "timing",
    "a result in which the warm-up calls count",
    "One loop over warmup + repeats: compiling is measured.",
    (WARM_UP, ""),
    ("range(repeats)", "range(warmup + repeats)"),
)
patch(
    "no_warm_up",
    "timing",
    "a timer that never warms up",
    "Ignores warmup, or takes the warm-up calls out of the repeats.",
    (WARM_UP, ""),
)
patch(
    "always_one_warm_up",
    "timing",
    "a timer that warms up once, whatever was asked",
    "Warms up once, whatever was asked.",
    (WARM_UP, "    fn()\n"),
)
patch(
    "one_warm_up_more",
    "timing",
    "a timer that warms up once more than asked",
    "range(warmup + 1): a call that nobody asked for.",
    ("range(warmup)", "range(warmup + 1)"),
)
patch(
    "one_warm_up_less",
    "timing",
    "a timer that warms up once less than asked",
    "range(1, warmup): counts from 1 and stops one early.",
    ("range(warmup)", "range(1, warmup)"),
)
patch(
    "warms_up_before_every_repeat",
    "timing",
    "a timer that warms up before each repeat anew",
    "One loop in the other.",
    (WARM_UP, ""),
    (WAIT + START, "[fn() for _ in range(warmup)]\n        " + WAIT + START),
)
patch(
    "ten_warm_ups_at_most",
    "capacity",
    "a timer that does not warm up as often as asked when that is often",
    "min(warmup, 10): nobody needs more.",
    ("range(warmup)", "range(min(warmup, 10))"),
    kind="sizes",
)
patch(
    "waits_only_after_a_warm_up",
    "timing",
    "a wait that is left out when there is no warm-up",
    "synchronize stands in the warm-up's loop: with warmup=0 it never runs.",
    (WARM_UP, WARM_UP + "        device.synchronize()\n"),
    (WAIT + START, START),
)
patch(
    "three_repeats_by_default",
    "arguments",
    "a timer that repeats less often than its signature promised",
    "The default of the signature was changed to save time.",
    ("repeats: int = 5", "repeats: int = 3"),
)
patch(
    "calls_are_not_bounded",
    "arguments",
    "a timer that does not check how often it is to call",
    "The whole function was written anew, without the given lines.",
    (BOUNDS, ""),
    kind="refusals",
)
patch(
    "calls_are_asserted",
    "arguments",
    "a timer that refuses with another error than the one that was promised",
    "assert is shorter than raise.",
    (BOUNDS, "    assert warmup >= 0\n    assert repeats >= 1\n"),
    kind="refusals",
)
patch(
    "refuses_after_the_warm_up",
    "arguments",
    "a timer that calls first and checks then",
    "The check stands where its number is needed: the warm-up is over by then.",
    (BOUNDS, ""),
    (WARM_UP, WARM_UP + BOUNDS),
    kind="refusals",
)

# --- which number --------------------------------------------------------------------------------

bug, patch = MUSEUM.section("time_on_device", check="one_slow_repeat_changes_nothing")

for name, mistake, story, instead in (
    (
        "takes_the_mean",
        "a mean in the place of a median",
        "One disturbed call drags the mean along.",
        "statistics.mean(seconds)",
    ),
    (
        "takes_the_sum",
        "the sum of all repeats",
        "Adds the repeats up, and does not divide.",
        "sum(seconds)",
    ),
    ("takes_the_best", "the shortest of all repeats", "The luckiest call.", "min(seconds)"),
    ("takes_the_worst", "the longest of all repeats", "The unluckiest call.", "max(seconds)"),
    (
        "takes_the_last",
        "the time of the last repeat alone",
        "Overwrites the time in each turn of the loop.",
        "seconds[-1]",
    ),
    (
        "takes_the_first",
        "the time of the first repeat alone",
        "Returns from inside of the loop, as it were.",
        "seconds[0]",
    ),
    (
        "middle_of_an_unsorted_list",
        "the middle of a list that nobody sorted",
        "Takes the middle of the list without sorting it.",
        "seconds[repeats // 2]",
    ),
    (
        "upper_of_two_in_the_middle",
        "the longer of the two repeats in the middle",
        "sorted(…)[n // 2]: of an even number there is one beside it.",
        "sorted(seconds)[repeats // 2]",
    ),
    (
        "lower_of_two_in_the_middle",
        "the shorter of the two repeats in the middle",
        "torch.median, or median_low: of an even number there is one beside it.",
        "statistics.median_low(seconds)",
    ),
    (
        "mean_without_both_ends",
        "a mean of all repeats but the shortest and the longest",
        "A trimmed mean: two disturbed calls, and it moves.",
        "statistics.mean(sorted(seconds)[1:-1] or seconds)",
    ),
    (
        "mean_without_the_longest",
        "a mean of all repeats but the longest",
        "Throws one outlier away; there may be two.",
        "statistics.mean(sorted(seconds)[:-1] or seconds)",
    ),
    (
        "first_repeat_is_a_warm_up",
        "a median that leaves the first repeat out",
        "Warms up once more, with a call that counts.",
        "statistics.median(seconds[1:] or seconds)",
    ),
):
    patch(name, "timing", mistake, story, (MEDIAN, instead))
patch(
    "median_of_the_readings",
    "timing",
    "the median of all ends less the median of all starts",
    "Collects readings, and subtracts at the end: that is the repeat in the middle of the loop.",
    (START, f"{START}starts.append(start)\n        "),
    ("    seconds = []", "    starts, seconds = [], []"),
    ("device.now() - start)", "device.now())"),
    (MEDIAN, f"{MEDIAN} - statistics.median(starts)"),
)
patch(
    "one_repeat_less",
    "off by one",
    "a timer that repeats once less than asked",
    "range(1, repeats): counts from 1 and stops one early.",
    ("range(repeats)", "range(1, repeats)"),
    (MEDIAN, f"{MEDIAN} if seconds else 0.0"),
)
patch(
    "one_repeat_more",
    "off by one",
    "a timer that repeats once more than asked",
    "range(repeats + 1): a call that nobody asked for.",
    ("range(repeats)", "range(repeats + 1)"),
)
