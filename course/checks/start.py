"""The visible checks of lesson 00. The hidden ones bring larger sizes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import Sizes, call_text, count_check, drawn_by, one_value_each, plain
from course.checks.recorded import Recorded

# --- matmul_flops --------------------------------------------------------------------------------


def draw_dot_products(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """Draw products of one row and one column: of one pair, of few, of many, and of none."""
    few = sorted(int(k) for k in rng.choice(np.arange(2, largest), 3, replace=False))
    return [(1, k, 1) for k in (few[0], 1, *few[1:], int(rng.integers(5_000, 100_000)), 0)]


def draw_products(rng: np.random.Generator, largest: int) -> list[Sizes]:
    """Draw a small product and three random ones, m, k and n all different; then two whose FLOPs need
    more than 32 bits, ones of a single row, pair or column, and ones in which a matrix is empty."""
    drawn = [rng.choice(np.arange(2, largest), 3, replace=False).tolist() for _ in range(3)]
    few, many, most = rng.integers((20, 200, 10**6), (64, 600, 10**7)).tolist()
    edges = []
    for edge in (1, 0):
        for place in range(3):
            sizes = rng.integers(2, largest, 3).tolist()
            sizes[place] = edge
            edges.append(sizes)
    return [
        (3, 4, 7),
        *map(tuple, [*sorted(drawn, key=np.prod), (few, most, many), (many, most, few), *edges]),
    ]


def ask_about_a_dot_product(sizes: Sizes, got: float, right: int) -> str:
    k = sizes[1]
    if k == 0:
        return "An empty row has no pairs. How many operations is that?"
    if got == right / 2:
        return f"Multiply-adds: {k:,}. How many operations is each of them?"
    if got == right - 1:
        return (
            "The first product has nothing to be added to, that is true; but the course, like "
            "the field, counts multiply-adds. How many are there, and what does each count?"
        )
    if k > 1 and got * k == right:
        return "How many pairs are multiplied?"
    return "How many products are there, and how often is something added to the sum?"


def ask_about_a_product(sizes: Sizes, got: float, right: int) -> str:
    m, _, n = sizes
    if 0 in sizes:
        return "One of the matrices is empty. How many pairs are multiplied?"
    if got == right / 2:
        return "How many operations is one multiply-add?"
    if got == right - m * n:
        return "How many multiply-adds is each dot product, the very first addition included?"
    for size, what in ((m, "rows of the left matrix"), (n, "columns of the right one")):
        if size > 1 and got * size == right:
            return f"What happens to your count when there are twice as many {what}?"
    return (
        f"The output has {m:,} rows and {n:,} columns. How many dot products is that, and how long "
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
        if part and got == right - part:
            return f"{part:,} are missing. Which of the three matrices has that many numbers?"
        if part and got == right + part:
            return f"{part:,} are too many. Which of the three matrices has that many numbers?"
        if part and got == part:
            return f"{part:,} is {name} alone. What else must travel?"
    if got == 8 * right:
        return "That is 8 times as much. Bits or bytes?"
    if right and got > right and got % right == 0:
        return f"That is {got // right:,} times as much. How many bytes is one element here?"
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


@check(
    "matmul_bytes",
    draw=drawn_by(draw_element_sizes),
    probe=probe_element_sizes,
    evidence=one_value_each,
)
def bytes_follow_the_element_size(challenge: Challenge, evidence: Evidence) -> Verdict:
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
                f"{sizes[3]} times as much. {ask_about_the_width(sizes, first, got)}"
            )
    return passed("Elements twice as wide, twice the bytes.")


def ask_about_the_width(sizes: Sizes, first: float, got: float) -> str:
    if got == first:
        return "Where does your line use the element size?"
    if got > first * sizes[3]:
        return "The size is given in bytes. By what do you multiply?"
    return "Does the element size reach every matrix?"
