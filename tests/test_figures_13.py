"""What lesson 13 shows in pictures and says in its text, computed by its own functions."""

import json

import pytest
import torch

from course import weights
from course.given.latent import LatentGPT, forward_latent
from course.measure.allocations import watch_new_tensors
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.latent_attention import (
    LatentKVCache,
    absorb,
    attend_latent,
    latent_attention_layer,
    latent_cache_bytes,
)
from course.minigpt.mini_gpt import split_heads
from course.plots import latent_attention as plots
from course.published.models import LATENT
from course.widgets.latent_attention import LAYERS
from course.world.evaluation import evaluate, held_out
from course.world.train_latent import SHIPPED, SIBLINGS, expanded_layer, starting_model


@pytest.fixture(scope="module")
def story() -> LatentGPT:
    return LatentGPT.from_weights(SHIPPED)


def read(model: LatentGPT, tokens: torch.Tensor, split: list[int]) -> torch.Tensor:
    """Logits of a text that is fed in chunks."""
    cache = LatentKVCache(model.config, *tokens.shape, model.rank, model.d_rope)
    chunks = tokens.split(split, dim=1)
    outs = [forward_latent(model, chunk, cache, latent_attention_layer) for chunk in chunks]
    return torch.cat(outs, dim=1)


def test_deepseek_v2_keeps_34560_numbers_of_a_token():
    numbers = latent_cache_bytes(60, 512, 64, 1, bytes_per_element=1)
    assert numbers == 34_560
    assert 60 * 2 * 128 * 128 == 1_966_080
    assert round(1_966_080 / numbers, 1) == 56.9
    assert numbers / 60 / (2 * 128) == 2.25  # GQA groups


def test_deepseek_v3_keeps_what_its_record_says():
    latent = LATENT["DeepSeek-V3"]
    assert latent_cache_bytes(latent.n_layers, 512, 64, 1) == latent.bytes_per_token


def test_the_published_93_percent_need_6_bits_a_number():
    before = 95 * 2 * 8 * 128
    assert before == 194_560
    assert round(100 * (1 - 34_560 / before), 1) == 82.2
    assert round(100 * (1 - 34_560 * 6 / (before * 16)), 1) == 93.3


def test_the_sibling_keeps_what_one_kv_head_does(story):
    one_head, _ = weights.read("story-g1")
    assert latent_cache_bytes(LAYERS, story.rank, story.d_rope, 7) == kv_cache_bytes(one_head, 7)
    assert story.config.n_layers == LAYERS


def test_with_the_numbers_of_one_kv_head_a_latent_recalls_more_than_two_of_them():
    latent, one, two = (
        weights.metrics(name)["recall_place_far"] for name in (SHIPPED, "story-g1", "story-g2")
    )
    assert latent > 0.5 > 0.3 > one
    assert latent > two
    assert weights.metrics(SHIPPED)["recall_surname_far"] == 1


def test_conversion_alone_breaks_the_model_and_training_repairs_it(story):
    stories = held_out(8)
    before = evaluate(starting_model(16, 16, weights.FOLDER), stories)
    after = evaluate(lambda tokens: read(story, tokens, [tokens.shape[1]]), stories)
    assert before["recall_place_far"] < 0.1
    assert weights.metrics(SHIPPED)["recall_place_far_converted"] < 0.1
    assert after["recall_place_far"] > 0.6
    assert after["recall_near"] > 0.9


@pytest.mark.slow
def test_measured_anew_the_sibling_is_as_recorded(story):
    recorded = weights.metrics(SHIPPED)
    stories = held_out(recorded["stories"])
    measured = evaluate(lambda tokens: read(story, tokens, [tokens.shape[1]]), stories)
    for metric, tolerance in (("loss", 0.001), ("recall_far", 0.005), ("recall_place_far", 0.01)):
        assert measured[metric] == pytest.approx(recorded[metric], abs=tolerance)


@pytest.mark.parametrize("split", [[40], [1] * 40, [13, 1, 26]])
def test_absorbed_is_expanded_is_uncached_for_any_split(story, split):
    tokens = torch.randint(50, (2, 40), generator=torch.Generator().manual_seed(0))
    config, state = weights.read(SHIPPED)
    expanded = LatentGPT.from_latent_state(config, state, expanded_layer)
    assert (read(story, tokens, split) - expanded(tokens)).abs().max() < 5e-4


def test_expanding_writes_over_20_times_the_numbers_of_absorbing():
    H, D, rank, R, S = 16, 64, 128, 32, 2048
    rows, up_k, up_v = torch.randn(1, S, rank + R), *(torch.randn(2, H * D, rank) / rank**0.5)
    q_nope, q_rope = torch.randn(1, H, 1, D), torch.randn(1, H, 1, R)
    with watch_new_tensors(rows, up_k, up_v, q_nope, q_rope) as absorbed:
        q = torch.cat([absorb(q_nope, up_k), q_rope], dim=-1)
        latents = attend_latent(q, rows, rank, (D + R) ** -0.5)
        one = latents @ up_v.view(H, D, rank).transpose(1, 2)
    with watch_new_tensors(rows, up_k, up_v, q_nope, q_rope) as expanded:
        keys, values = (split_heads(rows[..., :rank] @ up.T, H) for up in (up_k, up_v))
        shared = rows[:, None, :, rank:].expand(-1, H, -1, -1)
        keys = torch.cat([keys, shared], dim=-1)
        scores = torch.cat([q_nope, q_rope], dim=-1) @ keys.transpose(2, 3)
        other = (scores * (D + R) ** -0.5).softmax(dim=-1) @ values
    assert torch.allclose(one, other, atol=1e-4)
    assert expanded.numbers > 20 * absorbed.numbers


def test_a_command_trains_what_is_shipped_and_what_is_compared():
    recorded = json.loads((weights.FOLDER / "metrics.json").read_text())
    assert set(plots.trained_latents()) == {name for name in SIBLINGS if name in recorded}
    assert set(plots.LATENTS) == set(SIBLINGS)
    assert SHIPPED in recorded


def test_unknown_widths_and_foreign_weights_are_refused():
    config, state = weights.read("story")
    with pytest.raises(ValueError, match="up_k is missing"):
        LatentGPT.from_latent_state(config, state)
    with pytest.raises(ValueError, match="even, got 5"):
        LatentGPT(config, 16, 5)


def test_pictures_say_what_they_show():
    recorded = {name: weights.metrics(name) for name in (*plots.SHARED, *plots.trained_latents())}
    assert "Dotted: 48 numbers" in plots.draw_recall(recorded, (40, 8)).caption
    assert "16 + 16 recall" in plots.draw_recall(recorded).alt
    assert "384 numbers for 24 tokens" in plots.draw_regrouping(16, 8, 24).caption
    assert "latent: 576" in plots.draw_bytes({"latent": 576, "MQA": 256}, "numbers").alt
