"""Lesson 07's own parts: what is refused, what stays, and what the given store asks of a student."""

import numpy as np
import pytest
import torch

from course.checks.caches import feed
from course.fast.quantized import Quantized
from course.fast.storage import GroupStore
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.quantized_cache import QuantizedKVCache, pack_int4, quantize, unpack_int4
from course.model import MiniGPT
from course.model.cache import CacheFull, KVCacheLike
from course.model.config import GPTConfig
from course.world.outliers import BothPerToken, with_outliers
from course.world.tokenizer import encode

CONFIG = GPTConfig(30, 2, 32, 4, 2, 40, max_seq_len=64)
X = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bits", [1, 3, 16, 0, -4, 4.0, "4", None, True])
def test_other_bits_are_refused(bits):
    with pytest.raises(ValueError, match="bits must be 2, 4 or 8"):
        quantize(X, bits, 0)
    with pytest.raises(ValueError, match="bits must be 2, 4 or 8"):
        QuantizedKVCache(CONFIG, 1, 8, bits)


@pytest.mark.parametrize("dim", [3, -4, None, 1.0])
def test_a_dimension_that_does_not_exist_is_refused(dim):
    with pytest.raises(ValueError, match="there is no dim"):
        quantize(X, 4, dim)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused_and_nothing_is_stored(value):
    bad = X.clone()
    bad[1, 2, 3] = value
    with pytest.raises(ValueError, match="NaN or infinity"):
        quantize(bad, 8, 1)
    cache = QuantizedKVCache(CONFIG, 1, 8, 4, 2, 1)
    k, v = torch.randn(2, 1, 2, 3, 8)
    k[0, 1, 2, 0] = value
    for pair in ((k, v), (v, k)):
        with pytest.raises(ValueError, match="NaN or infinity"):
            cache.append(0, *pair)
    assert cache.pending == {}
    assert len(cache) == 0


@pytest.mark.parametrize(
    "x", [torch.zeros(3, dtype=torch.int64), torch.zeros(2, 0), torch.tensor(1.0)]
)
def test_what_has_no_numbers_along_dim_is_refused(x):
    with pytest.raises(ValueError, match=r"floating-point|nothing along|no dim"):
        quantize(x, 4, -1)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.uint8), "must be even"),
        (torch.zeros(2, 4, dtype=torch.int64), "codes are uint8"),
        (torch.full((2, 4), 16, dtype=torch.uint8), "codes run from 0 to 15"),
    ],
)
def test_what_cannot_be_packed_is_refused(codes, message):
    with pytest.raises(ValueError, match=message):
        pack_int4(codes)


@pytest.mark.parametrize(
    "sizes",
    [
        {"group": 0},
        {"window": -1},
        {"group": 2.0},
        {"batch": 0},
        {"max_len": 65},
    ],
)
def test_sizes_that_cannot_be_used_are_refused(sizes):
    with pytest.raises(ValueError, match="must be a whole number"):
        QuantizedKVCache(CONFIG, **{"batch": 1, "max_len": 8, **sizes})


def test_codes_of_a_key_must_fill_whole_bytes():
    odd = GPTConfig(30, 2, 24, 4, 2, 40, max_seq_len=64)  # D = 6
    with pytest.raises(ValueError, match="fill no whole bytes"):
        QuantizedKVCache(odd, 1, 8, 2)
    assert len(QuantizedKVCache(odd, 1, 8, 4)) == 0


def test_every_byte_survives_unpacking_and_packing():
    every = torch.arange(256, dtype=torch.uint8)
    assert (pack_int4(unpack_int4(every)) == every).all()


