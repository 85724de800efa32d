"""What the cache and cached generation refuse, and that nothing changes when they do."""

import numpy as np
import pytest
import torch

from course.checks.drawing import build_model, draw_model
from course.measure.wrong_caches import wrong_caches
from course.minigpt.kv_cache import (
    KVCache,
    causal_mask,
    forward_cached,
    generate_cached,
)
from course.model import MiniGPT
from course.model.cache import CacheFull, KVCacheLike
from course.world.tokenizer import encode


@pytest.fixture
def model():
    return build_model(draw_model(np.random.default_rng(0)))


@pytest.fixture
def cache(model):
    """A cache of 8 places that holds 5 tokens of a batch of 2."""
    cache = KVCache(model.config, batch=2, max_len=8)
    forward_cached(model, torch.arange(10).reshape(2, 5), cache)
    return cache


def block(tokens=1, batch=2, heads=2, width=6, dtype=torch.float32):
    return torch.ones(batch, heads, tokens, width, dtype=dtype)


def test_a_cache_keeps_the_protocol(cache):
    assert isinstance(cache, KVCacheLike)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"batch": 0}, "batch must be a whole number from 1"),
        ({"max_len": 0}, "max_len must be a whole number from 1 to 64, got 0"),
        ({"max_len": 65}, "got 65"),
        ({"max_len": 2.5}, "got 2.5"),
    ],
)
def test_a_cache_of_impossible_size_is_refused(model, sizes, named):
    with pytest.raises(ValueError, match=named):
        KVCache(model.config, **{"batch": 2, "max_len": 8, **sizes})


@pytest.mark.parametrize(
    ("k", "named"),
    [
        (block(batch=3), r"\(2, 2, T, 6\).*got \(3, 2, 1, 6\)"),
        (block(heads=4), r"got \(2, 4, 1, 6\)"),
        (block(width=5), r"got \(2, 2, 1, 5\)"),
        (block(tokens=0), r"T of at least 1, got \(2, 2, 0, 6\)"),
        (block()[0], r"got \(2, 1, 6\)"),
        (block(dtype=torch.float64), "holds torch.float32, got keys of torch.float64"),
    ],
)
def test_keys_of_another_shape_or_dtype_are_refused_and_nothing_changes(cache, k, named):
    before = cache.keys.clone()
    with pytest.raises(ValueError, match=named):
        cache.append(0, k, block())
    assert len(cache) == 5
    assert torch.equal(cache.keys, before)


def test_values_that_do_not_go_with_their_keys_are_refused(cache):
    with pytest.raises(ValueError, match=r"takes values of shape.*got \(2, 2, 2, 6\)"):
        cache.append(0, block(), block(tokens=2))


@pytest.mark.parametrize("layer", [-1, 3, "0"])
def test_a_layer_that_does_not_exist_is_refused(cache, layer):
    with pytest.raises(ValueError, match="layer must be a whole number from 0 to 2"):
        cache.append(layer, block(), block())


def test_a_full_cache_says_so_and_holds_what_it_held(model, cache):
    keys = cache.keys.clone()
    with pytest.raises(CacheFull, match="5 of 8 places are taken, 4 more do not fit"):
        forward_cached(model, torch.ones(2, 4, dtype=torch.int64), cache)
    assert len(cache) == 5
    assert torch.equal(cache.keys, keys)


def test_a_full_cache_is_noticed_before_the_positions_of_the_model_end(model):
    tokens = torch.ones(1, 62, dtype=torch.int64)  # max_seq_len is 64
    cache = KVCache(model.config, batch=1, max_len=64)
    forward_cached(model, tokens, cache)
    with pytest.raises(CacheFull, match="62 of 64 places are taken, 3 more do not fit"):
        forward_cached(model, tokens[:, :3], cache)
    assert len(cache) == 62


def test_without_a_cache_one_of_the_model_s_dtype_is_made(model):
    prompt = torch.arange(6).reshape(2, 3)
    assert torch.equal(
        generate_cached(model.double(), prompt, 4), generate_cached(model.float(), prompt, 4)
    )


@pytest.mark.parametrize("n", [-1, 6, 2.0, None])
def test_truncate_to_a_length_that_is_not_there_is_refused(cache, n):
    with pytest.raises(ValueError, match="n must be a whole number from 0 to 5"):
        cache.truncate(n)
    assert len(cache) == 5


def test_advance_beyond_the_room_is_refused(cache):
    with pytest.raises(ValueError, match="from 0 to 3, got 4"):
        cache.advance(4)


def test_tokens_of_another_batch_are_refused(model, cache):
    with pytest.raises(ValueError, match=r"got \(3, 2, 1, 6\)"):
        forward_cached(model, torch.ones(3, 1, dtype=torch.int64), cache)
    assert len(cache) == 5


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        (torch.ones(2, 1), "int64 tensor, got torch.float32"),
        (torch.ones(2, 0, dtype=torch.int64), "at least one row and one token"),
        (torch.ones(2, dtype=torch.int64), r"got shape \(2,\)"),
        (torch.full((2, 1), 50), "0 … 49, got 50"),
    ],
)
def test_tokens_that_no_model_can_take_are_refused(model, cache, tokens, named):
    with pytest.raises(ValueError, match=named):
        forward_cached(model, tokens, cache)
    assert len(cache) == 5


def test_a_mask_with_more_new_tokens_than_visible_ones_is_refused():
    with pytest.raises(ValueError, match="n_new must be a whole number from 1 to 2, got 3"):
        causal_mask(3, 2)


@pytest.mark.parametrize("n_new", [-1, 1.5, "4"])
def test_an_impossible_number_of_new_tokens_is_refused(model, n_new):
    with pytest.raises(ValueError, match="n_new must be a whole number from 0"):
        generate_cached(model, torch.ones(1, 3, dtype=torch.int64), n_new)


def test_no_new_tokens_give_the_prompt_in_a_tensor_of_its_own(model):
    prompt = torch.ones(1, 3, dtype=torch.int64)
    text = generate_cached(model, prompt, 0)
    assert torch.equal(text, prompt)
    assert text.data_ptr() != prompt.data_ptr()


def test_a_text_beyond_max_seq_len_is_refused(model):
    with pytest.raises(ValueError, match="n_new must be a whole number from 0 to 4, got 10"):
        generate_cached(model, torch.ones(1, 60, dtype=torch.int64), 10)


def test_a_prompt_longer_than_the_cache_is_refused_before_any_work(model):
    cache = KVCache(model.config, batch=1, max_len=4)
    with pytest.raises(CacheFull, match="6 tokens are to be fed, but 0 of 4 places are taken"):
        generate_cached(model, torch.ones(1, 5, dtype=torch.int64), 2, cache)
    assert len(cache) == 0


def test_each_wrong_cache_keeps_every_shape_and_writes_another_text():
    story = MiniGPT.from_weights("story")
    prompt = encode(
        "The cat sat on the mat. Kenji Snow came in from the rain with a black lamp. He"
    )
    right = generate_cached(story, prompt, 20)
    for name, kind in wrong_caches(KVCache, story).items():
        written = generate_cached(story, prompt, 20, kind(story.config, 1, max_len=64))
        assert written.shape == right.shape
        assert not torch.equal(written, right), name
