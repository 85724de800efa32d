"""Check counts of FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.checks.calls import (
    Case,
    Words,
    call,
    call_text,
    check_calls,
    drawn,
    one_result_each,
    probe_calls,
)
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import counted
from course.checks.recording import Place, wrong_kind

Shape = tuple[int, int, int]
"""Of a product: m, k and n."""

# --- matmul_flops --------------------------------------------------------------------------------


def draw_dot_products(rng: np.random.Generator, largest: int = 9) -> Iterator[Case]:
    """Draw products of one row and one column: of one pair, of few, and of many."""
    few = sorted(int(k) for k in rng.choice(np.arange(2, largest), 3, replace=False))
    for k in (few[0], 1, *few[1:], int(rng.integers(5_000, 100_000))):
        yield call("matmul_flops", 1, k, 1)


@check_calls(
    "matmul_flops",
    draw=draw_dot_products,
    praise="One row times one column: every multiplication and every addition is counted.",
)
def flops_of_one_dot_product(case: Case, result: float, expected: int, place: Place) -> Words:
    _, k, _ = case["arguments"]
    return counted(result, expected), (
        (result == expected / 2, f"Multiply-adds: {k:,}. How many operations is each of them?"),
        (
            result == expected - 1,
            "The first product has nothing to be added to, that is true; but the course, like "
            "the field, counts multiply-adds. How many are there, and what does each count?",
        ),
        (k > 1 and result * k == expected, "How many pairs are multiplied?"),
        (True, "How many products are there, and how often is something added to the sum?"),
    )


def draw_shapes(rng: np.random.Generator, largest: int) -> Iterator[Shape]:
    """Draw a small product and three random ones, m, k and n all different; then two whose FLOPs need
    more than 32 bits, one of square matrices, ones of a single row, pair or column, and ones in which a
    matrix is empty."""
    shapes = [rng.choice(np.arange(2, largest), 3, replace=False).tolist() for _ in range(3)]
    few, many, most = rng.integers((20, 200, 10**6), (64, 600, 10**7)).tolist()
    yield from ((3, 5, 7), *sorted(shapes, key=np.prod), (few, most, many), (many, most, few))
    yield [int(rng.integers(2, largest))] * 3
    for edge in (1, 0):
        for place in range(3):
            sizes = rng.integers(2, largest, 3).tolist()
            sizes[place] = edge
            yield sizes


def draw_products(rng: np.random.Generator, largest: int = 9) -> Iterator[Case]:
    yield from (call("matmul_flops", *shape) for shape in draw_shapes(rng, largest))


@check_calls(
    "matmul_flops",
    draw=draw_products,
    praise="One dot product for every number of the output, whatever the shape.",
)
def flops_of_any_product(case: Case, result: float, expected: int, place: Place) -> Words:
    m, k, n = case["arguments"]
    twice = "What happens to your count when there are twice as many"
    return counted(result, expected), (
        (0 in case["arguments"], "One of the matrices is empty. How many pairs are multiplied?"),
        (result == expected / 2, "How many operations is one multiply-add?"),
        (
            result == expected - m * n,
            "How many multiply-adds is each dot product, the very first addition included?",
        ),
        (m > 1 and result * m == expected, f"{twice} rows of the left matrix?"),
        (n > 1 and result * n == expected, f"{twice} columns of the right one?"),
        (
            result == 2 * k * (m + n),
            "That is 2 operations for each number of the two matrices. How often is each one used?",
        ),
        (
            True,
            f"The output has {m:,} rows and {n:,} columns. How many dot products is that, and how "
            f"long is each?",
        ),
    )


# --- matmul_bytes --------------------------------------------------------------------------------


def draw_products_of_bytes(rng: np.random.Generator, largest: int = 9) -> Iterator[Case]:
    """Draw products whose numbers take one byte each."""
    yield from (call("matmul_bytes", *shape, 1) for shape in draw_shapes(rng, largest))


@check_calls(
    "matmul_bytes",
    draw=draw_products_of_bytes,
    praise="Two matrices read, one written, each number once.",
)
def bytes_of_three_matrices(case: Case, result: float, expected: int, place: Place) -> Words:
    m, k, n, _ = case["arguments"]
    questions, wide = [], []
    for name, part in (("left matrix", m * k), ("right matrix", k * n), ("output", m * n)):
        which = "Which of the three matrices has that many numbers?"
        questions += [
            (part and result == expected - part, f"{part:,} are missing. {which}"),
            (part and result == expected + part, f"{part:,} are too many. {which}"),
            (part and result == part, f"The {name} alone has {part:,}. How many have all three?"),
        ]
        for width in (4, 8):
            each = f"That is right if each number of the {name} takes {width} bytes."
            more = part and result == expected + (width - 1) * part
            wide.append((more, f"{each} How many does the call say?"))
    multiple = expected and result > expected and result % expected == 0
    times = f"That is {result / (expected or 1):,.0f} times as much."
    return counted(result, expected), (
        *questions,
        (result == 8 * expected, "That is 8 times as much. Bits or bytes?"),
        (multiple, f"{times} A number takes 1 byte here. Which factor is too much?"),
        *wide,
        (True, "Two matrices are read and one is written. How many numbers has each?"),
    )


@drawn
def draw_element_sizes(rng: np.random.Generator) -> Iterator[Case]:
    """Draw one product of three odd sizes, in which no rounding can hide, for every element size."""
    shape = (2 * rng.integers(1, 9, 3) + 1).tolist()
    yield from (call("matmul_bytes", *shape, size) for size in (1, 2, 4, 8))


@check("matmul_bytes", draw=draw_element_sizes, probe=probe_calls, evidence=one_result_each)
def bytes_follow_the_element_size(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether bytes grow with the element size, whatever else is counted."""
    one_byte, first = challenge["cases"][0], evidence["results"][0]["value"]
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        text, width, got = call_text(case), case["arguments"][3], result["value"]
        if wrong := wrong_kind(result, 0):
            return failed(f"{text} {wrong}")
        if not got > 0:
            return failed(f"{text} gave {got:,}. Can a product move no bytes at all?")
        if got != first * width:
            return failed(
                f"{call_text(one_byte)} gave {first:,}, but with elements {width} times as wide "
                f"{text} gave {got:,}, which is not {width} times as much. "
                f"{ask_about_the_width(width, first, got)}"
            )
    return passed("Elements twice as wide, twice the bytes.")


def ask_about_the_width(width: int, first: float, got: float) -> str:
    if got == first:
        return "Where does your line use the element size?"
    if got > first * width:
        return "The size is given in bytes. By what do you multiply?"
    return "Does the element size reach every matrix?"
