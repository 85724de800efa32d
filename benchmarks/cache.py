"""What one decode step pays to read its cache: float32, quantized, with fewer heads.

    python benchmarks/cache.py                                 this CPU, one thread, 8,192 tokens
    python benchmarks/cache.py --context 32768                 a longer context
    python benchmarks/cache.py --quick                         a short one, in seconds
    python benchmarks/cache.py --device cuda                   Triton beside bfloat16, 262,144 tokens

A step here is the attention of one new token in one layer: everything that depends on the length of
the context, and nothing that does not. Weights would only make all ways look alike. Enough layers
take turns that no cache of the processor holds them, and all ways take turns, round after round, so
that a noisy minute falls on all of them. Caches hold random codes; the float32 one holds the numbers
that the int8 one stands for, so both must say the same, which is checked before anything is timed.

`transformers` caches run on the same numbers and with the same attention. The limits of the machine
come first, the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from harness import Samples, bar, heading, measure, print_bars, tell
from torch import Tensor

from course.fast.quantized import Quantized
from course.fast.storage import Window
from course.fast.tiled_read import make_scratch, tiled_attention
from course.fast.triton import triton_attention
from course.measure.devices import check_device, device_of
from course.measure.limits import Machine, measure_machine
from course.measure.machine import one_thread

BEYOND_CACHES = 2**28  # bytes of keys and values as numbers, over all layers
CPU_CONTEXT, GPU_CONTEXT = 8192, 262_144  # from these on, bars are held up
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # of numbers around 1


@dataclass(frozen=True)
class Shape:
    """One row that decodes: H query heads over G KV heads of width D."""

    context: int
    H: int = 16
    G: int = 4
    D: int = 128
    group: int = 64
    window: int = 32  # newest tokens that are never codes, at least
    dtype: torch.dtype = torch.float32

    @property
    def n_groups(self) -> int:
        return max(0, self.context - self.window) // self.group

    @property
    def layer_bytes(self) -> int:
        """Keys and values of one layer, as numbers."""
        return 2 * self.context * self.G * self.D * self.dtype.itemsize

    @property
    def flops(self) -> int:
        """Multiplications and additions of one step in one layer."""
        return 4 * self.context * self.H * self.D


class Cache:
    """One layer: codes of keys and of values, and the window behind them."""

    def __init__(self, shape: Shape, bits: int, device: torch.device) -> None:
        self.shape, self.bits = shape, bits
        G, D, n, group = shape.G, shape.D, shape.n_groups, shape.group
        self.keys, self.values = self._draw(device, 1, D), self._draw(device, group, 1)
        new = (1, G, shape.context - n * group, D)
        recent = torch.randn(2, *new, device=device).to(shape.dtype)
        self.window: Window = (recent[0], recent[1])

    def _draw(self, device: torch.device, *steps: int) -> Quantized:
        """Draw codes of numbers from about -2 to 2. Scales and zeros have 16 bits."""
        shape, top = self.shape, 2**self.bits - 1
        places = (1, shape.G, shape.n_groups)
        width = shape.D * self.bits // 8
        codes = torch.randint(256, (*places, shape.group, width), device=device, dtype=torch.uint8)
        scale = (3.5 + torch.rand(*places, *steps, device=device)) / top
        short = torch.float16 if shape.dtype == torch.float32 else shape.dtype
        zero = -top / 2 * scale
        return Quantized(codes, scale.to(short), zero.to(short), self.bits)

    def numbers(self, dtype: torch.dtype | None = None) -> Window:
        """All keys and values, (1, G, context, D) each: what a cache without a fast read does at
        every step."""
        dtype = dtype or self.shape.dtype
        rows = []
        for old, new in zip((self.keys, self.values), self.window, strict=True):
            codes = old.codes if self.bits == 8 else unpack(old.codes)
            numbers = old.zero.to(dtype) + old.scale.to(dtype) * codes
            rows.append(torch.cat([numbers.flatten(2, 3), new.to(dtype)], dim=2))
        return rows[0], rows[1]

    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self.keys[:3], *self.values[:3], *self.window))


def unpack(packed: Tensor) -> Tensor:
    """Spread out codes of 4 bits, the first of two in a byte's low bits. A byte moves into two of its
    own width, each of which keeps its half: three passes without a stride."""
    wide = packed.to(torch.int16)
    return wide.bitwise_or_(wide << 4).bitwise_and_(0x0F0F).view(torch.uint8)


# --- ways to attend: each is a step in one layer ---------------------------------------------------


def matmul_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q (1, H, 1, D) over k and v (1, G, S, D), grouped: to (1, H, 1, D). Keys times queries is the
    same product as queries times keys, but on a CPU it reads large keys twice as fast."""
    grouped = q.view(1, k.shape[1], -1, q.shape[-1]) / math.sqrt(q.shape[-1])  # (1, G, R, D)
    scores = (k @ grouped.transpose(-1, -2)).transpose(-1, -2)  # (1, G, R, S)
    return (scores.softmax(-1) @ v).view(q.shape)


