"""The device that the timer of lesson 05 is graded on: work is done while the caller goes on."""

import gc

import pytest

from course.checks.roofline.fake_device import FakeDevice, Pace
from course.measure.devices import Device

PACE = Pace(seed=3, start=100.0)
QUEUEING, WORK = PACE.seconds(0)


def test_it_has_what_a_device_has():
    device: Device = FakeDevice(Pace(seed=0))
    assert device.now() == 0.0
    assert device.synchronize() is None


def test_to_queue_work_takes_the_caller_a_moment_and_waiting_takes_the_rest():
    device = FakeDevice(PACE)
    device.launch()
    assert device.now() == pytest.approx(100 + QUEUEING)
    device.launch()
    assert device.now() == pytest.approx(100 + 2 * QUEUEING)
    device.synchronize()  # the second call was queued while the first one worked
    assert device.now() == pytest.approx(100 + QUEUEING + 2 * WORK)


def test_to_wait_twice_takes_no_longer():
    device = FakeDevice(PACE._replace(queued_before=2.0))
    assert not device.idle
    device.synchronize()
    device.synchronize()
    assert device.idle
    assert device.now() == 102.0


def test_even_calls_take_as_long_and_others_do_not():
    assert PACE.seconds(0) == PACE.seconds(7)
    uneven = PACE._replace(even=False)
    assert len({uneven.seconds(call) for call in range(20)}) == 20
    assert uneven.seconds(7) == uneven.seconds(7)


def test_slow_and_disturbed_calls_take_at_least_ten_times_as_long():
    pace = PACE._replace(slow=2, disturbed=5)
    many = [pace.seconds(call)[1] >= 10 * WORK for call in range(7)]
    assert many == [True, True, False, False, False, True, False]


def test_the_log_says_what_was_done_and_leaves_out_what_changed_nothing():
    device = FakeDevice(PACE)
    for do in "wttlltwwtt":
        {"w": device.synchronize, "t": device.now, "l": device.launch}[do]()
    assert device.log == "tlltwt"


def test_no_seconds_to_come_lie_in_a_device_before_they_pass():
    device = FakeDevice(PACE)
    reached, left = [], [device]
    while left:
        thing = left.pop()
        if isinstance(thing, float):
            reached.append(thing)
        if isinstance(thing, FakeDevice | Pace | dict | list | tuple):
            left += (
                gc.get_referents(thing)
                if isinstance(thing, FakeDevice)
                else list(thing.values() if isinstance(thing, dict) else thing)
            )
    assert set(reached) <= {1.0, 0.0, 100.0}
    assert not {QUEUEING, WORK, QUEUEING + WORK} & set(reached)
