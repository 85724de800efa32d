"""The hidden checks of lesson 00: larger shapes than a student can count, and plain formulas.

Two of them also ask how a count grows: else a function of one argument alone would pass. Half a formula
keeps the points of its half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from course.checks.calls import Case, call, call_text, drawn
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed
from course.checks.recording import wrong_kind
from course.checks.start import norms, products


def flops(m: int, k: int, n: int) -> int:
    """Add up what each of the m·n dot products is: k multiplications and k additions."""
    multiplications = additions = k
    return (multiplications + additions) * m * n


def moved_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Multiply the numbers in (m, k), (k, n) and (m, n) by the width of one."""
    return sum(math.prod(shape) for shape in ((m, k), (k, n), (m, n))) * bytes_per_element


def normed(x: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Divide each row by its length, and multiply it by that of as many ones; in float64."""
    rows = x.astype(np.float64)
    lengths = [math.sqrt(math.fsum(row**2) + len(row) * eps) for row in rows]
    return (rows.T / lengths * math.sqrt(rows.shape[1])).T.astype(np.float32)


# --- how a count grows ----------------------------------------------------------------------------


def draw_dot_products(rng: np.random.Generator) -> Iterator[Case]:
    """Draw the visible cases, larger; then a product of several rows and columns as long as the first."""
    cases = list(products.draw_dot_products(rng, largest=5_000))
    yield from cases
    (_, k, _), (m, n) = cases[0]["arguments"], rng.integers(2, 9, 2).tolist()
    yield call("matmul_flops", m, k, n)


def judge_dot_products(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., int]
) -> Verdict:
    """Judge single dot products as the visible check does; then whether several are more than one. How
    much more is asked elsewhere."""
    (*cases, larger), (*results, more) = challenge["cases"], evidence["results"]
    visible_check = products.flops_of_one_dot_product
    verdict = visible_check.verdict({"cases": cases}, {"results": results}, truth=truth)
    if verdict.score < 1:
        return verdict
    if wrong := wrong_more(larger, more, cases[0], results[0]):
        return failed(f"{wrong}, a single dot product. How many dot products are in the first?")
    return verdict


def draw_doubled(rng: np.random.Generator) -> Iterator[Case]:
    """Draw the visible cases; then the first product with all sizes doubled."""
    cases = products.bytes_follow_the_element_size.challenge(int(rng.integers(2**32)))["cases"]
    yield from cases
    *shape, width = cases[0]["arguments"]
    yield call("matmul_bytes", *(2 * size for size in shape), width)


def judge_widths(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge as the visible check does; then whether it is matrices whose numbers have a width. Of which
    matrices, the question before asks."""
    (*cases, larger), (*results, more) = challenge["cases"], evidence["results"]
    visible_check = products.bytes_follow_the_element_size
    verdict = visible_check.verdict({"cases": cases}, {"results": results})
    if verdict.score < 1:
        return verdict
    if wrong := wrong_more(larger, more, cases[0], results[0]):
        return failed(f"{wrong}. Which of the three matrices have more numbers now?")
    return verdict


def wrong_more(case: Case, result: Evidence, smaller: Case, less: Evidence) -> str | None:
    """Say that a larger product does not count for more than a smaller one, or None."""
    if wrong := wrong_kind(result, 0):
        return f"{call_text(case)} {wrong}"
    if result["value"] > less["value"]:
        return None
    return f"{call_text(case)} gave {result['value']:,}, no more than {call_text(smaller)}"


CHECKS = by_name(
    products.flops_of_one_dot_product.hidden(
        truth=flops, challenge=drawn(draw_dot_products), verdict=judge_dot_products
    ),
    products.flops_of_any_product.hidden(
        truth=flops, challenge=drawn(partial(products.draw_products, largest=200))
    ),
    products.bytes_of_three_matrices.hidden(
        truth=moved_bytes, challenge=drawn(partial(products.draw_products_of_bytes, largest=3_000))
    ),
    products.bytes_follow_the_element_size.hidden(
        challenge=drawn(draw_doubled), verdict=judge_widths
    ),
    norms.rows_come_to_one_size.hidden(
        truth=normed, challenge=drawn(partial(norms.draw_matrices, largest=20))
    ),
    norms.dtype_and_device_are_kept,
    norms.any_shape_and_layout_will_do.hidden(challenge=partial(norms.draw_tensors, largest=12)),
)
