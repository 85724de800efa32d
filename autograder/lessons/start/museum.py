"""Known wrong answers to lesson 00: counts of FLOPs and bytes, and a norm."""

import numpy as np
import torch

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


bug = MUSEUM.section("rms_norm", check="rows_come_to_one_size")


@bug("formula", "rows that are divided by their length, not by their root mean square")
def sum_of_the_squares(x, eps=1e-6):
    """Each row gets the length 1, whatever D is."""
    return x / (x.square().sum(dim=-1, keepdim=True) + eps).sqrt()


@bug("formula", "rows that are divided by their mean square, without a root")
def root_left_out(x, eps=1e-6):
    """Right for rows that have the size 1 already."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps)


@bug("formula", "a mean square of all numbers, where every row has one of its own")
def one_mean_for_all(x, eps=1e-6):
    """Right for a single row: the mean runs over everything."""
    return x / (x.square().mean() + eps).sqrt()


@bug("formula", "means down the columns")
def columns_for_rows(x, eps=1e-6):
    """The mean of axis 0: a number is scaled by its column."""
    return x / (x.square().mean(dim=0, keepdim=True) + eps).sqrt()


@bug("formula", "rows whose mean is subtracted first, as LayerNorm does")
def mean_subtracted(x, eps=1e-6):
    """LayerNorm centers the rows; RMSNorm was proposed to save just that."""
    centered = x - x.mean(dim=-1, keepdim=True)
    return centered / (centered.square().mean(dim=-1, keepdim=True) + eps).sqrt()


@bug("formula", "a standard deviation in the place of the root mean square")
def standard_deviation(x, eps=1e-6):
    """The same only where the mean is 0."""
    return x / (x.var(dim=-1, keepdim=True, correction=0) + eps).sqrt()


@bug("formula", "a mean of absolute numbers, without squares")
def mean_of_absolute_numbers(x, eps=1e-6):
    """Another norm, and a good one; not this one."""
    return x / (x.abs().mean(dim=-1, keepdim=True) + eps)


@bug("formula", "rows that are divided by their largest number")
def by_the_largest(x, eps=1e-6):
    """Each row gets numbers between -1 and 1."""
    return x / (x.abs().amax(dim=-1, keepdim=True) + eps)


@bug("formula", "rows that are multiplied by their root mean square")
def multiplied(x, eps=1e-6):
    """sqrt where rsqrt was meant: large rows become larger."""
    return x * (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()


@bug("formula", "an eps that is added after the root was taken")
def eps_after_the_root(x, eps=1e-6):
    """The same where eps is small beside the row."""
    return x / (x.square().mean(dim=-1, keepdim=True).sqrt() + eps)


@bug("formula", "a division without eps, which makes NaN of a row of zeros", kind="sizes")
def eps_left_out(x, eps=1e-6):
    """0 / 0."""
    return x / x.square().mean(dim=-1, keepdim=True).sqrt()


@bug("formula", "an eps that is not added to every mean square")
def eps_where_it_is_zero(x, eps=1e-6):
    """A lower limit in the place of a sum."""
    return x / x.square().mean(dim=-1, keepdim=True).clamp_min(eps).sqrt()


@bug("formula", "rows of one number that stay as they are", kind="sizes")
def one_number_stays(x, eps=1e-6):
    """A single number has nothing to be compared with, but a size."""
    if x.shape[-1] == 1:
        return x.clone()
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()


@bug("formula", "an eps of 1e-6, whatever was asked")
def eps_as_it_was(x, eps=1e-6):
    """The argument is never looked at."""
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


@bug("state", "rows that are divided in the caller's tensor", kind="arguments")
def divided_in_place(x, eps=1e-6):
    """The careless function's first slip: /= writes into the argument."""
    x /= (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return x


@bug("state", "squares that are taken in the caller's tensor", kind="arguments")
def squared_in_place(x, eps=1e-6):
    """A copy is divided, and the argument holds squares."""
    copy = x.clone()
    return copy / (x.square_().mean(dim=-1, keepdim=True) + eps).sqrt()


STORED = {}


@bug(
    "state",
    "one storage for all results of a shape, which the next call overwrites",
    kind="results",
)
def one_storage_for_all(x, eps=1e-6):
    """Saves the memory that the last result still lies in."""
    roots = (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    storage = STORED.setdefault((x.shape, x.dtype), torch.empty_like(x))
    return torch.div(x, roots, out=storage)


@bug("form", "a function that divides and returns nothing")
def nothing_comes_back(x, eps=1e-6):
    """The tensor is made, and the caller gets None."""
    y = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()  # noqa: F841


bug = MUSEUM.section("rms_norm", check="dtype_and_device_are_kept")


@bug("form", "a result in float32 whatever came in", kind="dtype")
def always_float32(x, eps=1e-6):
    """Computed in float32, as models do, and never turned back."""
    x = x.float()
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()


@bug("form", "a result that is written into a new tensor of PyTorch's default type", kind="dtype")
def zeros_of_no_type(x, eps=1e-6):
    """The careless function's second slip: torch.zeros(x.shape) is float32, on the default device."""
    y = torch.zeros(x.shape)
    y[...] = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return y


@bug("form", "a tensor of equal shares that is made on the default device", kind="dtype")
def shares_elsewhere(x, eps=1e-6):
    """Each square has the share 1/D; the shares lie on the CPU on every machine."""
    shares = torch.full((x.shape[-1],), 1 / x.shape[-1], dtype=x.dtype)
    return x / ((x.square() * shares).sum(dim=-1, keepdim=True) + eps).sqrt()


@bug("form", "a number for eps that is float32, and so are all results", kind="dtype")
def eps_as_a_row(x, eps=1e-6):
    """A tensor of one axis takes part in the choice of the dtype; a Python number does not."""
    return x / (x.square().mean(dim=-1, keepdim=True) + torch.tensor([eps], device=x.device)).sqrt()


@bug("form", "a result in float16 where there were 16 bits", kind="dtype")
def one_kind_of_sixteen_bits(x, eps=1e-6):
    """bfloat16 has 16 bits as well."""
    y = x.float() / (x.float().square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return y.half() if x.element_size() == 2 else y.to(x.dtype)


bug = MUSEUM.section("rms_norm", check="any_shape_and_layout_will_do")


@bug("form", "a view, which a transposed tensor does not allow", kind="layout")
def rows_by_view(x, eps=1e-6):
    """view asks for one piece of memory; reshape copies where it must."""
    rows = x.view(-1, x.shape[-1])
    return (rows / (rows.square().mean(dim=-1, keepdim=True) + eps).sqrt()).view(x.shape)


@bug("form", "means along the second axis, which is the last one of a matrix alone", kind="batch")
def second_axis(x, eps=1e-6):
    """Right for (T, D); in (B, T, D) the second axis is another."""
    return x / (x.square().mean(dim=1, keepdim=True) + eps).sqrt()


@bug("form", "a mean over all but the first axis", kind="batch")
def each_item_whole(x, eps=1e-6):
    """The careless function's loop: what it runs over are rows only in a matrix."""
    rows = [row / (row.square().mean() + eps).sqrt() for row in x]
    return torch.stack(rows) if rows else torch.empty_like(x)


@bug("form", "rows that stay one below the other")
def stays_a_matrix(x, eps=1e-6):
    """The shape of the rows, and not the one that came in."""
    rows = x.reshape(-1, x.shape[-1])
    return rows / (rows.square().mean(dim=-1, keepdim=True) + eps).sqrt()


@bug("form", "axes of 1, which are dropped", kind="sizes")
def axes_of_one_dropped(x, eps=1e-6):
    """squeeze takes away every axis of 1, the caller's own as well."""
    return (x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()).squeeze()


@bug("form", "a loop that needs a row to begin with", kind="sizes")
def needs_a_row(x, eps=1e-6):
    """torch.cat of no rows is an error."""
    rows = x.reshape(-1, x.shape[-1]).split(1)
    if not x.numel():
        raise ValueError("no rows")
    normed = [row / (row.square().mean() + eps).sqrt() for row in rows]
    return torch.cat(normed).reshape(x.shape)
