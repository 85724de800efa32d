"""What lesson 05 says in words and shows in pictures; figures in its prose are computed there."""

from dataclasses import replace
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course.checks.roofline.fake_device import FakeDevice, Pace
from course.fast.decode import FastDecoder
from course.fast.steps import Operations, count_operations, forward_last, step
from course.measure.costs import Cost, Parts
from course.measure.counting import count_kv_rows
from course.measure.datasheets import DATASHEETS, MEMORY_BYTES
from course.measure.limits import Machine
from course.measure.recorded import Point, Recording
from course.minigpt.kv_cache import KVCache, kv_cache_bytes
from course.minigpt.roofline import (
    attainable,
    attention_flops,
    bound_by,
    phase_cost,
    time_on_device,
)
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.plots import roofline as plots
from course.plots.style import GREY
from course.published.models import PUBLISHED
from course.published.sizes import SIZES, Size, build_random
from course.widgets import roofline as widget


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


LARGE, H200 = SIZES["6.7B"].config, DATASHEETS["H200"]


def small(n_kv_heads: int = 2, tied: bool = False) -> GPTConfig:
    return GPTConfig(90, 3, 32, 4, n_kv_heads, 56, max_seq_len=64, tie_embeddings=tied)


# --- the bill, against PyTorch's own counter -----------------------------------------------------


