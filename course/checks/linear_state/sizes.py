"""Check what states take, and how long a text must be for rows to take as much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Place
from course.given.hybrid import HybridSizes

FIELDS = [field.name for field in fields(HybridSizes)]


def draw_sizes(rng: np.random.Generator) -> dict[str, int]:
    """Draw the sizes of a model; no two of those that belong into a product are equal."""
    n_linear, n_full, kv_heads, width = rng.permutation([3, 4, 5, 6]).tolist()
    key_heads = int(rng.integers(2, 4))
    head_dim, key_dim, value_dim = (2 * rng.permutation([5, 7, 11])).tolist()
    heads = key_heads, key_heads * int(rng.integers(2, 4))
    numbers = (n_linear, n_full, kv_heads, head_dim, *heads, key_dim, value_dim, width)
    return dict(zip(FIELDS, numbers, strict=True))


def run_whole(function: Callable[..., Any], case: Case) -> Any:
    """Call a function of whole numbers, with HybridSizes where the case has a dict; a float is no right
    result."""
    arguments = [
        HybridSizes(**a) if isinstance(a, dict) else deepcopy(a) for a in case["arguments"]
    ]
    result = function(*arguments)
    return f"{result!r}, no int" if isinstance(result, float) else result


def describe(case: Case) -> str:
    """Name the sizes of a call."""
    sizes, *others = case["arguments"]
    numbers = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return f"{case['function']}({', '.join(['sizes', *map(str, others)])}) with {numbers}:"


def draw_states(rng: np.random.Generator) -> Iterator[Case]:
    """Draw one layer, then more; one text and several; numbers of 1 to 8 bytes; no tail at all."""
    sizes = draw_sizes(rng)
    yield call("state_bytes", {**sizes, "n_linear": 1, "width": 1}, 1, 4, 2)
    yield call("state_bytes", {**sizes, "n_linear": 1}, 1, 4, 2)
    yield call("state_bytes", sizes)
    for more, *elements in ((1,), (2, 2, 4), (int(rng.integers(3, 90)), 1, 8)):
        sizes = draw_sizes(rng)  # no batch is as large as a tail is long
        yield call("state_bytes", sizes, sizes["width"] + more, *elements)
    yield call("state_bytes", {**draw_sizes(rng), "n_linear": 0}, 2)
    yield call("state_bytes", {**draw_sizes(rng), "n_full": 0}, 2)


@check_calls(
    "state_bytes",
    draw=draw_states,
    run=run_whole,
    describe=describe,
    praise="States and tails of all linear layers are counted, whatever the length.",
)
def bytes_of_states(case: Case, result: float, expected: int, place: Place) -> Words:
    """Ask by what is new in the case."""
    sizes, *others = case["arguments"]
    return f"gave {result:,}; counted one by one it is {expected:,}.", (
        (sizes["n_linear"] == 0, "No layer is linear here. What is left to count?"),
        (
            sizes["width"] == 1,
            "There is no tail here. How many states has a layer, of how many numbers, of how many bytes?",
        ),
        (sizes["n_linear"] == 1, "The state is right. How many rows has a tail, how wide is each?"),
        (
            not others,
            "One layer is right. Which layers keep a state, and of how many bytes is what?",
        ),
        (
            True,
            "Which of these numbers are a state's, which a tail's, of how many bytes is each, and what "
            "belongs to each text?",
        ),
    )


def draw_break_even(rng: np.random.Generator) -> Iterator[Case]:
    """Draw layers whose states take exactly the bytes of some rows, or some more, and others."""
    exact = {**draw_sizes(rng), "width": 1, "n_kv_heads": 2, "head_dim": 4}
    exact |= {"key_heads": 2, "value_heads": 4, "key_dim": 6, "value_dim": int(rng.integers(3, 9))}
    yield call("break_even", exact, 2, 2)
    yield call("break_even", {**exact, "value_dim": exact["value_dim"] + 1}, 1, 1)
    yield call("break_even", {**exact, "key_dim": 5, "value_dim": 7}, 4, 2)
    yield call("break_even", {**exact, "width": 4})
    for elements in ((), (4, 2), (2, 4), (4, 4)):
        yield call("break_even", draw_sizes(rng), *elements)
    yield call("break_even", {**draw_sizes(rng), "n_linear": 1, "n_full": 1})
    wide = {**draw_sizes(rng), "n_kv_heads": 64, "head_dim": 512, "key_heads": 1, "value_heads": 1}
    yield call("break_even", {**wide, "value_dim": 1, "key_dim": 1, "width": 1}, 1, 1)


@check_calls(
    "break_even",
    draw=draw_break_even,
    run=run_whole,
    describe=describe,
    praise="So many tokens, and a full layer's rows have caught up with a linear layer's state.",
)
def break_even_tokens(case: Case, result: float, expected: int, place: Place) -> Words:
    """Ask whether it is one off, and what is compared with what."""
    no_tail = case["arguments"][0]["width"] == 1  # the first cases, where rounding shows first
    less, more = (no_tail and result == expected + by for by in (-1, 1))
    return f"gave {result:,}; the fewest tokens are {expected:,}.", (
        (less, "So many rows take less than the state. Which way is it rounded?"),
        (more, "One row fewer would take as much. Which way is it rounded?"),
        (True, "How many layers of each kind are compared, and of how many bytes is each number?"),
    )
