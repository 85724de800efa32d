"""Do what every benchmark does: read arguments, let ways take turns, print tables, bars and JSON.

All ways of one run take turns, round after round, in one thread, so that a noisy minute falls on all of
them. The shortest time of each says what the machine can do, the median what it did.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from course.measure.devices import CpuDevice, Device, check_device
from course.measure.limits import Machine
from course.measure.machine import card
from course.model import MiniGPT
from course.published.sizes import Size

SAME_ON_GPU = 0.9
"""Of the tokens of two ways on a GPU: its kernels add up in another order for each shape, so that two
words which are almost equally likely may change places, and the rest of that row with them."""
WAITED = 1.1  # a call that took so many times its CPU seconds had to share its core


# --- arguments -----------------------------------------------------------------------------------


def parser_of(doc: str, rounds: int, quick: str) -> argparse.ArgumentParser:
    """Make a parser of what every benchmark takes; `quick` says what is left out then."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    repeated = "how often each way is measured"
    parser.add_argument("--rounds", type=at_least(1), default=rounds, help=repeated)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there as well")
    return parser


def at_least(minimum: int) -> Callable[[str], int]:
    """Make the type of an argument that is a whole number from `minimum` on."""

    def number(text: str) -> int:
        if int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, got {text}")
        return int(text)

    return number


def device_named(name: str) -> torch.device:
    """Choose a device that is present; the type of --device."""
    try:
        return check_device(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


DEVICES = '"cpu" (one thread), "cuda", "cuda:1"'


# --- measuring -----------------------------------------------------------------------------------


@dataclass
class Samples:
    """Seconds of each round: of the clock on the wall, and of this process on a CPU."""

    wall: list[float]
    cpu: list[float]


def measure(
    calls: dict[Any, Callable[[], object]], device: Device, rounds: int, warm: bool = False
) -> dict:
    """Let calls take turns, `rounds` times, after one turn that does not count unless they are warm:
    Samples by key.

    Where a call never had a core to itself, even its shortest time says how busy the machine was: then
    there are up to three times as many rounds.
    """
    samples = {key: Samples([], []) for key in calls}
    n = 0
    with tqdm(total=rounds, desc="rounds", file=sys.stdout, mininterval=1.0) as bar:
        for call in () if warm else calls.values():
            call()
        while n < rounds or (disturbed(samples, device) and n < 3 * rounds):
            for key, call in calls.items():
                device.synchronize()
                wall, cpu = device.now(), time.process_time()
                call()
                device.synchronize()
                samples[key].wall.append(device.now() - wall)
                samples[key].cpu.append(time.process_time() - cpu)
            n += 1  # a bar that is switched off counts nothing
            bar.total = max(rounds, n)
            bar.update()
    return samples


def row_of(samples: Samples, times: int = 1) -> dict[str, float]:
    """Compute seconds of one way, which went through its work `times` times a round."""
    return {
        "seconds": min(samples.wall) / times,
        "median_seconds": statistics.median(samples.wall) / times,
        "median_cpu_seconds": statistics.median(samples.cpu) / times,
    }


def disturbed(samples: dict[Any, Samples], device: Device) -> bool:
    """Say whether the clock ran on while something else had the core. On a GPU nothing tells."""
    return isinstance(device, CpuDevice) and any(
        min(each.wall) > WAITED * min(each.cpu) for each in samples.values()
    )


def check_equal(
    ways: dict[str, Callable],
    *arguments: Any,
    device: Device | None = None,
    but: tuple[str, ...] = (),
) -> None:
    """Check that all ways write one text, as tensors or lists; those named in `but` may write another.
    On a GPU a few tokens may differ, which is printed.

    Raises:
        AssertionError: another way differs from the first.
    """
    texts = {name: way(*arguments) for name, way in ways.items() if name not in but}
    first, *others = map(torch.as_tensor, texts.values())
    share = 1.0 if device is None or isinstance(device, CpuDevice) else SAME_ON_GPU
    for name, text in zip(list(texts)[1:], others, strict=True):
        same = (text == first).double().mean() if text.shape == first.shape else 0.0
        if same < share:
            raise AssertionError(f"{name} writes another text: not worth a clock")
        if same < 1.0:
            print(f"{name}: {same:.1%} of the tokens are those of {next(iter(texts))}")


# --- beside transformers ---------------------------------------------------------------------------


def as_transformers(size: Size, model: MiniGPT, device: torch.device) -> torch.nn.Module:
    """`transformers`' Llama with the weights of a mini-GPT."""
    import transformers  # an extra of this project, and only this comparison needs it

    from course.published.checkpoints import expected_tensors

    config = size.config
    with torch.device(device):
        theirs = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(
                vocab_size=config.vocab_size,
                num_hidden_layers=config.n_layers,
                hidden_size=config.d_model,
                num_attention_heads=config.n_heads,
                num_key_value_heads=config.n_kv_heads,
                intermediate_size=config.d_ff,
                max_position_embeddings=config.max_seq_len,
                rope_theta=config.rope_theta,
                rms_norm_eps=config.norm_eps,
                tie_word_embeddings=config.tie_embeddings,
                eos_token_id=None,
                bos_token_id=None,
            ),
            dtype=size.dtype,
        ).eval()
    ours = model.state_dict()
    state = {name: ours[mine] for name, (mine, _) in expected_tensors(config).items()}
    if config.tie_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    theirs.load_state_dict(state)
    return theirs


