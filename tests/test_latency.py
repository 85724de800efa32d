"""What lesson 04 refuses at the door: times that no stream can have, prompts that hold nothing."""

import math

import pytest
import torch

from course.measure.latency import check_stamps
from course.model.bounds import check_prompts


@pytest.mark.parametrize(
    ("start", "stamps"), [(0.0, [0.5]), (0, [0, 1]), (1.5, [1.5, 1.5, 2.0]), (-3.0, [-2.0, -1.0])]
)
def test_times_that_go_on_are_taken(start, stamps):
    check_stamps(start, stamps)


@pytest.mark.parametrize(
    ("start", "stamps", "named"),
    [
        (0.0, [], "stamps is empty"),
        (1.0, [0.5, 2.0], r"stamps\[0\] is 0.5, and before it comes 1.0"),
        (0.0, [1.0, 2.0, 1.5], r"stamps\[2\] is 1.5, and before it comes 2.0"),
        (0.0, [1.0, math.nan], "must be finite"),
        (math.inf, [1.0], "must be finite"),
        (0.0, [1.0, 1.0], "all 2 stamps are 1.0"),
    ],
)
def test_times_that_no_stream_has_are_refused_and_named(start, stamps, named):
    with pytest.raises(ValueError, match=named):
        check_stamps(start, stamps)


def test_prompts_of_any_length_are_taken():
    check_prompts([torch.tensor([1]), torch.tensor([1, 2, 3])])


@pytest.mark.parametrize(
    ("prompts", "named"),
    [
        ([], "prompts is empty"),
        ([torch.tensor([1]), torch.zeros(0, dtype=torch.int64)], r"prompts\[1\] .* got \(0,\)"),
        ([torch.tensor([[1, 2]])], r"prompts\[0\] .* got \(1, 2\)"),
        ([torch.tensor([1.0])], r"prompts\[0\] .* got torch.float32"),
        ([[1, 2]], r"prompts\[0\] .* got <class 'list'>"),
    ],
)
def test_prompts_that_cannot_be_padded_are_refused_and_named(prompts, named):
    with pytest.raises(ValueError, match=named):
        check_prompts(prompts)
