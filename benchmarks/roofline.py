"""How near prefill and decode come to the limits of the machine, and whether the roofline predicts it.

    python benchmarks/roofline.py                                  this CPU, one thread
    python benchmarks/roofline.py --device cuda --size 1.3B 6.7B   a GPU, two models
    … --device cuda --record course/measure/runs                   and keep the run for readers

The limits are measured first and printed with what they predict; then all phases and the limits
themselves take turns, round after round, so that a noisy minute falls on all of them. The shortest
time of a phase is held against the best rate of the machine. The last line is JSON.

A phase is *predicted* to be bound by the lower of the two roofs above its intensity. What it *was*
bound by is the roof of which it reached at least 45 %; if it reached neither, something else held
it up. Between one row and many, on a CPU 2 to 16, matrix products run on kernels made for neither, and
within a factor of 2 of the ridge both roofs hold: such points are reported apart.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import harness
import torch
from harness import bar

from course.fast.decode import FastDecoder
from course.measure import recorded
from course.measure.costs import Cost
from course.measure.devices import device_of
from course.measure.limits import Machine, limit_work, measure_machine
from course.measure.machine import one_thread
from course.minigpt.roofline import attainable, bound_by, phase_cost
from course.model import MiniGPT
from course.published.sizes import SIZES, Size, build_random, check_bytes, choose_size

REACHED = 0.45  # of a roof, to say that it held a phase up
MIN_BYTES = 200e6  # of weights on a CPU: with fewer, a cache may hold a good part of them
CPU_BARS = (0.45, 0.65)  # decode of the bandwidth, prefill from 256 tokens on of the matmul rate
GPU_BARS = {"1.3B": (0.28, 0.25), "6.7B": (0.55, 0.60), "6.7B, compiled": (0.65, 0.60)}
"""The same on an H200, prefill from 1024 on."""
TIMES_TRANSFORMERS, SMALL_ENOUGH = 4.0, 1.5e9  # the bar of the ratio, up to this many parameters


@dataclass(frozen=True)
class Case:
    """One phase of one model: n_new tokens in each of `batch` rows, after n_past."""

    size: Size
    phase: str
    batch: int
    n_new: int
    n_past: int

    @property
    def cost(self) -> Cost:
        return phase_cost(
            self.size.config, self.n_new, self.n_past, self.batch, self.size.dtype.itemsize
        )

    @property
    def name(self) -> str:
        if self.phase == "prefill":
            return f"prefill, {self.n_new} tokens"
        rows = f"{self.batch} row{'s' if self.batch > 1 else ''}"
        return f"decode, {rows} after {self.n_past}"


def cases_of(size: Size, on_cpu: bool) -> list[Case]:
    """The phases that are measured."""
    few = (2, 4, 8, 16)
    lengths = (*few, 64, 256, 1024) if on_cpu else (64, 256, 1024, 2048)
    decodes = [(1, 256), (1, 1000), *((batch, 256) for batch in few)]
    if not on_cpu:
        decodes = [(1, 512), (1, 2000), (8, 512), (32, 512)]
    longest = size.config.max_seq_len
    return [
        *(Case(size, "decode", batch, 1, past) for batch, past in decodes if past < longest),
        *(Case(size, "prefill", 1, length, 0) for length in lengths if length <= longest),
    ]


# --- measuring -----------------------------------------------------------------------------------


def call_of(case: Case, decoder: FastDecoder, times: int) -> Callable[[], object]:
    """A call that goes through a phase `times` times, with a decoder whose weights are shared."""
    device = decoder.embed.device
    tokens = torch.randint(case.size.config.vocab_size, (case.batch, case.n_new), device=device)
    decoder = decoder.resized(case.batch, case.n_past + case.n_new)
    if case.phase == "prefill":
        return lambda: [decoder.prefill(tokens) for _ in range(times)]
    decoder.keys.normal_()  # any text will do; how long a step takes does not depend on it
    decoder.values.normal_()

    def decode() -> None:
        for _ in range(times):
            decoder.length = case.n_past
            decoder.step(tokens)

    return decode


def measure_size(
    size: Size, device: torch.device, rounds: int, compile: bool, ceiling: Machine
) -> tuple[Machine, list[dict[str, Any]], MiniGPT]:
    """The limits as the rounds had them, every phase as a point, and the model."""
    clock, on_cpu = device_of(device), device.type == "cpu"
    model = build_random(size, device)
    decoder = FastDecoder(model, batch=1, max_len=1, compile=compile)
    # Short phases run several times a round: on a GPU a launch and a wait take time, and
    # on a CPU the caches have first to recover from what was measured before.
    once = on_cpu and size.weight_bytes >= MIN_BYTES
    times = dict.fromkeys(cases_of(size, on_cpu), 1 if once else 10)
    calls = {case: call_of(case, decoder, n) for case, n in times.items()}
    work = limit_work(device, size.dtype)
    calls |= {"multiply": work.multiply, "move": work.move}
    samples = harness.measure(calls, clock, rounds)
    limits = replace(
        ceiling,
        flops_per_second=max(ceiling.flops_per_second, work.flops / min(samples["multiply"].wall)),
        bytes_per_second=max(ceiling.bytes_per_second, work.bytes / min(samples["move"].wall)),
    )
    if harness.disturbed(samples, clock):
        print(
            "\nSomething else ran on these cores all the time, so that the shares below are too low."
            "\nRun this again on a quiet machine."
        )
    points = [point_of(case, samples[case], n, limits, on_cpu) for case, n in times.items()]
    return limits, points, model


def point_of(
    case: Case, samples: harness.Samples, times: int, limits: Machine, on_cpu: bool
) -> dict[str, Any]:
    """Put a phase as it was measured beside what was predicted."""
    cost, row = case.cost, harness.row_of(samples, times)
    of_bandwidth = cost.bytes / row["seconds"] / limits.bytes_per_second
    of_matmul = cost.flops / row["seconds"] / limits.flops_per_second
    nearer = "memory" if of_bandwidth > of_matmul else "compute"
    few = on_cpu and 2 <= case.batch * case.n_new <= 16
    return {
        "size": case.size.name,
        "phase": case.phase,
        "batch": case.batch,
        "n_new": case.n_new,
        "n_past": case.n_past,
        "flops": cost.flops,
        "bytes": cost.bytes,
        **row,
        "predicted_seconds": cost.flops / attainable(cost.intensity, limits),
        "of_bandwidth": of_bandwidth,
        "of_matmul_rate": of_matmul,
        "predicted_bound": bound_by(cost, limits),
        "measured_bound": nearer if max(of_bandwidth, of_matmul) >= REACHED else "neither",
        "apart": few or 0.5 < cost.intensity / limits.balance < 2,
    }


def beside_transformers(
    size: Size, model: MiniGPT, device: torch.device, rounds: int, n_new: int = 64
) -> dict[str, Any]:
    """Compare tokens per second of fast decode and of `transformers`' generate with the same weights."""
    theirs = harness.as_transformers(size, model, device)
    prompt = torch.randint(size.config.vocab_size, (1, 64), device=device)
    decoder = FastDecoder(model, batch=1, max_len=64 + n_new)
    calls = {
        "fast": lambda: decoder.generate(prompt, n_new),
        "transformers": partial(harness.generate_theirs, theirs, "dynamic", prompt, n_new),
    }
    samples = harness.measure(calls, device_of(device), rounds)
    rates = {name: n_new / min(each.wall) for name, each in samples.items()}
    same = (calls["fast"]() == calls["transformers"]()).sum() - 64
    return {
        "size": size.name,
        "tokens_per_second": rates,
        "ratio": rates["fast"] / rates["transformers"],
        "equal_tokens": f"{same} of {n_new}",
    }


