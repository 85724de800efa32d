"""What every benchmark does: take turns, describe the machine, hold ratios against bars, tell it in JSON.

All ways of one run take turns, round after round, in one thread, so that a noisy minute falls on all of
them. The shortest time of each tells what the machine can do, the median what it did.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from course.measure.devices import CpuDevice, Device
from course.measure.machine import card
from course.model import MiniGPT
from course.published.sizes import Size

WAITED = 1.1  # times its CPU seconds, and a call did not have its core to itself


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

    Where a call never had its core to itself, there are up to twice as many rounds more: then even
    its shortest time tells how busy the machine was.
    """
    samples = {key: Samples([], []) for key in calls}
    with tqdm(total=rounds, desc="rounds", file=sys.stdout, mininterval=1.0) as bar:
        for call in () if warm else calls.values():
            call()
        while bar.n < rounds or (disturbed(samples, device) and bar.n < 3 * rounds):
            for key, call in calls.items():
                device.synchronize()
                wall, cpu = device.now(), time.process_time()
                call()
                device.synchronize()
                samples[key].wall.append(device.now() - wall)
                samples[key].cpu.append(time.process_time() - cpu)
            bar.total = max(bar.total, bar.n + 1)
            bar.update()
    return samples


def row_of(samples: Samples) -> dict[str, float]:
    """What is told of the rounds of one way."""
    return {
        "seconds": min(samples.wall),
        "median_seconds": statistics.median(samples.wall),
        "median_cpu_seconds": statistics.median(samples.cpu),
    }


def disturbed(samples: dict[Any, Samples], device: Device) -> bool:
    """Whether the clock on the wall ran on while something else had the core. On a GPU the wall is
    all there is."""
    return isinstance(device, CpuDevice) and any(
        min(found.wall) > WAITED * min(found.cpu) for found in samples.values()
    )


def environment(device: torch.device) -> dict[str, Any]:
    """The machine that this ran on."""
    here = card()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    cuda = {"CUDA": torch.version.cuda} if device.type == "cuda" else {}
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else here.cpu
    return {
        "device": processor,
        "cores": here.cores,
        "memory": here.memory,
        "load": load,
        "versions": {**here.versions, **cuda},
    }


def bar(what: str, value: float, least: float = 0.0, most: float = math.inf) -> dict[str, Any]:
    """Hold what was measured against a bar: the least that it has to be, or the most that it may be."""
    wanted = f"at least {least:g}" if least else f"at most {most:g}"
    return {"what": what, "value": value, "bar": wanted, "met": least <= value <= most}


def print_bars(bars: list[dict[str, Any]]) -> None:
    for found in bars:
        met = "met" if found["met"] else "MISSED"
        print(f"  {found['what']}: {found['value']:.2f}, {found['bar']}: {met}")


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


def heading(name: str, arguments: list[str] | None, device: torch.device) -> dict[str, Any]:
    """What a result begins with: which benchmark, when, how and where."""
    asked = shlex.join(sys.argv[1:] if arguments is None else arguments)
    command = f"python benchmarks/{name}.py {asked}"
    today = datetime.date.today().isoformat()
    return {"benchmark": name, "date": today, "command": command.strip(), **environment(device)}


def tell(result: dict[str, Any], out: Path | None) -> None:
    """Print a result as one line of JSON, the last one, and write it to a file where one is named."""
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
