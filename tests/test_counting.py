"""Rows counted by hooks are the rows that were computed, and the model is left as it was."""

import pytest
import torch

from course.config import GPTConfig
from course.measure.counting import count_kv_rows
from course.model import MiniGPT


@pytest.fixture
def model() -> MiniGPT:
    torch.manual_seed(0)
    return MiniGPT(GPTConfig(11, n_layers=3, d_model=8, n_heads=2, n_kv_heads=1, d_ff=16))


def test_a_forward_pass_computes_keys_for_every_row_and_token(model):
    tokens = torch.randint(11, (2, 5))
    with count_kv_rows(model) as count:
        model(tokens)
        model(tokens[:1, :3])
    assert count.per_call == [10, 3]
    assert count.rows == 13


def test_without_a_forward_pass_there_is_nothing_to_count(model):
    with count_kv_rows(model) as count:
        pass
    assert count.per_call == []
    assert count.rows == 0


def test_the_hooks_go_even_after_an_error(model):
    def hooks() -> int:
        return sum(len(block.attn.wk._forward_hooks) for block in model.blocks)

    def fail_while_counting() -> None:
        with count_kv_rows(model):
            assert hooks() == 3
            model(torch.zeros(1, 0, dtype=torch.int64))

    with pytest.raises(ValueError, match="tokens must be"):
        fail_while_counting()
    assert hooks() == 0


def test_what_comes_after_the_block_is_not_counted(model):
    with count_kv_rows(model) as count:
        pass
    model(torch.zeros(1, 4, dtype=torch.int64))
    assert count.rows == 0


def test_two_counts_at_once_do_not_disturb_each_other(model):
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with count_kv_rows(model) as outer:
        model(tokens)
        with count_kv_rows(model) as inner:
            model(tokens)
    assert (outer.per_call, inner.per_call) == ([4, 4], [4])


def test_layers_that_disagree_are_named(model):
    with count_kv_rows(model) as count:
        model(torch.zeros(1, 4, dtype=torch.int64))
        model.blocks[2].attn.wk(torch.zeros(1, 1, 8))
    with pytest.raises(ValueError, match=r"layer 0 for \[4\], layer 2 for \[4, 1\]"):
        _ = count.rows


def test_something_that_is_no_mini_gpt_is_refused():
    with (
        pytest.raises(ValueError, match="must be a MiniGPT, got Linear"),
        count_kv_rows(torch.nn.Linear(2, 2)),
    ):
        pass
