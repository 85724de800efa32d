"""The mini-GPT itself: bad sizes and inputs are refused by name, and it computes what the papers
say (`autograder.oracle`, which shares no code with it)."""

import numpy as np
import pytest
import torch

from autograder import oracle
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.model.rotary import rotary_table, rotate

SIZES = {
    "vocab_size": 23,
    "n_layers": 3,
    "d_model": 24,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 40,
    "max_seq_len": 32,
}


def random_model(seed: int = 0, **changes) -> MiniGPT:
    """Sharpened weights: at the usual spread of 0.02 a wrong rotation moves logits by 1e-3."""
    model = MiniGPT(GPTConfig(**{**SIZES, **changes}))
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        mean = 1.0 if parameter.dim() == 1 else 0.0
        parameter.data.normal_(mean, 0.3, generator=generator)
    return model.eval()


def numpy_state(model: MiniGPT) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 0}, "vocab_size .* at least 1, got 0"),
        ({"n_layers": 2.0}, r"n_layers .* got 2\.0"),
        ({"n_layers": True}, "n_layers .* got True"),
        ({"d_ff": -1}, "d_ff .* got -1"),
        ({"n_heads": 5}, "d_model=24 and n_heads=5"),
        ({"n_kv_heads": 3}, "n_heads=4 and n_kv_heads=3"),
        ({"n_heads": 8, "n_kv_heads": 8}, "even; got .* 3"),
        ({"rope_theta": 0.0}, "rope_theta .* above 0"),
        ({"norm_eps": float("nan")}, "norm_eps .* nan"),
        ({"norm_eps": "1e-5"}, "norm_eps .* '1e-5'"),
        ({"tie_embeddings": "no"}, "tie_embeddings .* 'no'"),
    ],
    ids=str,
)
def test_sizes_that_no_model_can_have_are_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        GPTConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([[1, 2]], "int64 tensor, got list"),
        (torch.tensor([[1.0, 2.0]]), "int64 tensor, got torch.float32"),
        (torch.tensor([[1, 2]], dtype=torch.int32), "got torch.int32"),
        (torch.tensor([1, 2]), r"\(B, T\) .* got shape \(2,\)"),
        (torch.empty((1, 0), dtype=torch.int64), r"got shape \(1, 0\)"),
        (torch.zeros((1, 33), dtype=torch.int64), "33 tokens do not fit max_seq_len=32"),
        (torch.tensor([[1, 23]]), "0 … 22, got 23"),
        (torch.tensor([[1, -2]]), "0 … 22, got -2"),
    ],
    ids=str,
)
def test_tokens_that_no_forward_pass_can_take_are_refused_by_name(tokens, words):
    with pytest.raises(ValueError, match=words):
        random_model()(tokens)


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        (torch.arange(3), r"\(2,\) or \(1, 2\), got torch.int64 of shape \(3,\)"),
        (torch.tensor([0.0, 1.0]), "got torch.float32"),
        (torch.tensor([31, 32]), "0 … 31, got 32"),
        (torch.tensor([-1, 0]), "0 … 31, got -1"),
    ],
    ids=str,
)
def test_positions_that_do_not_belong_to_the_tokens_are_refused_by_name(positions, words):
    with pytest.raises(ValueError, match=words):
        random_model()(torch.tensor([[1, 2]]), positions)


def test_weights_that_are_not_shipped_are_refused_by_name():
    with pytest.raises(ValueError, match="no weights named 'huge'"):
        MiniGPT.from_weights("huge")


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_logits_equal_those_of_the_oracle(n_kv_heads, tied):
    model = random_model(n_kv_heads=n_kv_heads, tie_embeddings=tied)
    tokens = torch.randint(0, 23, (3, 11), generator=torch.Generator().manual_seed(1))
    expected = oracle.forward(numpy_state(model), model.config.to_dict(), tokens.numpy())
    assert np.abs(model(tokens).numpy() - expected).max() < 1e-4  # measured: 5e-6
    assert np.abs(model.double()(tokens).numpy() - expected).max() < 1e-5  # float32 rotary table


def test_attention_at_any_positions_equals_that_of_the_oracle():
    model = random_model()
    x = torch.randn((2, 7, 24), generator=torch.Generator().manual_seed(2))
    positions = torch.tensor([3, 4, 9, 10, 11, 20, 31])
    ours = model.attention_layer(model.blocks[1].attn, x, positions)
    for row in range(2):
        expected, _, _ = oracle.attention_layer(
            numpy_state(model),
            "blocks.1.attn.",
            model.config.to_dict(),
            x[row].double().numpy(),
            positions.double().numpy(),
        )
        assert np.abs(ours[row].numpy() - expected).max() < 1e-4


def test_rows_may_have_positions_of_their_own():
    model = random_model()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    positions = torch.tensor([[0, 1, 2], [7, 9, 12]])
    both = model(tokens, positions)
    for row in range(2):
        alone = model(tokens[row : row + 1], positions[row])
        assert torch.allclose(both[row : row + 1], alone, atol=1e-5)


def test_rotation_keeps_lengths_and_depends_on_the_distance_alone():
    table = rotary_table(64, 8, 10_000.0)
    q, k = torch.randn((2, 1, 1, 5, 8), generator=torch.Generator().manual_seed(3))
    positions = torch.tensor([0, 2, 3, 10, 40])
    turned = rotate(q, positions, table)
    assert torch.allclose(turned.norm(dim=-1), q.norm(dim=-1), atol=1e-5)
    assert torch.equal(turned[..., 0, :], q[..., 0, :])  # position 0 turns nothing
    meet = turned @ rotate(k, positions, table).transpose(-2, -1)
    later = rotate(q, positions + 23, table) @ rotate(k, positions + 23, table).transpose(-2, -1)
    assert torch.allclose(meet, later, atol=1e-4)
    spread = rotate(q, positions // 2, table) @ rotate(k, positions // 2, table).transpose(-2, -1)
    assert not torch.allclose(meet, spread, atol=1e-1)


def test_rotation_turns_each_pair_by_its_own_angle():
    table = rotary_table(16, 4, 100.0)
    turned = rotate(torch.tensor([[[[1.0, 2.0, 0.0, 0.0]]]]), torch.tensor([3]), table)
    expected = [np.cos(3), 2 * np.cos(0.3), np.sin(3), 2 * np.sin(0.3)]
    assert np.abs(turned.numpy().ravel() - expected).max() < 1e-6


def test_the_layers_share_one_rotary_table():
    model = random_model()
    assert len({block.attn.rotary_table.data_ptr() for block in model.blocks}) == 1
