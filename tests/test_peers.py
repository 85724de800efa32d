"""The mini-GPT against `transformers.LlamaForCausalLM`, with the same weights."""

import pytest
import torch

from course.model import MiniGPT
from course.model.config import GPTConfig
from course.published.checkpoints import expected_tensors

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-4  # float32; the largest difference seen is printed by `pytest -rP`


def pair(n_kv_heads: int, tied: bool) -> tuple[MiniGPT, torch.nn.Module]:
    """The two models, weights sharpened: at the usual spread of 0.02 attention is nearly uniform,
    and a wrong rotation or head mapping would hide below any tolerance."""
    config = GPTConfig(
        vocab_size=97,
        n_layers=3,
        d_model=64,
        n_heads=8,
        n_kv_heads=n_kv_heads,
        d_ff=112,
        max_seq_len=128,
        rope_theta=10_000.0,
        norm_eps=1e-5,
        tie_embeddings=tied,
    )
    theirs = transformers.LlamaForCausalLM(
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
            attn_implementation="eager",
        )
    ).eval()
    generator = torch.Generator().manual_seed(n_kv_heads)
    for parameter in theirs.parameters():
        mean = 1.0 if parameter.dim() == 1 else 0.0
        parameter.data.normal_(mean, 0.2, generator=generator)
    state = theirs.state_dict()
    ours = {name: state[theirs_name] for theirs_name, (name, _) in expected_tensors(config).items()}
    return MiniGPT.from_state(config, ours), theirs


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("n_kv_heads", [8, 2, 1], ids=["MHA", "GQA", "MQA"])
def test_logits_equal_those_of_llama_in_transformers(n_kv_heads, tied):
    ours, theirs = pair(n_kv_heads, tied)
    tokens = torch.randint(0, 97, (3, 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(tokens).logits
        swapped = theirs(tokens.flip(1)).logits.flip(1)
    difference = (ours(tokens) - expected).abs().max().item()
    print(f"max |Δ| {difference:.1e}, tolerance {TOLERANCE}, logits' std {expected.std():.2f}")
    assert difference < TOLERANCE
    # The comparison means something only where order matters to the logits.
    assert (swapped - expected).abs().max() > 1


def test_positions_that_do_not_start_at_zero_agree_too():
    ours, theirs = pair(2, False)
    tokens = torch.randint(0, 97, (2, 20), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(0, 100, 5)
    with torch.no_grad():
        expected = theirs(tokens, position_ids=positions.expand(2, -1)).logits
    assert (ours(tokens, positions) - expected).abs().max() < TOLERANCE
    assert (ours(tokens) - expected).abs().max() > 0.1