@pytest.mark.parametrize(
    ("n_kv_heads", "tied", "call"),
    [*product((1, 2, 4), (False, True), ((1, 0, 1), (5, 0, 1), (1, 7, 3), (4, 6, 2)))],
)
def test_the_linear_part_is_exactly_what_the_flop_counter_counts(n_kv_heads, tied, call):
    n_new, n_past, batch = call
    config = small(n_kv_heads, tied)
    model = MiniGPT(config).eval()
    cache = KVCache(config, batch, n_past + n_new)
    if n_past:
        forward_last(model, torch.zeros(batch, n_past, dtype=torch.int64), cache)
    new = torch.zeros(batch, n_new, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        forward_last(model, new, cache)
    by_operation = counter.get_flop_counts()["Global"]
    linear = sum(n for name, n in by_operation.items() if "attention" not in str(name))
    cost = phase_cost(config, n_new, n_past, batch)
    assert cost.flops - attention_flops(config, n_new, n_past, batch) == linear


@pytest.mark.parametrize(("n_kv_heads", "tied"), [*product((1, 2, 4), (False, True))])
def test_weight_bytes_are_those_of_all_parameters_but_norms_and_an_untied_table(n_kv_heads, tied):
    model = MiniGPT(small(n_kv_heads, tied))
    matrices = {id(m.weight): m.weight for m in model.modules() if isinstance(m, nn.Linear)}
    cost = phase_cost(model.config, 1, 0, bytes_per_element=4)
    assert cost.weight_bytes == sum(weight.nbytes for weight in matrices.values())


def test_the_cache_is_billed_as_lesson_03_weighs_it():
    for config in (small(1), small(4), LARGE):
        cost = phase_cost(config, 3, 40, batch=5)
        assert cost.kv_read_bytes == kv_cache_bytes(config, 43, 5)
        assert cost.kv_written_bytes == kv_cache_bytes(config, 3, 5)


def test_a_prompt_in_two_parts_costs_the_attention_of_the_whole_and_one_more_reading_of_weights():
    whole, first, second = (phase_cost(LARGE, *call) for call in ((100, 0), (60, 0), (40, 60)))
    assert attention_flops(LARGE, 100, 0) == (
        attention_flops(LARGE, 60, 0) + attention_flops(LARGE, 40, 60)
    )
    assert first.weight_bytes + second.weight_bytes == 2 * whole.weight_bytes


def test_sizes_that_cannot_be_are_refused_by_name():
    for wrong in ({"n_new": 0}, {"n_past": -1}, {"batch": 0}, {"bytes_per_element": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            phase_cost(small(), **{"n_new": 1, "n_past": 0, **wrong})
    with pytest.raises(ValueError, match="repeats"):
        time_on_device(lambda: None, FakeDevice(Pace(seed=0)), repeats=0)


def test_a_cost_is_made_of_whole_numbers():
    cost = Cost(4.0, np.int64(1), 1, 0, 0)
    assert (cost.flops, cost.weight_bytes) == (4, 1)
    assert {type(value) for value in vars(cost).values()} == {int}
    for wrong in (-1, True, None, float("nan"), float("inf"), "3"):
        with pytest.raises(ValueError, match="flops must be a whole number"):
            Cost(wrong, 1, 1, 0, 0)
    assert Cost(6, 1, 1, 1, 0).intensity == 2
    with pytest.raises(ValueError, match=r"kv_read_bytes.*0\.5"):
        Cost(1, 1, 0.5, 0, 0)
    with pytest.raises(ValueError, match="without bytes"):
        _ = Cost(1, 0, 0, 0, 0).intensity


# --- what the text says of large models ----------------------------------------------------------


def first_compute_bound(context: int, config: GPTConfig = LARGE) -> int | None:
    """Find the smallest batch below 3000 that is compute-bound on an H200."""
    for B in range(1, 3000):
        if bound_by(phase_cost(config, 1, context, B), H200) == "compute":
            return B
    return None


def test_the_prose_computes_with_the_model_and_the_machine_that_are_drawn():
    published = PUBLISHED["Llama-2-7B"].config
    assert replace(published, max_seq_len=LARGE.max_seq_len) == LARGE
    assert Machine("H200", 989e12, 4800e9) == H200


def test_as_one_lump_no_batch_is_compute_bound_with_1024_cached_tokens():
    assert first_compute_bound(context=16) is not None
    assert first_compute_bound(context=1024) is None


@pytest.mark.parametrize("context", [0, 16, 1024, 131_072])
def test_the_matrices_are_compute_bound_from_one_batch_on_whatever_the_context(context):
    bound = [bound_by(parts(LARGE, 1, context, B, width=2).matrices, H200) for B in (223, 224)]
    assert bound == ["memory", "compute"]


@pytest.mark.parametrize("batch", [1, 64, 1024])
def test_attention_stays_at_one_flop_a_byte_whatever_the_batch(batch):
    attention = parts(LARGE, 1, 1024, batch, width=2).attention
    assert attention.intensity == pytest.approx(1, rel=0.01)
    assert bound_by(attention, H200) == "memory"


def test_parts_add_up_to_the_bill():
    cost = phase_cost(LARGE, 7, 90, 3)
    both = cost.parts(attention_flops(LARGE, 7, 90, 3))
    assert both.whole == cost
    assert both.attention.weight_bytes == both.matrices.kv_read_bytes == 0
    lump = cost.flops / attainable(cost.intensity, H200)
    assert both.seconds(attainable, H200) >= lump  # which lets both overlap perfectly
    with pytest.raises(ValueError, match="flops"):
        cost.parts(cost.flops + 1)


def test_the_weights_lead_for_one_user_and_the_caches_for_16():
    one, many = (phase_cost(LARGE, 1, 4096, batch) for batch in (1, 16))
    assert one.weight_bytes > 6 * one.kv_read_bytes
    assert many.kv_read_bytes > 2 * many.weight_bytes
    assert one.weight_bytes == many.weight_bytes


def test_prefill_is_compute_bound_and_decode_memory_bound_on_every_datasheet():
    for machine in DATASHEETS.values():
        assert bound_by(phase_cost(LARGE, 1, 1024), machine) == "memory"
        assert bound_by(phase_cost(LARGE, 1024, 0), machine) == "compute"


def seconds(cost: Cost, machine: Machine) -> float:
    return cost.flops / attainable(cost.intensity, machine)


def test_an_h200_could_read_256_tokens_in_the_time_of_writing_two():
    reading, writing = phase_cost(LARGE, 256, 0), phase_cost(LARGE, 1, 256)
    assert seconds(reading, H200) < 2 * seconds(writing, H200)


def test_16_users_with_short_caches_move_hardly_more_bytes_than_one():
    one, many = phase_cost(LARGE, 1, 128), phase_cost(LARGE, 1, 128, batch=16)
    assert many.bytes < 1.1 * one.bytes


def test_fewer_kv_heads_let_a_smaller_batch_reach_the_flat_roof():
    fewer = replace(LARGE, n_kv_heads=8)
    assert first_compute_bound(64, config=fewer) < first_compute_bound(64)


def test_the_mini_model_moves_half_a_megabyte_a_step():
    cost = phase_cost(MiniGPT.from_weights("mini").config, 1, 64, bytes_per_element=4)
    assert round(cost.bytes / 1e6, 1) == 0.5


def test_the_cpu_model_streams_at_least_200_mb():
    assert phase_cost(SIZES["cpu"].config, 1, 0, bytes_per_element=4).weight_bytes >= 200e6


# --- steps that are timed ------------------------------------------------------------------------

TINY = Size("tiny test", small(), torch.float32)


@pytest.fixture(scope="module")
def model():
    return build_random(TINY, "cpu")


@pytest.mark.parametrize("call", [(1, 1, 0), (3, 1, 5), (2, 4, 0), (2, 3, 6)])
def test_a_step_gives_logits_of_the_last_token_and_leaves_room_for_the_next(model, call):
    batch, n_new, n_past = call
    run = step(model, batch, n_new, n_past)
    with count_kv_rows(model) as count:
        first, second = run(), run()
    assert first.shape == (batch, model.config.vocab_size)
    assert torch.equal(first, second)
    assert count.per_call == [batch * n_new] * 2


@pytest.mark.parametrize("call", [(1, 1, 0), (3, 1, 5), (2, 4, 0)])
def test_a_fast_step_reads_exactly_the_tokens_that_are_billed(model, call):
    batch, n_new, n_past = call
    decoder = FastDecoder(model, 1, 1)
    run = step(decoder, batch, n_new, n_past)
    first, second = run(), run()
    assert first.shape == (batch, model.config.vocab_size)
    assert torch.allclose(first, second)
    assert (decoder.batch, decoder.max_len, len(decoder)) == (1, 1, 0)


def test_steps_that_cannot_be_are_refused(model):
    with pytest.raises(ValueError, match="not 2 tokens after 3"):
        step(FastDecoder(model, 1, 1), n_new=2, n_past=3)
    with pytest.raises(ValueError, match="n_past"):
        step(model, n_new=60, n_past=5)


def test_logits_of_the_last_position_are_those_of_the_model(model):
    tokens = torch.randint(90, (2, 9))
    cache = KVCache(model.config, 2, 9)
    got = forward_last(model, tokens, cache)
    assert torch.allclose(got, model(tokens)[:, -1], atol=1e-4)


def test_operations_are_counted_one_by_one():
    numbers = torch.ones(3)
    assert count_operations(lambda: numbers.add_(1).mul_(2)) == Operations(views=0, kernels=2)
    assert count_operations(lambda: numbers.view(1, 3).t()[0] + 1) == Operations(3, 1)


def test_the_fast_decoder_asks_for_fewer_operations():
    mini = MiniGPT.from_weights("mini")
    plain = count_operations(step(mini, n_past=64))
    assert sum(count_operations(step(FastDecoder(mini, 1, 1), n_past=64))) < sum(plain)


# --- the pictures --------------------------------------------------------------------------------

HERE = Machine("a test machine", 90e9, 25e9)


def parts(config: GPTConfig, *call: int, width: int = 4) -> Parts:
    return phase_cost(config, *call, bytes_per_element=width).parts(attention_flops(config, *call))


def phases(config: GPTConfig) -> dict[str, Parts]:
    return {"prefill": parts(config, 64, 0), "decode": parts(config, 1, 64)}


def drawn_points(picture) -> list[tuple[float, float]]:
    lines = [line for line in picture.figure.axes[0].lines if len(line.get_xdata()) == 1]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines]


def test_matrices_and_attention_are_drawn_apart_on_the_roof():
    bills = phases(SIZES["cpu"].config)
    drawn = drawn_points(plots.draw_phases(attainable, HERE, bills))
    for part in (part for both in bills.values() for part in both):
        assert pytest.approx((part.intensity, attainable(part.intensity, HERE))) in drawn


def test_rings_lie_where_a_phase_was_predicted_and_dots_where_it_was_measured():
    bills = phases(SIZES["cpu"].config)
    times = {"prefill": 0.2, "decode": 0.01}
    picture = plots.draw_phases(attainable, HERE, bills, times)
    for name, both in bills.items():
        for taken in (both.seconds(attainable, HERE), times[name]):
            rate = both.whole.flops / taken
            assert pytest.approx((both.whole.intensity, rate)) in drawn_points(picture)
    assert "1 of 2 phases are within a factor of 2" in picture.caption


def test_without_times_nothing_is_called_measured():
    picture = plots.draw_phases(attainable, HERE, phases(SIZES["cpu"].config))
    assert "easured" not in picture.caption
    assert "easured" not in picture.alt


def test_recorded_points_are_named_as_recorded():
    cost = phase_cost(LARGE, 1, 512)
    point = Point("6.7B", "decode", 1, 1, 512, cost.flops, cost.bytes, 1.0)
    run = Recording(
        *("a made-up device", "bfloat16", "2026-01-31", "none"),
        {"torch": "0"},
        Machine("a made-up device", 1e12, 1e9),
        (point,),
    )
    bills = phases(SIZES["cpu"].config)
    times = dict.fromkeys(bills, 1.0)
    with_it = plots.draw_phases(attainable, HERE, bills, times, [run])
    assert "recorded, not yours: a made-up device, bfloat16, recorded 2026-01-31" in with_it.caption
    assert "recorded" not in plots.draw_phases(attainable, HERE, bills, times).caption


def test_the_bars_of_bytes_add_up():
    bills = {name: both.whole for name, both in phases(LARGE).items()}
    axes = plots.draw_bytes(bills).figure.axes[0]
    width = sum(bar.get_width() for bar in axes.patches)
    assert width == pytest.approx(sum(cost.bytes for cost in bills.values()) / 1e9)


def test_the_queue_shows_a_clock_that_stops_too_early():
    picture = plots.draw_queue(queueing=1, work=3, calls=3)
    assert "shows 3 units, one stopped when all is done 10" in picture.alt


def test_the_third_roof_says_how_far_the_first_two_are_off():
    cost = phase_cost(MiniGPT.from_weights("mini").config, 1, 64, 1, 4)
    asked = {"a": Operations(20, 80), "b": Operations(10, 40)}
    prices = Operations(views=1e-6, kernels=2e-6)
    picture = plots.draw_third_roof(cost, HERE, prices, asked, {"a": 3.6e-4, "b": 1e-4})
    assert "2.0 times what its operations take at least, 1 µs a view and 2 µs a" in picture.caption


@pytest.fixture
def sliders(monkeypatch):
    """What draws the widget's picture, and its controls."""
    drawn = []
    monkeypatch.setattr(
        widget, "playground", lambda draw, **controls: drawn.append((draw, controls))
    )
    widget.play_with_the_roof(phase_cost, attention_flops, attainable, bound_by)
    return drawn[0]


@pytest.mark.parametrize("gpu", DATASHEETS)
def test_every_gpu_of_the_sliders_is_drawn_as_its_datasheet(gpu, sliders):
    draw, controls = sliders
    assert set(controls) == {"gpu", "model", "stored", "batch", "context"}
    for batch, context in ((1, 0), (232, 16), (1024, 131_072)):
        picture = draw(gpu, "Llama-2-7B", "16 bits", batch, context)
        assert f"{gpu}'s datasheet" in picture.caption
        assert "e+" not in picture.figure.axes[0].get_title(loc="left")


def test_what_does_not_fit_is_said_and_pale(sliders):
    draw, _ = sliders
    room = MEMORY_BYTES["H200"] - phase_cost(LARGE, 1, 0).weight_bytes
    most = int(room // kv_cache_bytes(LARGE, 1025))
    picture = draw("H200", "Llama-2-7B", "16 bits", 128, 1024)
    assert f"at most {most:,} rows fit" in picture.caption
    assert "does not fit" not in picture.figure.axes[0].get_title(loc="left")
    picture = draw("H200", "Llama-2-7B", "16 bits", 1024, 131_072)
    assert "does not fit" in picture.figure.axes[0].get_title(loc="left")
    decode = [line for line in picture.figure.axes[0].lines if line.get_marker() in ("o", "s")][:2]
    assert {line.get_color() for line in decode} == {GREY}
