"""What lesson 08 shows in pictures and says of the story model, computed by its own functions."""

import numpy as np
import pytest
import torch
import transformers

from course.given.windowed import EVERYTHING, attention_to_token, forward_windowed, windowed_model
from course.minigpt.kv_cache import KVCache, forward_cached, kv_cache_bytes
from course.minigpt.sliding_window import (
    WindowedKVCache,
    place_of,
    window_mask,
    windowed_cache_bytes,
)
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.plots import sliding_window as plots
from course.published.models import PUBLISHED, WINDOWED
from course.world.evaluation import evaluate, held_out, recall_by_distance
from course.world.tokenizer import encode

STORIES = held_out(60)


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


def recall(model: MiniGPT, windows: list[int], edges: list[int]) -> list[float]:
    forward = windowed_model(model, window_mask, windows)
    return [part for part, _ in recall_by_distance(forward, STORIES, edges)]


@pytest.mark.slow
@pytest.mark.parametrize("window", [32, 64, 128])
def test_recall_falls_off_a_cliff_at_the_windows_edge(story, window):
    within, beyond = recall(story, [window] * 4, [0, window, 2 * window])
    assert within > 0.6
    assert beyond < 0.12


@pytest.mark.slow
def test_one_layer_keeps_what_is_far_and_it_is_layer_2(story):
    far = {}
    for full in ((), (0,), (1,), (2,), (3,), (0, 2)):
        windows = [EVERYTHING if layer in full else 32 for layer in range(4)]
        [far[full]] = recall(story, windows, [100, 256])
    assert far[2,] > 0.9
    assert far[0, 2] > 0.97
    assert max(far[full] for full in ((), (0,), (1,), (3,))) < 0.06


@pytest.mark.slow
def test_the_story_model_has_no_sink(story):
    tokens = encode(" ".join(one.text for one in STORIES[:3]))[:, :200]
    assert attention_to_token(story, tokens, number=0, first=32).max() < 0.04
    without, with_four = (
        evaluate(windowed_model(story, window_mask, [32] * 4, n), STORIES)["perplexity"]
        for n in (0, 4)
    )
    assert without == pytest.approx(with_four, abs=0.02)
    assert without == pytest.approx(2.7, abs=0.1)


def test_bytes_of_the_ring_and_of_a_full_cache(story):
    assert WindowedKVCache(story.config, 1, 1024, 64, 4).nbytes() == 278_528
    assert KVCache(story.config, 1, 1024).nbytes() == 4_194_304


def test_bytes_of_models_that_mix_windows_with_full_layers():
    llama = PUBLISHED["Llama-3-8B"].config  # L = 32, G = 8, D = 128
    assert windowed_cache_bytes(llama, 32_768, 1024, n_full_layers=5) == 784_334_848
    assert kv_cache_bytes(llama, 32_768) == 4_294_967_296
    assert windowed_cache_bytes(llama, 32_768, 1024, n_full_layers=32) == 4_294_967_296


@pytest.mark.parametrize(
    ("name", "mixed", "full"),
    [
        ("gpt-oss-20b", 3_224_371_200, 6_442_450_944),
        ("Gemma-3-27B", 11_173_625_856, 66_571_993_088),
    ],
)
def test_bytes_of_published_models_with_windows_at_their_longest_text(name, mixed, full):
    model = WINDOWED[name]
    c = model.config
    assert kv_cache_bytes(c, 131_072) == full
    n = (model.n_full_layers, c.n_layers - model.n_full_layers)
    row = 2 * c.n_kv_heads * c.head_dim * 2
    assert row * (n[0] * 131_072 + n[1] * model.window) == mixed
    assert windowed_cache_bytes(c, 131_072, model.window, n_full_layers=n[0]) == mixed


def test_their_layers_are_as_transformers_lays_them_out():
    oss, gemma = WINDOWED["gpt-oss-20b"], WINDOWED["Gemma-3-27B"]
    known = transformers.GptOssConfig(num_hidden_layers=24)
    assert known.layer_types.count("full_attention") == oss.n_full_layers
    assert known.sliding_window == oss.window
    layers = transformers.Gemma3TextConfig(num_hidden_layers=62).layer_types
    assert layers.count("full_attention") == gemma.n_full_layers


def test_token_100_lies_in_place_4():
    assert place_of(torch.tensor([100]), window=16, n_sinks=4).tolist() == [4]


