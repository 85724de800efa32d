"""What lesson 03 says of its model's runs; the figures in its prose are computed by the builder."""

import pytest

from course.measure.copies import count_copied
from course.measure.counting import count_kv_rows
from course.minigpt.kv_cache import (
    GrowingKVCache,
    KVCache,
    forward_cached,
    generate_cached,
    kv_cache_bytes,
    numbers_copied,
)
from course.minigpt.naive_decode import generate_naive
from course.model import MiniGPT
from course.plots.kv_cache import draw_copies
from course.world.tokenizer import decode, encode


@pytest.fixture(scope="module")
def mini():
    return MiniGPT.from_weights("mini")


def test_mini_gpt_needs_28672_bytes_for_28_tokens_and_a_real_cache_occupies_them(mini):
    assert kv_cache_bytes(mini.config, 28, bytes_per_element=4) == 28_672
    assert KVCache(mini.config, batch=1, max_len=28).nbytes() == 28_672


def test_the_cat_sat_takes_18_rows_without_a_cache_and_6_with_one(mini):
    with count_kv_rows(mini) as naive:
        text = generate_naive(mini, encode("The cat sat"), 4)
    with count_kv_rows(mini) as cached:
        same = generate_cached(mini, encode("The cat sat"), 4)
    assert (naive.rows, cached.rows) == (18, 6)
    assert decode(text) == decode(same) == "The cat sat on the mat ."


def test_the_place_of_the_lamp_is_known_from_the_cache_and_lost_with_it():
    story = MiniGPT.from_weights("story")
    past = encode(
        "The cat sat on the mat. Kenji Snow came in from the rain with a black lamp. "
        "He smiled and put the black lamp in the shed. The bread was warm and the tea was hot."
    )
    question = encode("Where is the black lamp? In the")
    cache = KVCache(story.config, batch=1, max_len=64)
    forward_cached(story, past, cache)
    assert decode(generate_cached(story, question, 1, cache)[0, -1:]) == "shed"
    cache.truncate(19)
    assert decode(generate_cached(story, question, 1, cache)[0, -1:]) != "shed"


def test_what_a_growing_cache_copies_is_what_is_counted(mini):
    copied = count_copied(GrowingKVCache(mini.config, batch=1), mini.config, 40)
    assert copied[:3] == [0, 256, 512]  # the rows before: 2·L·G·D = 256 numbers each
    assert sum(copied) == numbers_copied(mini.config, 40)


def test_a_cache_in_place_copies_nothing_old(mini):
    assert count_copied(KVCache(mini.config, 1, max_len=40), mini.config, 40) == [0] * 40


def test_the_model_writes_the_same_text_into_both_caches(mini):
    prompt = encode("The cat sat")
    in_place = generate_cached(mini, prompt, 9)
    assert generate_cached(mini, prompt, 9, GrowingKVCache(mini.config, 1)).equal(in_place)


def test_the_picture_of_copies_tells_both_totals():
    picture = draw_copies({"torch.cat": [0, 4, 8], "in place": [0, 0, 0]})
    assert "torch.cat: 12; in place: 0" in picture.caption
