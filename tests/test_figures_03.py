"""What lesson 03 says of its model's runs; the figures in its prose are computed by the builder."""

import pytest

from course.measure.counting import count_kv_rows
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached, kv_cache_bytes
from course.minigpt.naive_decode import generate_naive
from course.model import MiniGPT
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
