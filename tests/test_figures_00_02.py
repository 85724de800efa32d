"""Lesson 02's counts, its model and its pictures agree.

The figures in the prose of lessons 00 and 02 are computed where they stand.
"""

import pytest
import torch

from course.measure.counting import count_kv_rows
from course.minigpt.naive_decode import (
    attention_visits,
    generate_naive,
    kv_rows_naive,
    kv_rows_needed,
)
from course.model import MiniGPT
from course.plots import naive_decode as plots
from course.world.tokenizer import decode, encode


def test_the_visits_of_a_growing_text_are_the_sum_of_its_steps():
    assert attention_visits(1, 16) == sum(range(1, 17))
    assert attention_visits(2000, 200) == sum(range(2000, 2200)) == 419_900


def test_doubling_the_answer_doubles_the_visits_only_after_a_long_prompt():
    assert attention_visits(1, 16) / attention_visits(1, 8) == pytest.approx(3.8, abs=0.05)
    assert attention_visits(2000, 400) / attention_visits(2000, 200) == pytest.approx(2.1, abs=0.01)


def test_the_cat_sat_costs_18_rows_of_which_12_were_there_before():
    model = MiniGPT.from_weights("mini")
    with count_kv_rows(model) as count:
        text = decode(generate_naive(model, encode("The cat sat"), 4))
    assert text == "The cat sat on the mat ."
    assert count.per_call == [3, 4, 5, 6]
    assert count.rows == kv_rows_naive(3, 4) == 18
    assert kv_rows_needed(3, 4) == 6
    assert kv_rows_naive(3, 4) - kv_rows_needed(3, 4) == 12


@pytest.mark.parametrize(
    ("p", "g", "naive", "ratio"),
    [
        (100, 50, 6_225, 41.8),
        (500, 200, 119_900, 171.5),
        (1000, 500, 624_750, 416.8),
        (2000, 1000, 2_499_500, 833.4),
    ],
)
def test_the_waste_of_long_texts(p, g, naive, ratio):
    assert kv_rows_naive(p, g) == naive
    assert round(naive / kv_rows_needed(p, g), 1) == ratio


def test_the_mini_gpt_does_13_times_too_much():
    P, T, d = 8, 20, 64
    linear = T * kv_rows_naive(P, 1) * d**2
    # T²/2 stands for T(T-1)/2, so the quoted sum counts T/2 rows more than there are.
    quadratic = (kv_rows_naive(P, T) - T * P + T // 2) * d**2
    # And P + T rows stand for P + T - 1.
    cached = (kv_rows_needed(P, T) + 1) * d**2
    assert (linear, quadratic) == (655_360, 819_200)
    assert linear + quadratic == 1_474_560
    assert cached == 114_688
    assert round((linear + quadratic) / cached) == 13
    assert kv_rows_naive(P, T) * d**2 == 1_433_600
    assert kv_rows_needed(P, T) * d**2 == 110_592


def test_a_key_of_token_0_is_computed_once_for_each_new_token():
    model = MiniGPT.from_weights("mini")
    with count_kv_rows(model) as count:
        generate_naive(model, torch.randint(model.config.vocab_size, (1, 10)), 10)
    assert len(count.per_call) == 10


def test_nothing_is_computed_for_nothing():
    assert kv_rows_naive(5, 0) == kv_rows_needed(5, 0) == attention_visits(5, 0) == 0


@pytest.mark.parametrize(("p", "g"), [(3, 4), (1, 8), (40, 20), (14, 1), (5, 0)])
def test_the_grid_shows_what_the_functions_count(p, g):
    naive, needed = kv_rows_naive(p, g), kv_rows_needed(p, g)
    axes = plots.draw_grid(p, g).figure.axes[0]
    assert axes.get_title(loc="left") == (
        f"{naive:,} rows computed = {needed:,} needed + {naive - needed:,} done again"
    )
    area = sum(cell.get_width() * cell.get_height() for cell in axes.patches)
    assert area == pytest.approx(naive, rel=0.15)  # cells that carry words leave a gap


def test_keys_of_a_longer_text_begin_with_the_keys_of_the_shorter():
    model = MiniGPT.from_weights("mini")
    picture = plots.draw_same_keys(model, encode("The cat sat"), encode("The cat sat on the mat"))
    before, after, difference = (axes.images[0].get_array() for axes in picture.figure.axes)
    assert before.shape == (3, 64)
    assert after.shape == (6, 64)
    assert difference.max() < 1e-4 < after.max()
    assert not any(block.attn.wk._forward_hooks for block in model.blocks)
