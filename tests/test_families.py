"""Published families beside `transformers`: random weights of each family's config, text for text."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from course.engine import Engine
from course.published import checkpoints
from course.published.families import empty_model
from lessons import ROOT

SIZES = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "llama": {},
    "llama-3.1": {"rope_parameters": LLAMA_3},
    "llama-3.2": {"rope_parameters": {**LLAMA_3, "factor": 32.0}, "tie_word_embeddings": True},
    "mistral": {"sliding_window": None},
    "mistral-nemo": {"sliding_window": None, "head_dim": 12},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 16},
    "qwen3-tied": {"head_dim": 8, "tie_word_embeddings": True},
}
PROMPTS = [[5, 17, 60, 0, 5, 33, 9], list(range(1, 60)), [3] * 30 + [4, 5]]


def save(folder: Path, name: str, dtype: torch.dtype = torch.float32, **changes):
    """Save a random model of a family into a folder, and return it."""
    torch.manual_seed(len(name))
    config = transformers.AutoConfig.for_model(
        name.partition("-")[0], **{**SIZES, **FAMILIES[name], **changes}
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.3)
    theirs = theirs.to(dtype)
    theirs.save_pretrained(folder, max_shard_size="20KB")
    return theirs


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_and_logits_are_those_of_transformers_also_at_far_positions(name, tmp_path):
    theirs, model = save(tmp_path, name), checkpoints.load(tmp_path)
    text = torch.randint(61, (2, 500), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = theirs(text).logits
    assert logits.std() > 0.3
    assert (
        model(text) - logits
    ).abs().max() < 5e-3  # their angles are float32: less exact far away
    engine = Engine(model)
    assert (model(text) - logits).abs().max() < 5e-3  # on views of the engine's weights
    together = engine.serve(PROMPTS, 40)
    for prompt, out in zip(PROMPTS, together, strict=True):
        asked = torch.tensor([prompt])
        expected = theirs.generate(
            asked, attention_mask=torch.ones_like(asked), do_sample=False, max_new_tokens=40,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        assert [*prompt, *out] == expected[0].tolist()
        assert engine.serve([prompt], 40) == [out]


def test_what_makes_a_family_matters(tmp_path):
    """Without the stretch, the biases or the norms the logits would be others."""
    for name, changes in (
        ("llama-3.1", {"stretch": None}),
        ("qwen2", {"qkv_bias": False}),
        ("qwen3", {"head_norms": False}),
    ):
        theirs = save(tmp_path / name, name)
        model = checkpoints.load(tmp_path / name)
        state = model.state_dict()
        plain = empty_model(replace(model.config, **changes))
        plain.load_state_dict({k: state[k] for k in plain.state_dict()}, assign=True)
        text = torch.tensor([PROMPTS[1]])
        assert (plain(text) - theirs(text).logits).abs().max() > 0.05, name


def test_texts_are_longer_than_the_window(tmp_path):
    """Alone, with lesson 08's cache; several together as long as all see all before them."""
    theirs = save(tmp_path, "mistral", sliding_window=24)
    engine = Engine(checkpoints.load(tmp_path))
    long = torch.randint(61, (400,), generator=torch.Generator().manual_seed(2)).tolist()
    for prompt in (*PROMPTS, long):
        asked = torch.tensor([prompt])
        expected = theirs.generate(
            asked, attention_mask=torch.ones_like(asked), do_sample=False, max_new_tokens=40,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        assert engine.serve([prompt], 40) == [expected[0, len(prompt) :].tolist()]
    assert engine.windowed.nbytes == 3 * 2 * 2 * 24 * 8 * 4  # one window, however long the text
    short = [[5, 6, 7], [8, 9]]
    assert engine.serve(short, 20) == [engine.serve([one], 20)[0] for one in short]
    with pytest.raises(
        ValueError, match="more than the window of 24; such a text is written alone"
    ):
        engine.serve([[5, 6, 7], [8] * 10], 20)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "gpt2", "qwen3_moe", "phi3"])
def test_another_family_is_refused_by_name_before_a_byte_is_read(family, tmp_path):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')
    with pytest.raises(
        ValueError, match=rf"model_type is '{family}'.*llama, mistral, qwen2, qwen3"
    ):
        checkpoints.load(tmp_path)


# --- memory --------------------------------------------------------------------------------------

MEASURE = """
import resource, sys, torch
from course.engine import Engine
from course.published import checkpoints
from course.published.families import empty_model
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
model = checkpoints.load(sys.argv[1])
engine = Engine(model)
engine.serve([[1, 2, 3]], 2)
engine.serve([[1, 2, 3], [4, 5]], 2)
print(model.embed.weight.dtype, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_memory_is_at_most_a_third_more_than_the_file(dtype, tmp_path):
    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "vocab_size": 16_000,
    }
    sizes |= {"num_attention_heads": 16, "num_key_value_heads": 4}
    save(tmp_path, "llama-3.2", dtype, **sizes)
    file = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    run = [sys.executable, "-c", MEASURE, str(tmp_path)]
    out = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert out[0] == str(dtype)
    assert int(out[1]) < 1.3 * file
