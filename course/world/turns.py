"""A chat of several turns on paper: how many tokens are fed, by where states are remembered.

    fed, kept = tokens_fed(resume_point, every=16)

Each turn brings a question. Its prompt is everything before it, but the last tokens of the answer come
back changed, as where a template writes an answer differently from how it was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count


def tokens_fed(
    resume_point: Callable[[list[int], list[int], list[int]], int],
    every: int | None = None,
    prompts: bool = False,
    turns: int = 8,
    changed: int = 2,
) -> tuple[int, int]:
    """Count the tokens that a chat feeds, questions of 60 tokens and answers of 40.

    Args:
        resume_point: lesson 17's.
        every: a checkpoint at each multiple of this many tokens; None: at none.
        prompts: a checkpoint at the end of each prompt.
        turns: questions.
        changed: tokens at the end of each answer that come back as others.

    Returns:
        Tokens fed, in prompts and answers, and the most checkpoints that were kept at a time.
    """
    new = count(1)
    held: list[int] = []
    text: list[int] = []
    checkpoints: list[int] = []
    fed = most = 0
    for _ in range(turns):
        prompt = text + [next(new) for _ in range(60)]
        spared = resume_point(held, prompt, checkpoints)
        answer = [next(new) for _ in range(40)]
        held = prompt + answer[:-1]  # the last token is never fed
        fed += len(held) - spared
        lengths = range(spared + 1, len(held) + 1)
        made = [n for n in lengths if (every and n % every == 0) or (prompts and n == len(prompt))]
        checkpoints = [n for n in checkpoints if n <= spared] + made
        most = max(most, len(checkpoints))
        text = prompt + answer[: len(answer) - changed] + [next(new) for _ in range(changed)]
    return fed, most
