"""What lesson 10 shows in pictures and says in its text, computed by its own functions."""

import zlib

import numpy as np
import pytest
import torch

from course.given.collisions import two_that_collide
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached
from course.minigpt.paged_cache import (
    BlockPool,
    PagedKVCache,
    block_keys,
    prefill_saved,
    reusable_blocks,
)
from course.minigpt.roofline import phase_cost
from course.model import MiniGPT
from course.plots import paged_cache as plots
from course.published.models import PUBLISHED
from course.world.requests import LIMIT, MEMORY, Blocks, Request, Whole, draw_requests, simulate
from course.world.tokenizer import decode, encode


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return draw_requests(400)


def test_requests_are_around_60_tokens_and_none_is_longer_than_the_limit(requests):
    prompts, answers = np.array(requests).T
    assert round(prompts.mean()) == 80
    assert round(answers.mean()) == 82
    assert 700 < max(request.total for request in requests) <= LIMIT
    assert 55 < np.median(prompts) < 65


@pytest.mark.parametrize("at_once", [1, 4, 64])
def test_no_more_texts_run_than_there_are_users(requests, at_once):
    trace = simulate(requests, MEMORY, Blocks(16), at_once=at_once)
    assert 0 < trace.running <= at_once
    assert trace.used + trace.reserved + trace.free == pytest.approx(1)


def test_as_many_users_as_requests_are_no_bound(requests):
    assert simulate(requests, MEMORY, Blocks(16), at_once=len(requests)) == simulate(
        requests, MEMORY, Blocks(16)
    )


@pytest.mark.parametrize(
    ("policy", "least", "most", "at_once"),
    [
        (Whole("max_len"), 0.13, 0.18, 8),
        (Whole("power of two"), 0.38, 0.44, 23),
        (Whole("known"), 0.53, 0.59, 32),
        (Blocks(64), 0.79, 0.83, 47),
        (Blocks(16), 0.92, 0.95, 55),
        (Blocks(8), 0.94, 0.98, 57),
        (Blocks(1), 0.96, 1.0, 59),
    ],
)
def test_so_much_of_the_memory_holds_tokens(requests, policy, least, most, at_once):
    trace = simulate(requests, MEMORY, policy)
    assert least < trace.used < most
    assert trace.used + trace.reserved + trace.free == pytest.approx(1)
    assert round(trace.running) == at_once


def test_more_texts_at_once_need_fewer_steps(requests):
    policies = [Whole("max_len"), Whole("power of two"), Whole("known"), Blocks(64), Blocks(16)]
    steps = [simulate(requests, MEMORY, policy).steps for policy in policies]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 3.5 * steps[-1]


def test_blocks_of_16_waste_5_per_cent_in_last_blocks_and_next_to_nothing_else(requests):
    trace = simulate(requests, MEMORY, Blocks(16))
    assert 0.04 < trace.reserved < 0.06
    assert trace.free < 0.02


@pytest.mark.parametrize("policy", [Whole("known"), Whole("max_len"), Blocks(16), Blocks(1)])
def test_no_place_belongs_to_two_texts_and_every_request_is_answered(policy):
    requests = [Request(5, 3), Request(30, 20), Request(1, 1), Request(16, 40)] * 4
    trace = simulate(requests, 2 * LIMIT, policy, pictures=range(60))
    assert trace.steps >= 40
    for owner, filled in trace.pictures:
        assert not filled[owner < 0].any()
        for number in set(owner[owner >= 0].tolist()):
            assert filled[owner == number].sum() <= requests[number].total
    short = simulate([Request(10, 10)] * 3, 32, Blocks(4))
    assert 20 < short.steps <= 40  # two at once, of which one is put back, and then the third


def test_eight_chats_of_200_tokens_take_13_blocks_and_20_after_one_more_token_each(story):
    pool, text = BlockPool(story.config, 120, 16), torch.arange(201).unsqueeze(0) % 50
    chat = PagedKVCache(pool)
    forward_cached(story, text[:, :200], chat)
    chats = [chat, *(chat.fork() for _ in range(7))]
    assert 120 - len(pool.allocator) == 13
    for one in chats:
        forward_cached(story, text[:, 200:], one)
    assert 120 - len(pool.allocator) == 20
    assert 8 * 13 == 104


def test_a_token_of_opt_13b_takes_819_200_bytes():
    layers, width, bytes_per_element = 40, 5120, 2
    assert 2 * layers * width * bytes_per_element == 819_200
    assert 2048 * 819_200 == 1_677_721_600


def test_a_cached_prompt_is_120_times_less_work_and_1_7_times_fewer_bytes():
    config = PUBLISHED["Llama-3-8B"].config
    assert round(1 / (1 - prefill_saved(config, 2000, 1984))) == 120
    whole, rest = phase_cost(config, 2000, 0), phase_cost(config, 16, 1984)
    assert round(whole.bytes / rest.bytes, 1) == 1.7


def test_the_story_model_writes_the_same_through_pages(story):
    prompt = encode("The cat sat on the mat. Mia Stone came in from the rain with a black lamp.")
    wanted = generate_cached(story, prompt, 20, KVCache(story.config, 1, 64))
    pool = BlockPool(story.config, 30, 4)
    assert torch.equal(generate_cached(story, prompt, 20, PagedKVCache(pool)), wanted)


def test_a_reused_beginning_gives_the_logits_of_the_whole_prompt(story):
    text = torch.randint(50, (1, 128), generator=torch.Generator().manual_seed(0))
    tokens, pool = text[0].tolist(), BlockPool(story.config, 30, 16)
    writer = PagedKVCache(pool)
    forward_cached(story, text, writer)
    known = dict(zip(block_keys(tokens, 16), writer.table, strict=True))
    wanted = story(text)[:, -1]
    for n in (0, 3, 7):
        cache = PagedKVCache(pool)
        cache.adopt(reusable_blocks(tokens, 16, known)[:n])
        got = forward_cached(story, text[:, 16 * n :], cache)[:, -1]
        assert (got - wanted).abs().max() < 1e-3
    assert len(reusable_blocks(tokens, 16, known)) == 7


def test_pictures_say_what_they_show(requests):
    picture = plots.draw_pool_over_time(requests[:100], steps=range(10, 40, 10))
    assert "hold" in picture.caption
    assert "places" in picture.alt
    tables = {"after the fork": ([[3, 1], [3, 1]], [6, 6])}
    assert "chat A has [3, 1]" in plots.draw_forks(tables, 6, 4).alt


def test_two_beginnings_with_one_crc32_are_soon_found_and_the_second_reads_the_firsts_words(story):
    def crc32(tokens: list[int]) -> int:
        return zlib.crc32(repr(tokens).encode())

    first, second, tries = two_that_collide(crc32)
    texts = [encode(first)[0].tolist(), encode(second)[0].tolist()]
    assert crc32(texts[0]) == crc32(texts[1])
    assert first != second
    assert list(map(len, texts)) == [20, 20]
    assert 20_000 < tries < 300_000
    ask = encode("Where is the")
    pool = BlockPool(story.config, 8, 20)
    for text, of in zip(texts, (first, second), strict=True):
        cache = PagedKVCache(pool)
        _ = forward_cached(story, torch.tensor([text]), cache)
        out = decode(generate_cached(story, ask, 2, cache)[0, 3:])
        assert out == " ".join(of.split()[8:10])  # colour and thing
    with pytest.raises(ValueError, match="no two of 100 beginnings"):
        two_that_collide(crc32, most=100)
