"""What lesson 09 shows in pictures and says in words, computed by its own functions; nothing is timed."""

import math
from functools import reduce

import numpy as np
import pytest
import torch

from course.checks.split_read.prefix import count_reads
from course.fast.paged_tiles import attend_tiles, make_scratch, tiles
from course.fast.quantized import Quantized
from course.fast.tiled_read import tiled_attention
from course.given.parts import Part
from course.measure.allocations import watch_new_tensors
from course.minigpt.gqa import grouped_attention
from course.minigpt.kv_cache import KVCache, causal_mask, forward_cached
from course.minigpt.split_read import (
    attend_blocks,
    attend_in_parts,
    attend_part,
    attend_shared,
    finish,
    merge,
)
from course.model import MiniGPT
from course.plots import split_read as plots
from course.widgets import split_read as widget
from course.world.tokenizer import encode

FLOAT = 4


def drawn(H=8, G=2, S=4096, D=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(1, H, 1, D, generator=generator),
        *torch.randn(2, 1, G, S, D, generator=generator),
    )


def parts_of(q, k, v, n):
    return [attend_part(q, *pair) for pair in zip(k.chunk(n, 2), v.chunk(n, 2), strict=True)]


def test_the_numbers_of_the_first_picture_are_what_the_functions_give():
    """One query 1, D = 1: a key is its score."""
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    parts = []
    for scores, values in zip(plots.SCORES, plots.VALUES, strict=True):
        k, v = (torch.tensor(x, dtype=torch.float64).view(1, 1, -1, 1) for x in (scores, values))
        parts.append(attend_part(one, k, v))
    for name, shown in (("top", plots.TOPS), ("total", plots.TOTALS), ("out", plots.OUTS)):
        assert [round(getattr(part, name).item(), 2) for part in parts] == list(shown)
    whole = reduce(merge, parts)
    fades = [round(math.exp(part.top - whole.top), 2) for part in parts]
    assert fades == list(plots.FADES)
    assert (
        tuple(round(whole._asdict()[n].item(), 2) for n in ("top", "total", "out")) == plots.WHOLE
    )
    assert round(finish(whole).item(), 2) == plots.FINISHED


@pytest.mark.parametrize("order", range(3))
def test_eight_parts_in_any_order_are_within_1e_6_of_dense(order):
    q, k, v = drawn()
    parts = parts_of(q, k, v, 8)
    left = [parts[i] for i in torch.randperm(8, generator=torch.Generator().manual_seed(order))]
    error = (finish(reduce(merge, left)) - grouped_attention(q, k, v)).abs().max()
    assert 0 < error < 1e-6


def test_scores_of_hundreds_are_as_exact_and_without_the_maximum_there_is_no_number():
    q, k, v = drawn()
    q = 100 * q
    scores = (q.view(1, 2, 4, 64) @ k.mT / 8).flatten()
    assert scores.max() > 300
    assert scores.min() < -300
    dense = grouped_attention(q.double(), k.double(), v.double())
    assert (finish(reduce(merge, parts_of(q, k, v, 8))) - dense).abs().max() < 1e-3
    assert scores.exp().isinf().any()
    assert (scores.exp() / scores.exp().sum()).isnan().any()


@pytest.mark.parametrize(("spread", "is_number"), [(1, True), (100, False)])
def test_the_widget_s_switch_turns_large_scores_to_nan_alone(spread, is_number):
    q, (k, v) = widget.draw_query()
    wide = spread * q
    dense = (wide.double() @ k.double().mT / widget.D**0.5).softmax(-1) @ v.double()
    scores = (wide @ k.mT / widget.D**0.5)[0, 0, 0].numpy()
    assert np.isnan(widget.error_without_maximum(scores, v, dense)) != is_number
    for order in widget.ORDERS:
        whole = widget.merge_in(order, parts_of(wide, k, v, 3), merge)
        assert (finish(whole).double() - dense).abs().max() < 1e-4


def test_two_parts_that_give_2_and_4_may_give_anything_between():
    def part(top, output):
        one = torch.ones(1, 1, 1, 1)
        return Part(output * one, top * one, one)

    wholes = [finish(merge(part(top, 2.0), part(0.0, 4.0))).item() for top in (-9.0, 0.0, 9.0)]
    assert wholes == pytest.approx([4, 3, 2], abs=1e-3)


def test_a_part_is_d_plus_2_numbers_a_query_however_many_keys_it_read():
    q, k, v = drawn(S=10_000, D=16)
    assert sum(x.numel() for x in attend_part(q, k, v)) == 8 * (16 + 2)


def test_sixteen_chats_read_273_mb_of_a_prefix_each_and_21_of_a_shared_one():
    B, P, S, G, D = 16, 8192, 128, 4, 64
    own, shared = B * (P + S), P + B * S
    assert [round(n * 2 * G * D * FLOAT / 1e6) for n in (own, shared)] == [273, 21]
    assert round(own / shared) == 13


