"""Checks of the three counts; their truth is a table that was counted by hand."""

from __future__ import annotations

from collections.abc import Callable

from course.checks.calls import Case, Explain, Words, call, check_calls
from course.checks.check import Check
from course.checks.counts import counted
from course.checks.recording import Place

Table = dict[tuple[int, int], int]
"""The right count for the tokens of a prompt and the new ones."""

# 1,000 steps are in the notebook's own table; a recursion of one call per step does not get that far.
NAIVE_ROWS = {
    (5, 1): 5,
    (2, 3): 9,
    (3, 4): 18,
    (1, 8): 36,
    (100, 50): 6_225,
    (1, 1): 1,
    (4, 0): 0,
    (2_000, 1_000): 2_499_500,
    (5_001, 4_001): 28_011_001,  # float32 counts to 16,777,216
}
NEEDED_ROWS = {
    (5, 1): 5,
    (2, 3): 4,
    (3, 4): 6,
    (1, 8): 8,
    (2_000, 200): 2_199,
    (1, 1): 1,
    (4, 0): 0,
    (2_000, 1_000): 2_999,
}
VISITS = {
    (7, 1): 7,
    (2, 3): 9,
    (1, 8): 36,
    (1, 16): 136,
    (2_000, 200): 419_900,
    (1, 1): 1,
    (4, 0): 0,
    (2_000, 1_000): 2_499_500,
    (5_001, 4_001): 28_011_001,  # float32 counts to 16,777,216
}


def check_table(function: str, table: Table, praise: str) -> Callable[[Explain], Check]:
    """Check a count at the sizes of a table."""
    return check_calls(
        function,
        draw=lambda rng: (call(function, *sizes) for sizes in table),
        truth=lambda *sizes: table[sizes],
        praise=praise,
    )


def halves_of_a_square(count: int, g: int) -> tuple[float, int]:
    """The same counts with g²/2, or that rounded down, in the place of the triangle g(g-1)/2."""
    return count + g / 2, count + g // 2


@check_table("kv_rows_naive", NAIVE_ROWS, "Every step computes a row for every token so far.")
def naive_rows_add_up(case: Case, result: float, expected: int, place: Place) -> Words:
    p, g = case["arguments"]
    return counted(result, expected), (
        (g == 0, "How many forward passes are there when no token is wanted?"),
        (
            g == 1 and result == expected + 1,
            "How many new tokens does the very first forward pass read?",
        ),
        (result in halves_of_a_square(expected, g), "What is 0 + 1 + … + (g-1) exactly?"),
        (
            g > 1 and result == p * g,
            "Does a step read only the prompt, or the new tokens before it, too?",
        ),
        (
            g == 1,
            f"There is one step, and it reads the prompt. How many rows is that for {p} tokens?",
        ),
        (True, f"Step 1 reads {p} token{'s' * (p != 1)}. How many does step {g} read?"),
    )


@check_table(
    "kv_rows_needed",
    NEEDED_ROWS,
    "Each token that is ever fed in needs one row, and the last one is never fed in.",
)
def needed_rows_add_up(case: Case, result: float, expected: int, place: Place) -> Words:
    p, g = case["arguments"]
    return counted(result, expected), (
        (g == 0, "How many forward passes are there when no token is wanted?"),
        (result == p + g, f"Of all {p + g} tokens, which one is never fed into the model?"),
        (result == 2 * expected, "Twice as many: are rows of keys counted, or of keys and values?"),
        (True, "Which tokens are fed into the model at least once?"),
    )


@check_table(
    "attention_visits",
    VISITS,
    "The prompt is looked at in every step, and each step looks at one position more.",
)
def visits_add_up(case: Case, result: float, expected: int, place: Place) -> Words:
    P, T = case["arguments"]
    return counted(result, expected), (
        (T == 0, "Who looks at anything when no token is wanted?"),
        (
            T == 1 and result == expected + 1,
            "How many positions are there to look at when the first new token is chosen?",
        ),
        (result in halves_of_a_square(expected, T), "What is 0 + 1 + … + (g-1) exactly?"),
        (
            T > 1 and result == P * T,
            "Does a step look only at the prompt, or at the new tokens before it, too?",
        ),
        (result == expected - T, "A token looks at everything before it, and at what else?"),
        (
            T == 1,
            f"There is one step, after a prompt of {P}. At how many positions does its last token look?",
        ),
        (True, f"Step 1 looks at {P} position{'s' * (P != 1)}. At how many does step {T} look?"),
    )
