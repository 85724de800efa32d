"""Known wrong answers to lesson 00: counts of FLOPs and bytes."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("start")

bug, _ = MUSEUM.section("matmul_flops", check="flops_of_one_dot_product")


@bug("formula", "a count in which a multiplication and its addition are one operation")
def multiply_add_as_one(m, k, n):
    """Takes one multiply-add for one operation: half of the FLOPs."""
    return m * k * n


@bug("off by one", "a count that saves the first addition of every dot product")
def additions_counted_strictly(m, k, n):
    """k numbers need only k-1 additions: not what FLOPs mean."""
    return m * n * (2 * k - 1)


@bug("off by one", "a count that treats a single dot product unlike those of a larger product")
def strict_for_one_output(m, k, n):
    """Knows the formula of a product, and counts a single dot product by hand."""
    return 2 * k - 1 if m == n == 1 else 2 * m * k * n


@bug("formula", "a count of the numbers in the matrices, not of what is done with them")
def numbers_in_place_of_operations(m, k, n):
    """Counts the numbers of the three matrices."""
    return m * k + k * n + m * n


bug, _ = MUSEUM.section("matmul_flops", check="flops_of_any_product")


@bug("formula", "a count in which the number of rows plays no part")
def forgets_the_tokens(m, k, n):
    """Right for one token, and the same for a hundred."""
    return 2 * k * n


@bug("formula", "a count that adds rows and columns where they meet pair by pair")
def rows_and_columns_added(m, k, n):
    """Walks along rows and columns, not through every pair."""
    return k * (m + n)


@bug("formula", "a count that takes the matrix for a square one")
def takes_the_matrix_for_square(m, k, n):
    """Has only ever seen a 4096 by 4096 matrix."""
    return 2 * m * k * k


bug, _ = MUSEUM.section("matmul_bytes", check="bytes_of_three_matrices")


@bug("formula", "a count of what is read, without what is written")
def forgets_the_output(m, k, n, bytes_per_element):
    """Counts what is read and not what is written."""
    return (m * k + k * n) * bytes_per_element


@bug("formula", "a count of one of the matrices alone")
def weighs_the_matrix_alone(m, k, n, bytes_per_element):
    """The weights are nearly everything, for one token."""
    return k * n * bytes_per_element


@bug("formula", "a count that fetches the same matrix again for every row")
def reads_again_for_every_row(m, k, n, bytes_per_element):
    """Lets every row fetch the right matrix from memory."""
    return (m * k + m * k * n + m * n) * bytes_per_element


@bug("formula", "a count of bits")
def answers_in_bits(m, k, n, bytes_per_element):
    """Eight times too many: bits, not bytes."""
    return (m * k + k * n + m * n) * bytes_per_element * 8


bug, _ = MUSEUM.section("matmul_bytes", check="bytes_follow_the_element_size")


@bug("formula", "a count in which every number has two bytes, whatever was asked")
def sixteen_bits_always(m, k, n, bytes_per_element):
    """Takes every number for a float16 one."""
    return (m * k + k * n + m * n) * 2


@bug("formula", "a count in which the element size reaches only one of the terms")
def width_reaches_the_last_term_only(m, k, n, bytes_per_element):
    """Leaves out the brackets, so only the output is weighed."""
    return m * k + k * n + m * n * bytes_per_element


@bug("formula", "a count that takes the element size for bits")
def takes_bytes_for_bits(m, k, n, bytes_per_element):
    """Divides by 8 although the width is in bytes already."""
    return (m * k + k * n + m * n) * bytes_per_element // 8