def test_a_shared_prefix_goes_once_into_operations_and_a_copied_one_sixteen_times():
    q, own = torch.randn(16, 16, 1, 64), torch.randn(2, 16, 4, 8, 64)
    prefix = [torch.randn(1, 4, 256, 64) for _ in range(2)]
    size = prefix[0].numel()
    with count_reads(*prefix) as reads:
        shared = attend_shared(q, *prefix, *own)
    assert reads.numbers == [size, size]
    with count_reads(*prefix) as reads:
        k, v = (
            torch.cat([p.expand(16, 4, 256, 64), o], 2) for p, o in zip(prefix, own, strict=True)
        )
        apart = grouped_attention(q, k, v)
    assert reads.numbers == [16 * size, 16 * size]
    assert torch.allclose(shared, apart, atol=1e-6)


@pytest.mark.parametrize("length", [8192, 8190, 1000, 16, 1])
def test_gathered_in_tiles_block_by_block_and_contiguous_agree(length):
    """Through a scratch that stays the same, so a tile costs no new memory."""
    H, G, D, size = 8, 4, 32, 16
    q, (keys, values) = torch.randn(1, H, 1, D), torch.randn(2, 600, G, size, D)
    table = torch.randperm(600).tolist()[: -(-length // size)]
    k, v = (x[table].transpose(0, 1).reshape(1, G, -1, D)[:, :, :length] for x in (keys, values))
    dense = grouped_attention(q, k, v)
    scratch = make_scratch(keys)
    assert scratch.shape == (3, 32, G, size, D)
    with watch_new_tensors(q, keys, values, scratch) as made:
        out = attend_tiles(q, keys, values, table, length, scratch, attend_part, merge, finish)
    assert torch.allclose(out, dense, atol=1e-6)
    assert torch.allclose(attend_blocks(q, keys, values, table, length), dense, atol=1e-6)
    if length > 1000:
        assert made.numbers < k.numel()


def test_a_tiled_read_of_the_pool_gives_what_gathering_gives_and_copies_no_text():
    keys, values = torch.randn(2, 2, 512, 16, 8)  # (G, n_blocks, size, D)
    table, q = torch.randperm(512), torch.randn(1, 8, 1, 8)
    k, v = (x[:, table].flatten(1, 2)[:, :8000] for x in (keys, values))
    wanted = (q.view(2, 4, 8) @ k.mT / 8**0.5).softmax(-1) @ v
    blocks = keys.transpose(0, 1), values.transpose(0, 1)
    scratch = make_scratch(blocks[0])
    with watch_new_tensors(keys, values) as made:
        got = attend_tiles(q, *blocks, table, 8000, scratch, attend_part, merge, finish)
    assert torch.allclose(got.view(2, 4, 8), wanted, atol=1e-5)
    largest = max(tensor.numbers for tensor in made.tensors if tensor.made_by != "elsewhere")
    assert largest < keys.numel() / 8


def test_tiles_refuse_a_table_that_is_too_short():
    keys = torch.randn(4, 1, 16, 2)
    with pytest.raises(ValueError, match="33"):
        next(tiles(keys, keys, [0, 1], 33, make_scratch(keys)))


def test_the_tiled_read_of_lesson_07_is_the_same_merge():
    q, k, v = drawn(S=640, D=32)
    steps = [torch.ones(1, 2, 10, 1, 32), torch.ones(1, 2, 10, 64, 1)]
    pairs = zip((k, v), steps, strict=True)
    held = [Quantized(x.unflatten(2, (10, 64)), one, 0 * one, 8) for x, one in pairs]
    scratch = torch.empty(1, 2, 3, 64, 32)
    tiled = tiled_attention(q, *held, scratch=scratch)
    assert torch.allclose(tiled, attend_in_parts(q, k, v, 3 * 64), atol=1e-6)


def test_our_story_model_attends_in_parts_to_a_causal_chunk_as_to_a_whole():
    """Real queries and keys: logits of a story, keys read 5 at a time, through layers with a cache."""
    story = MiniGPT.from_weights("story")
    tokens = encode("The cat sat on the mat. Kenji Snow came in from the rain with a black lamp.")

    def layer(attn, x, positions):
        B, T, _ = x.shape
        q, k, v = (
            w(x).view(B, T, -1, story.config.head_dim).transpose(1, 2)
            for w in (attn.wq, attn.wk, attn.wv)
        )
        q, k = attn.rotate(q, positions), attn.rotate(k, positions)
        out = attend_in_parts(q, k, v, 5, causal_mask(T, T))
        return attn.wo(out.transpose(1, 2).reshape(B, T, -1))

    with torch.no_grad():
        cache = KVCache(story.config, 1, tokens.shape[1])
        whole = forward_cached(story, tokens, cache)
        assert (MiniGPT.from_weights("story", layer)(tokens) - whole).abs().max() < 1e-4
