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
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import harness
import torch
import torch.nn.functional as F
from torch import Tensor

from course.fast.quantized import Quantized
from course.fast.storage import Window
from course.fast.tiled_read import make_scratch, tiled_attention
from course.fast.triton import triton_attention
from course.measure.devices import device_of
from course.measure.limits import Machine, measure_machine
from course.measure.machine import one_thread

BEYOND_CACHES = 2**28  # bytes of keys and values as numbers, over all layers
CONTEXT = {"cpu": 8192, "cuda": 262_144}  # with fewer tokens, no bar is held
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
    def layers(self) -> int:
        """So many layers that no cache of the processor holds them."""
        return -(-BEYOND_CACHES // self.layer_bytes)

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
    expected: Tensor | None = None  # of the first layer; None: others' caches, of unknown bytes

    def __call__(self) -> None:
        for _ in range(self.times):
            for step in self.steps:
                step()


def cpu_ways(shape: Shape, layers: int | None) -> dict[str, Way]:
    device, q = torch.device("cpu"), torch.randn(1, shape.H, 1, shape.D)
    small = {
        bits: [Cache(shape, bits, device) for _ in range(layers or shape.layers)] for bits in (8, 4)
    }
    large = [cache.numbers() for cache in small[8]]
    expected = {bits: reference(q, caches[0]) for bits, caches in small.items()}
    ways = {
        f"fp32, {name}": way_of(partial(attend, q), large, shape, expected[8])
        for name, attend in {**PLAIN, "repeat_interleave": repeated_attention}.items()
    }
    scratch = make_scratch(q, small[8][0].keys)
    for bits, unpacked in ((8, {}), (4, {"unpack": unpack})):
        steps = {
            "dequantize everything": lambda c: matmul_attention(q, *c.numbers()),
            "tiled": lambda c, more=unpacked: tiled_attention(
                q, c.keys, c.values, c.window, scratch=scratch, **more
            ),
        }
        size = small[bits][0].nbytes()
        for name, step in steps.items():
            each = [partial(step, cache) for cache in small[bits]]
            ways[f"int{bits}, {name}"] = Way(each, shape, size, expected=expected[bits])
    many = replace(shape, G=shape.H)
    size = (2, 1, many.G, many.context, many.D)
    full = [tuple(torch.randn(size)) for _ in range(layers or many.layers)]
    exact = matmul_attention(q.double(), *(part.double() for part in full[0])).float()
    ways[f"fp32, {many.G} KV heads"] = way_of(partial(matmul_attention, q), full, many, exact)
    return ways


def way_of(
    attend: Callable, rows: list[Window], shape: Shape, expected: Tensor, times: int = 1
) -> Way:
    """Attend to keys and values that are numbers, those of each layer in `rows`."""
    return Way([partial(attend, *kv) for kv in rows], shape, shape.layer_bytes, times, expected)


def cuda_ways(shape: Shape, layers: int | None, device: torch.device) -> dict[str, Way]:
    q = torch.randn(1, shape.H, 1, shape.D, device=device).to(shape.dtype)
    ways: dict[str, Way] = {}
    for bits in (8, 4):
        caches = [Cache(shape, bits, device) for _ in range(layers or shape.layers)]
        if bits == 8:
            large = [cache.numbers() for cache in caches]
            exact = matmul_attention(q.float(), *(part.float() for part in large[0]))
            for name, attend in PLAIN.items():
                ways[f"bf16, {name}"] = way_of(partial(attend, q), large, shape, exact, 10)
        steps = [partial(triton_attention, q, c.keys, c.values, c.window) for c in caches]
        size, expected = caches[0].nbytes(), reference(q, caches[0])
        ways[f"int{bits}, Triton"] = Way(steps, shape, size, 10, expected)
    return ways


def reference(q: Tensor, cache: Cache) -> Tensor:
    """Compute what attention over a cache must give, in float64 on a CPU and float32 on a GPU."""
    exact = torch.float64 if q.device.type == "cpu" else torch.float32
    return matmul_attention(q.to(exact), *cache.numbers(exact)).float()


def transformers_ways(shape: Shape, layers: int) -> tuple[dict[str, Way], dict[str, str]]:
    """Try `transformers`' caches with the same attention: ways, and why some of them are missing."""
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
        steps = [partial(step, layer) for layer in range(layers)]
        ways[f"transformers {name}"] = Way(steps, shape, 0)
    return ways, missing


# --- measuring and results -------------------------------------------------------------------------


def check_ways(ways: dict[str, Way]) -> dict[str, float]:
    """Measure the largest difference of each way to what it must give, in its first layer.

    Raises:
        AssertionError: it is too large.
    """
    differences = {}
    for name, way in ways.items():
        if way.expected is not None:
            differences[name] = (way.steps[0]().float() - way.expected).abs().max().item()
            if not differences[name] <= TOLERANCES[way.shape.dtype]:
                raise AssertionError(f"{name} is off by {differences[name]:.2g}: not worth a clock")
    return differences


def row_of(way: Way, samples: harness.Samples, machine: Machine) -> dict[str, float]:
    """Put the seconds of a step beside what the machine's two limits allow. A cache that is dequantized
    as a whole is counted as if it were not."""
    row = harness.row_of(samples, way.times * len(way.steps)) | {"layers": len(way.steps)}
    if way.expected is None:
        return row
    by_bytes = way.bytes / machine.bytes_per_second
    seconds = max(by_bytes, way.shape.flops / machine.flops_per_second)
    return row | {"bytes": way.bytes, "at_best_seconds": seconds}


def bars_of(rows: dict[str, dict[str, Any]], heads: int) -> list[dict[str, Any]]:
    """Hold ratios of shortest times against bars, with those of median times beside them. Of several
    ways to attend without codes the fastest counts."""
    if "int8, Triton" in rows:
        plain = [f"bf16, {name}" for name in PLAIN]
        return [ratio("bf16 beside int8 in Triton", rows, plain, ["int8, Triton"], minimum=1.5)]
    plain, tiled = [f"fp32, {name}" for name in PLAIN], ["int8, tiled"]
    everything, many = ["int8, dequantize everything"], [f"fp32, {heads} KV heads"]
    few, repeated = ["fp32, matmul"], ["fp32, repeat_interleave"]
    return [
        ratio("int8 tiled beside fp32", rows, tiled, plain, maximum=1.15),
        ratio("int8 dequantize everything beside tiled", rows, everything, tiled, minimum=1.3),
        ratio(f"{heads} KV heads beside fewer", rows, many, few, minimum=1.2),
        ratio("repeat_interleave beside grouped", rows, repeated, few, minimum=2.0),
    ]


def ratio(
    what: str, rows: dict[str, dict[str, Any]], over: list[str], under: list[str], **limit: float
) -> dict[str, Any]:
    """Hold the fastest of some ways over the fastest of others against a bar."""
    value, by_median = (
        min(rows[name][kind] for name in over) / min(rows[name][kind] for name in under)
        for kind in ("seconds", "median_seconds")
    )
    return harness.bar(what, value, **limit) | {"by_median": by_median}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__, 7, "a short context, few layers and rounds")
    parser.add_argument("--device", type=harness.device_named, default="cpu", help=harness.DEVICES)
    contexts = f"left out, {CONTEXT['cpu']} on a CPU, {CONTEXT['cuda']} on a GPU"
    parser.add_argument("--context", type=harness.at_least(128), metavar="TOKENS", help=contexts)
    parser.add_argument(
        "--layers", type=harness.at_least(1), help="left out, more than a processor's cache holds"
    )
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        parsed.context, parsed.layers, parsed.rounds = 1024, 4, 2
    parsed.context = parsed.context or CONTEXT[parsed.device.type]
    return parsed


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    parsed = parse(arguments)
    device, on_cpu = parsed.device, parsed.device.type == "cpu"
    shape = Shape(parsed.context)
    if not on_cpu:
        shape = replace(shape, H=32, G=8, dtype=torch.bfloat16)
    sizes = asdict(shape) | {"dtype": str(shape.dtype).removeprefix("torch.")}
    result = harness.begin("cache", arguments, device, shape=sizes, rounds=parsed.rounds)
    torch.manual_seed(0)
    theirs, missing = {}, {}
    with one_thread():  # on a GPU this changes nothing
        machine = measure_machine(device, shape.dtype)
        ways = cpu_ways(shape, parsed.layers) if on_cpu else cuda_ways(shape, parsed.layers, device)
        if on_cpu:
            theirs, missing = transformers_ways(shape, len(ways["fp32, matmul"].steps))
        harness.print_ceiling(machine)
        differences = check_ways(ways)
        ways |= theirs
        samples = harness.measure(ways, device_of(device), parsed.rounds)
    rows = {name: row_of(way, samples[name], machine) for name, way in ways.items()}
    head = "      at best          bytes"
    harness.print_rows("measured: one step in one layer", rows, head, limits_in)
    for name, why in missing.items():
        print(f"  {name:46} not measured: {why}")
    result |= {
        "machine": harness.limits_of(machine),
        "steps": rows,
        "differences": differences,
        "bars": bars_of(rows, shape.H) if parsed.context >= CONTEXT[device.type] else [],
        "not_measured": missing,
    }
    harness.tell(result, parsed.out)
    return 0


def limits_in(row: dict[str, Any]) -> str:
    """Write what the machine's limits allow, where the bytes of a step are known."""
    if "bytes" not in row:
        return ""
    return f"{row['at_best_seconds'] * 1e3:9.3f} ms {row['bytes']:14,}"


if __name__ == "__main__":
    sys.exit(main())
