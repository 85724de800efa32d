"""Which model for which machine, what it needs, and a refusal before anything is allocated."""

import pytest
import torch

from course.model import MiniGPT
from course.model.config import GPTConfig
from course.model.rotary import rotary_table
from course.published import sizes
from course.published.sizes import (
    GIB,
    SIZES,
    Size,
    build_random,
    check_bytes,
    check_room,
    choose_size,
    free_memory,
)

SMALL = Size("small", GPTConfig(31, 2, 16, 4, 2, 24, max_seq_len=64), torch.float32)
TIED = Size(
    "tied", GPTConfig(31, 2, 16, 4, 2, 24, max_seq_len=64, tie_embeddings=True), torch.bfloat16
)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.parametrize(
    ("name", "billions"), [("cpu", 0.055), ("0.35B", 0.35), ("1.3B", 1.3), ("6.7B", 6.7)]
)
def test_a_size_is_as_large_as_its_name_says(name, billions):
    assert SIZES[name].parameters / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize("size", [*SIZES.values(), SMALL, TIED], ids=lambda size: size.name)
def test_its_parameters_are_those_of_the_model(size):
    with torch.device("meta"):
        model = MiniGPT(size.config)
    assert size.parameters == sum(weight.numel() for weight in model.parameters())
    assert size.weight_bytes == size.parameters * size.dtype.itemsize


def test_the_model_of_a_cpu_has_four_layers_of_1024_and_outgrows_the_caches():
    size = choose_size("cpu", free_bytes=GIB)
    assert (size.config.n_layers, size.config.d_model, size.dtype) == (4, 1024, torch.float32)
    assert size.weight_bytes >= 200e6


@pytest.mark.parametrize(
    ("device", "free", "name"),
    [("T4", 15, "0.35B"), ("L4", 22, "0.35B"), ("A100", 39, "1.3B"), ("A100", 79, "1.3B"),
     ("H100", 79, "1.3B"), ("H200", 139, "6.7B")],
)  # fmt: skip
def test_a_gpu_gets_what_shows_both_phases_on_it(gpu, device, free, name):
    assert choose_size("cuda", free_bytes=free * GIB).name == name, device


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_where_not_even_the_smallest_fits_both_numbers_are_named(gpu, device):
    with pytest.raises(MemoryError, match=r"needs [01]\.\d\d GB on .*; 0\.10 GB are free"):
        choose_size(device, free_bytes=100_000_000)


def test_what_is_needed_holds_the_weights_twice_and_the_cache():
    size, config = SMALL, SMALL.config
    cache = 2 * config.n_layers * 3 * config.n_kv_heads * 40 * config.head_dim * 4
    needed = size.bytes_needed(batch=3, context=40)
    assert 2 * size.weight_bytes + cache < needed < 2 * size.weight_bytes + cache + 20_000
    assert size.bytes_needed(3, 40, n_new=40) > needed
    more = size.bytes_needed(3, 41) - needed
    assert more >= cache // 40


@pytest.mark.parametrize(
    ("sizes_asked", "message"),
    [((0, 8), "batch"), ((1, 65), "context.*to 64"), ((1, 8, 9), "n_new.*to 8"), ((1.5, 8), "1.5")],
)
def test_sizes_that_cannot_be_are_refused_by_name(sizes_asked, message):
    with pytest.raises(ValueError, match=message):
        SMALL.bytes_needed(*sizes_asked)


def test_room_is_told_in_a_sentence_before_anything_is_allocated():
    said = check_room(SMALL, "cpu", batch=2, context=64, free_bytes=10**9)
    assert said.startswith('The model "small" with 2 rows of 64 tokens needs 0.00 GB on cpu; ')
    assert said.endswith("1.00 GB are free.")
    assert check_bytes("It", 5 * 10**9, "cpu", 6 * 10**9).startswith("It needs 5.00 GB")


def test_a_refusal_names_what_is_needed_what_is_free_and_what_to_do():
    with pytest.raises(MemoryError) as caught:
        check_room(SIZES["1.3B"], "cpu", batch=64, context=4096, free_bytes=8 * 10**9)
    said = str(caught.value)
    for part in (
        "needs 56.95 GB",
        "8.00 GB are free",
        "Nothing was allocated",
        "smaller batch",
        "0.35B",
    ):
        assert part in said


def test_nothing_is_built_where_there_is_no_room(monkeypatch):
    monkeypatch.setattr(sizes, "free_memory", lambda device: 1000)
    monkeypatch.setattr(sizes, "MiniGPT", None)  # it is not even asked for
    with pytest.raises(MemoryError, match=r'"small" with 1 row of 1 tokens'):
        build_random(SMALL, "cpu")


def test_free_memory_is_a_part_of_the_machine_s():
    from course.measure.machine import card

    assert 0 < free_memory("cpu") < card().memory


@pytest.mark.parametrize("size", [SMALL, TIED], ids=lambda size: size.name)
def test_a_random_model_is_whole_random_and_in_its_dtype(size):
    model = build_random(size, "cpu")
    for name, weight in model.named_parameters():
        assert weight.dtype == size.dtype, name
        assert not weight.requires_grad
        if weight.dim() == 1:
            assert torch.equal(weight, torch.ones_like(weight)), name
        else:
            assert weight.float().std() == pytest.approx(0.02, rel=0.3), name
    tied = model.lm_head.weight is model.embed.weight
    assert tied == size.config.tie_embeddings
    config = size.config
    table = rotary_table(config.max_seq_len, config.head_dim, config.rope_theta)
    assert all(torch.equal(block.attn.rotary_table, table) for block in model.blocks)
    logits = model(torch.arange(20).view(2, 10))
    assert logits.dtype == size.dtype
    assert logits.isfinite().all()


def test_the_same_seed_gives_the_same_model_and_another_one_another():
    one, same, other = (build_random(SMALL, "cpu", seed) for seed in (0, 0, 1))
    assert torch.equal(one.embed.weight, same.embed.weight)
    assert torch.equal(one.blocks[1].mlp.down.weight, same.blocks[1].mlp.down.weight)
    assert not torch.equal(one.embed.weight, other.embed.weight)
    assert not torch.equal(one.blocks[0].mlp.down.weight, one.blocks[1].mlp.down.weight)
