"""What lesson 16 shows in pictures and says in its text, computed by its own functions."""

import json

import pytest
import torch

from course import weights
from course.given.experts import MoEGPT
from course.measure.datasheets import DATASHEETS
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.mixture_of_experts import (
    compute_bound_from,
    expected_experts,
    moe_grouped,
    route,
    step_bytes,
)
from course.minigpt.speculative import expected_tokens
from course.model import MiniGPT
from course.plots import mixture_of_experts as plots
from course.published.experts import EXPERTS, MoESize
from course.widgets.mixture_of_experts import DENSE
from course.world.evaluation import evaluate, held_out
from course.world.tokenizer import encode
from course.world.train_experts import SHIPPED, SIBLINGS, imbalance, starting_model


@pytest.fixture(scope="module")
def sibling() -> MoEGPT:
    return MoEGPT.from_weights(SHIPPED, route, moe_grouped)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("Mixtral-8x7B", 46.7), ("Qwen3-30B-A3B", 30.5), ("gpt-oss-120b", 116.8)],
)
def test_published_sizes_have_the_published_number_of_parameters(name, billions):
    size = EXPERTS[name]
    table = size.vocab_size * size.d_model
    numbers = step_bytes(size, size.n_experts, 1) + table
    assert numbers / 1e9 == pytest.approx(billions, abs=0.1)


def test_at_first_the_sibling_is_its_parent():
    tokens = encode(held_out(1)[0].text)
    difference = starting_model(weights.FOLDER)(tokens) - MiniGPT.from_weights("story")(tokens)
    assert difference.abs().max() < 1e-4


def test_the_sibling_has_what_was_recorded_of_it(sibling):
    recorded = json.loads((weights.FOLDER / "metrics.json").read_text())
    assert set(SIBLINGS) <= set(recorded)
    measured = evaluate(sibling, held_out(10))
    assert measured["loss"] == pytest.approx(recorded[SHIPPED]["loss"], abs=0.03)
    assert recorded[SHIPPED]["recall_far"] >= recorded["story"]["recall_far"]
    assert (weights.FOLDER / f"{SHIPPED}.safetensors").stat().st_size < 4e6


def test_the_sibling_uses_its_experts_alike_and_without_the_loss_of_balance_it_does_not(sibling):
    recorded = json.loads((weights.FOLDER / "metrics.json").read_text())
    alike, unlike = (recorded[name] for name in SIBLINGS)
    for n in (5, 16):
        formula = expected_experts(8, 2, n)
        assert alike[f"experts_read_of_{n}"] == pytest.approx(formula, abs=0.05)
        assert unlike[f"experts_read_of_{n}"] < formula - 1
    assert alike["busiest_expert"] < 2 < unlike["busiest_expert"]


def test_the_loss_of_balance_is_least_where_all_are_used_alike(sibling):
    sibling(encode(held_out(1)[0].text))
    n = len(sibling.chosen()[0])
    alike = {layer: torch.zeros(n, 8) for layer in range(4)}
    assert imbalance(sibling, alike) == pytest.approx(1)
    towards_the_busiest = {
        layer: 5 * torch.bincount(chosen.flatten(), minlength=8).float().expand(n, 8) / n
        for layer, chosen in enumerate(sibling.chosen())
    }
    assert imbalance(sibling, towards_the_busiest) > 1


def test_a_cache_needs_no_change(sibling):
    tokens = encode(held_out(1)[0].text)[:, :40]
    cache = KVCache(sibling.config, 1, 40)
    parts = [forward_cached(sibling, part, cache) for part in tokens.split([7, 1, 32], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), sibling(tokens), atol=1e-4)


def test_guesses_pay_for_many_on_a_mixture_and_for_few_on_a_dense_model():
    machine, qwen3 = DATASHEETS["H200"], EXPERTS["Qwen3-30B-A3B"]

    def seconds(size: MoESize, n: int) -> float:
        n_bytes = step_bytes(size, expected_experts(size.n_experts, size.k, n))
        flops = n * 2 * step_bytes(size, size.k, 1)
        return max(n_bytes / machine.bytes_per_second, flops / machine.flops_per_second)

    def gain(size: MoESize, batch: int) -> float:
        return expected_tokens(0.76, 4) * seconds(size, batch) / seconds(size, 5 * batch)

    assert 0.95 < gain(qwen3, 2) < 1 < gain(qwen3, 1) < 1.1
    assert gain(qwen3, 64) > 3
    assert gain(DENSE, 1) > 3
    assert gain(DENSE, 256) < 0.7
    assert compute_bound_from(DENSE, machine) < 300 < 2000 < compute_bound_from(qwen3, machine)


def test_sizes_that_cannot_be_are_refused_by_name():
    with pytest.raises(ValueError, match="d_expert must be a whole number of at least 1, got 0"):
        MoESize(10, 1, 8, 2, 1, 4, 0, 4, 1)
    with pytest.raises(ValueError, match="k = 5 of 4 experts"):
        MoESize(10, 1, 8, 2, 1, 4, 8, 4, 5)
    with pytest.raises(ValueError, match="2 KV heads do not divide 3 heads"):
        MoESize(10, 1, 8, 3, 2, 4, 8, 4, 1)
    with pytest.raises(ValueError, match="no router"):
        MoEGPT.from_weights("story-g2", route, moe_grouped)


def test_pictures_say_what_they_show():
    chosen = torch.tensor([[1, 0], [2, 1]])
    strip = plots.draw_strip(["The", "cat"], chosen, n_experts=4)
    assert "The 0 and 1; cat 1 and 2" in strip.alt
    assert "2, 3 different ones" in strip.caption
    assert "up to 4.0 times" in plots.draw_bytes((1, 2, 4), [1, 2, 4.0], [1, 1, 1]).caption
    gains = plots.draw_gains((1, 2), [1.1, 0.9], [3.0, 2.0])
    assert "Least of all with 2 chats on the mixture, 0.90 times" in gains.caption
    times = {"experts": {1: 1.0, 2: 2.5}, "dense": {1: 1.0, 2: 1.25}}
    assert (
        "2.5 times as long as with one, the dense one 1.2"
        in plots.draw_measured(times, [1, 1.9]).caption
    )
    point = plots.draw_pass(DATASHEETS["H200"], {"one": (1.0, 4.8e12)}, "title", "caption")
    assert "one: 1 FLOP/byte" in point.alt
