"""What lesson 06 says in words, prints and draws; figures in its prose are computed there."""

from dataclasses import replace

import pytest
import torch
import transformers

from course import weights
from course.measure.allocations import watch_new_tensors
from course.measure.datasheets import DATASHEETS
from course.minigpt.gqa import (
    grouped_attention,
    max_batch_that_fits,
    mean_pool_kv_heads,
    repeat_kv,
)
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.roofline import phase_cost
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.published.models import LATENT, PUBLISHED
from course.world.evaluation import evaluate, held_out

GB = 10**9


@pytest.mark.parametrize(
    ("name", "sizes", "per_token", "in_80_gb"),
    [
        ("Llama-2-7B", (32, 32, 32, 128), 524_288, 15),
        ("Llama-2-13B", (40, 40, 40, 128), 819_200, 8),
        ("Llama-2-70B", (80, 64, 8, 128), 327_680, 0),
        ("Llama-3-8B", (32, 32, 8, 128), 131_072, 59),
        ("Llama-3-70B", (80, 64, 8, 128), 327_680, 0),
        ("Mistral-7B", (32, 32, 8, 128), 131_072, 61),
        ("Qwen2.5-0.5B", (24, 14, 2, 64), 12_288, 784),
        ("Qwen2.5-1.5B", (28, 12, 2, 128), 28_672, 327),
        ("Qwen2.5-7B", (28, 28, 4, 128), 57_344, 137),
        ("Qwen2.5-72B", (80, 64, 8, 128), 327_680, 0),
        ("Qwen3-8B", (36, 32, 8, 128), 147_456, 52),
        ("Llama-3.2-1B", (16, 32, 8, 64), 32_768, 288),
        ("SmolLM2-135M", (30, 9, 3, 64), 23_040, 422),
    ],
)
def test_a_published_model_keeps_so_many_bytes_of_a_token(name, sizes, per_token, in_80_gb):
    size = PUBLISHED[name]
    c = size.config
    assert (c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim) == sizes
    assert kv_cache_bytes(c, 1) == per_token
    assert max_batch_that_fits(c, 80 * GB, 8192, size.weight_bytes) == in_80_gb


@pytest.mark.parametrize(
    ("name", "published", "left_out"),
    [
        ("Llama-2-7B", 6_738_415_616, 0),
        ("Llama-2-13B", 13_015_864_320, 0),
        ("Llama-2-70B", 68_976_648_192, 0),
        ("Llama-3-8B", 8_030_261_248, 0),
        ("Llama-3-70B", 70_553_706_496, 0),
        ("Mistral-7B", 7_241_732_096, 0),
        ("Qwen2.5-0.5B", 494_032_768, 24 * (896 + 2 * 128)),
        ("Qwen2.5-1.5B", 1_543_714_304, 28 * (1536 + 2 * 256)),
        ("Qwen2.5-7B", 7_615_616_512, 28 * (3584 + 2 * 512)),
        ("Qwen2.5-72B", 72_706_203_648, 80 * (8192 + 2 * 1024)),
        ("Qwen3-8B", 8_190_735_360, 36 * 2 * 128),
        ("Llama-3.2-1B", 1_235_814_400, 0),
        ("SmolLM2-135M", 134_515_008, 0),
    ],
)
def test_its_sizes_give_the_published_number_of_parameters(name, published, left_out):
    assert PUBLISHED[name].parameters + left_out == published


def test_a_latent_cache_has_one_row_a_layer_as_transformers_configures_it():
    latent, known = LATENT["DeepSeek-V3"], transformers.DeepseekV3Config()
    assert latent.row == known.kv_lora_rank + known.qk_rope_head_dim == 576
    assert latent.n_layers == known.num_hidden_layers
    assert latent.bytes_per_token == 70_272


def test_llama_3_70b_needs_an_eighth_of_what_the_formula_with_heads_says():
    c = PUBLISHED["Llama-3-70B"].config
    by_heads = 2 * c.n_layers * c.n_heads * c.head_dim * 2
    assert by_heads == 8 * kv_cache_bytes(c, 1)


def test_the_story_models_keep_4096_bytes_of_a_token_down_to_512():
    names = {8: "story", 4: "story-g4", 2: "story-g2", 1: "story-g1"}
    for G, name in names.items():
        config, _ = weights.read(name)
        assert config.n_kv_heads == G
        assert kv_cache_bytes(config, 1, bytes_per_element=4) == 512 * G


@pytest.mark.parametrize("name", ["story", "story-g4", "story-g2", "story-g1"])
def test_no_model_forgets_a_far_surname(name):
    assert weights.metrics(name)["recall_surname_far"] == 1


def test_averaging_alone_breaks_the_model_and_training_repairs_it():
    config, state = weights.read("story")
    stories = held_out(8)
    for G, near in ((4, 0.95), (2, 0.9), (1, 0.8)):
        pooled = mean_pool_kv_heads(state, config, G)
        before = evaluate(MiniGPT.from_state(replace(config, n_kv_heads=G), pooled), stories)
        after = evaluate(MiniGPT.from_weights(f"story-g{G}"), stories)
        assert before["recall_near"] < 0.3
        assert before["perplexity"] > 4
        assert after["recall_near"] > near
        assert after["perplexity"] < 1.65


def test_a_decode_step_over_8192_tokens_writes_44_times_the_numbers_when_it_repeats_first():
    q, (k, v) = torch.randn(1, 16, 1, 64), torch.randn(2, 1, 2, 8192, 64)
    with watch_new_tensors(q, k, v) as repeated:
        grouped_attention(q, repeat_kv(k, 8), repeat_kv(v, 8))
    with watch_new_tensors(q, k, v) as grouped:
        grouped_attention(q, k, v)
    assert repeated.numbers >= 2 * 16 * 8192 * 64
    assert grouped.numbers < 4 * 16 * 8192
    assert round(repeated.numbers / grouped.numbers) == 44


@pytest.mark.parametrize(
    ("G", "first", "last"), [(32, 16.1, 1.23), (8, 25.5, 4.74), (1, 31.6, 31.9)]
)
def test_the_decode_point_slides_towards_the_query_heads_of_each_kv_head(G, first, last):
    config = replace(PUBLISHED["Llama-3-8B"].config, n_kv_heads=G)
    short, long = (phase_cost(config, 1, context, batch=32) for context in (1024, 131_072))
    assert f"{short.intensity:.3g}" == str(first)
    assert f"{long.intensity:.3g}" == str(last)
    endless = phase_cost(config, 1, 2**31, batch=32)
    assert endless.intensity == pytest.approx(32 / G, rel=1e-3)
    assert long.intensity < DATASHEETS["H100"].balance  # on the slope throughout


def test_weights_give_as_many_flops_a_byte_as_there_are_rows():
    config = PUBLISHED["Llama-3-8B"].config
    cost = phase_cost(config, 1, 0, batch=32)
    assert cost.flops / cost.weight_bytes == pytest.approx(32, rel=1e-3)


def test_a_config_of_ours_is_what_lesson_03_drew():
    """The 70B-class model of lesson 03, with its real feed-forward width."""
    assert PUBLISHED["Llama-3-70B"].config == GPTConfig(
        128_256, 80, 8192, 64, 8, 28_672, max_seq_len=8192
    )
