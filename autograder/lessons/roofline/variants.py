"""Right answers to lesson 05 in other styles: every check must pass them."""

from __future__ import annotations

import collections
import dataclasses
import fractions
import functools
import itertools
import math
import statistics
from types import SimpleNamespace

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.measure.costs import Cost
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.roofline import attainable, attention_flops
from course.minigpt.start import matmul_bytes, matmul_flops
from course.model import MiniGPT
from course.model.bounds import check_between


def check_sizes(n_new, n_past, batch, bytes_per_element):
    check_between("n_new", n_new, 1, 2**31)
    check_between("n_past", n_past, 0, 2**31)
    check_between("batch", batch, 1, 2**31)
    check_between("bytes_per_element", bytes_per_element, 1, 8)


def check_calls(warmup, repeats):
    check_between("warmup", warmup, 0, 2**31)
    check_between("repeats", repeats, 1, 2**31)


def attention_token_by_token(config, n_new, n_past, batch=1):
    looks = sum(n_past + own + 1 for own in range(n_new))
    flops_of_a_look = 2 * config.head_dim + 2 * config.head_dim
    return flops_of_a_look * config.n_heads * config.n_layers * batch * looks


def cost_in_one_formula(config, n_new, n_past, batch=1, bytes_per_element=2):
    """By the closed formula for all parameters."""
    check_sizes(n_new, n_past, batch, bytes_per_element)
    L, C, f, V = config.n_layers, config.d_model, config.d_ff, config.vocab_size
    GD = config.n_kv_heads * config.head_dim
    in_layers = L * (C * (C + 2 * GD) + C**2 + 3 * C * f)
    matrices = in_layers + V * C
    cached = kv_cache_bytes(config, n_past + n_new, batch, bytes_per_element)
    added = kv_cache_bytes(config, n_new, batch, bytes_per_element)
    linear = 2 * batch * n_new * (matrices - V * C) + 2 * batch * V * C
    rows = batch * n_new * L * (9 * C + 2 * GD + 3 * f) + batch * (C + V)
    return Cost(
        linear + attention_flops(config, n_new, n_past, batch),
        matrices * bytes_per_element,
        cached,
        added,
        rows * bytes_per_element,
    )


def attainable_by_branches(intensity, machine):
    if intensity >= machine.balance:
        return machine.flops_per_second
    return machine.bytes_per_second * intensity


def bound_by_time(cost, machine):
    moving = cost.bytes / machine.bytes_per_second
    return "compute" if cost.flops / machine.flops_per_second > moving else "memory"


def timer_that_waits_often(fn, device, warmup=2, repeats=5):
    check_calls(warmup, repeats)

    def waited():
        device.synchronize()
        return device.now()

    for _ in range(warmup):
        fn()
        device.synchronize()
    times = np.empty(repeats)
    for repeat in range(repeats):
        before = waited()
        fn()
        times[repeat] = waited() - before
    return float(np.median(times))


def cost_product_by_product(config, n_new, n_past, batch=1, bytes_per_element=2):
    """A list of all products, each as (rows, in, out), layer after layer."""
    check_sizes(n_new, n_past, batch, bytes_per_element)
    C, D = config.d_model, config.head_dim
    outs = {"q": config.n_heads * D, "k": config.n_kv_heads * D, "v": config.n_kv_heads * D}
    m = batch * n_new
    products = []
    for _ in range(config.n_layers):
        products += [(m, C, out) for out in outs.values()] + [(m, outs["q"], C)]
        products += [(m, C, config.d_ff)] * 2 + [(m, config.d_ff, C)]
    products.append((batch, C, config.vocab_size))
    flops = sum(2 * m * k * n for m, k, n in products)
    read = written = 0
    for _ in range(config.n_layers):
        for _ in ("keys", "values"):
            read += batch * config.n_kv_heads * (n_past + n_new) * D * bytes_per_element
            written += batch * config.n_kv_heads * n_new * D * bytes_per_element
    return Cost(
        flops=flops + attention_flops(config, n_new, n_past, batch),
        weight_bytes=sum(k * n for _, k, n in products) * bytes_per_element,
        kv_read_bytes=read,
        kv_written_bytes=written,
        activation_bytes=sum(m * (k + n) for m, k, n in products) * bytes_per_element,
    )


def attainable_by_time(intensity, machine):
    seconds_a_byte = max(1 / machine.bytes_per_second, intensity / machine.flops_per_second)
    return intensity / seconds_a_byte


def bound_by_the_roof(cost, machine):
    slope = cost.intensity * machine.bytes_per_second
    return "memory" if math.isclose(attainable(cost.intensity, machine), slope) else "compute"


