"""Lesson 05: Why decode waits for memory.

Built from solutions/05-roofline/roofline.py by `make build`: change it there.
"""

import statistics
from collections.abc import Callable

from course.measure.costs import Cost
from course.measure.devices import Device
from course.measure.limits import Machine
from course.model.bounds import check_between
from course.model.config import GPTConfig


def attainable(intensity: float, machine: Machine) -> float:
    """The most FLOP/s that work of some intensity can get.

    Args:
        intensity: FLOP/byte of the work, above 0.
        machine: its `flops_per_second` and `bytes_per_second`.

    Returns:
        FLOP/s. Source: Williams, Waterman & Patterson 2009.
    """
    return min(machine.flops_per_second, intensity * machine.bytes_per_second)


def attention_flops(config: GPTConfig, n_new: int, n_past: int, batch: int = 1) -> int:
    """FLOPs of attention in one forward pass: scores, and weighted sums of values.

    Softmax is left out. A multiply-add is 2 FLOPs. A float that equals a whole number will do.

    Args:
        config: sizes of the model. Nothing is run: T + P may be above its max_seq_len.
        n_new, n_past: T new tokens and P cached ones, of each row.
        batch: B, rows.
    """
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return batch * config.n_layers * config.n_heads * pairs * 4 * config.head_dim


def phase_cost(
    config: GPTConfig, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> Cost:
    """What one forward pass of T new tokens after P cached ones costs, in each of B rows.

    Logits are computed for the last position of each row only.

    Args:
        config: its n_layers, d_model, n_kv_heads, head_dim, d_ff and vocab_size. Nothing is run: T + P
            may be above its max_seq_len.
        n_new, n_past: T, at least 1, and P.
        batch: B, rows.
        bytes_per_element: of weights, cache and activations alike.

    Raises:
        ValueError: a size out of these bounds.
    """
    check_between("n_new", n_new, 1, 2**31)
    check_between("n_past", n_past, 0, 2**31)
    check_between("batch", batch, 1, 2**31)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    C, f, V, L = config.d_model, config.d_ff, config.vocab_size, config.n_layers
    GD = config.n_kv_heads * config.head_dim  # the width of keys and of values
    layer = [(C, C), (C, GD), (C, GD), (C, C), (C, f), (C, f), (f, C)]
    weights = L * sum(k * n for k, n in layer)
    widths = L * sum(k + n for k, n in layer)
    rows = batch * n_new
    token_bytes = 2 * L * GD * bytes_per_element  # of one token: keys and values
    return Cost(
        flops=2 * (rows * weights + batch * C * V) + attention_flops(config, n_new, n_past, batch),
        weight_bytes=(weights + C * V) * bytes_per_element,
        kv_read_bytes=batch * (n_past + n_new) * token_bytes,
        kv_written_bytes=rows * token_bytes,
        activation_bytes=(rows * widths + batch * (C + V)) * bytes_per_element,
    )


def bound_by(cost: Cost, machine: Machine) -> str:
    """What a forward pass waits for on a machine: "memory" or "compute".

    Args:
        cost: its `flops`, its `bytes` and their ratio, `intensity`.
        machine: its two rates and their ratio, `balance`.
    """
    return "memory" if cost.intensity < machine.balance else "compute"


def time_on_device(
    fn: Callable[[], object], device: Device, warmup: int = 2, repeats: int = 5
) -> float:
    """Median seconds of one call of fn, from an empty queue until its work is done.

    Args:
        fn: called warmup + repeats times.
        device: `now()` is its clock, in seconds; `synchronize()` returns when its queue is empty.
        warmup: first calls, which do not count; 0 or more.
        repeats: calls that count, each timed on its own; 1 or more. Of an even number, the median is
            midway between the two in the middle. Not rounded: work may last millionths of a second.

    Raises:
        ValueError: a number out of these bounds; then fn was not called.
    """
    check_between("warmup", warmup, 0, 2**31)
    check_between("repeats", repeats, 1, 2**31)
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)
