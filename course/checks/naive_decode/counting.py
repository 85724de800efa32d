"""Checks of the three counts; their truth is a table that was counted by hand."""

from __future__ import annotations

from course.checks.check import Check
from course.checks.counts import Sizes, count_check

NAIVE_ROWS = {(5, 1): 5, (2, 3): 9, (3, 4): 18, (1, 8): 36, (100, 50): 6_225, (1, 1): 1, (4, 0): 0}
NEEDED_ROWS = {
    (5, 1): 5,
    (2, 3): 4,
    (3, 4): 6,
    (1, 8): 8,
    (2_000, 200): 2_199,
    (1, 1): 1,
    (4, 0): 0,
}
VISITS = {
    (7, 1): 7,
    (2, 3): 9,
    (1, 8): 36,
    (1, 16): 136,
    (2_000, 200): 419_900,
    (1, 1): 1,
    (4, 0): 0,
}


def ask_about_naive_rows(sizes: Sizes, got: float, right: int) -> str:
    p, g = sizes
    if g == 0:
        return "How many forward passes are there when no token is wanted?"
    if got == right + g:
        return "How many new tokens does the very first forward pass read?"
    if got == right + g / 2:
        return "What is 0 + 1 + … + (g-1) exactly?"
    if p > 1 and got in (g * (g + 1) / 2, g * (g - 1) / 2):
        return "Does the prompt pass through the model only once?"
    if g == 1:
        return f"There is one step, and it reads the prompt. How many rows is that for {p} tokens?"
    return f"The first step reads {p} tokens. How many does the last of the {g} steps read?"


def ask_about_needed_rows(sizes: Sizes, got: float, right: int) -> str:
    p, g = sizes
    if g == 0:
        return "How many forward passes are there when no token is wanted?"
    if got == p + g:
        return f"Of all {p + g} tokens, which one is never fed into the model?"
    return "Which tokens are fed into the model at least once?"


def ask_about_visits(sizes: Sizes, got: float, right: int) -> str:
    P, T = sizes
    if T == 0:
        return "Who looks at anything when no token is wanted?"
    if got == right + T:
        return "How many positions are there to look at when the first new token is chosen?"
    if P > 1 and got in (T * (T + 1) / 2, T * (T - 1) / 2):
        return "Do later steps no longer look at the prompt?"
    if T == 1:
        return "There is one step. Its last token looks at everything before it, and at what else?"
    return f"Step 1 looks at {P} positions. At how many does step {T} look?"


def table_check(name: str, function: str, table: dict[Sizes, int], question, praise: str) -> Check:
    """Check a count at the sizes of a table."""
    return count_check(
        name,
        function,
        lambda seed: {"sizes": list(table)},
        lambda *sizes: table[sizes],
        question,
        praise,
    )


naive_rows_add_up = table_check(
    "naive_rows_add_up",
    "kv_rows_naive",
    NAIVE_ROWS,
    ask_about_naive_rows,
    "Every step computes a row for every token so far.",
)
needed_rows_add_up = table_check(
    "needed_rows_add_up",
    "kv_rows_needed",
    NEEDED_ROWS,
    ask_about_needed_rows,
    "Each token that is ever fed in needs one row, and the last one is never fed in.",
)
visits_add_up = table_check(
    "visits_add_up",
    "attention_visits",
    VISITS,
    ask_about_visits,
    "The prompt is looked at in every step, and each step looks at one position more.",
)