def timer_that_waits_once_between(fn, device, warmup=2, repeats=5):
    """One wait ends a repeat and begins the next."""
    check_calls(warmup, repeats)
    for _ in range(warmup):
        fn()
    device.synchronize()
    stamps = [device.now()]
    for _ in range(repeats):
        fn()
        device.synchronize()
        stamps.append(device.now())
    times = sorted(later - earlier for earlier, later in itertools.pairwise(stamps))
    half = len(times) // 2
    return (times[half] + times[~half]) / 2


def attention_on_average(config, n_new, n_past, batch=1):
    average = n_past + (n_new + 1) / 2
    return 4.0 * batch * config.n_layers * config.d_model * n_new * average


def cost_with_attention_inside(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Calls nothing, and counts in floats."""
    check_sizes(n_new, n_past, batch, bytes_per_element)
    L, C, f, V = config.n_layers, config.d_model, config.d_ff, config.vocab_size
    kv = float(config.n_kv_heads * config.head_dim)
    weights = 2.0 * C * C + 2 * C * kv + 3.0 * C * f
    looks = n_new * n_past + n_new * (n_new + 1) / 2
    flops = 2.0 * batch * n_new * L * weights + 2.0 * batch * C * V + 4 * batch * L * C * looks
    token = 2 * L * kv * bytes_per_element
    rows_in = 6 * C + f
    rows_out = 3 * C + 2 * kv + 2 * f
    return Cost(
        flops,
        (L * weights + C * V) * bytes_per_element,
        token * batch * (n_past + n_new),
        token * batch * n_new,
        (batch * n_new * L * (rows_in + rows_out) + batch * (C + V)) * bytes_per_element,
    )


def attainable_as_a_share(intensity, machine):
    return machine.flops_per_second * min(1.0, intensity / machine.balance)


def bound_by_an_index(cost, machine):
    parts = cost.weight_bytes + cost.kv_read_bytes + cost.kv_written_bytes + cost.activation_bytes
    return ("memory", "compute")[bool(cost.flops / parts >= machine.balance)]


def timer_of_all_calls(fn, device, warmup=2, repeats=5):
    """Times the warm-up as well, and throws it away."""
    check_calls(warmup, repeats)
    device.synchronize()
    times = []
    for _ in range(warmup + repeats):
        start = device.now()
        fn()
        device.synchronize()
        times.append(device.now() - start)
    return statistics.median(times[warmup:])


def cost_as_a_record(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Any object with the five fields."""
    cost = cost_product_by_product(config, n_new, n_past, batch, bytes_per_element)
    return SimpleNamespace(**dataclasses.asdict(cost))


def attainable_in_numpy(intensity, machine):
    return np.minimum(machine.flops_per_second, np.float64(intensity) * machine.bytes_per_second)


def bound_in_numpy(cost, machine):
    times = [cost.bytes / machine.bytes_per_second, cost.flops / machine.flops_per_second]
    return np.array(["memory", "compute"])[np.argmax(times)]


def timer_in_torch(fn, device, warmup=2, repeats=5):
    """Keeps times, not readings, in float32."""
    check_calls(warmup, repeats)
    times = []
    for call in range(warmup + repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        if call >= warmup:
            times.append(device.now() - start)
    return torch.tensor(times).quantile(0.5).item()


def attention_by_a_mask(config, n_new, n_past, batch=1):
    mask = torch.ones(n_new, n_past + n_new, dtype=torch.bool).tril(diagonal=n_past)
    return int(mask.sum()) * 4 * config.d_model * config.n_layers * batch


def attention_as_an_array(config, n_new, n_past, batch=1):
    visible = np.arange(n_past + 1, n_past + n_new + 1)
    return 4 * batch * config.n_layers * config.d_model * visible.sum()


def pairs_halved(n_new, n_past):
    if n_new <= 1:
        return n_new * (n_past + 1)
    half = n_new // 2
    return pairs_halved(half, n_past) + pairs_halved(n_new - half, n_past + half)


known_pairs = functools.cache(pairs_halved)


def attention_by_halves(config, n_new, n_past, batch=1):
    """A recursion, whose results are kept by all that they depend on."""
    return 4 * batch * config.n_layers * config.d_model * known_pairs(n_new, n_past)


def cost_by_lesson_00(config, n_new, n_past, batch=1, bytes_per_element=2):
    """With lesson 00's two functions; weights are the bytes of a product without rows."""
    check_sizes(n_new, n_past, batch, bytes_per_element)
    C, f, m = config.d_model, config.d_ff, batch * n_new
    kv = config.n_kv_heads * config.head_dim
    layer = [(m, C, n) for n in (C, kv, kv, C, f, f)] + [(m, f, C)]
    shapes = [*layer * config.n_layers, (batch, C, config.vocab_size)]
    weights = sum(matmul_bytes(0, k, n, bytes_per_element) for _, k, n in shapes)
    token = 2 * config.n_layers * kv * bytes_per_element
    return Cost(
        sum(matmul_flops(*shape) for shape in shapes)
        + attention_flops(config, n_new, n_past, batch),
        weights,
        batch * (n_past + n_new) * token,
        m * token,
        sum(matmul_bytes(*shape, bytes_per_element) for shape in shapes) - weights,
    )


def cost_of_a_model_of_shapes(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Reads the sizes off a model that has shapes and no numbers."""
    check_sizes(n_new, n_past, batch, bytes_per_element)
    with torch.device("meta"):
        model = MiniGPT(config)
    products = []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            rows = batch if module is model.lm_head else batch * n_new
            products.append((rows, *module.weight.shape))
    kept = torch.empty(
        2, config.n_layers, batch, config.n_kv_heads, 1, config.head_dim, device="meta"
    )
    token = kept.numel() * bytes_per_element
    return Cost(
        2 * sum(map(math.prod, products)) + attention_flops(config, n_new, n_past, batch),
        sum(n * k for _, n, k in products) * bytes_per_element,
        (n_past + n_new) * token,
        n_new * token,
        sum(m * (n + k) for m, n, k in products) * bytes_per_element,
    )


class Stopwatch:
    """Reads a device's clock when its queue is empty."""

    __slots__ = ("device", "start", "times")

    def __init__(self, device, times):
        self.device, self.times = device, times

    def __enter__(self):
        self.device.synchronize()
        self.start = self.device.now()

    def __exit__(self, *_):
        self.device.synchronize()
        self.times.append(self.device.now() - self.start)


def timer_with_a_stopwatch(fn, device, warmup=2, repeats=5):
    """A context manager, and a deque that forgets the warm-up."""
    check_calls(warmup, repeats)
    times = collections.deque(maxlen=repeats)
    for _ in range(warmup + repeats):
        with Stopwatch(device, times):
            fn()
    return np.quantile(times, 0.5)


def timer_of_partials(fn, device, warmup=2, repeats=5):
    """No loop of its own, and fractions in place of floats."""
    check_calls(warmup, repeats)

    def once(wait, clock, work, _):
        wait()
        start = fractions.Fraction(clock())
        work()
        wait()
        return fractions.Fraction(clock()) - start

    time_one = functools.partial(once, device.synchronize, device.now, fn)
    collections.deque(map(time_one, range(warmup)))
    return statistics.median(map(time_one, range(repeats)))


def attainable_of_tensors(intensity, machine):
    rates = torch.tensor([machine.bytes_per_second, machine.flops_per_second], dtype=torch.float64)
    return (rates * torch.tensor([intensity, 1.0], dtype=torch.float64)).amin().item()


def bound_by_matching(cost, machine):
    match cost.intensity >= machine.balance:
        case True:
            return "compute"
    return "memory"


VARIANTS = [
    Variant(
        "one_formula",
        {
            "attention_flops": attention_token_by_token,
            "phase_cost": cost_in_one_formula,
            "attainable": attainable_by_branches,
            "bound_by": bound_by_time,
            "time_on_device": timer_that_waits_often,
        },
    ),
    Variant(
        "product_by_product",
        {
            "phase_cost": cost_product_by_product,
            "attainable": attainable_by_time,
            "bound_by": bound_by_the_roof,
            "time_on_device": timer_that_waits_once_between,
        },
    ),
    Variant(
        "floats",
        {
            "attention_flops": attention_on_average,
            "phase_cost": cost_with_attention_inside,
            "attainable": attainable_as_a_share,
            "bound_by": bound_by_an_index,
            "time_on_device": timer_of_all_calls,
        },
    ),
    Variant(
        "records_and_numpy",
        {
            "phase_cost": cost_as_a_record,
            "attainable": attainable_in_numpy,
            "bound_by": bound_in_numpy,
            "time_on_device": timer_in_torch,
        },
    ),
    Variant("attention_by_a_mask", {"attention_flops": attention_by_a_mask}),
    Variant("attention_as_an_array", {"attention_flops": attention_as_an_array}),
    Variant(
        "recursion_and_lesson_00",
        {
            "attention_flops": attention_by_halves,
            "phase_cost": cost_by_lesson_00,
            "attainable": attainable_of_tensors,
            "bound_by": bound_by_matching,
            "time_on_device": timer_with_a_stopwatch,
        },
    ),
    Variant(
        "model_of_shapes",
        {"phase_cost": cost_of_a_model_of_shapes, "time_on_device": timer_of_partials},
    ),
]
