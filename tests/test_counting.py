"""Rows are counted by the products that weights go into, however they get there."""

import copy

import pytest
import torch
import torch.nn.functional as F

from course.measure.counting import count_kv_rows
from course.model import MiniGPT
from course.model.config import GPTConfig


@pytest.fixture
def model() -> MiniGPT:
    torch.manual_seed(0)
    return MiniGPT(GPTConfig(11, n_layers=3, d_model=8, n_heads=4, n_kv_heads=2, d_ff=16))


@pytest.fixture
def x() -> torch.Tensor:
    """What a layer gets: (B, T, C) = (2, 5, 8), 10 rows."""
    return torch.randn(2, 5, 8)


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


def linear_of_its_own(attn, x):
    linear = torch.nn.Linear(8, 4, bias=True)
    linear.weight.data.copy_(attn.wk.weight)
    return linear(x)


def into_a_larger_matrix(attn, x):
    fused = torch.empty(12, 8)
    fused[4:8] = attn.wk.weight
    return x @ fused.T


@torch.inference_mode()
def in_inference_mode(attn, x):
    return F.linear(x, attn.wk.weight)


STYLES = {
    "the module": lambda attn, x: attn.wk(x),
    "a matrix product": lambda attn, x: x @ attn.wk.weight.T,
    "from the left": lambda attn, x: attn.wk.weight @ x.transpose(1, 2),
    "F.linear": lambda attn, x: F.linear(x, attn.wk.weight),
    "inference mode": in_inference_mode,
    "einsum": lambda attn, x: torch.einsum("btc,gc->btg", x, attn.wk.weight),
    "einsum by heads": lambda attn, x: torch.einsum(
        "btc,gdc->bgtd", x, attn.wk.weight.view(2, 2, 8)
    ),
    "number by number": lambda attn, x: (x.unsqueeze(-2) * attn.wk.weight).sum(-1),
    "a convolution": lambda attn, x: F.conv1d(x.transpose(1, 2), attn.wk.weight.unsqueeze(-1)),
    "float64": lambda attn, x: x.double() @ attn.wk.weight.double().T,
    "bfloat16": lambda attn, x: F.linear(x.bfloat16(), attn.wk.weight.to(torch.bfloat16)),
    "scaled": lambda attn, x: x @ (attn.wk.weight / 2).T,
    "under the norm's weight": lambda attn, x: x @ (attn.wk.weight * attn.norm_weight).T,
    "fused by cat": lambda attn, x: (
        x @ torch.cat([attn.wq.weight, attn.wk.weight, attn.wv.weight]).T
    ),
    "fused by stack": lambda attn, x: (
        x.unsqueeze(1) @ torch.stack([attn.wk.weight, attn.wv.weight]).transpose(1, 2)
    ),
    "another linear": linear_of_its_own,
    "a part of a matrix": into_a_larger_matrix,
    "head by head": lambda attn, x: [x @ head.T for head in attn.wk.weight.split(2)],
    "under vmap": lambda attn, x: torch.vmap(lambda row: attn.wk.weight @ row)(x.flatten(0, 1)),
    "a copy of the module": lambda attn, x: copy.deepcopy(attn.wk).double()(x.double()),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_key_counts_in_whatever_way_it_is_computed(model, x, style):
    for block in model.blocks:
        block.attn.norm_weight = block.attn_norm.weight
    with count_kv_rows(model) as count:
        for block in model.blocks:
            STYLES[style](block.attn, x)
    assert count.per_call == [10]


def test_weights_stacked_over_layers_count_for_the_layer_that_is_used(model, x):
    with count_kv_rows(model) as count:
        stacked = torch.stack([block.attn.wk.weight for block in model.blocks])  # (L, G·D, C)
        _ = x @ stacked[1].T
    assert count.by_layer == [[], [10], []]


def test_rows_one_after_the_other_are_uses_of_their_own(model, x):
    with count_kv_rows(model) as count:
        for block in model.blocks:
            for row in x.flatten(0, 1):
                block.attn.wk.weight @ row
    assert count.per_call == [1] * 10


def test_heads_outside_and_rows_inside_still_give_whole_rows(model, x):
    with count_kv_rows(model) as count:
        for block in model.blocks:
            for head in block.attn.wk.weight.split(2):  # (D, C) each
                for text in x:  # (T, C)
                    text @ head.T
    assert count.per_call == [5, 5]


def test_a_key_of_which_a_part_was_computed_counts_as_much_rounded_up(model, x):
    with count_kv_rows(model) as count:
        for block in model.blocks:
            x[0] @ block.attn.wk.weight[:2].T  # one head of two, for 5 rows
    assert count.per_call == [3]


def test_queries_values_and_looking_at_a_weight_are_not_counted(model, x):
    with count_kv_rows(model) as count:
        for block in model.blocks:
            block.attn.wq(x), block.attn.wv(x), block.attn.wo(x)
            block.attn.wk.weight.double().clone().sum()
            block.attn.wk.weight * 3
    assert count.rows == 0


def test_a_weight_that_is_overwritten_by_others_is_no_key_matrix_any_more(model, x):
    with count_kv_rows(model) as count:
        for block in model.blocks:
            copied = block.attn.wk.weight.clone()
            copied.copy_(block.attn.wv.weight)
            x @ copied.T
    assert count.rows == 0


def test_the_model_computes_as_before_also_while_it_is_counted(model):
    tokens = torch.randint(11, (2, 5))
    before = model(tokens)
    with count_kv_rows(model):
        assert torch.equal(model(tokens), before)
    assert torch.equal(model(tokens), before)


def test_what_comes_after_the_block_is_not_counted_not_even_after_an_error(model):
    def fail_while_counting() -> None:
        with count_kv_rows(model) as count:
            counts.append(count)
            model(torch.zeros(1, 0, dtype=torch.int64))

    counts = []
    with pytest.raises(ValueError, match="tokens must be"):
        fail_while_counting()
    model(torch.zeros(1, 4, dtype=torch.int64))
    assert counts[0].rows == 0


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
