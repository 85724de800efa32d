"""Find two beginnings of stories that a short checksum takes for one."""

from __future__ import annotations

import random
from collections.abc import Callable

from course.world.stories import COLOURS, PLACES, SURNAMES, THINGS, WOMEN
from course.world.tokenizer import WORDS


def two_that_collide(
    checksum: Callable[[list[int]], int], most: int = 1_000_000
) -> tuple[str, str, int]:
    """Draw beginnings of stories, of 20 tokens each, until two that differ have one checksum.

    Of 2^32 checksums, some 80,000 draws are enough: what counts is the number of pairs.

    Returns:
        The two, and how many were drawn.

    Raises:
        ValueError: there were no two among `most`.
    """
    draw, seen = random.Random(0), {}
    ids = {word: number for number, word in enumerate(WORDS)}
    for number in range(1, most + 1):
        first, last, colour, thing, place = map(
            draw.choice, (WOMEN, SURNAMES, COLOURS, THINGS, PLACES)
        )
        text = (
            f"{first} {last} came up the path with a {colour} {thing} . "
            f"She put the {colour} {thing} in the {place} ."
        )
        key = checksum([ids[word] for word in text.split()])
        if seen.setdefault(key, text) != text:
            return seen[key], text, number
    raise ValueError(f"no two of {most:,} beginnings have one checksum")
