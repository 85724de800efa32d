"""What lesson 07 shows in pictures and says of the story model, computed by its own functions."""

import numpy as np
import pytest
import torch

from course.checks.caches import feed, stored_bytes
from course.minigpt.kv_cache import KVCache, forward_cached, kv_cache_bytes
from course.minigpt.quantized_cache import (
    QuantizedKVCache,
    dequantize,
    quantize,
    quantized_cache_bytes,
)
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.plots import quantized_cache as plots
from course.published.models import PUBLISHED
from course.world.evaluation import evaluate, held_out
from course.world.outliers import BothPerToken, StoredAs, through_a_cache, with_outliers

STORIES = held_out(40)
HALF = torch.float16
SIZES = {"group": 16, "window": 16}


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


def recall_of(result: dict[str, float]) -> float:
    """Compute the part of all questions, near and far, that was answered right."""
    counts = {where: result[f"questions_{where}"] for where in ("near", "far")}
    right = sum(result[f"recall_{where}"] * n for where, n in counts.items() if n)
    return right / sum(counts.values())


def measure(model, new_cache) -> tuple[float, float]:
    """Measure the per cent of the questions that were answered right, and the perplexity."""
    with torch.no_grad():
        quality = evaluate(through_a_cache(model, forward_cached, new_cache), STORIES)
    return 100 * recall_of(quality), quality["perplexity"]


def per_channel(model, bits):
    return measure(model, lambda B, n: QuantizedKVCache(model.config, B, n, bits, **SIZES))


def per_token(model, bits):
    def new(B, n):
        return BothPerToken(lambda: QuantizedKVCache(model.config, B, n, bits, **SIZES))

    return measure(model, new)


@pytest.fixture(scope="module")
def full(story):
    return measure(story, lambda B, n: KVCache(story.config, B, n))


def test_the_example_of_the_first_picture_is_what_the_quantizer_gives():
    q = quantize(torch.from_numpy(plots.EXAMPLE), 2, dim=-1)
    assert (q.codes.numpy() == plots._CODES).all()
    assert np.allclose(q.scale.numpy()[:, 0], plots._STEPS)
    assert np.allclose(q.zero.numpy()[:, 0], plots._ZEROS)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_no_number_is_off_by_more_than_half_a_step(bits):
    x = torch.linspace(-1, 1, 4001)
    q = quantize(x, bits, 0)
    step = 2 / (2**bits - 1)
    assert float(q.scale) == pytest.approx(step)
    error = (dequantize(q) - x).abs().max().item()
    assert 0.49 * step < error <= 0.5 * step + 1e-6
    assert len(dequantize(q).unique()) == 2**bits


@pytest.mark.parametrize("head_dim", [64, 128])
def test_int8_is_1_88_times_and_int4_3_5_times_smaller_than_fp16_scales_included(head_dim):
    """The window apart: what is left are complete groups of 64 tokens."""
    c = GPTConfig(1000, 32, 32 * head_dim, 32, 8, 64, max_seq_len=131_072)
    plain = kv_cache_bytes(c, 8192)
    for bits, least in ((8, 1.88), (4, 3.5)):
        part = quantized_cache_bytes(c, 8192 + 32, bits=bits, group=64, window=32)
        assert plain / (part.codes + part.scales) >= least
        assert part.window == kv_cache_bytes(c, 32 + 63)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_real_storage_has_the_bytes_of_the_formula(bits):
    """Heads of 64, float16, filled to the last place."""
    c = GPTConfig(50, 2, 256, 4, 2, 64, max_seq_len=512)
    cache = QuantizedKVCache(c, 2, 250, bits, dtype=torch.float16)
    rows = np.random.default_rng(0).normal(size=(2, 2, 2, 2, 250, 64)).astype(np.float32)
    feed(cache, rows, torch.float16)
    part = quantized_cache_bytes(c, 250, 2, bits)
    assert stored_bytes(cache) == cache.nbytes() == part.total == sum(part)
    if bits < 8:
        same = kv_cache_bytes(c, 192, 2)  # three groups
        assert same / (part.codes + part.scales) > {4: 3.5, 2: 6}[bits]


