"""Check how much of a prompt a cache with checkpoints spares."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.linear_state.sizes import run_whole
from course.checks.recording import Place


def draw_prompts(rng: np.random.Generator) -> Iterator[Case]:
    """Draw the cases that are easily forgotten, and then 120 pairs of texts of two words, which begin
    alike more often than not."""
    a, b, c, d, e = rng.choice(np.arange(100, 1000), 5, replace=False).tolist()
    for case in (
        ([], [a], []),
        ([a, b], [c, d], []),
        ([a, b], [a, b, c], []),
        ([a, b, c], [a, b, d, e], []),
        ([a, b, c], [a, b, d, e], [1]),
        ([a, b, c, d], [a, b, e, d], [1, 2, 3]),
        ([a, b, c], [a, b, c], []),
        ([a, b, c], [a, b, c], [2]),
        ([a, b, c], [a, b, c], [3]),
        ([a, b, c, d], [a, b], [1, 2]),
        ([a, b, c, d], [a], [1]),
        ([a, b], [a, b, a, b, c], [1]),
        ([a, b, c, d], [e, b, c, d], [2, 3]),
        ([a, b, c, d, e], [a, b, c, d, c], [2, 3]),
        ([1, 12, 3], [11, 2, 3, 4], [1, 2]),
    ):
        yield call("resume_point", *case)
    for _ in range(120):
        held, prompt = (
            np.where(rng.random(rng.integers(least, 9)) < 0.8, a, b) for least in (0, 1)
        )
        checkpoints = [at for at in range(1, len(held) + 1) if rng.random() < 0.4]
        yield call("resume_point", held.tolist(), prompt.tolist(), checkpoints)


@check_calls(
    "resume_point",
    draw=draw_prompts,
    run=run_whole,
    praise="The longest beginning that is known, has a state, and leaves a token to feed.",
)
def resume_leaves_a_token(case: Case, result: float, expected: int, place: Place) -> Words:
    """Say which of the three conditions is broken."""
    held, prompt, checkpoints = case["arguments"]
    n = result if isinstance(result, int) else -1
    return f"gave {result}; right is {expected}.", (
        (n < 0, "How many tokens can that be?"),
        (n >= len(prompt), "Then nothing is left to feed. Where do the logits come from?"),
        (n > len(held), "So many tokens are not held. What is compared?"),
        (held[:n] != prompt[:n], "Do both texts begin with the same tokens, so many of them?"),
        (
            n == len(prompt) - 1 and n not in (len(held), *checkpoints),
            "After which lengths is there a state, and when do you leave the last token out?",
        ),
        (
            n not in (0, len(held), *checkpoints),
            "Both begin with them, but after which lengths is there a state?",
        ),
        (True, "There is a state further on in what they share. Which one?"),
    )
