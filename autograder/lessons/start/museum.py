"""What goes wrong in lesson 00, and what is right in another style."""

from __future__ import annotations

import math

from autograder.lessons.exhibit import Bug, Variant

DOT, ANY = "start.flops_of_one_dot_product", "start.flops_of_any_product"
THREE, WIDTH = "start.bytes_of_three_matrices", "start.bytes_follow_the_element_size"


def multiply_add_as_one(m, k, n):
    return m * k * n


def additions_counted_strictly(m, k, n):
    return m * n * (2 * k - 1)


def strict_for_one_output(m, k, n):
    return 2 * k - 1 if m == n == 1 else 2 * m * k * n


def numbers_in_place_of_operations(m, k, n):
    return m * k + k * n + m * n


def forgets_the_tokens(m, k, n):
    return 2 * k * n


def rows_and_columns_added(m, k, n):
    return k * (m + n)


def takes_the_matrix_for_square(m, k, n):
    return 2 * m * k * k


def forgets_the_output(m, k, n, bytes_per_element):
    return (m * k + k * n) * bytes_per_element


def weighs_the_matrix_alone(m, k, n, bytes_per_element):
    return k * n * bytes_per_element


def reads_again_for_every_row(m, k, n, bytes_per_element):
    return (m * k + m * k * n + m * n) * bytes_per_element


def answers_in_bits(m, k, n, bytes_per_element):
    return (m * k + k * n + m * n) * bytes_per_element * 8


def sixteen_bits_always(m, k, n, bytes_per_element):
    return (m * k + k * n + m * n) * 2


def width_reaches_the_last_term_only(m, k, n, bytes_per_element):
    return m * k + k * n + m * n * bytes_per_element


def takes_bytes_for_bits(m, k, n, bytes_per_element):
    return (m * k + k * n + m * n) * bytes_per_element // 8


def _bug(function, story: str, check: str, family: str, mistake: str) -> Bug:
    answer = {"matmul_flops" if check in (DOT, ANY) else "matmul_bytes": function}
    return Bug(function.__name__, story, check, family, mistake, answer)


BUGS = [
    _bug(
        multiply_add_as_one,
        "Takes one multiply-add for one operation: half of the FLOPs.",
        DOT,
        "formula",
        "a count in which a multiplication and its addition are one operation",
    ),
    _bug(
        additions_counted_strictly,
        "k numbers need only k-1 additions: not what FLOPs mean.",
        DOT,
        "off by one",
        "a count that saves the first addition of every dot product",
    ),
    _bug(
        strict_for_one_output,
        "Knows the formula of a product, and counts a single dot product by hand.",
        DOT,
        "off by one",
        "a count that treats a single dot product unlike those of a larger product",
    ),
    _bug(
        numbers_in_place_of_operations,
        "Counts the numbers of the three matrices.",
        DOT,
        "formula",
        "a count of the numbers in the matrices, not of what is done with them",
    ),
    _bug(
        forgets_the_tokens,
        "Right for one token, and the same for a hundred.",
        ANY,
        "formula",
        "a count in which the number of rows plays no part",
    ),
    _bug(
        rows_and_columns_added,
        "Walks along rows and columns, not through every pair.",
        ANY,
        "formula",
        "a count that adds rows and columns where they meet pair by pair",
    ),
    _bug(
        takes_the_matrix_for_square,
        "Has only ever seen a 4096 by 4096 matrix.",
        ANY,
        "formula",
        "a count that takes the matrix for a square one",
    ),
    _bug(
        forgets_the_output,
        "Counts what is read and not what is written.",
        THREE,
        "formula",
        "a count of what is read, without what is written",
    ),
    _bug(
        weighs_the_matrix_alone,
        "The weights are nearly everything, for one token.",
        THREE,
        "formula",
        "a count of one of the matrices alone",
    ),
    _bug(
        reads_again_for_every_row,
        "Lets every row fetch the right matrix from memory.",
        THREE,
        "formula",
        "a count that fetches the same matrix again for every row",
    ),
    _bug(
        answers_in_bits,
        "Eight times too many: bits, not bytes.",
        THREE,
        "formula",
        "a count of bits",
    ),
    _bug(
        sixteen_bits_always,
        "Takes every number for a float16 one.",
        WIDTH,
        "formula",
        "a count in which every number has two bytes, whatever was asked",
    ),
    _bug(
        width_reaches_the_last_term_only,
        "Leaves out the brackets, so only the output is weighed.",
        WIDTH,
        "formula",
        "a count in which the element size reaches only one of the terms",
    ),
    _bug(
        takes_bytes_for_bits,
        "Divides by 8 although the width is in bytes already.",
        WIDTH,
        "formula",
        "a count that takes the element size for bits",
    ),
]


def flops_of_each_output(m: int, k: int, n: int) -> int:
    """Adds up one output after another."""
    per_output = k + k
    return sum(per_output for _ in range(m) for _ in range(n))


def flops_as_a_float(m: int, k: int, n: int) -> float:
    return 2.0 * m * k * n


def bytes_of_shapes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    return sum(math.prod(shape) * bytes_per_element for shape in [(m, k), (k, n), (m, n)])


def bytes_read_and_written(m: int, k: int, n: int, bytes_per_element: int) -> float:
    read = k * (m + n)
    written = m * n
    return float(bytes_per_element) * (read + written)


VARIANTS = [
    Variant("one_by_one", {"matmul_flops": flops_of_each_output, "matmul_bytes": bytes_of_shapes}),
    Variant("floats", {"matmul_flops": flops_as_a_float, "matmul_bytes": bytes_read_and_written}),
]