# --- results -------------------------------------------------------------------------------------


def bars_of(
    size: Size, points: list[dict[str, Any]], on_cpu: bool, compiled: bool = False
) -> list[dict[str, Any]]:
    """Hold a model of this size against its bars; a small one has none."""
    name = f"{size.name}, compiled" if compiled else size.name
    if (on_cpu and size.weight_bytes < MIN_BYTES) or (not on_cpu and name not in GPU_BARS):
        return []
    decode_bar, prefill_bar = CPU_BARS if on_cpu else GPU_BARS[name]
    n = 256 if on_cpu else 1024
    decodes = [p["of_bandwidth"] for p in points if p["phase"] == "decode" and p["batch"] == 1]
    prefills = [p["of_matmul_rate"] for p in points if p["n_new"] >= n]
    clear = [p for p in points if not p["apart"]]
    right = sum(p["predicted_bound"] == p["measured_bound"] for p in clear)
    bars = [
        bar(f"{name}: decode of one row, of the bandwidth", min(decodes), decode_bar),
        bar(
            f"{name}: prefill of {n} tokens and more, of the matmul rate",
            min(prefills),
            prefill_bar,
        ),
    ]
    if on_cpu:  # on a GPU launches hold up what is small, and no roof says so
        bars.append(
            bar(f"{name}: bounds predicted right, of those not apart", right / len(clear), 1.0)
        )
    return bars


