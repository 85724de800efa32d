"""A clock for work that may be queued, on a CPU and on a GPU.

A call returns as soon as a GPU has queued its work, which is done later. Reading the clock then would
measure the queueing; `synchronize` waits until the queue is empty.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Device(Protocol):
    """A clock, and a way to wait for queued work."""

    def now(self) -> float:
        """Read the clock: seconds since some moment in the past."""
        ...

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        ...


class CpuDevice:
    """A CPU: a call has done its work when it returns, so there is nothing to wait for."""

    def now(self) -> float:
        return time.perf_counter()

    def synchronize(self) -> None:
        return None


class CudaDevice:
    """A GPU that torch reaches through CUDA.

    Args:
        name: "cuda", or one of several by number, such as "cuda:1".
    """

    def __init__(self, name: str = "cuda") -> None:
        self.name = name

    def now(self) -> float:
        return time.perf_counter()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.name)


def device_of(name: str | torch.device) -> Device:
    """Choose the clock for a device that torch knows: "cpu", "cuda", "cuda:1".

    Raises:
        ValueError: no such device here, or one that the course cannot time.
    """
    kind = check_device(name).type
    return CpuDevice() if kind == "cpu" else CudaDevice(str(name))


def check_device(name: str | torch.device) -> torch.device:
    """Return the device that torch knows by this name.

    Raises:
        ValueError: no such device here, or one that the course cannot time.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device must be "cpu" or "cuda", got {name!r}') from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f'device must be "cpu" or "cuda", got {name!r}')
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"no {name} here: torch sees {torch.cuda.device_count()} CUDA devices; "
            f'take "cpu", or switch on a GPU'
        )
    return device
