"""Real checkpoints of the families of Llama, Mistral and Qwen, in the mini-GPT.

    model = load("HuggingFaceTB/SmolLM2-135M", device="cuda", dtype=torch.bfloat16)
    model = load("path/to/a/folder")           # config.json and *.safetensors

All settings, names, shapes and types are checked before any number is read, so no model is ever loaded
partially. Weights keep the type in which they lie in the file, and lie in memory once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from course.model import AttentionLayer, MiniGPT
from course.model.config import GPTConfig
from course.published.families import PublishedConfig, Stretch, empty_model

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
DTYPES = ("F32", "BF16", "F16")
SMALL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
               "chat_template.jinja")  # fmt: skip
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
HEADS = {
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
}
HEAD_NORMS = {"attn.wq.norm": "self_attn.q_norm", "attn.wk.norm": "self_attn.k_norm"}


def load(
    path_or_hub_id: str | Path,
    attention_layer: AttentionLayer | None = None,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> MiniGPT:
    """Load a model from a folder, or from the hub.

    Args:
        path_or_hub_id: a folder with `config.json` and `model.safetensors` (or its shards and
            `model.safetensors.index.json`), or the name of such a model on the Hugging Face hub.
        attention_layer: see `MiniGPT`.
        device, dtype: where the weights go, and as what; None keeps the type of the file.

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
    model = empty_model(config, attention_layer)
    state = {
        expected[name][0]: tensor.to(device=device, dtype=dtype)
        for name, tensor in _read(files, expected)
    }
    if config.tie_embeddings:
        state["lm_head.weight"] = state["embed.weight"]
    model.load_state_dict(state, assign=True)
    if config.tie_embeddings:
        model.lm_head.weight = model.embed.weight
    return model.to(device)


def read_config(folder: Path) -> PublishedConfig:
    """Read the sizes in a folder's `config.json`.

    Raises:
        FileNotFoundError, ValueError: as `load`.
    """
    settings = _read_json(folder / "config.json")
    family = settings.get("model_type")
    if family not in FAMILIES:
        raise ValueError(
            f"{folder}: model_type is {family!r}; the mini-GPT's architecture is that of "
            f"{', '.join(FAMILIES)}"
        )
    missing = [name for name in ("vocab_size", "num_hidden_layers", "hidden_size",
                                 "num_attention_heads", "intermediate_size")
               if settings.get(name) is None]  # fmt: skip
    if missing:
        raise ValueError(f"{folder}: config.json does not say {', '.join(missing)}")
    rope = settings.get("rope_parameters") or {}  # transformers 5; before: rope_theta at the top
    try:
        config = PublishedConfig(
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
            head_width=settings.get("head_dim"),
            qkv_bias=family == "qwen2",
            head_norms=family == "qwen3",
            stretch=_stretch(rope or settings.get("rope_scaling") or {}),
            window=settings.get("sliding_window") if family == "mistral" else None,
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder}: sizes that no mini-GPT can have: {error}") from error
    _refuse_other_settings(folder, settings)
    return config


def _stretch(rope: dict[str, Any]) -> Stretch | None:
    """Read how rotary positions are stretched; a ValueError names a way that the mini-GPT has not."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope_type is {kind!r}; the mini-GPT supports 'default' and 'llama3'")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if missing := [name for name in names if not isinstance(rope.get(name), (int, float))]:
        raise ValueError(f"rope_type 'llama3' lacks {', '.join(missing)}")
    return Stretch(*(rope[name] for name in names))


def _refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse settings that change what a forward pass computes in a way the mini-GPT does not."""
    rope = settings.get("rope_parameters") or {}
    supported = {
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), 1.0),
        "attention_bias": (settings.get("attention_bias", False), False),
        "mlp_bias": (settings.get("mlp_bias", False), False),
        "use_sliding_window": (settings.get("use_sliding_window", False), False),
        "hidden_act": (settings.get("hidden_act", "silu"), "silu"),
        "quantization_config": (settings.get("quantization_config"), None),
    }
    for name, (actual, right) in supported.items():
        if actual != right:
            raise ValueError(
                f"{folder}: {name} is {actual!r}; the mini-GPT supports {right!r} only"
            )


def expected_tensors(config: GPTConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """List the tensors of a checkpoint of these sizes: name in the file, our name, and shape."""
    C, V, F, D = config.d_model, config.vocab_size, config.d_ff, config.head_dim
    q_width, kv_width = config.n_heads * D, config.n_kv_heads * D
    shapes = {
        "attn_norm": (C,),
        "attn.wq": (q_width, C),
        "attn.wk": (kv_width, C),
        "attn.wv": (kv_width, C),
        "attn.wo": (C, q_width),
        "mlp_norm": (C,),
        "mlp.gate": (F, C),
        "mlp.up": (F, C),
        "mlp.down": (C, F),
    }
    layer = {
        f"{theirs}.weight": (f"{ours}.weight", shapes[ours]) for ours, theirs in LAYER_PARTS.items()
    }
    published = isinstance(config, PublishedConfig)
    if published and config.qkv_bias:
        layer |= {
            f"{theirs}.bias": (f"{ours}.bias", shapes[ours][:1]) for ours, theirs in HEADS.items()
        }
    if published and config.head_norms:
        layer |= {
            f"{theirs}.weight": (f"{ours}.weight", (D,)) for ours, theirs in HEAD_NORMS.items()
        }
    expected = {"model.embed_tokens.weight": ("embed.weight", (V, C))}
    for i in range(config.n_layers):
        for theirs, (ours, shape) in layer.items():
            expected[f"model.layers.{i}.{theirs}"] = (f"blocks.{i}.{ours}", shape)
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
        return Path(snapshot_download(hub_id, allow_patterns=[*SMALL_FILES, "*.safetensors*"]))
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
                stored = file.get_slice(name)
                shape = tuple(stored.get_shape())
                if name in expected and stored.get_dtype() not in DTYPES:
                    raise ValueError(
                        f"{path}: {name} is of type {stored.get_dtype()}; the mini-GPT takes "
                        f"{', '.join(DTYPES)}"
                    )
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


def _read(files: dict[str, Path], names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors of a checkpoint. Each time a file is mapped into memory, and as soon as a copy of one
    tensor is made the map is given back, so that the whole file is never in memory beside its copy."""
    for name in names:
        with _opened(files[name]) as file:
            yield name, file.get_tensor(name).clone()


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
