"""Real checkpoints of the Llama family, in the mini-GPT.

    model = load("HuggingFaceTB/SmolLM2-135M", device="cuda", dtype=torch.bfloat16)
    model = load("path/to/a/folder")           # config.json and *.safetensors

All settings, names and shapes are checked before any number is read, so no model is ever loaded
partially.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from course.model import AttentionLayer, MiniGPT
from course.model.config import GPTConfig

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

# Our names of the parts of one layer, and those of `transformers`.
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def load(
    path_or_hub_id: str | Path,
    attention_layer: AttentionLayer | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> MiniGPT:
    """Load a Llama-family model from a folder, or from the hub.

    Args:
        path_or_hub_id: a folder with `config.json` and `model.safetensors` (or its shards and
            `model.safetensors.index.json`), or the name of such a model on the Hugging Face hub.
        attention_layer: see `MiniGPT`.
        device, dtype: where the weights go, and as what.

    Raises:
        FileNotFoundError: no such folder, or a file is missing in it.
        ValueError: another architecture, a setting that the mini-GPT does not have, or a tensor
            that is missing, unknown or of an unexpected shape.
        ImportError, ConnectionError: a hub id, and no way to the hub.
    """
    folder = folder_of(path_or_hub_id)
    config = read_config(folder)
    files = _files_of_tensors(folder)
    expected = expected_tensors(config)
    _compare(folder, files, expected)
    state = {expected[name][0]: tensor.to(dtype) for name, tensor in _read(files, set(expected))}
    return MiniGPT.from_state(config, state, attention_layer).to(device=device, dtype=dtype)


def read_config(folder: Path) -> GPTConfig:
    """Read the sizes in a folder's `config.json`.

    Raises:
        FileNotFoundError, ValueError: as `load`.
    """
    settings = _read_json(folder / "config.json")
    if settings.get("model_type") != "llama":
        raise ValueError(
            f"{folder}: model_type is {settings.get('model_type')!r}; "
            "only checkpoints of model_type 'llama' have the mini-GPT's architecture"
        )
    missing = [name for name in ("vocab_size", "num_hidden_layers", "hidden_size",
                                 "num_attention_heads", "intermediate_size")
               if settings.get(name) is None]  # fmt: skip
    if missing:
        raise ValueError(f"{folder}: config.json does not say {', '.join(missing)}")
    rope = settings.get("rope_parameters") or {}  # transformers 5; before: rope_theta at the top
    try:
        config = GPTConfig(
            vocab_size=settings["vocab_size"],
            n_layers=settings["num_hidden_layers"],
            d_model=settings["hidden_size"],
            n_heads=settings["num_attention_heads"],
            n_kv_heads=settings.get("num_key_value_heads") or settings["num_attention_heads"],
            d_ff=settings["intermediate_size"],
            max_seq_len=settings.get("max_position_embeddings", 2048),
            rope_theta=float(rope.get("rope_theta") or settings.get("rope_theta") or 10_000.0),
            norm_eps=settings.get("rms_norm_eps", 1e-6),
            tie_embeddings=bool(settings.get("tie_word_embeddings", False)),
        )
    except ValueError as error:
        raise ValueError(f"{folder}: sizes that no mini-GPT can have: {error}") from error
    _refuse_other_settings(folder, settings, config)
    return config


def _refuse_other_settings(folder: Path, settings: dict[str, Any], config: GPTConfig) -> None:
    """Refuse settings that change what a forward pass computes in a way the mini-GPT does not."""
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    supported = {
        "rope_type": (rope.get("rope_type", rope.get("type", "default")), "default"),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), 1.0),
        "attention_bias": (settings.get("attention_bias", False), False),
        "mlp_bias": (settings.get("mlp_bias", False), False),
        "hidden_act": (settings.get("hidden_act", "silu"), "silu"),
        "head_dim": (settings.get("head_dim") or config.head_dim, config.head_dim),
    }
    for name, (actual, right) in supported.items():
        if actual != right:
            raise ValueError(
                f"{folder}: {name} is {actual!r}; the mini-GPT supports {right!r} only"
            )


def expected_tensors(config: GPTConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """List the tensors of a checkpoint of these sizes: name in the file, our name, and shape."""
    C, V, F, D = config.d_model, config.vocab_size, config.d_ff, config.head_dim
    kv_width = config.n_kv_heads * D
    shapes = {
        "attn_norm": (C,),
        "attn.wq": (C, C),
        "attn.wk": (kv_width, C),
        "attn.wv": (kv_width, C),
        "attn.wo": (C, C),
        "mlp_norm": (C,),
        "mlp.gate": (F, C),
        "mlp.up": (F, C),
        "mlp.down": (C, F),
    }
    expected = {"model.embed_tokens.weight": ("embed.weight", (V, C))}
    for i in range(config.n_layers):
        for ours, theirs in LAYER_PARTS.items():
            expected[f"model.layers.{i}.{theirs}.weight"] = (
                f"blocks.{i}.{ours}.weight",
                shapes[ours],
            )
    expected["model.norm.weight"] = ("norm.weight", (C,))
    if not config.tie_embeddings:
        expected["lm_head.weight"] = ("lm_head.weight", (V, C))
    return expected


def folder_of(path_or_hub_id: str | Path) -> Path:
    """Return the folder, or the one into which the hub's files were downloaded."""
    folder = Path(path_or_hub_id).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise FileNotFoundError(
            f"{folder} is a file; give the folder that holds it and config.json"
        )
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", str(path_or_hub_id)):
        raise FileNotFoundError(
            f"there is no folder {path_or_hub_id}, and it is no hub id such as "
            "HuggingFaceTB/SmolLM2-135M"
        )
    return _download(str(path_or_hub_id))


