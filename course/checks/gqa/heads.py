"""KV heads that are written out: each of them n_rep times in a row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Array, Place, ask_about_shape


def draw_labelled_heads(rng: np.random.Generator) -> Iterator[Case]:
    """Draw heads whose numbers are all different and exact in their type; and how often each is
    wanted. Small sizes first; then sizes of 1, many heads, many copies, and every type; last large
    numbers of both signs, which types of 16 bits cannot hold."""
    few, many = (int(n) for n in (rng.integers(3, 6), rng.integers(65, 90)))
    S, D = int(rng.integers(3, 6)), int(rng.choice([2, 4, 6]))
    for *shape, n_rep, dtype in (
        (2, 2, S, D, 2, "float32"),
        (2, 3, S, D, 1, "float32"),
        (2, 2, S, D, few, "float16"),
        (1, 1, S, D, few, "float64"),
        (3, 2, 1, 2, 3, "bfloat16"),
        (1, 3, S, 1, 2, "float32"),
        (1, 2, 1, 2, many, "float32"),
        (1, many, 1, 1, 2, "float32"),
        (1, 2, many, 1, 2, "float32"),
        (2, 2, S, D, 2, "float32"),
    ):
        first = int(rng.integers(0, 9))
        x = first + rng.permutation(np.prod(shape)).reshape(shape).astype(np.float32)
        yield call("repeat_kv", x, n_rep, dtype=dtype)
    x = rng.integers(5_000, 100_000, (2, 2, S, D)) * rng.choice([-1, 1], (2, 2, S, D))
    yield call("repeat_kv", x.astype(np.float32), 2, dtype="float32")


def describe(case: Case) -> str:
    x, n_rep = case["arguments"]
    return f"repeat_kv of {x.shape[1]} heads, (B, G, S, D) = {x.shape}, n_rep={n_rep},"


@check_calls(
    "repeat_kv",
    draw=draw_labelled_heads,
    describe=describe,
    praise="Each head stands n_rep times in a row, and nothing in it moved.",
    shape_question=ask_about_shape,
)
def heads_stand_in_a_row(case: Case, result: Array, expected: Array, place: Place) -> Words:
    """Explain the first head that is another one than it should be, or a mixture."""
    x, _ = case["arguments"]
    wrong = (result != expected).any(axis=(0, 2, 3))  # (G · n_rep,)
    head = int(wrong.argmax())
    source, found = head_of(x, expected[:, head]), head_of(x, result[:, head])
    instead = "a mixture of several heads, tokens or rows" if found is None else f"head {found}"
    changed = not np.isin(result[:, head], x).all()
    if changed:
        instead = "made of numbers that x does not have"
    return (
        f"gave {len(wrong)} heads. Head {head} should be head {source} of x, and is {instead}."
    ), (
        (changed, "What does your code do to the numbers besides copying them?"),
        (found is None, "Along which axis do you repeat, and which axes does a reshape join?"),
        (True, "In which order do copies of two heads stand: a a b b, or a b a b?"),
    )


def head_of(x: Array, head: Array) -> int | None:
    """Find the head of x (B, G, S, D) that is this one (B, S, D)."""
    return next((g for g in range(x.shape[1]) if (head == x[:, g]).all()), None)
