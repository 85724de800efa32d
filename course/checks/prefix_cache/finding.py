"""Check what is found, and that only the words decide about it."""

from __future__ import annotations

import numpy as np

from course.checks.check import Challenge
from course.checks.collisions import SAME_CHECKSUM, SAME_HASH
from course.checks.prefix_cache.moves import Move, check_moves, draw_words

QUESTIONS = {
    "match": "Which known blocks does this text begin with, one after the other, and which token is left "
    "to feed?",
    "insert": "How many blocks are full in tokens and written in the cache, and not known yet?",
    "owners": "Who is an owner of a block that is offered? What does a look change?",
}


def draw_beginnings(seed: int) -> Challenge:
    """Draw a text of five blocks, offered; and prompts that end everywhere, begin otherwise, differ in
    one word, have the same blocks in another order or behind another past; then a branch."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    text = draw_words(rng, 5 * size)
    block = [text[at : at + size] for at in range(0, 5 * size, size)]
    moves: list[Move] = [("match", text), ("begin", "A", text), ("insert", "A", text)]
    moves += [("match", text[:n]) for n in (1, size, size + 1, 2 * size, 2 * size + 1, 5 * size)]
    moves += [
        ("match", [*text, 5]),
        ("match", [*text, 5]),
        ("match", [*block[1], *block[2], 5]),
        ("match", [*block[0], *block[2], *block[3], 5]),
        ("match", [*block[1], *block[0], 5]),
        ("match", [*text[: 2 * size], 5, *text[2 * size + 1 :]]),
        ("match", [*block[0][::-1], *block[1], 5]),
        ("match", [*text[1:], 5]),
        ("match", [5, *text]),
    ]
    branch = [*text[: 2 * size], *draw_words(rng, 2 * size)]
    moves += [
        ("adopt", "B", branch),
        ("insert", "B", branch),
        ("match", [*branch, 5]),
        ("match", [*text, 5]),
        ("match", [*branch[: 3 * size], *text[3 * size :], 5]),
        ("leave", "A"),
        ("match", [*text, 5]),
    ]
    # All blocks are used: block 0, too.
    return {"n_blocks": 7, "size": size, "moves": moves, "keeps_lists": True}


finds_the_longest_beginning = check_moves(
    "finds_the_longest_beginning",
    "PrefixTree",
    draw=draw_beginnings,
    questions=QUESTIONS,
    praise="The longest known beginning is found, a token is left, and a look changes nothing.",
)


def draw_collisions(seed: int) -> Challenge:
    """Draw texts of which a checksum, `hash()`, a sum or the digits are the same, and the words not."""
    rng = np.random.default_rng([seed, 1])
    pairs = [*SAME_CHECKSUM, SAME_HASH, ((1, 23), (12, 3)), ((4, 9), (9, 4)), ((2, 8), (3, 7))]
    pairs += [((7, 5), (7 + 256, 5)), ((7, 5), (7 + 65_536, 5))]
    moves: list[Move] = []
    for number in rng.permutation(len(pairs)).tolist():
        one, other = (list(words) for words in pairs[number])
        text = f"T{number}."
        moves += [("begin", text, one), ("insert", text, one)]
        moves += [("match", [*other, 5]), ("match", [*one, 5]), ("leave", text)]
    return {"n_blocks": 40, "size": 2, "moves": moves}


collisions_are_no_hits = check_moves(
    "collisions_are_no_hits",
    "PrefixTree",
    draw=draw_collisions,
    questions={
        **QUESTIONS,
        "match": "These words were offered, or others of which something is the same. By what are words "
        "compared in your tree?",
    },
    praise="A text with other words is never found, whatever else is the same.",
)