def _download(hub_id: str) -> Path:
    """Download config and weights from the hub into the hub's own cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"there is no folder {hub_id}, and to get it from the hub the package huggingface_hub "
            "is needed: pip install huggingface_hub"
        ) from error
    try:
        return Path(
            snapshot_download(
                hub_id, allow_patterns=["config.json", "tokenizer.json", "*.safetensors*"]
            )
        )
    # The hub's client raises errors of several libraries; each means the same to the reader.
    except Exception as error:
        raise ConnectionError(
            f"there is no folder {hub_id}, and the hub did not give it either "
            f"({type(error).__name__}: {error}). Check the name and the connection, or download "
            "the model elsewhere and give the path of its folder."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def _files_of_tensors(folder: Path) -> dict[str, Path]:
    """Map each tensor to the file that holds it."""
    if (folder / SINGLE).is_file():
        with _opened(folder / SINGLE) as file:
            return dict.fromkeys(file.keys(), folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(
            f"{folder} has neither {SINGLE} nor {INDEX}; a checkpoint in another format can be "
            "written anew with transformers: model.save_pretrained(folder)"
        )
    weight_map = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{folder / INDEX} has no weight_map from tensors to files")
    for name, shard in weight_map.items():
        if Path(str(shard)).name != shard:
            raise ValueError(f"{folder / INDEX} places {name} outside its folder, in {shard!r}")
    missing = sorted({shard for shard in weight_map.values() if not (folder / shard).is_file()})
    if missing:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}, named in {INDEX}")
    return {name: folder / shard for name, shard in weight_map.items()}


def _compare(
    folder: Path, files: dict[str, Path], expected: dict[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Compare names and shapes with what the config promises, before any number is read."""
    for path in sorted(set(files.values())):
        with _opened(path) as file:
            held = set(file.keys())
            for name in (name for name, place in files.items() if place == path):
                if name not in held:
                    raise ValueError(f"{path} does not hold {name}, which {INDEX} places there")
                shape = tuple(file.get_slice(name).get_shape())
                if name in expected and shape != expected[name][1]:
                    raise ValueError(
                        f"{path}: {name} has shape {shape}, but config.json asks for "
                        f"{expected[name][1]}"
                    )
    if missing := [name for name in expected if name not in files]:
        raise ValueError(f"{folder}: no tensor {_some(missing)} in the checkpoint")
    # With tied embeddings some writers store the head a second time; older ones store the rotary
    # frequencies, which follow from the config.
    unknown = [name for name in files if name not in expected and name != "lm_head.weight"
               and not name.endswith("rotary_emb.inv_freq")]  # fmt: skip
    if unknown:
        raise ValueError(f"{folder}: the mini-GPT has no place for {_some(unknown)}")


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def _read(files: dict[str, Path], names: set[str]) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(set(files.values())):
        with _opened(path) as file:
            for name in sorted(names):
                if files[name] == path:
                    yield name, file.get_tensor(name)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
