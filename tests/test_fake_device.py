"""The device that the timer of lesson 05 is graded on: work is done while the caller goes on."""

import pytest

from course.checks.roofline.fake_device import FakeDevice
from course.measure.devices import Device


def test_it_has_what_a_device_has():
    device: Device = FakeDevice([1.0], queueing=0.5)
    assert device.now() == 0.0
    assert device.synchronize() is None


def test_to_queue_work_takes_the_caller_a_moment_and_waiting_takes_the_rest():
    device = FakeDevice([3.0, 5.0], queueing=0.5, start=100.0)
    device.launch()
    assert device.now() == 100.5
    device.launch()
    assert device.now() == 101.0
    device.synchronize()
    assert device.now() == 100.5 + 3.0 + 5.0  # the second call was queued while the first worked


def test_work_starts_when_it_is_queued_and_not_when_it_is_waited_for():
    """Queueing that takes longer than the work hides it."""
    device = FakeDevice([0.25], queueing=1.0)
    for _ in range(3):
        device.launch()
    device.synchronize()
    assert device.now() == pytest.approx(3.25)


def test_to_wait_twice_takes_no_longer():
    device = FakeDevice([3.0], queueing=0.5, queued_before=2.0)
    device.synchronize()
    device.synchronize()
    assert device.now() == 2.0


def test_calls_are_counted_and_the_last_work_goes_on_for_ever():
    device = FakeDevice([9.0, 1.0], queueing=0.0)
    for _ in range(4):
        device.launch()
    device.synchronize()
    assert (device.calls, device.now()) == (4, 12.0)
