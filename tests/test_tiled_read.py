"""The tiled read gives what attention over the dequantized cache gives, and needs little room."""

import functools

import pytest
import torch
from quantized import Case, draw, packed, reference, unpack

from course.fast.tiled_read import make_scratch, tiled_attention

TOLERANCE = 1e-5  # of numbers around 1, float32

CASES = {
    "one row, one head": Case(B=1, H=1, G=1),
    "grouped queries": Case(H=6, G=2),
    "every head its own keys": Case(H=4, G=4),
    "one KV head for all": Case(H=4, G=1),
    "no window": Case(W=0),
    "nothing but the window": Case(n=0, W=4),
    "one token": Case(n=1, group=1, W=0),
    "one token, in the window": Case(n=0, W=1),
    "groups of one token": Case(n=9, group=1),
    "one large group": Case(n=1, group=37),
    "a head width that is no power of two": Case(D=12),
}


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("rows", [1, 60, 16_384])
def test_it_equals_attention_over_the_dequantized_cache(case, bits, rows):
    """Blocks of one group, of two groups of seven tokens (the last is smaller), and of everything."""
    drawn = draw(case._replace(bits=bits), seed=bits)
    scratch = make_scratch(drawn.q, drawn.keys, rows)
    out = tiled_attention(*drawn[:4], unpack=functools.partial(unpack, bits=bits), scratch=scratch)
    assert out.dtype == torch.float32
    assert (out - reference(drawn)).abs().max() <= TOLERANCE


@pytest.mark.parametrize("seed", range(10))
def test_a_larger_score_may_come_in_any_block(seed):
    """The running maximum once stayed that of the first block, and exp overflowed in the last."""
    drawn = draw(Case(n=8, group=4, W=3), seed)
    loud = drawn._replace(q=40 * drawn.q)
    out = tiled_attention(*loud[:4], scratch=make_scratch(loud.q, loud.keys, 16))
    assert (out - reference(loud)).abs().max() <= 10 * TOLERANCE  # scores are 40 times as large


def test_a_scratch_can_be_used_again_for_another_cache_of_the_same_sizes():
    one, other = draw(Case(), seed=1), draw(Case(), seed=2)
    scratch = make_scratch(one.q, one.keys, 60)
    first = tiled_attention(*one[:4], scratch=scratch)
    tiled_attention(*other[:4], scratch=scratch)
    assert torch.equal(tiled_attention(*one[:4], scratch=scratch), first)


def test_the_arguments_stay_as_they_are():
    drawn = draw(Case())
    tensors = [drawn.q, *drawn.keys[:3], *drawn.values[:3], *drawn.window]
    before = [tensor.clone() for tensor in tensors]
    tiled_attention(*drawn[:4], scratch=make_scratch(drawn.q, drawn.keys, 60))
    assert all(map(torch.equal, tensors, before))


def test_the_scratch_does_not_grow_with_the_cache():
    sizes = [make_scratch(d.q, d.keys, 1000).numel() for d in map(draw, (Case(n=80), Case(n=160)))]
    assert sizes[0] == sizes[1] <= 1000 * 16


def test_one_scratch_serves_while_a_cache_grows():
    small, large = draw(Case(n=1)), draw(Case(n=9))
    scratch = make_scratch(small.q, small.keys)
    assert scratch.shape == make_scratch(large.q, large.keys).shape
    out = tiled_attention(*large[:4], scratch=scratch)
    assert (out - reference(large)).abs().max() <= TOLERANCE


def test_a_scratch_of_another_cache_is_refused():
    one, other = draw(Case(group=7)), draw(Case(group=8))
    with pytest.raises(ValueError, match="a cache of other sizes"):
        tiled_attention(*one[:4], scratch=make_scratch(other.q, other.keys))


def test_half_precision_scales_are_read_as_they_are():
    drawn = draw(Case())
    halves = [q._replace(scale=q.scale.half(), zero=q.zero.half()) for q in drawn[1:3]]
    exact = [q._replace(scale=q.scale.float(), zero=q.zero.float()) for q in halves]
    out = tiled_attention(drawn.q, *halves, drawn.window)
    assert (out - tiled_attention(drawn.q, *exact, drawn.window)).abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    "wrong",
    [
        {"q": torch.zeros(2, 4, 2, 16)},  # two tokens at once
        {"q": torch.zeros(2, 3, 1, 16)},  # three query heads for two KV heads
        {"q": torch.zeros(4, 1, 16)},
        {"values": draw(Case(n=4)).values},
        {"values": draw(Case()).keys},  # a step for each channel
        {"keys": draw(Case()).values},
        {"window": (torch.zeros(2, 2, 3, 16), torch.zeros(2, 2, 4, 16))},
        {"window": (torch.zeros(2, 2, 16), torch.zeros(2, 2, 16))},
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong):
    arguments = draw(Case())._replace(**wrong)[:4]
    with pytest.raises(ValueError, match="one token attends"):
        tiled_attention(*arguments)


def test_an_empty_cache_is_refused():
    drawn = draw(Case(n=0, W=0))
    with pytest.raises(ValueError, match="at least one"):
        tiled_attention(*drawn[:3], window=None)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_these_tests_pack_and_unpack_without_loss(bits):
    codes = torch.randint(2**bits, (3, 5, 16), dtype=torch.uint8)
    assert torch.equal(unpack(packed(codes, bits), bits), codes)
