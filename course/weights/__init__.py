"""Read and write the weights that the course ships, and what was measured on them (`metrics.json`)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from course.model.config import GPTConfig
from course.world.tokenizer import FINGERPRINT

FOLDER = Path(__file__).parent


def available() -> list[str]:
    """List the names of the shipped weights."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def read(name: str) -> tuple[GPTConfig, dict[str, Tensor]]:
    """Read the config and float32 tensors of shipped weights.

    Raises:
        ValueError: no such weights (the message lists those there are), or not usable ones.
    """
    if name not in available():
        raise ValueError(f"no weights named {name!r}; the course ships {', '.join(available())}")
    return load(FOLDER / f"{name}.safetensors")


def load(path: Path) -> tuple[GPTConfig, dict[str, Tensor]]:
    """Read the config and float32 tensors of a file written by `write`.

    Raises:
        ValueError: not such a file, or the vocabulary was not the tokenizer's.
    """
    try:
        with safe_open(path, framework="pt") as file:
            model = json.loads((file.metadata() or {}).get("model", "{}"))
            state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error
    if not model:
        raise ValueError(f"{path} was not written by course.weights: it names no config")
    if model["vocabulary"] != FINGERPRINT:
        raise ValueError(
            f"{path} was trained on another vocabulary (fingerprint "
            f"{model['vocabulary'][:12]}, the tokenizer's is {FINGERPRINT[:12]}), so its tokens "
            f"would mean other words; train it anew with python -m course.world.train"
        )
    return GPTConfig(**model["config"]), state


def write(path: Path, config: GPTConfig, state: dict[str, Tensor]) -> None:
    """Write weights as float16, with their config and the tokenizer's fingerprint; the file appears
    only when it is complete."""
    half = {key: tensor.to(torch.float16).contiguous() for key, tensor in state.items()}
    partial = path.with_suffix(".partial")
    # One entry: safetensors writes several in any order, and the same weights would differ as files.
    model = json.dumps({"config": config.to_dict(), "vocabulary": FINGERPRINT})
    save_file(half, partial, metadata={"model": model})
    partial.chmod(0o644)  # safetensors writes for the owner alone
    partial.replace(path)


def metrics(name: str) -> dict[str, float | str]:
    """Read what was measured on shipped weights: loss (nats a token), perplexity, recall (0 … 1) and
    the number of questions, as `course.world.evaluation.evaluate` returns them; training steps, seconds
    and the machine.

    Raises:
        ValueError: nothing was recorded under this name; the message lists what was.
    """
    recorded = json.loads((FOLDER / "metrics.json").read_text())
    if name not in recorded:
        raise ValueError(f"no metrics of {name!r}; recorded are {', '.join(recorded)}")
    return recorded[name]
