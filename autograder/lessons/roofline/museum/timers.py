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

# --- the end of a repeat -------------------------------------------------------------------------

bug = MUSEUM.section("time_on_device", check="clock_waits_for_the_work")


@bug("timing", "readings that are kept in too few digits for this clock")
def keeps_readings_in_float32(fn, device, warmup=2, repeats=5):
    """torch.tensor makes float32 of the readings: a clock that has run for months loses its
    digits."""
    clock = SimpleNamespace(now=lambda: torch.tensor(device.now()), synchronize=device.synchronize)
    return float(right.time_on_device(fn, clock, warmup, repeats))


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


KNOWN = {}


@bug("state", "seconds that are kept from an earlier timing of the same function", kind="results")
def remembers_a_function(fn, device, warmup=2, repeats=5):
    """A dict of results by function: the second time nothing is run."""
    if fn not in KNOWN:
        KNOWN[fn] = right.time_on_device(fn, device, warmup, repeats)
    return KNOWN[fn]