def queries_first_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    grouped = q.view(1, k.shape[1], -1, q.shape[-1]) / math.sqrt(q.shape[-1])
    return ((grouped @ k.transpose(-1, -2)).softmax(-1) @ v).view(q.shape)


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    grouped = q.view(1, k.shape[1], -1, q.shape[-1])
    return F.scaled_dot_product_attention(grouped, k, v).view(q.shape)


PLAIN = {
    "matmul": matmul_attention,
    "matmul, queries first": queries_first_attention,
    "SDPA": sdpa_attention,
}


def repeated_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    times = q.shape[1] // k.shape[1]
    return matmul_attention(q, *(part.repeat_interleave(times, dim=1) for part in (k, v)))


@dataclass
class Way:
    """A step for each layer, and what a step has to read."""

    steps: list[Callable[[], Tensor]]
    shape: Shape
    bytes: int
    times: int = 1  # how often a round goes through all layers
    wanted: Tensor | None = None  # of the first layer; None: a cache of others, whose bytes differ

    def __call__(self) -> None:
        for _ in range(self.times):
            for step in self.steps:
                step()


def cpu_ways(shape: Shape, layers: int | None) -> dict[str, Way]:
    device = torch.device("cpu")
    q = torch.randn(1, shape.H, 1, shape.D)
    ways: dict[str, Way] = {}

    def number_of_layers(shape: Shape) -> int:
        return layers or -(-BEYOND_CACHES // shape.layer_bytes)

    def add(name: str, step: Callable, caches: list, wanted: Tensor, way_shape: Shape = shape):
        of_layers = [lambda cache=cache: step(cache) for cache in caches]
        size = caches[0].nbytes() if isinstance(caches[0], Cache) else way_shape.layer_bytes
        ways[name] = Way(of_layers, way_shape, size, wanted=wanted)

    small = {
        bits: [Cache(shape, bits, device) for _ in range(number_of_layers(shape))]
        for bits in (8, 4)
    }
    large = [cache.numbers() for cache in small[8]]
    wanted = {bits: reference(q, caches[0]) for bits, caches in small.items()}
    for name, attend in PLAIN.items():
        add(f"fp32, {name}", lambda kv, attend=attend: attend(q, *kv), large, wanted[8])
    add("fp32, repeat_interleave", lambda kv: repeated_attention(q, *kv), large, wanted[8])
    scratch = make_scratch(q, small[8][0].keys)
    for bits, caches in small.items():
        unpacked = {} if bits == 8 else {"unpack": unpack}

        def tiled(cache: Cache, unpacked: dict = unpacked) -> Tensor:
            return tiled_attention(
                q, cache.keys, cache.values, cache.window, scratch=scratch, **unpacked
            )

        everything = f"int{bits}, dequantize everything"
        add(everything, lambda c: matmul_attention(q, *c.numbers()), caches, wanted[bits])
        add(f"int{bits}, tiled", tiled, caches, wanted[bits])
    many = replace(shape, G=shape.H)
    full = [
        tuple(torch.randn(2, 1, many.G, many.context, many.D))
        for _ in range(number_of_layers(many))
    ]
    wanted_full = matmul_attention(q.double(), *(part.double() for part in full[0])).float()
    add(f"fp32, {many.G} KV heads", lambda kv: matmul_attention(q, *kv), full, wanted_full, many)
    return ways


def cuda_ways(shape: Shape, layers: int | None, device: torch.device) -> dict[str, Way]:
    q = torch.randn(1, shape.H, 1, shape.D, device=device).to(shape.dtype)
    n = layers or -(-BEYOND_CACHES // shape.layer_bytes)
    ways: dict[str, Way] = {}
    for bits in (8, 4):
        caches = [Cache(shape, bits, device) for _ in range(n)]
        wanted = reference(q, caches[0])
        if bits == 8:
            large = [cache.numbers() for cache in caches]
            for name, attend in PLAIN.items():
                steps = [lambda kv=kv, attend=attend: attend(q, *kv) for kv in large]
                exact = matmul_attention(q.float(), *(part.float() for part in large[0]))
                ways[f"bf16, {name}"] = Way(steps, shape, shape.layer_bytes, 10, exact)
        steps = [
            lambda cache=cache: triton_attention(q, cache.keys, cache.values, cache.window)
            for cache in caches
        ]
        ways[f"int{bits}, Triton"] = Way(steps, shape, caches[0].nbytes(), 10, wanted)
    return ways


def reference(q: Tensor, cache: Cache) -> Tensor:
    """What attention over a cache must give, in float64 on a CPU and float32 on a GPU."""
    exact = torch.float64 if q.device.type == "cpu" else torch.float32
    return matmul_attention(q.to(exact), *cache.numbers(exact)).float()


def transformers_ways(shape: Shape, layers: int) -> tuple[dict[str, Way], dict[str, str]]:
    """`transformers` caches with the same attention, and why some of them are not there."""
    try:
        from transformers import DynamicCache, LlamaConfig, QuantizedCache
    except ImportError as error:
        return {}, {"transformers": str(error)}
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=shape.H * shape.D,
        num_attention_heads=shape.H,
        num_key_value_heads=shape.G,
    )
    kinds: dict[str, Callable[[], Any]] = {
        "DynamicCache, fp32": lambda: DynamicCache(config=config),
        "QuantizedCache, quanto, int4": lambda: QuantizedCache("quanto", config, nbits=4),
        "QuantizedCache, hqq, int8": lambda: QuantizedCache(
            "hqq", config, nbits=8, axis_key=1, axis_value=1
        ),
        "QuantizedCache, fp8": lambda: QuantizedCache("fp8", config),
    }
    q = torch.randn(1, shape.H, 1, shape.D)
    new = torch.randn(2, 1, shape.G, 1, shape.D)
    ways, missing = {}, {}
    for name, make in kinds.items():
        try:
            cache = make()
            for layer in range(layers):
                cache.update(*torch.randn(2, 1, shape.G, shape.context - 1, shape.D), layer)

            def step(layer: int, cache: Any = cache) -> Tensor:
                return matmul_attention(q, *cache.update(*new, layer))

            step(0)
        except Exception as error:  # whatever a backend that is not made for this machine raises
            missing[name] = f"{type(error).__name__}: {error}".split("\n")[0]
            continue
        steps = [lambda layer=layer, step=step: step(layer) for layer in range(layers)]
        ways[f"transformers {name}"] = Way(steps, shape, 0)
    return ways, missing


# --- measuring and telling ------------------------------------------------------------------------


def check_ways(ways: dict[str, Way]) -> dict[str, float]:
    """Largest difference of each way to what it must give, in its first layer."""
    found = {}
    for name, way in ways.items():
        if way.wanted is not None:
            found[name] = (way.steps[0]().float() - way.wanted).abs().max().item()
            if not found[name] <= TOLERANCES[way.shape.dtype]:
                raise AssertionError(f"{name} is off by {found[name]:.2g}: not worth a clock")
    return found


def at_best(way: Way, machine: Machine) -> float:
    """Seconds that the machine needs at least for one step, by its two limits. A cache that is
    dequantized as a whole is counted as if it were not."""
    by_bytes = way.bytes / machine.bytes_per_second
    return max(by_bytes, way.shape.flops / machine.flops_per_second)


def row_of(way: Way, samples: Samples, machine: Machine) -> dict[str, float]:
    steps = way.times * len(way.steps)
    least = {"bytes": way.bytes, "at_best_seconds": at_best(way, machine)}
    return {
        "seconds": min(samples.wall) / steps,
        "median_seconds": statistics.median(samples.wall) / steps,
        "median_cpu_seconds": statistics.median(samples.cpu) / steps,
        "layers": len(way.steps),
        **({} if way.wanted is None else least),
    }


def bars_of(rows: dict[str, dict[str, Any]], heads: int) -> list[dict[str, Any]]:
    """What is promised, as ratios of shortest times, with those of median times beside them. Of
    several ways to attend without codes the fastest counts."""
    if "int8, Triton" in rows:
        plain = [f"bf16, {name}" for name in PLAIN]
        return [ratio("bf16 beside int8 in Triton", rows, plain, ["int8, Triton"], least=1.5)]
    plain, tiled = [f"fp32, {name}" for name in PLAIN], ["int8, tiled"]
    everything, many = ["int8, dequantize everything"], [f"fp32, {heads} KV heads"]
    few, repeated = ["fp32, matmul"], ["fp32, repeat_interleave"]
    return [
        ratio("int8 tiled beside fp32", rows, tiled, plain, most=1.15),
        ratio("int8 dequantize everything beside tiled", rows, everything, tiled, least=1.3),
        ratio(f"{heads} KV heads beside fewer", rows, many, few, least=1.2),
        ratio("repeat_interleave beside grouped", rows, repeated, few, least=2.0),
    ]


def ratio(
    what: str, rows: dict[str, dict[str, Any]], over: list[str], under: list[str], **wanted: float
) -> dict[str, Any]:
    """The fastest of some ways over the fastest of others, against a bar."""
    value, by_median = (
        min(rows[name][kind] for name in over) / min(rows[name][kind] for name in under)
        for kind in ("seconds", "median_seconds")
    )
    return bar(what, value, **wanted) | {"by_median": by_median}


def print_ceiling(machine: Machine, ways: dict[str, Way]) -> None:
    print(f"\nThe ceiling: {machine.name}")
    print(
        f"  {machine.flops_per_second / 1e12:.3g} TFLOP/s, {machine.bytes_per_second / 1e9:.4g} GB/s"
    )
    print(f"  {'one step in one layer':46} {'bytes':>14} {'at best':>12}")
    for name, way in ways.items():
        print(f"  {name:46} {way.bytes:14,} {at_best(way, machine) * 1e3:9.3f} ms")
    print(flush=True)


def print_rows(rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n  {'measured':46} {'shortest':>12} {'median':>12}")
    for name, row in rows.items():
        print(f"  {name:46} {row['seconds'] * 1e3:9.3f} ms {row['median_seconds'] * 1e3:9.3f} ms")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help='"cpu" (one thread), "cuda", "cuda:1"')
    parser.add_argument("--context", type=int, metavar="TOKENS",
                        help=f"left out, {CPU_CONTEXT} on a CPU, {GPU_CONTEXT} on a GPU")  # fmt: skip
    parser.add_argument("--layers", type=int, help="left out, more than a processor's cache holds")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way is measured")
    parser.add_argument(
        "--quick", action="store_true", help="a short context, few layers and rounds"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there as well")
    asked = parser.parse_args(arguments)
    try:
        asked.device = check_device(asked.device)
    except ValueError as error:
        parser.error(str(error))
    if asked.quick:
        asked.context, asked.layers, asked.rounds = 1024, 4, 2
    on_cpu = asked.device.type == "cpu"
    asked.context = asked.context or (CPU_CONTEXT if on_cpu else GPU_CONTEXT)
    least = {"context": 128, "rounds": 1, "layers": 1}
    for name, value in least.items():
        if getattr(asked, name) is not None and getattr(asked, name) < value:
            parser.error(f"--{name} must be at least {value}, got {getattr(asked, name)}")
    return asked


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    asked = parse(arguments)
    device, on_cpu = asked.device, asked.device.type == "cpu"
    shape = Shape(asked.context)
    if not on_cpu:
        shape = replace(shape, H=32, G=8, dtype=torch.bfloat16)
    sizes = asdict(shape) | {"dtype": str(shape.dtype).removeprefix("torch.")}
    result: dict[str, Any] = {
        **heading("cache", arguments, device),
        "shape": sizes,
        "rounds": asked.rounds,
    }
    print(json.dumps(result, indent=1))
    torch.manual_seed(0)
    with one_thread():  # on a GPU this changes nothing
        machine = measure_machine(device, shape.dtype)
        ways = cpu_ways(shape, asked.layers) if on_cpu else cuda_ways(shape, asked.layers, device)
        theirs, missing = {}, {}
        if on_cpu:
            theirs, missing = transformers_ways(shape, len(ways["fp32, matmul"].steps))
        print_ceiling(machine, ways)
        differences = check_ways(ways)
        ways |= theirs
        samples = measure(ways, device_of(device), asked.rounds)
    rows = {name: row_of(way, samples[name], machine) for name, way in ways.items()}
    print_rows(rows)
    for name, why in missing.items():
        print(f"  {name:46} not measured: {why}")
    held = asked.context >= (CPU_CONTEXT if on_cpu else GPU_CONTEXT)
    bars = bars_of(rows, shape.H) if held else []
    print("\nBars" if held else "\nNo bars: the context is too short to hold ratios against them")
    print_bars(bars)
    result |= {
        "machine": asdict(machine) | {"balance": machine.balance},
        "steps": rows,
        "differences": differences,
        "bars": bars,
        "not_measured": missing,
    }
    tell(result, asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
