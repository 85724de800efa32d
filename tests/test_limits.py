"""The limits of a machine: what is counted, on what, and what is refused. How fast this machine
happens to be is nobody's test."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course.measure import limits
from course.measure.datasheets import DATASHEETS
from course.measure.limits import Machine, limit_work, measure_machine


@pytest.fixture
def small(monkeypatch):
    """The same measurement on little work; what is measured is forgotten afterwards."""
    monkeypatch.setattr(limits, "CPU_BYTES", 2**16)
    monkeypatch.setattr(limits, "CPU_MATRIX", 32)
    limits._measure.cache_clear()
    yield
    limits._measure.cache_clear()


def test_balance_is_flops_while_one_byte_arrives():
    assert Machine("any", 200e9, 25e9).balance == 8.0


@pytest.mark.parametrize(
    ("name", "balance"), [("T4", 203), ("L4", 403), ("A100", 153), ("H100", 295), ("H200", 206)]
)
def test_the_datasheets_have_the_balances_that_are_known(name, balance):
    assert DATASHEETS[name].name == name
    assert round(DATASHEETS[name].balance) == balance


@pytest.mark.parametrize("rate", [0, -1.0, float("inf"), float("nan"), None, "fast", True])
def test_a_rate_that_is_none_is_refused_by_name(rate):
    with pytest.raises(ValueError, match="flops_per_second must be"):
        Machine("odd", rate, 1e9)
    with pytest.raises(ValueError, match="bytes_per_second must be"):
        Machine("odd", 1e9, rate)


def test_this_machine_is_measured_once_and_on_one_thread(small, monkeypatch):
    threads = []
    work = limits.limit_work

    def watched(device, dtype):
        threads.append(torch.get_num_threads())
        return work(device, dtype)

    monkeypatch.setattr(limits, "limit_work", watched)
    before = torch.get_num_threads()
    machine = measure_machine()
    assert measure_machine("cpu") is machine
    assert measure_machine(torch.device("cpu"), torch.float32) is machine
    assert threads == [1]
    assert torch.get_num_threads() == before
    assert "one thread, float32" in machine.name
    assert machine.flops_per_second > 0
    assert machine.bytes_per_second > 0


def test_each_dtype_is_measured_for_itself(small):
    assert measure_machine(dtype=torch.bfloat16).name.endswith("bfloat16")
    assert measure_machine().name.endswith("float32")


def test_what_is_read_is_far_larger_than_a_cache_touched_and_no_zeros():
    work = limit_work("cpu", torch.float32)
    read = work.move.__self__  # the bound method of the array
    assert work.bytes == read.nbytes >= 2**28
    assert read.count_nonzero() > 0.99 * read.numel()
    assert 0 < float(work.move()) <= 1


def test_the_product_has_the_flops_that_are_counted(small):
    work = limit_work("cpu", torch.float32)
    product = work.multiply()
    assert product.shape == (32, 32)
    assert product.count_nonzero() == product.numel()
    with FlopCounterMode(display=False) as counter:
        work.multiply()
    assert counter.get_total_flops() == work.flops


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, "float32", None])
def test_a_dtype_without_fractions_is_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be a floating-point dtype"):
        measure_machine(dtype=dtype)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device must be"):
        measure_machine("tpu")
