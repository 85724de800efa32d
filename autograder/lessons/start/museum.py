"""Known wrong answers to lesson 00: counts of FLOPs and bytes."""

import numpy as np

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("start")

bug = MUSEUM.section("matmul_flops", check="flops_of_one_dot_product")


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


@bug(
    "formula", "a count that knows two operations a number of the output, however long the rows are"
)
def two_for_each_output(m, k, n):
    """One multiplication and one addition, though each number comes from k pairs."""
    return 2 * m * n


@bug("formula", "a count in which sizes are added that ought to be multiplied")
def sizes_added(m, k, n):
    """Two operations for every row and column."""
    return 2 * (m + k + n)


@bug("form", "a function that counts and returns nothing")
def nothing_returned(m, k, n):
    """The number is computed, and the caller gets None."""
    flops = 2 * m * k * n  # noqa: F841


@bug("form", "a count that comes as text")
def count_as_text(m, k, n):
    """Formatted for the eye: "1,000" is no number."""
    return f"{2 * m * k * n:,}"


@bug("formula", "a count of one dot product, however many there are", kind="cheapest")
def one_dot_product_only(m, k, n):
    """Right for one row and one column, and neither rows nor columns are looked at."""
    return 2 * k


COUNTED = {}


@bug("state", "a count that is remembered for other sizes than it was made for", kind="results")
def remembered_by_rows(m, k, n):
    """A cache whose key leaves out two of the three sizes."""
    return COUNTED.setdefault(m, 2 * m * k * n)


bug = MUSEUM.section("matmul_flops", check="flops_of_any_product")


@bug("formula", "a count in which the number of rows plays no part")
def forgets_the_tokens(m, k, n):
    """Right for one token, and the same for a hundred."""
    return 2 * k * n


@bug("formula", "a count that comes to the numbers in the left and the right matrix, each once")
def rows_and_columns_added(m, k, n):
    """Walks along rows and columns, not through every pair."""
    return k * (m + n)


@bug("formula", "a count that takes the matrix for a square one")
def takes_the_matrix_for_square(m, k, n):
    """Has only ever seen a 4096 by 4096 matrix."""
    return 2 * m * k * k


@bug("formula", "a count in which the number of columns plays no part")
def forgets_the_columns(m, k, n):
    """Counts one column of the right matrix."""
    return 2 * m * k


@bug("formula", "a count in whole numbers of 32 bits, which large products exceed", kind="sizes")
def overflows_32_bits(m, k, n):
    """NumPy's int32 turns over beyond 2,147,483,647."""
    sizes = np.array([2 * m, k, n], dtype=np.int64).astype(np.int32)
    return int(np.prod(sizes, dtype=np.int32))


@bug("formula", "a count in numbers of 32 bits with seven digits", kind="sizes")
def rounded_to_seven_digits(m, k, n):
    """float32 holds seven digits: small products are exact, large ones are not."""
    return float(np.float32(2 * m) * np.float32(k) * np.float32(n))


@bug("formula", "a count that takes an empty matrix for one of a single row", kind="sizes")
def never_empty(m, k, n):
    """No rows, no work: 0 is a right answer."""
    return 2 * max(m, 1) * max(k, 1) * max(n, 1)


bug = MUSEUM.section("matmul_bytes", check="bytes_of_three_matrices")


@bug("formula", "a count of what is read, without what is written")
def forgets_the_output(m, k, n, bytes_per_element):
    """Counts what is read and not what is written."""
    return (m * k + k * n) * bytes_per_element


@bug("formula", "a count in which matrices of equal size are one", kind="batch")
def equal_sizes_once(m, k, n, bytes_per_element):
    """Adds up a set, which holds equal numbers once."""
    return sum({m * k, k * n, m * n}) * bytes_per_element


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


@bug("formula", "a count in which the output moves twice")
def output_twice(m, k, n, bytes_per_element):
    """Reads the output to add to it, and writes it back: once more than needed."""
    return (m * k + k * n + 2 * m * n) * bytes_per_element


@bug("formula", "a count without what goes in")
def forgets_the_input(m, k, n, bytes_per_element):
    """The weights come from memory, and the output goes there; the input was just computed."""
    return (k * n + m * n) * bytes_per_element


@bug("formula", "a count that fetches both numbers of every pair anew")
def fetches_every_pair(m, k, n, bytes_per_element):
    """Every multiplication fetches its two numbers from memory."""
    return (2 * m * k * n + m * n) * bytes_per_element


@bug("formula", "a count of thousands of bytes")
def answers_in_kibibytes(m, k, n, bytes_per_element):
    """Divided by 1,024, for a friendlier number."""
    return (m * k + k * n + m * n) * bytes_per_element / 1024


@bug("formula", "an output whose number of columns was taken from the left matrix")
def output_has_the_inputs_shape(m, k, n, bytes_per_element):
    """(m, k) times (k, n) is (m, n), not (m, k)."""
    return (m * k + k * n + m * k) * bytes_per_element


bug = MUSEUM.section("matmul_bytes", check="bytes_follow_the_element_size")


@bug("formula", "a count in which every number has four bytes, whatever was asked")
def float32_always(m, k, n, bytes_per_element):
    """Takes every number for a float32 one."""
    return (m * k + k * n + m * n) * 4


@bug("formula", "a count of numbers, whatever their width")
def numbers_not_bytes(m, k, n, bytes_per_element):
    """The element size is never used."""
    return m * k + k * n + m * n


@bug("formula", "an output of four bytes a number where fewer were asked")
def output_in_float32(m, k, n, bytes_per_element):
    """Sums are kept in float32, and so the output is counted."""
    return (m * k + k * n) * bytes_per_element + m * n * 4


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


@bug("formula", "the width of a number, in place of all the numbers", kind="cheapest")
def width_alone(m, k, n, bytes_per_element):
    """Twice the width is twice the bytes, also where no number is counted."""
    return bytes_per_element
