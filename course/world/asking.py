"""Texts that tell a name, then something else, and then ask for it; and stories behind other stories.

    asked = [name_after_a_pause(397, seed) for seed in range(40)]
    share_known(forward, asked)

A first name is always followed by the same surname. So a text ends with a first name, and whoever read on
and still knows it says the surname next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import torch
from torch import Tensor

from course.world.evaluation import TRAINING_SEEDS
from course.world.stories import (
    ARRIVALS,
    COLOURS,
    MEN,
    OPENINGS,
    PAUSES,
    SURNAMES,
    THINGS,
    WOMEN,
    Question,
    Story,
    tell,
)
from course.world.tokenizer import END, PAD, WORDS, encode

ASKING = "Good night ,"


@dataclass(frozen=True)
class Asked:
    """A text that ends with a first name, and the surname that must follow."""

    text: str
    surname: str


def name_after_a_pause(n_tokens: int, seed: int) -> Asked:
    """Tell one name, then sentences in which nothing is told, n_tokens of them or a few more."""
    draw = random.Random(f"pause {seed}")
    first, surname = draw.choice(WOMEN + MEN), draw.choice(SURNAMES)
    words, unused = [], []
    while len(words) < n_tokens:
        unused = unused or draw.sample(PAUSES, len(PAUSES))
        words += unused.pop().split()
    return _ask(draw, words, first, surname)


def name_after_a_story(seed: int) -> Asked:
    """Tell one name, then a whole story of other people."""
    draw = random.Random(f"story {seed}")
    first, surname = draw.choice(WOMEN + MEN), draw.choice(SURNAMES)
    while True:
        story = tell(TRAINING_SEEDS + draw.randrange(10**6))
        if first not in story.words:
            break
    return _ask(draw, [*story.words, WORDS[END]], first, surname)


def name_of_a_list(n_names: int, which: int, seed: int) -> Asked:
    """Tell n_names names, one after the other and nothing else, and ask for one of them.

    Args:
        n_names: at most 24.
        which: number of the name that is asked for, from 0.
    """
    draw = random.Random(f"list {seed}")
    first = draw.sample(WOMEN + MEN, n_names)
    names = list(zip(first, draw.sample(SURNAMES, n_names), strict=True))
    told = " ".join(f"{' '.join(name)} ." for name in names)
    first_name, surname = names[which]
    return Asked(f"{draw.choice(OPENINGS)} {told} {first_name}", surname)


def _ask(draw: random.Random, words: list[str], first: str, surname: str) -> Asked:
    """Let somebody come in first, and be addressed at last."""
    thing = f"{draw.choice(COLOURS)} {draw.choice(THINGS)}"
    arrival = draw.choice(ARRIVALS).format(a=f"{first} {surname}", x=thing)
    text = " ".join([draw.choice(OPENINGS), arrival, *words, ASKING, first])
    return Asked(text, surname)


def behind_others(stories: Sequence[Story], n: int) -> list[Story]:
    """Put n other stories before each; the questions are those of the last one."""
    behind = []
    for number, story in enumerate(stories):
        before: list[str] = []
        for other in range(n):
            before += [*tell(TRAINING_SEEDS + 10**6 + number * n + other).words, WORDS[END]]
        shift = len(before)
        questions = [Question(q.answer + shift, q.said + shift, q.kind) for q in story.questions]
        behind.append(Story((*before, *story.words), tuple(questions)))
    return behind


@torch.no_grad()
def share_known(
    forward: Callable[[Tensor], Tensor], asked: Sequence[Asked], batch: int = 40
) -> float:
    """Measure how many of the surnames are the likeliest next token, 0 … 1.

    Args:
        forward: tokens (B, T) int64 -> logits (B, T, V); no token may see a later one.
        asked: texts with what must follow.
        batch: texts per call of `forward`; shorter ones are padded at their end.
    """
    known = 0
    for start in range(0, len(asked), batch):
        group = asked[start : start + batch]
        rows = [encode(one.text)[0] for one in group]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        logits = forward(tokens)
        for number, (one, row) in enumerate(zip(group, rows, strict=True)):
            known += int(logits[number, len(row) - 1].argmax()) == int(encode(one.surname)[0, 0])
    return known / len(asked)


@dataclass(frozen=True)
class TakenBack:
    """A text that goes on, is cut, and goes on otherwise.

    Attributes:
        before: tokens up to the cut, (B, T) int64.
        cut: tokens that are taken back, (B, 12).
        after: tokens that come in their place, (B, T').
        said: the surname that must follow them, and the one that was taken back, (B,) each; None where
            the text asks for none.
    """

    before: Tensor
    cut: Tensor
    after: Tensor
    said: tuple[Tensor, Tensor] | None = None


def stories_cut(n: int, before: int = 100, cut: int = 12, after: int = 100) -> TakenBack:
    """Cut n held-out stories in two, and put tokens of others between; these are taken back."""
    stories = (tell(TRAINING_SEEDS + seed) for seed in count())
    rows = (encode(story.text)[0] for story in stories)
    long = list(islice((row for row in rows if len(row) >= before + after), 2 * n))
    text = torch.stack([row[: before + after] for row in long[:n]])
    other = torch.stack([row[before : before + cut] for row in long[n:]])
    return TakenBack(text[:, :before], other, text[:, before:])


def wrong_names_cut(n: int) -> TakenBack:
    """Tell a name, then the same first name with another surname, which is taken back; ask for it."""
    parts: list[tuple[str, str, str, str, str]] = []
    for seed in range(n):
        draw = random.Random(f"cut {seed}")
        first, thing = draw.choice(WOMEN + MEN), f"{draw.choice(COLOURS)} {draw.choice(THINGS)}"
        surname, wrong = draw.sample(SURNAMES, 2)
        before = (
            f"{OPENINGS[0]} {first} {surname} came in from the rain with a {thing} . {PAUSES[1]}"
        )
        cut = f"{PAUSES[6]} {first} {wrong} came in from the rain ."
        parts.append((before, cut, f"{ASKING} {first}", surname, wrong))
    before, cut, after, right, wrong = (
        torch.cat([encode(text) for text in texts]) for texts in zip(*parts, strict=True)
    )
    return TakenBack(before, cut, after, (right[:, 0], wrong[:, 0]))