def test_recall_at_8_bits_is_within_1_point_of_full_precision(story, full):
    recall, perplexity = per_channel(story, 8)
    assert abs(recall - full[0]) <= 1
    assert perplexity == pytest.approx(full[1], rel=1e-3)


@pytest.mark.parametrize(
    ("bits", "group", "here", "in_an_8b"),
    [
        (8, 16, 11.3, 9.2),
        (4, 16, 7.6, 5.2),
        (2, 16, 5.7, 3.2),
        (8, 64, 11.9, 8.5),
        (4, 64, 8.9, 4.5),
        (2, 64, 7.4, 2.5),
    ],
)
def test_a_number_takes_so_many_bits_codes_steps_and_window(story, bits, group, here, in_an_8b):
    sizes = {"bits": bits, "group": group, "window": 16}
    for c, n, wanted in (
        (story.config, 256, here),
        (PUBLISHED["Llama-3-8B"].config, 8192, in_an_8b),
    ):
        part = quantized_cache_bytes(c, n, **sizes)
        assert round(16 * part.total / kv_cache_bytes(c, n), 1) == wanted
    stored = QuantizedKVCache(story.config, 1, 256, **sizes, dtype=HALF).nbytes()
    assert round(16 * stored / kv_cache_bytes(story.config, 256), 1) == here


def test_half_of_a_2_bit_cache_of_our_short_texts_is_its_window(story):
    part = quantized_cache_bytes(story.config, 512, bits=2)
    assert 0.5 < part.window / part.total < 0.52
    assert round(kv_cache_bytes(story.config, 512) / part.total, 2) == 2.75


@pytest.mark.slow
def test_8_bits_and_fp8_keep_every_far_place_and_2_bits_lose_some_in_groups_of_64_more(story):
    """As the lesson measures: 100 stories, numbers of 16 bits, 16 tokens at a time."""
    stories = held_out(100)

    def places(new_cache) -> float:
        with torch.no_grad():
            forward = through_a_cache(story, forward_cached, new_cache, chunk=16)
            return 100 * evaluate(forward, stories)["recall_place_far"]

    def coded(bits, group):
        sizes = {"bits": bits, "group": group, "window": 16, "dtype": HALF}
        return places(lambda B, n: StoredAs(QuantizedKVCache(story.config, B, n, **sizes), HALF))

    def plain(*through):
        new = KVCache
        return places(lambda B, n: StoredAs(new(story.config, B, n, dtype=HALF), HALF, *through))

    full = plain()
    assert round(full) == 98
    assert plain(torch.float8_e4m3fn) == full
    assert coded(8, 16) == coded(8, 64) == full
    assert min(coded(4, 16), coded(4, 64)) > full - 1.5
    assert 90 < coded(2, 64) < 93 < 96 < coded(2, 16) < full


@pytest.mark.slow
def test_keys_per_token_are_cured_by_moving_the_factor_to_the_queries(story):
    cured = with_outliers(with_outliers(story, 1, 20), 1, 1 / 20)
    assert per_token(cured, 2) == pytest.approx(per_token(story, 2), rel=0.01)


@pytest.mark.slow
def test_outliers_change_nothing_at_full_precision_nor_with_keys_per_channel(story, full):
    loud = with_outliers(story, 1, 20)
    recall, perplexity = measure(loud, lambda B, n: KVCache(loud.config, B, n))
    assert recall == full[0]
    assert perplexity == pytest.approx(full[1], rel=1e-4)
    for bits in (4, 2):
        assert per_channel(loud, bits) == pytest.approx(per_channel(story, bits), rel=0.005)


@pytest.mark.slow
def test_with_outliers_keys_per_token_lose_the_memory(story):
    loud = with_outliers(story, 1, 20)
    (four, _), (two, perplexity) = per_token(loud, 4), per_token(loud, 2)
    assert four < 95
    assert two < 20
    assert perplexity > 5


@pytest.mark.slow
def test_without_outliers_keys_per_token_are_as_good(story):
    recall, perplexity = per_token(story, 4)
    assert recall > 99
    assert perplexity < 1.52 * 1.01
