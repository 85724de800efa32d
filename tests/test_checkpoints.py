"""Llama-family checkpoints: what `transformers` saved is loaded whole, or refused by name."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file

from course.published import checkpoints

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 5_000.0,
    "rms_norm_eps": 1e-6,
}
TOKENS = torch.tensor([[5, 17, 60, 0, 5, 33], [1, 2, 3, 4, 5, 6]])


def saved(folder: Path, shard: str = "1GB", **changes) -> torch.Tensor:
    """Save a random model into the folder; its logits for TOKENS."""
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **changes})).eval()
    for parameter in theirs.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(folder, max_shard_size=shard)
    with torch.no_grad():
        return theirs(TOKENS).logits


def edited(folder: Path, **changes) -> None:
    path = folder / "config.json"
    settings = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: v for name, v in settings.items() if v is not Ellipsis}))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard", ["1GB", "10KB"])
def test_what_transformers_saved_gives_the_same_logits_when_loaded(tmp_path, tied, shard):
    logits = saved(tmp_path, shard, tie_word_embeddings=tied)
    assert (tmp_path / checkpoints.INDEX).is_file() == (shard == "10KB")
    model = checkpoints.load(tmp_path)
    assert model.config.tie_embeddings is tied
    assert (model.lm_head.weight is model.embed.weight) == tied
    assert (model(TOKENS) - logits).abs().max() < 1e-4


def test_the_rotary_base_is_read_from_both_places_where_transformers_wrote_it(tmp_path):
    logits = saved(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    assert checkpoints.load(tmp_path).config.rope_theta == 5_000.0
    edited(tmp_path, rope_parameters=..., rope_theta=5_000.0, rope_scaling=None)  # transformers 4
    assert (checkpoints.load(tmp_path)(TOKENS) - logits).abs().max() < 1e-4
    edited(tmp_path, rope_theta=10_000.0)
    assert (checkpoints.load(tmp_path)(TOKENS) - logits).abs().max() > 1e-2


def test_weights_are_loaded_as_the_dtype_asked_for_and_the_layer_asked_for_is_used(tmp_path):
    saved(tmp_path)
    layer = lambda attn, x, positions: torch.zeros_like(x)  # noqa: E731
    model = checkpoints.load(tmp_path, attention_layer=layer, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.attention_layer is layer
    assert model(TOKENS).dtype == torch.bfloat16


def test_a_head_stored_twice_and_old_rotary_frequencies_do_no_harm(tmp_path):
    logits = saved(tmp_path, tie_word_embeddings=True)
    state = load_file(tmp_path / checkpoints.SINGLE)
    state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(state, tmp_path / checkpoints.SINGLE)
    assert (checkpoints.load(tmp_path)(TOKENS) - logits).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, ["model_type", "'gpt2'", "llama"]),
        ({"model_type": ...}, ["model_type", "None", "llama"]),
        ({"attention_bias": True}, ["attention_bias", "True", "False"]),
        ({"mlp_bias": True}, ["mlp_bias", "True", "False"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "'silu'"]),
        ({"head_dim": 16}, ["proj.weight has shape", "asks for"]),
        ({"head_dim": 7}, ["must be even"]),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}},
            ["rope_type 'llama3' lacks", "low_freq_factor", "original_max_position_embeddings"],
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, ["quantization_config", "fp8"]),
        (
            {"rope_parameters": ..., "rope_scaling": {"type": "linear", "factor": 2.0}},
            ["rope_type", "'linear'"],
        ),
        ({"hidden_size": ...}, ["config.json", "hidden_size"]),
        ({"hidden_size": 33}, ["d_model", "33"]),
        ({"num_attention_heads": "4"}, ["n_heads", "'4'"]),
        ({"rms_norm_eps": "tiny"}, ["norm_eps", "'tiny'"]),
        ({"vocab_size": 60}, ["weight has shape (61, 32)", "asks for (60, 32)"]),
        ({"num_key_value_heads": 4}, ["k_proj", "(16, 32)", "(32, 32)"]),
        (
            {"num_hidden_layers": 3},
            ["no tensor", "model.layers.2.input_layernorm.weight", "8 more"],
        ),
        ({"num_hidden_layers": 1}, ["no place for", "model.layers.1."]),
        ({"tie_word_embeddings": True}, None),  # an own head beside tied embeddings is left aside
    ],
    ids=str,
)
def test_a_setting_the_model_does_not_have_is_refused_by_name(tmp_path, changes, words):
    saved(tmp_path)
    edited(tmp_path, **changes)
    if words is None:
        assert checkpoints.load(tmp_path).config.tie_embeddings
        return
    with pytest.raises(ValueError, match=str(tmp_path)) as caught:
        checkpoints.load(tmp_path)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_bias_or_any_tensor_without_a_place_is_refused_by_name(tmp_path):
    saved(tmp_path)
    state = load_file(tmp_path / checkpoints.SINGLE)
    state["model.layers.1.self_attn.q_proj.bias"] = torch.zeros(32)
    save_file(state, tmp_path / checkpoints.SINGLE)
    with pytest.raises(ValueError, match=r"no place for model\.layers\.1\.self_attn\.q_proj\.bias"):
        checkpoints.load(tmp_path)


def test_files_that_are_missing_or_broken_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        checkpoints.load(tmp_path)
    saved(tmp_path, "10KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=shard.name):
        checkpoints.load(tmp_path)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {shard.name}"):
        checkpoints.load(tmp_path)
    save_file({"other": torch.zeros(1)}, shard)
    with pytest.raises(ValueError, match=f"{shard.name} does not hold"):
        checkpoints.load(tmp_path)
    index = tmp_path / checkpoints.INDEX
    index.write_text(index.read_text().replace(shard.name, f"../{shard.name}"))
    with pytest.raises(ValueError, match="outside its folder"):
        checkpoints.load(tmp_path)
    index.write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        checkpoints.load(tmp_path)
    index.unlink()
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor"):
        checkpoints.load(tmp_path)


def test_a_name_that_is_neither_folder_nor_hub_id_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder nowhere"):
        checkpoints.load("nowhere")
    with pytest.raises(FileNotFoundError, match="no folder /no/where"):
        checkpoints.load("/no/where")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="is a file"):
        checkpoints.load(tmp_path / "file")


def hub(monkeypatch, download) -> None:
    module = ModuleType("huggingface_hub")
    module.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_a_hub_id_is_downloaded_and_loaded(tmp_path, monkeypatch):
    logits = saved(tmp_path)
    asked, files = [], set()

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        files.update(allow_patterns)
        return str(tmp_path)

    hub(monkeypatch, download)
    assert (checkpoints.load("someone/some-llama")(TOKENS) - logits).abs().max() < 1e-4
    assert asked == ["someone/some-llama"]
    words = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert words <= files  # with which a model can chat


def test_without_a_way_to_the_hub_the_error_says_what_to_do(monkeypatch):
    def unreachable(name, allow_patterns):
        raise OSError("no route")

    hub(monkeypatch, unreachable)
    with pytest.raises(ConnectionError, match=r"someone/llama.*no route.*path of its folder"):
        checkpoints.load("someone/llama")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        checkpoints.load("someone/llama")