def refuse_nothing(pack):
    """A student's function for which there must be codes, as for reshape(*, -1, 2)."""

    def checked(codes: torch.Tensor) -> torch.Tensor:
        assert codes.numel()
        return pack(codes)

    return checked


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("room", [0, 3])
def test_the_store_asks_nobody_to_pack_or_unpack_no_codes(bits, room):
    """It once did, when no group was complete: an honest reshape(*, -1, 2) stopped there."""
    codecs = refuse_nothing(pack_int4), refuse_nothing(unpack_int4)
    store = GroupStore(CONFIG, 3, room, 5, bits, -2, torch.float32, "cpu", *codecs)
    x = torch.randn(2, 3, 2, 0, 5, 8)  # (L, B, G, n, group, D)
    steps = x[..., :1, :]
    store.write(0, Quantized(x.to(torch.uint8), steps, steps, bits))
    q = store.read(1, 0)
    assert q.codes.shape == (3, 2, 0, 5, 8)
    assert q.codes.dtype == torch.uint8
    assert q.scale.shape == q.zero.shape == (3, 2, 0, 1, 8)
    assert q.bits == bits


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_the_store_gives_back_is_what_was_written(bits):
    store = GroupStore(CONFIG, 3, 4, 5, bits, -1, torch.float32, "cpu", pack_int4, unpack_int4)
    groups = [quantize(torch.randn(2, 3, 2, n, 5, 8), bits, -1) for n in (1, 2)]
    store.write(0, groups[0])
    store.write(1, groups[1])
    for layer in range(2):
        read = store.read(layer, 3)
        for got, *written in zip(read[:3], groups[0][:3], groups[1][:3], strict=True):
            assert torch.equal(got, torch.cat([part[layer] for part in written], dim=2))
        assert read.bits == bits


@pytest.mark.parametrize("wrong", [3, 1])
def test_advance_wants_what_was_appended(wrong):
    cache = QuantizedKVCache(CONFIG, 1, 8, 4, 2, 1)
    k, v = torch.randn(2, 1, 2, 2, 8)
    cache.append(0, k, v)
    with pytest.raises(ValueError, match=rf"advance\({wrong}\)"):
        cache.advance(wrong)  # layer 1 was given nothing
    assert len(cache) == 0


def test_it_is_a_cache_as_any_other():
    assert isinstance(QuantizedKVCache(CONFIG, 1, 8), KVCacheLike)
    assert isinstance(BothPerToken(lambda: QuantizedKVCache(CONFIG, 1, 8)), KVCacheLike)


def test_a_window_over_everything_gives_the_logits_of_the_plain_cache():
    mini, tokens = MiniGPT.from_weights("mini"), encode("The cat sat on the mat.")
    n = tokens.shape[1]
    for cache in (QuantizedKVCache(mini.config, 1, n, 2, 4, n), KVCache(mini.config, 1, n)):
        parts = [forward_cached(mini, part, cache) for part in tokens.split(2, dim=1)]
        assert torch.allclose(torch.cat(parts, dim=1), mini(tokens), atol=1e-4)


def test_a_full_cache_refuses_in_the_middle_of_a_text_and_goes_on():
    mini, tokens = MiniGPT.from_weights("mini"), encode("The cat sat on the mat.")
    cache = QuantizedKVCache(mini.config, 1, tokens.shape[1], 8, 2, 2)
    forward_cached(mini, tokens[:, :3], cache)
    with pytest.raises(CacheFull):
        forward_cached(mini, tokens, cache)
    assert len(cache) == 3
    forward_cached(mini, tokens[:, 3:], cache)
    assert len(cache) == tokens.shape[1]


def test_zero_tokens_more_are_no_change():
    cache = QuantizedKVCache(CONFIG, 1, 8, 4, 2, 1)
    cache.advance(0)
    assert len(cache) == 0


@pytest.mark.parametrize("group", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("window", [0, 1, 4])
def test_groups_that_divide_the_length_and_that_do_not(group, window):
    """Of 12 tokens: what is codes is within half a step, the rest is exact."""
    rows = np.random.default_rng(group).normal(size=(2, 2, 1, 2, 12, 8)).astype(np.float32)
    cache = QuantizedKVCache(CONFIG, 1, 12, 8, group, window)
    for n in range(11):
        feed(cache, rows[..., n : n + 1, :])
    got = np.stack(feed(cache, rows[..., 11:, :]), axis=1)
    coded = max(0, 11 - window) // group * group
    assert (got[..., coded:, :] == rows[..., coded:, :]).all()
    assert np.abs(got - rows).max() < 8 / 255 / 2


def test_outliers_leave_the_logits_alone_and_make_keys_large():
    mini, tokens = MiniGPT.from_weights("mini"), encode("The cat sat on the mat.")
    loud = with_outliers(mini, 2, 30.0)
    assert torch.allclose(loud(tokens), mini(tokens), atol=1e-3)
    rows = [model.blocks[0].attn.wk.weight.norm(dim=1) for model in (mini, loud)]
    assert sorted((rows[1] / rows[0]).round().unique().tolist()) == [1, 30]
    with pytest.raises(ValueError, match="factor"):
        with_outliers(mini, 1, 0)
    with pytest.raises(ValueError, match="n_pairs"):
        with_outliers(mini, 0, 2)
