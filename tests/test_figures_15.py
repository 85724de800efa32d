"""What lesson 15 shows in pictures and says in its text, computed by its own functions."""

import math
import random

import pytest

from course.given.prefixes import PaperCache, PaperPool
from course.measure.datasheets import DATASHEETS
from course.measure.limits import Machine
from course.minigpt.paged_cache import BlockAllocator
from course.minigpt.prefix_cache import PrefixTree, admit, order_by_prefix, slowest_link
from course.model.cache import CacheFull
from course.plots import prefix_cache as plots
from course.published.models import PUBLISHED
from course.world.chats import RULES, draw_chats, draw_documents, serve, spared_by_rule


def served(requests, n_blocks, order=None):
    return serve(requests, n_blocks, PrefixTree, BlockAllocator, admit, order)


def known_first(tree, waiting, now):
    return order_by_prefix(tree, waiting, now, math.inf)


def test_documents_in_turn_are_always_forgotten_just_before_they_come():
    documents = draw_documents(8, 64)
    assert served(documents, 70).spared == 0
    assert served(documents, 82).spared > 0.8
    assert spared_by_rule(documents, 70, "at random") > 0.5
    assert spared_by_rule(documents, 70, "used last goes first") > 0.5


def test_the_right_order_spares_in_a_small_pool_what_a_large_one_does():
    documents = draw_documents(8, 64)
    random.Random(1).shuffle(documents)
    small, large = served(documents, 14, known_first), served(documents, 200)
    assert served(documents, 14).spared < 0.3
    assert small.spared == pytest.approx(large.spared)
    assert max(small.waits) > 20


@pytest.mark.slow
def test_leaves_are_ahead_of_first_in_first_out_and_behind_who_knows_what_comes():
    chats = draw_chats(60)
    for n_blocks in (96, 160, 256):
        tree = served(chats, n_blocks).spared
        assert spared_by_rule(chats, n_blocks, "first in, first out") < tree
        assert tree <= spared_by_rule(chats, n_blocks, "knows what comes")


def test_with_room_for_all_every_rule_spares_the_same():
    chats = draw_chats(20)
    rules = [*RULES, "first in, first out", "knows what comes"]
    assert {spared_by_rule(chats, 2000, rule) for rule in rules} == {served(chats, 2000).spared}


def test_a_request_that_no_pool_holds_is_refused_by_name():
    with pytest.raises(ValueError, match="request 0 does not fit into 5 blocks"):
        served(draw_documents(1, 1), 5)


def test_fetching_pays_for_the_large_model_alone():
    sheet = DATASHEETS["H100"]
    machine = Machine("H100", sheet.flops_per_second / 2, 0.8 * sheet.bytes_per_second)
    at = {
        name: [slowest_link(PUBLISHED[name].config, n + 16, n, machine) for n in (1000, 2000, 8000)]
        for name in ("Llama-3-8B", "SmolLM2-135M", "Llama-2-7B")
    }
    assert at["Llama-3-8B"][1] < plots.PCIE < at["SmolLM2-135M"][1]
    assert 3 * at["Llama-3-8B"][1] < at["Llama-2-7B"][1]
    assert at["Llama-3-8B"][0] < 1.5 * at["Llama-3-8B"][2]  # hardly moves


def test_a_cache_on_paper_keeps_the_words_that_are_written():
    pool = PaperPool(BlockAllocator(3), 2)
    cache, other = PaperCache(pool), PaperCache(pool)
    cache.write([1, 2, 3])
    cache.write([4])
    assert cache.read() == [1, 2, 3, 4]
    other.adopt(cache.table[:1])
    other.write([5])
    assert other.read() == [1, 2, 5]
    with pytest.raises(CacheFull):
        other.write([6, 7])
    assert len(other) == 3
    with pytest.raises(ValueError, match="tokens held"):
        other.adopt([])
    cache.reset()
    assert other.read() == [1, 2, 5]
    assert len(pool.allocator) == 1


def test_pictures_say_what_they_show():
    pool = PaperPool(BlockAllocator(6), 2)
    tree, cache = PrefixTree(pool.allocator, 2), PaperCache(pool)
    cache.write([1, 2, 3, 4])
    tree.insert([1, 2, 3, 4], cache)
    picture = plots.draw_memory("now", tree, pool, {"A": [1, 2, 3, 4], "B": [1, 2, 9, 9]})
    assert "4 of 6 blocks are free, 0 only offered" in picture.caption
    cache.reset()
    tree.evict(1)
    picture = plots.draw_memory("then", tree, pool, {"A": [1, 2, 3, 4]})
    assert "5 of 6 blocks are free, 1 only offered" in picture.caption
    rules = plots.draw_rules({"your tree": [0.1, 0.5, 0.7]}, (1, 2, 3), 9)
    assert "With 2 blocks: your tree 50%" in rules.caption
    links = plots.draw_links({"large": [5e9, 4e9]}, (1000, 2000))
    assert "large 4.0" in links.caption
    for waits, words in (([3, 12], "At most 12 later requests"), ([0, 0], "Nobody was overtaken")):
        assert words in plots.draw_choice({"your tree": 0.5}, waits, "chats, 9 blocks").caption
