"""The visible checks of lesson 00. Their truth is counted: one operation, one tensor at a time.

The makers are shared with the hidden checks, which bring another truth and larger sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import Sizes, call_text, count_check, plain

Draw = Callable[[np.random.Generator], list[Sizes]]
Truth = Callable[..., int]


def count_operations(m: int, k: int, n: int) -> int:
    """Multiply (m, k) by (k, n) by hand and count every multiplication and every addition."""
    operations = 0
    for _row in range(m):
        for _column in range(n):
            for _pair in range(k):
                operations += 1  # multiply the pair
                operations += 1  # add the product to the sum so far, which starts at 0
    return operations


def weigh_tensors(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Make the three matrices and add up the bytes that they occupy."""
    dtype = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}[bytes_per_element]
    shapes = [(m, k), (k, n), (m, n)]
    return sum(torch.empty(shape, dtype=dtype).nbytes for shape in shapes)


def draw_shapes(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """A small product and three random ones, m, k and n all different."""
    drawn = [rng.choice(np.arange(2, largest), 3, replace=False).tolist() for _ in range(3)]
    return [(2, 3, 4), *map(tuple, sorted(drawn, key=np.prod))]


# --- matmul_flops --------------------------------------------------------------------------------


def make_one_dot_product(truth: Truth, largest: int) -> Check:
    """`matmul_flops(1, k, 1)` for a few k."""

    def draw(rng: np.random.Generator) -> list[Sizes]:
        return [(1, int(k), 1) for k in np.sort(rng.integers(2, largest, 3))]

    def question(sizes: Sizes, got: float, right: int) -> str:
        k = sizes[1]
        if got == right / 2:
            return f"{k} multiply-adds: how many operations is each of them?"
        if got == right - 1:
            return (
                "The first product has nothing to be added to, that is true; but the course, like "
                "the field, counts multiply-adds. How many are there, and what does each count?"
            )
        return "How many products are there, and how often is something added to the sum?"

    return count_check(
        "flops_of_one_dot_product",
        "matmul_flops",
        draw,
        truth,
        question,
        "One row times one column: every multiplication and every addition is counted.",
    )


def make_any_product(truth: Truth, largest: int) -> Check:
    """`matmul_flops(m, k, n)` for different m, k and n."""

    def question(sizes: Sizes, got: float, right: int) -> str:
        m, _, n = sizes
        if got == right / 2:
            return "How many operations is one multiply-add?"
        return (
            f"The output has {m} rows and {n} columns. How many dot products is that, and how long "
            f"is each?"
        )

    return count_check(
        "flops_of_any_product",
        "matmul_flops",
        lambda rng: draw_shapes(rng, largest),
        truth,
        question,
        "One dot product for every number of the output, whatever the shape.",
    )


# --- matmul_bytes --------------------------------------------------------------------------------


def make_three_matrices(truth: Truth, largest: int) -> Check:
    """`matmul_bytes(m, k, n, 1)`: which numbers are moved at all."""

    def question(sizes: Sizes, got: float, right: int) -> str:
        m, k, n, _ = sizes
        parts = {"the left matrix": m * k, "the right matrix": k * n, "the output": m * n}
        for name, part in parts.items():
            if got == right - part:
                return f"{part:,} are missing. Which of the three matrices has that many numbers?"
            if got == part:
                return f"{part:,} is {name} alone. What else must travel?"
        if got == 8 * right:
            return "That is 8 times as much. Bits or bytes?"
        if got > right:
            return "Each number is read once or written once. Which ones did you count again?"
        return "Two matrices are read and one is written. How many numbers has each?"

    return count_check(
        "bytes_of_three_matrices",
        "matmul_bytes",
        lambda rng: [(*shape, 1) for shape in draw_shapes(rng, largest)],
        truth,
        question,
        "Two matrices read, one written, each number once.",
    )


def draw_odd_shape(rng: np.random.Generator) -> list[Sizes]:
    """One shape of three odd sizes, in which no rounding can hide, for every element size."""
    m, k, n = (int(size) for size in 2 * rng.integers(1, 9, 3) + 1)
    return [(m, k, n, size) for size in (1, 2, 4, 8)]


def probe_element_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"values": [plain(student.matmul_bytes(*sizes)) for sizes in challenge["sizes"]]}


def judge_element_sizes(challenge: Challenge, evidence: Evidence) -> Verdict:
    first = evidence["values"][0]
    for sizes, got in zip(challenge["sizes"], evidence["values"], strict=True):
        case = call_text("matmul_bytes", sizes)
        if isinstance(got, str):
            return failed(f"{case} gave {got}; wanted is one number. What do you return?")
        if not got > 0:
            return failed(f"{case} gave {got:,}. Can a product move no bytes at all?")
        if got != first * sizes[3]:
            return failed(
                f"{call_text('matmul_bytes', challenge['sizes'][0])} gave {first:,}, but with "
                f"elements {sizes[3]} times as wide {case} gave {got:,}, which is not "
                f"{sizes[3]} times as much. Does the element size reach every matrix?"
            )
    return passed("Elements twice as wide, twice the bytes.")


def make_element_sizes() -> Check:
    """`matmul_bytes` grows with the element size, whatever else it counts."""
    return Check(
        "bytes_follow_the_element_size",
        ("matmul_bytes",),
        lambda seed: {"sizes": draw_odd_shape(np.random.default_rng(seed))},
        probe_element_sizes,
        judge_element_sizes,
    )


flops_of_one_dot_product = make_one_dot_product(count_operations, largest=9)
flops_of_any_product = make_any_product(count_operations, largest=9)
bytes_of_three_matrices = make_three_matrices(weigh_tensors, largest=9)
bytes_follow_the_element_size = make_element_sizes()