def print_predictions(machine: Machine, cases: list[Case]) -> None:
    harness.print_ceiling(machine)
    print(f"  {'predicted':26} {'FLOP/byte':>10} {'at best':>12}   bound by")
    for case in cases:
        cost = case.cost
        seconds = cost.flops / attainable(cost.intensity, machine)
        bound = bound_by(cost, machine)
        print(f"  {case.name:26} {cost.intensity:10.2f} {seconds * 1e3:9.2f} ms   {bound}")


def print_points(cases: list[Case], points: list[dict[str, Any]]) -> None:
    head = ("measured", "shortest", "median", "bandwidth", "matmul", "predicted", "was")
    for apart, title in ((False, ""), (True, "Apart: few rows, or near the ridge")):
        print(f"\n{title}" if title else "")
        print("  {:26} {:>11} {:>11} {:>9} {:>8}   {:9} {}".format(*head))
        for case, point in zip(cases, points, strict=True):
            if point["apart"] == apart:
                print(
                    f"  {case.name:26} {point['seconds'] * 1e3:8.2f} ms "
                    f"{point['median_seconds'] * 1e3:8.2f} ms {point['of_bandwidth']:9.0%} "
                    f"{point['of_matmul_rate']:8.0%}   {point['predicted_bound']:9} "
                    f"{point['measured_bound']}"
                )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__, 7, 'the size "tiny", in two rounds')
    parser.add_argument("--device", type=harness.device_named, default="cpu", help=harness.DEVICES)
    names = f"of {', '.join(SIZES)}; left out, what suits the device"
    parser.add_argument("--size", nargs="+", choices=SIZES, metavar="SIZE", help=names)
    parser.add_argument("--compile", action="store_true", help="let torch.compile join operations")
    beside = "compare with transformers on a CPU as well; on a GPU up to 1.5 billion parameters are"
    parser.add_argument("--transformers", action="store_true", help=beside)
    parser.add_argument("--record", type=Path, metavar="DIR", help="keep the run for readers")
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        parsed.size, parsed.rounds = ["tiny"], 2
    try:
        names = parsed.size or [choose_size(parsed.device).name]
    except (ValueError, MemoryError) as error:
        parser.error(str(error))
    parsed.size = [SIZES[name] for name in names]
    if len({size.dtype for size in parsed.size}) > 1:
        parser.error("models of one run must have one dtype")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    parsed = parse(arguments)
    device, on_cpu = parsed.device, parsed.device.type == "cpu"
    dtype = parsed.size[0].dtype
    name = str(dtype).removeprefix("torch.")
    result = harness.begin("roofline", arguments, device, dtype=name)
    result |= {"points": [], "bars": [], "transformers": []}
    with one_thread():  # on a GPU this changes nothing
        limits = measure_machine(device, dtype)
        for size in parsed.size:
            cases = cases_of(size, on_cpu)
            print_predictions(limits, cases)
            print(check_bytes(f'The model "{size.name}"', room(size, cases), device), flush=True)
            limits, points, model = measure_size(
                size, device, parsed.rounds, parsed.compile, limits
            )
            print_points(cases, points)
            result["points"] += points
            result["bars"] += bars_of(size, points, on_cpu, parsed.compile)
            if parsed.transformers or (not on_cpu and size.parameters <= SMALL_ENOUGH):
                beside = beside_transformers(size, model, device, parsed.rounds)
                result["transformers"].append(beside)
                what = f"{size.name}: times the speed of transformers"
                result["bars"] += [] if on_cpu else [bar(what, beside["ratio"], TIMES_TRANSFORMERS)]
                print(f"\n  beside transformers: {beside}")
            del model
            gc.collect()  # make room for the next
    result["machine"] = harness.limits_of(limits)
    if parsed.record:
        print(f"recorded in {recorded.write(recording_of(result, limits), parsed.record)}")
    harness.tell(result, parsed.out)
    return 0


def room(size: Size, cases: list[Case]) -> int:
    """Count the bytes of one model and of the caches of all cases, which are in memory together."""
    weights = 2 * size.weight_bytes
    each = (size.bytes_needed(c.batch, c.n_past + c.n_new, c.n_new) - weights for c in cases)
    return weights + sum(each)


def recording_of(result: dict[str, Any], limits: Machine) -> recorded.Recording:
    """Choose what readers get of a run."""
    names = [field.name for field in fields(recorded.Point)]
    points = tuple(recorded.Point(*(point[name] for name in names)) for point in result["points"])
    about = {name: result[name] for name in ("device", "dtype", "date", "command", "versions")}
    return recorded.Recording(**about, machine=limits, points=points)


if __name__ == "__main__":
    sys.exit(main())
