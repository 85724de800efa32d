"""Devices as a timer sees them: a clock that runs, work that is waited for, names that are known."""

import time

import pytest
import torch

from course.measure import devices
from course.measure.devices import CpuDevice, CudaDevice, check_device, device_of


def test_the_clock_of_a_cpu_runs_in_seconds():
    device = CpuDevice()
    before, start = time.perf_counter(), device.now()
    while device.now() - start < 0.01:
        device.synchronize()
    assert time.perf_counter() - before >= 0.01


@pytest.mark.parametrize("name", ["cpu", torch.device("cpu")])
def test_a_cpu_is_found_by_name(name):
    assert isinstance(device_of(name), CpuDevice)
    assert check_device(name) == torch.device("cpu")


def test_a_gpu_is_found_by_name_and_waited_for_by_that_name(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    device = device_of("cuda:1")
    assert isinstance(device, CudaDevice)
    assert device.now() <= device.now()
    device.synchronize()
    assert waited == ["cuda:1"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tpu", 'must be "cpu" or "cuda", got \'tpu\''),
        ("meta", 'must be "cpu" or "cuda", got \'meta\''),
        ("", "must be"),
        (None, "must be"),
        (3.5, r"must be.*got 3\.5"),
    ],
)
def test_a_device_that_the_course_cannot_time_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        device_of(name)


@pytest.mark.parametrize(("there", "name"), [(0, "cuda"), (1, "cuda:1")])
def test_a_gpu_that_is_not_there_is_named_with_how_many_there_are(monkeypatch, there, name):
    monkeypatch.setattr(devices.torch.cuda, "device_count", lambda: there)
    with pytest.raises(ValueError, match=f"no {name} here: torch sees {there} CUDA devices"):
        device_of(name)
