"""The visible checks of lesson 00. The hidden ones bring larger sizes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import Sizes, call_text, count_check, drawn_by, one_value_each, plain
from course.checks.recorded import Recorded

# --- matmul_flops --------------------------------------------------------------------------------


def draw_dot_products(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """Draw three products of one row and one column."""
    return [(1, int(k), 1) for k in np.sort(rng.integers(2, largest, 3))]


def draw_products(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """Draw a small product and three random ones, m, k and n all different."""
    drawn = [rng.choice(np.arange(2, largest), 3, replace=False).tolist() for _ in range(3)]
    return [(2, 3, 4), *map(tuple, sorted(drawn, key=np.prod))]


def ask_about_a_dot_product(sizes: Sizes, got: float, right: int) -> str:
    k = sizes[1]
    if got == right / 2:
        return f"{k} multiply-adds: how many operations is each of them?"
    if got == right - 1:
        return (
            "The first product has nothing to be added to, that is true; but the course, like "
            "the field, counts multiply-adds. How many are there, and what does each count?"
        )
    return "How many products are there, and how often is something added to the sum?"


def ask_about_a_product(sizes: Sizes, got: float, right: int) -> str:
    m, _, n = sizes
    if got == right / 2:
        return "How many operations is one multiply-add?"
    return (
        f"The output has {m} rows and {n} columns. How many dot products is that, and how long "
        f"is each?"
    )


flops_of_one_dot_product = count_check(
    "flops_of_one_dot_product",
    "matmul_flops",
    drawn_by(lambda rng: draw_dot_products(rng, largest=9)),
    Recorded("start", "flops_of_one_dot_product"),
    ask_about_a_dot_product,
    "One row times one column: every multiplication and every addition is counted.",
)
flops_of_any_product = count_check(
    "flops_of_any_product",
    "matmul_flops",
    drawn_by(lambda rng: draw_products(rng, largest=9)),
    Recorded("start", "flops_of_any_product"),
    ask_about_a_product,
    "One dot product for every number of the output, whatever the shape.",
)

# --- matmul_bytes --------------------------------------------------------------------------------


def draw_products_of_bytes(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """Draw products whose numbers take one byte each."""
    return [(*shape, 1) for shape in draw_products(rng, largest)]


def ask_about_the_matrices(sizes: Sizes, got: float, right: int) -> str:
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


bytes_of_three_matrices = count_check(
    "bytes_of_three_matrices",
    "matmul_bytes",
    drawn_by(lambda rng: draw_products_of_bytes(rng, largest=9)),
    Recorded("start", "bytes_of_three_matrices"),
    ask_about_the_matrices,
    "Two matrices read, one written, each number once.",
)


def draw_element_sizes(rng: np.random.Generator) -> list[Sizes]:
    """Draw one product of three odd sizes, in which no rounding can hide, for every element size."""
    m, k, n = (int(size) for size in 2 * rng.integers(1, 9, 3) + 1)
    return [(m, k, n, size) for size in (1, 2, 4, 8)]


def probe_element_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"values": [plain(student.matmul_bytes(*sizes)) for sizes in challenge["sizes"]]}


def judge_element_sizes(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether bytes grow with the element size, whatever else is counted."""
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


bytes_follow_the_element_size = Check(
    "bytes_follow_the_element_size",
    ("matmul_bytes",),
    drawn_by(draw_element_sizes),
    probe_element_sizes,
    judge_element_sizes,
    evidence=one_value_each,
)