def generate_theirs(model: Any, cache: str, prompt: Tensor, n_new: int) -> Tensor:
    """As `transformers` documents it."""
    return model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=n_new,
        do_sample=False,
        cache_implementation=cache,
        disable_compile=True,
    )


# --- results -------------------------------------------------------------------------------------


def begin(name: str, arguments: list[str] | None, device: torch.device, **more: Any) -> dict:
    """Print what a result begins with: which benchmark, when, how and where; return it."""
    command = shlex.join(sys.argv[1:] if arguments is None else arguments)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    here, versions, processor = card(), {}, None
    if device.type == "cuda":
        versions, processor = {"CUDA": torch.version.cuda}, torch.cuda.get_device_name(device)
    result = {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "command": f"python benchmarks/{name}.py {command}".strip(),
        "device": processor or here.cpu,
        "cores": here.cores,
        "memory": here.memory,
        "load": load,
        "versions": {**here.versions, **versions},
        **more,
    }
    print(json.dumps(result, indent=1), flush=True)
    return result


def bar(what: str, value: float, minimum: float = 0.0, maximum: float = math.inf) -> dict[str, Any]:
    """Hold what was measured against a bar: a minimum or a maximum."""
    limit = f"at least {minimum:g}" if minimum else f"at most {maximum:g}"
    return {"what": what, "value": value, "bar": limit, "met": minimum <= value <= maximum}


def limits_of(machine: Machine) -> dict[str, Any]:
    """Return the limits of a machine as plain values, for JSON."""
    return asdict(machine) | {"balance": machine.balance}


def print_ceiling(machine: Machine) -> None:
    """Print what the machine allows."""
    print(
        f"\nThe ceiling: {machine.name}\n  {machine.flops_per_second / 1e12:.3g} TFLOP/s, "
        f"{machine.bytes_per_second / 1e9:.4g} GB/s, balance {machine.balance:.3g} FLOP/byte"
    )


def print_rows(
    title: str,
    rows: dict[str, dict[str, Any]],
    head: str = "",
    more: Callable[[dict[str, Any]], str] = lambda row: "",
) -> None:
    """Print seconds of each way, and `more` of its row under `head`."""
    print(f"\n{title}\n  {'':46} {'shortest':>12} {'median':>12} {head}")
    for name, row in rows.items():
        times = (f"{row[kind] * 1e3:9.3f} ms" for kind in ("seconds", "median_seconds"))
        print(f"  {name:46}", *times, more(row), flush=True)


def tell(result: dict[str, Any], out: Path | None) -> None:
    """Print the bars of a result, and the result as one line of JSON, the last one; write it to a file
    where one is named."""
    print("\nBars" if result["bars"] else "\nNo bars: none is set for what was measured")
    for each in result["bars"]:
        met = "met" if each["met"] else "MISSED"
        print(f"  {each['what']}: {each['value']:.2f}, {each['bar']}: {met}")
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
