"""Check who may start: with what is known of a prompt, and with room for the rest."""

from __future__ import annotations

import numpy as np

from course.checks.check import Challenge
from course.checks.prefix_cache.moves import Move, check_moves, draw_words

QUESTIONS = {
    "admit": "Which blocks are adopted, how many are needed beside them and promised to others, how many "
    "are free, and what may go?",
    "match": "What is still known after that, and what had to go?",
    "evict": "Does oldest_leaves_first pass? If so, which moments of use did an admission change?",
    "write": "How many blocks does the whole text need, and how many were left free for it?",
    "owners": "Who owns which block after an admission, or after one that was refused?",
}


def draw_admissions(seed: int) -> Challenge:
    """Draw a pool of 12 blocks with two known texts, the older of which is asked for; then requests that
    just fit, just do not, need nothing, are promised away, fit only since they reuse, or take all."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    words = draw_words(rng, 20 * size)
    part = [words[at : at + size] for at in range(0, 20 * size, size)]
    old, young = part[0] + part[1] + part[2] + part[3], part[4] + part[5] + part[6]
    other, third = part[7] + part[8], part[9] + part[10]
    moves: list[Move] = [("admit", "A", part[11], 1, 0), ("leave", "A")]
    moves += [("admit", "b", part[11], 11 * size + 2, 0)]  # one token too many for 12 blocks
    moves += [("admit", "B", part[11], 11 * size + 1, 0), ("leave", "B")]
    moves += [("begin", "C", old), ("insert", "C", old), ("leave", "C")]
    # 8 are free, 4 are offered, and just these are adopted: none of them can go for the rest.
    moves += [("admit", "c", [*old, 5], 6 * size, 3), ("admit", "d", [*old, 5], 6 * size, 2)]
    moves += [("leave", "d"), ("begin", "D", young), ("insert", "D", young), ("leave", "D")]
    # Who starts does not use what is known: the older text is still the first to go.
    moves += [("admit", "e", [*old, 5], 1, 0), ("leave", "e"), ("evict", 1)]
    moves += [("adopt", "f", old), ("insert", "f", old), ("leave", "f")]
    moves += [("adopt", "g", young), ("insert", "g", young), ("leave", "g")]
    moves += [
        # 5 are free, 7 are offered: the older text is asked for, and its blocks must not go.
        ("admit", "E", [*old, 5], 6 * size, 0),
        ("match", [*young, 5]),
        ("write", "E", [5] * (6 * size)),
        ("leave", "E"),
        ("admit", "F", old, 1, 0),  # a token is left to feed, so its last block is new
        ("leave", "F"),
        ("begin", "G", young),
        ("insert", "G", young),
        ("leave", "G"),
        ("admit", "H", [*old[: 2 * size], *other], 1, 0),
        ("leave", "H"),
        ("admit", "I", [*young, *third], size + 1, 0),
        ("match", [*old, 5]),
        ("write", "I", [*third, *[5] * size]),
        ("admit", "j", other, 4 * size, 5),  # does not fit beside what was promised
        ("match", [*old, 5]),
        ("admit", "K", other, 1, 3),
        ("match", [*old, 5]),
        ("write", "K", other),
        ("insert", "K", other),
        ("admit", "l", [*old, *part[12]], 9 * size, 0),  # adopts, then does not fit
        ("match", [*old, 5]),
        ("leave", "I"),
        ("leave", "K"),
        ("evict", 2),
        ("match", [*young, 5]),
        ("admit", "M", [*other, 5], 1, 0),
        ("evict", 1),
        ("leave", "M"),
        ("evict all",),
        ("begin", "N", other),
        ("insert", "N", other),
        ("leave", "N"),
        ("admit", "O", part[13], 11 * size + 1, 0),  # just all that could go is missing
    ]
    return {"n_blocks": 12, "size": size, "moves": moves}


admits_or_changes_nothing = check_moves(
    "admits_or_changes_nothing",
    "PrefixTree",
    "admit",
    draw=draw_admissions,
    questions=QUESTIONS,
    praise="What is known is adopted first, no more than needed goes, and a refusal leaves no trace.",
)
