"""The two limits of a machine: how fast it computes, and how fast it moves bytes.

    here = measure_machine()            # this CPU, one thread
    here.flops_per_second, here.bytes_per_second, here.balance

A measured machine stays below its datasheet (`datasheets.py`), and a program below the measured machine.
Rates are FLOP/s and bytes/s; a multiply-add is two FLOPs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from course.measure.devices import check_device
from course.measure.machine import card, one_thread, seconds

ROUNDS = 5
CPU_BYTES = 2**28  # read at once: far more than a cache holds
GPU_BYTES = 2**30  # copied at once
CPU_MATRIX = 1536  # rows and columns: enough work to reach full speed, little enough to be quick
GPU_MATRIX = 8192


@dataclass(frozen=True)
class Machine:
    """The two limits of a machine.

    Attributes:
        name: the machine's name, for a legend.
        flops_per_second: the rate of a large matrix product.
        bytes_per_second: the rate to and from its memory.

    Raises:
        ValueError: a rate is not a finite number above 0.
    """

    name: str
    flops_per_second: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        for field in ("flops_per_second", "bytes_per_second"):
            value = getattr(self, field)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError(f"{field} must be a finite number above 0, got {value!r}")

    @property
    def balance(self) -> float:
        """The FLOPs that are done while one byte arrives: the ridge point, in FLOP/byte."""
        return self.flops_per_second / self.bytes_per_second


def measure_machine(
    device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Machine:
    """Measure the two limits of this machine, once; later calls get the same answer.

    On a CPU one thread reads 256 MiB, as decode reads weights, and multiplies two matrices. On CUDA
    1 GiB is copied, which counts twice: read and written. Every array is filled with random numbers
    first: memory that was never written may not be allocated yet, and zeros can be faster to process.
    The best of several rounds counts, since a limit is measured.

    Args:
        device: "cpu", "cuda" or "cuda:1".
        dtype: the matrices' dtype.

    Raises:
        ValueError: no such device here, or a dtype that is not a floating-point one.
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype of torch, got {dtype!r}")
    return _measure(str(check_device(device)), dtype)


@functools.cache
def _measure(name: str, dtype: torch.dtype) -> Machine:
    with one_thread():  # on a GPU this changes nothing
        work = limit_work(name, dtype)
        flops = work.flops / min(seconds(work.multiply, repeats=ROUNDS))
        moved = work.bytes / min(seconds(work.move, repeats=ROUNDS))
    processor = f"{card().cpu}, one thread" if name == "cpu" else torch.cuda.get_device_name(name)
    return Machine(f"{processor}, {str(dtype).removeprefix('torch.')}", flops, moved)


@dataclass(frozen=True)
class Work:
    """A call that only computes and a call that only moves bytes, and how much each does. Their work is
    done when they return, on a GPU as well."""

    multiply: Callable[[], object]
    flops: int
    move: Callable[[], object]
    bytes: int


def limit_work(device: str | torch.device, dtype: torch.dtype) -> Work:
    """Prepare the calls that `measure_machine` times; benchmarks time them interleaved with programs.

    Raises:
        ValueError: no such device here.
    """
    device = check_device(device)
    if device.type == "cpu":
        left, right = _numbers(CPU_MATRIX, device, dtype), _numbers(CPU_MATRIX, device, dtype)
        source = torch.rand(CPU_BYTES // 4)
        # amax reads each number once
        return Work(lambda: left @ right, 2 * CPU_MATRIX**3, source.amax, source.nbytes)
    left, right = _numbers(GPU_MATRIX, device, dtype), _numbers(GPU_MATRIX, device, dtype)
    source = torch.rand(GPU_BYTES // 4, device=device)
    target = torch.rand_like(source)

    def multiply() -> None:
        _ = left @ right
        torch.cuda.synchronize(device)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize(device)

    return Work(multiply, 2 * GPU_MATRIX**3, copy, source.nbytes + target.nbytes)


def _numbers(n: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(n, n, device=device).to(dtype)
