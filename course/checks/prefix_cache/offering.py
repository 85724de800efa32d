"""Check what is offered, and whose words are read in a pool that is full."""

from __future__ import annotations

import numpy as np

from course.checks.check import Challenge
from course.checks.prefix_cache.moves import Move, check_moves, draw_words

QUESTIONS = {
    "match": "Which blocks were offered under these words, and are they still the ones?",
    "insert": "How many blocks are full in tokens, written in the cache, and not known yet?",
    "serve": "Which blocks can go one after the other, in which order, and is what went free?",
    "owners": "Who owns a block that is offered, and how often? Whose block stays where two texts wrote "
    "the same words?",
}


def draw_offers(seed: int) -> Challenge:
    """Draw a text whose last token is not fed yet, one that is half written, one offered with fewer
    tokens than its cache holds, and in two steps; and a twin that writes the same words, and more."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    words = draw_words(rng, 12 * size)
    one, two = words[: 4 * size], words[4 * size : 8 * size]
    twin = [*one[: 3 * size], *words[8 * size : 10 * size]]
    moves: list[Move] = [
        ("begin", "A", one[:-1]),
        ("insert", "A", one),
        ("match", [*one, 5]),
        ("write", "A", one[-1:]),
        ("insert", "A", one),
        ("insert", "A", one),
        ("begin", "B", two[: 2 * size + 1]),
        ("insert", "B", two),
        ("match", [*two, 5]),
        ("begin", "C", twin),
        ("insert", "C", twin[:size]),
        ("insert", "C", twin[: 4 * size + 1]),
        ("insert", "C", twin),
        ("match", [*twin, 5]),
        ("leave", "C"),
        ("match", [*twin, 5]),
        ("leave", "A"),
        ("match", [*one, 5]),
        ("begin", "D", words[10 * size : 11 * size - 1]),
        ("insert", "D", words[10 * size : 11 * size - 1]),
        ("begin", "E", words[11 * size : 12 * size]),
        ("insert", "E", []),
        ("insert", "E", words[11 * size : 12 * size]),
    ]
    return {"n_blocks": 17, "size": size, "moves": moves}


offers_what_is_written = check_moves(
    "offers_what_is_written",
    "PrefixTree",
    draw=draw_offers,
    questions=QUESTIONS,
    praise="What is full and written is offered, once, and the tree is its owner.",
)


def draw_engine(seed: int) -> Challenge:
    """Draw moves of an engine whose pool is small: texts of a few words that begin alike come, are
    offered, leave, are forgotten, and come again. The first two differ in their first block alone."""
    rng = np.random.default_rng([seed, 2])
    size = int(rng.integers(1, 4))
    words = [draw_words(rng, size) for _ in range(3)]
    moves: list[Move] = []
    running: list[str] = []
    for number, name in enumerate("ABCDEFGHIJKLMNOPQRST"):
        if len(running) == 2:
            moves.append(("leave", running.pop(int(rng.integers(2)))))
        parts = rng.integers(0, 3, int(rng.integers(2, 5))).tolist()
        parts = ([0, 1, 2], [2, 1, 2])[number] if number < 2 else parts
        text = [*(word for part in parts for word in words[part]), 5]
        moves += [("serve", name, text), ("insert", name, text), ("match", [*text, 6])]
        running.append(name)
    return {"n_blocks": 11, "size": size, "moves": moves}  # two texts of five blocks, and one more


whose_words = check_moves(
    "whose_words",
    "PrefixTree",
    draw=draw_engine,
    questions=QUESTIONS,
    praise="After each of {n} moves of an engine, every request still reads its own words.",
)