# --- given to the lesson -------------------------------------------------------------------------


def test_a_window_that_hides_nothing_is_the_model_itself(story):
    tokens = encode(STORIES[0].text)
    whole = windowed_model(story, window_mask, [EVERYTHING] * 4)(tokens)
    assert torch.allclose(whole, story(tokens), atol=1e-4)
    cache = WindowedKVCache(story.config, 1, 256, window=256)
    cached = forward_windowed(story, tokens, cache, window_mask)
    other = forward_cached(story, tokens, KVCache(story.config, 1, 256))
    assert torch.allclose(cached, other, atol=1e-4)


def test_windows_are_one_for_each_layer(story):
    with pytest.raises(ValueError, match="4 layers need as many windows, got 2"):
        windowed_model(story, window_mask, [32, 32])


def test_attention_to_a_token_adds_up(story):
    tokens = encode("The cat sat on the mat .")
    parts = sum(attention_to_token(story, tokens, n, first=6) for n in range(7))
    assert parts == pytest.approx(torch.ones(4, 8), abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: WindowedKVCache(c, 1, 16, window=0), "window must be .* got 0"),
        (lambda c: WindowedKVCache(c, 1, 16, window=4, n_sinks=-1), "n_sinks must be .* got -1"),
        (lambda c: WindowedKVCache(c, 1, 16, window=4, n_sinks=17), "n_sinks must be .* got 17"),
        (lambda c: WindowedKVCache(c, 0, 16, window=4), "batch must be .* got 0"),
        (lambda c: WindowedKVCache(c, 1, 65, window=4), "max_len must be .* got 65"),
        (lambda c: windowed_cache_bytes(c, 9, 0), "window must be .* got 0"),
        (
            lambda c: windowed_cache_bytes(c, 9, 4, n_full_layers=3),
            "n_full_layers must be .* got 3",
        ),
        (lambda c: place_of(torch.tensor([-1]), 4), "tokens must be .* got -1"),
        (lambda c: place_of(torch.tensor([1.5]), 4), "tokens must be .* got torch.float32"),
        (lambda c: window_mask(torch.arange(3), torch.eye(2), 4), "places must be token numbers"),
        (lambda c: window_mask([0], torch.arange(3), 4), r"own must be token numbers .* got \[0\]"),
        (lambda c: WindowedKVCache(c, 1, 16, 4).places(0), "n_new must be .* got 0"),
        (lambda c: WindowedKVCache(c, 1, 16, 4).advance(1), "layer 0 was given 0 new tokens"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(GPTConfig(20, 2, 16, 4, 2, 24, max_seq_len=64))


# --- the pictures --------------------------------------------------------------------------------


def test_the_pictures_say_what_they_show():
    assert "place" in plots.draw_ring(9, 4, 2).alt
    steps = {100: {"ring": [1e-3], "full": [2e-3]}, 500: {"ring": [1e-3], "full": [3e-3]}}
    words = plots.draw_steps(steps, {"ring": 10, "full": 20}).caption
    assert "ring 1.00, 1.00 ms; full 2.00, 3.00 ms" in words
    shares = torch.full((2, 3), 0.01)
    assert "1.0 %" in plots.draw_sinks(shares, 2.7, 2.6).caption
    assert "17.2 GB" in plots.draw_bytes(windowed_cache_bytes).caption
    found = {32: ([(0.5, 4), (0.0, 6)], 2.7), EVERYTHING: ([(1.0, 4), (1.0, 6)], 1.5)}
    assert "window 32: 50% at 0 to 31, 0% at 32 to 63" in plots.draw_cliffs([0, 32, 64], found).alt
    recalls = {(): 0.0, (2,): 0.91}
    assert "layer 2: 91 %" in plots.draw_full_layers(recalls, 45, rows=250, window=32).alt
    mask = np.tri(10, dtype=bool)
    assert "50% at 0–31" in plots.draw_choice(mask, 2, [(0.5, 3)], [0, 32], (10, 20)).caption


def test_six_of_sixteen_rows_would_be_lost_if_append_wrote_at_once():
    held, new = torch.arange(4, 8), torch.arange(8, 12)
    mask = window_mask(new, torch.cat([held, new]), window=4)
    picture = plots.draw_lost(mask, held.tolist(), new.tolist())
    assert "That is 6 of the 16 rows needed." in picture.caption
    assert len(picture.figure.axes[0].texts) == 6
