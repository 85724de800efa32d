"""Check that two codes of 4 bits share a byte, and come back from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Array, Place


def draw_nibbles(rng: np.random.Generator) -> Iterator[Case]:
    """Draw codes 0 … 15 in one to four dimensions, some of them many; bytes, two of one shape; and an odd
    number of codes."""
    yield call("pack_int4", np.array([rng.integers(1, 7), rng.integers(8, 16)], np.uint8))
    for shape in ((3, 4), (2, 3, 6), (1, 1, 2, 8), (3, 4), (1, 2 * int(rng.integers(260, 300)))):
        yield call("pack_int4", rng.integers(0, 16, shape).astype(np.uint8))
    byte = 16 * rng.integers(8, 16) + rng.integers(1, 7)
    yield call("unpack_int4", np.array([byte], np.uint8))
    for shape in ((3, 4), (2, 1, 3), (3, 4), (1, int(rng.integers(260, 300)))):
        yield call("unpack_int4", rng.integers(0, 256, shape).astype(np.uint8))
    yield call("pack_int4", np.zeros((2, 3), np.uint8), refuses="ValueError")


@check_calls(
    "pack_int4",
    "unpack_int4",
    draw=draw_nibbles,
    praise="Two codes in every byte, and the same codes back.",
    shape_question="The two codes of a byte are neighbours on the last axis, and no axis comes or goes. "
    "Which of your lines makes this shape?",
)
def two_codes_share_a_byte(case: Case, result: Array, expected: Array, place: Place) -> Words:
    """Explain a wrong byte by its two codes, and wrong codes by their byte."""
    (given,), (*row, column) = case["arguments"], place
    pair = slice(column // 2 * 2, column // 2 * 2 + 2)
    if case["function"] == "unpack_int4":
        return wrong_codes(given[*row, column // 2], result[*row, pair], expected[*row, pair], row)
    first, second = given[*row, 2 * column : 2 * column + 2].tolist()
    halves = divmod(int(result[place]), 16)
    return (
        f"makes of the neighbours {first} = {first:04b} and {second} = {second:04b} the byte "
        f"{result[place]:08b}; the first belongs into the low four bits, the second into the high ones."
    ), (
        (
            halves == (first, second),
            "Which of the two is the first, and which four bits are the low ones?",
        ),
        (
            {*halves} & {first, second} or result[place] == first | second,
            "Which code stands next to it, and by how many bits must that move up?",
        ),
        (True, "What becomes of the second code's bits, and of the first one's?"),
    )


def wrong_codes(byte: int, pair: Array, expected: Array, row: list[int]) -> Words:
    codes = pair.tolist()
    return (
        f"makes codes {codes} of the byte {byte:08b} at {row}, which holds {expected.tolist()}."
    ), (
        (codes == expected.tolist()[::-1], "Which of the two comes first?"),
        (max(codes) > 15, "Which four bits are yours, and what stands in the others?"),
        (True, "From which byte is each code, and from which four bits of it?"),
    )
