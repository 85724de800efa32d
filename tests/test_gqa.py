"""What lesson 06 gives to students: a watch over new tensors, refusals, memory to play with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from autograder import oracle
from course.measure.allocations import watch_new_tensors
from course.minigpt.gqa import (
    grouped_attention,
    max_batch_that_fits,
    mean_pool_kv_heads,
    repeat_kv,
)
from course.minigpt.kv_cache import KVCache, causal_mask
from course.model import MiniGPT
from course.published.models import PUBLISHED
from course.widgets.gqa import SHARED, with_heads

HEADS = torch.zeros(2, 4, 3, 8)
LONG = PUBLISHED["Llama-3-8B"].config

# --- new tensors ---------------------------------------------------------------------------------


def test_views_are_nothing_new():
    x = torch.randn(2, 3, 4)
    with watch_new_tensors(x) as made:
        _ = x.transpose(1, 2)[:, 1:].expand(5, 2, 3, 3).flatten(0, 0)
    assert made.tensors == []
    assert (made.numbers, made.largest) == (0, None)


def test_copies_are_counted_where_they_are_made_whatever_they_are_called_through():
    x = torch.randn(2, 3, 4)
    with watch_new_tensors(x) as made:
        _ = x + 1
        _ = x.transpose(1, 2).reshape(2, 12)
        x.mul_(2)
    assert [tensor.made_by for tensor in made.tensors] == ["add", "clone"]
    assert made.numbers == 2 * x.numel()


def test_a_product_whose_batch_axes_differ_writes_its_smaller_side_out():
    q, k = torch.randn(1, 2, 8, 1, 16), torch.randn(1, 2, 1, 16, 50)
    with watch_new_tensors(q, k) as made:
        _ = q @ k
    assert (made.largest.made_by, made.largest.numbers) == ("clone", 8 * k.numel())


def test_a_tensor_from_elsewhere_counts_as_new():
    x, buffer = torch.randn(3), torch.zeros(3, 100)
    with watch_new_tensors(x) as made:
        buffer[:, 0].copy_(x)
        _ = x * torch.from_numpy(np.ones(3, np.float32))
    assert [(tensor.made_by, tensor.numbers) for tensor in made.tensors] == [
        ("elsewhere", 300),
        ("elsewhere", 3),
        ("mul", 3),
    ]


def test_what_is_only_looked_at_is_not_read():
    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    with watch_new_tensors(x, y, z) as made:
        _ = x.view(3, 1).numpy() + 1
        _ = y + 1
        z.add_(1)
    assert made.read == [False, True, False]


def test_nothing_is_noted_after_the_block():
    x = torch.randn(3)
    with watch_new_tensors(x) as made:
        pass
    _ = x + 1
    assert made.tensors == []


# --- the oracle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("G", [6, 3, 2, 1])
def test_the_oracle_s_shared_attention_is_pytorch_s(G):
    q, k, v = torch.randn(2, 6, 3, 4), *torch.randn(2, 2, G, 5, 4)
    mask = torch.rand(2, 6, 3, 5) < 0.6
    mask[..., 0] = True
    wanted = F.scaled_dot_product_attention(
        q, k.repeat_interleave(6 // G, 1), v.repeat_interleave(6 // G, 1), attn_mask=mask
    )
    found = oracle.shared_attention(*(x.numpy() for x in (q, k, v, mask)))
    assert np.abs(found - wanted.numpy()).max() < 1e-5


def test_the_oracle_pools_neighbours():
    weight = np.arange(8.0)[:, None].repeat(3, axis=1)  # 4 heads of 2
    assert oracle.pooled_heads(weight, 2, 2)[:, 0].tolist() == [1, 2, 5, 6]


# --- as part of a model --------------------------------------------------------------------------


def test_a_cache_of_few_heads_drives_grouped_attention_and_nothing_of_it_is_copied():
    config = MiniGPT.from_weights("story-g2").config
    cache = KVCache(config, batch=2, max_len=40)
    for layer in range(config.n_layers):
        cache.append(layer, *torch.randn(2, 2, 2, 30, 16))
    cache.advance(30)
    k, v = cache.append(0, *torch.randn(2, 2, 2, 1, 16))
    q = torch.randn(2, 8, 1, 16)
    with watch_new_tensors(q, k, v) as made:
        out = grouped_attention(q, k, v, causal_mask(1, 31))
    wide = repeat_kv(k, 4), repeat_kv(v, 4)
    assert torch.allclose(out, F.scaled_dot_product_attention(q, *wide), atol=1e-5)
    assert made.largest.numbers <= 2 * 8 * 31


def test_models_that_share_heads_already_can_be_pooled_further():
    model = MiniGPT.from_weights("story-g4")
    pooled = mean_pool_kv_heads(model.state_dict(), model.config, 2)
    once = mean_pool_kv_heads(pooled, replace(model.config, n_kv_heads=2), 1)
    at_once = mean_pool_kv_heads(model.state_dict(), model.config, 1)
    assert all(torch.allclose(once[name], at_once[name], atol=1e-6) for name in once)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: repeat_kv(HEADS[0], 2), r"must be \(B, G, S, D\).*got \(4, 3, 8\)"),
        (lambda: repeat_kv(HEADS[:, :0], 2), "none of them 0"),
        (lambda: repeat_kv(HEADS, 0), "n_rep must be a whole number from 1"),
        (lambda: repeat_kv(HEADS, 2.0), "n_rep must be a whole number"),
        (lambda: grouped_attention(HEADS, HEADS[:, :3], HEADS[:, :3]), "4 query heads.*3 KV heads"),
        (lambda: grouped_attention(HEADS, HEADS, HEADS[:, :2]), "keys and values of one shape"),
        (lambda: grouped_attention(HEADS, HEADS[..., :4], HEADS[..., :4]), "of one shape"),
        (lambda: grouped_attention(HEADS, HEADS, HEADS, torch.ones(3, 3)), "must be bool"),
        (
            lambda: grouped_attention(HEADS, HEADS, HEADS, torch.ones(3, 4, dtype=torch.bool)),
            r"\(3, 4\) does not broadcast to \(B, H, T, S\) = \(2, 4, 3, 3\)",
        ),
        (lambda: mean_pool_kv_heads({}, LONG, 3), "8 KV heads cannot be cut into 3 groups"),
        (lambda: mean_pool_kv_heads({}, LONG, 0), "n_kv_heads must be a whole number from 1 to 8"),
        (lambda: mean_pool_kv_heads({}, LONG, 16), "n_kv_heads must be a whole number from 1 to 8"),
        (lambda: max_batch_that_fits(LONG, 0, 8, 1), "memory_bytes must be"),
        (lambda: max_batch_that_fits(LONG, -1, 8, 1), "memory_bytes must be.*got -1"),
        (lambda: max_batch_that_fits(LONG, 80e9, 8, 1), "memory_bytes must be a whole number"),
        (lambda: max_batch_that_fits(LONG, 10, 0, 1), "n_tokens must be"),
        (lambda: max_batch_that_fits(LONG, 10, 8, -1), "weight_bytes must be.*got -1"),
        (lambda: max_batch_that_fits(LONG, 10, 8, 1, 0), "bytes_per_element must be"),
    ],
)
def test_clumsy_input_is_refused_at_the_door(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- the widget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_choice_of_kv_heads_is_one_that_a_model_can_have(name):
    config = PUBLISHED[name].config
    found = {with_heads(config, shared).n_kv_heads for shared in SHARED.values()}
    assert {1, config.n_heads, config.n_kv_heads} <= found
