"""Check what is forgotten, in which order, and how much could be."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.checks.check import Challenge
from course.checks.prefix_cache.moves import Move, check_moves, draw_words

QUESTIONS = {
    "evict": "Which leaves does only the tree own, and which of them was used least recently? What is a "
    "leaf after that?",
    "evictable": "Which blocks does only the tree own, and all that hang below them?",
    "evict all": "Can all go that evictable() counts, and are they then gone?",
    "match": "What is found of a text whose last blocks were forgotten?",
    "insert": "Which of these blocks are known still, and which are new?",
    "owners": "Who owns what is offered, once or again, what the tree forgot, and what was refused?",
}


def draw_ages(seed: int) -> Challenge:
    """Draw four texts, two of which begin alike; they come and go, are looked at, offered again, and
    forgotten one by one, in turn with new ones."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 4))
    words = draw_words(rng, 16 * size)
    part = [words[at : at + size] for at in range(0, 16 * size, size)]
    texts = {
        "A": part[0] + part[1] + part[2],
        "B": part[0] + part[1] + part[3] + part[4],
        "C": part[5] + part[6],
        "D": part[7] + part[8] + part[9],
    }
    order = rng.permutation(["A", "C", "D"]).tolist()
    moves: list[Move] = []
    for name in [*order, "B"]:
        moves += [("adopt", name, texts[name]), ("insert", name, texts[name])]
    moves += [("leave", name) for name in rng.permutation(list(texts)).tolist()]
    again, looked = order[0], order[1]
    moves += [
        ("evict", 0),
        ("match", [*texts[looked], 5]),
        ("adopt", "E", texts[again]),
        ("insert", "E", texts[again]),
        ("leave", "E"),
        ("evict", 1),
        ("evict", 2),
        ("match", [*texts["B"], 5]),
        ("adopt", "F", part[10] + part[11]),
        ("insert", "F", part[10] + part[11]),
        ("leave", "F"),
        ("evict", 3),
        ("match", [*texts["D"], 5]),
        ("adopt", "G", part[7] + part[12] + part[13]),
        ("insert", "G", part[7] + part[12] + part[13]),
        ("evict", 1),
        ("leave", "G"),
        ("evict", 3),
        ("evict", 1),
    ]
    first = [*draw_unlocked(rng, size), *draw_again(rng, size)]
    return {"n_blocks": 18, "size": size, "moves": [*first, *moves]}


def draw_unlocked(rng: np.random.Generator, size: int) -> list[Move]:
    """Draw texts that are read while what was used later is forgotten, and then are read no more: what
    stood above it has a later moment than they."""
    words = draw_words(rng, 6 * size)
    part = [words[at : at + size] for at in range(0, 6 * size, size)]
    trunk = part[0] + part[1]
    moves: list[Move] = [("begin", "P", trunk + part[2]), ("insert", "P", trunk + part[2])]
    moves += [("begin", "Q", part[3]), ("insert", "Q", part[3])]
    moves += [("adopt", "R", trunk + part[4]), ("insert", "R", trunk + part[4]), ("leave", "R")]
    moves += [("evict", 1), ("leave", "P"), ("leave", "Q"), ("evict", 2), ("evict", 1)]
    # A reader of the trunk alone: the leaf below goes, and then not the trunk.
    moves += [("adopt", "S", trunk + part[2]), ("insert", "S", trunk + part[2]), ("leave", "S")]
    moves += [("begin", "T", part[5]), ("insert", "T", part[5]), ("leave", "T")]
    return [*moves, ("adopt", "U", [*trunk, 5]), ("evict", 2), ("leave", "U"), ("evict", 2)]


def draw_again(rng: np.random.Generator, size: int) -> list[Move]:
    """Draw three texts, two of which are offered once more, one after the other, with nothing new."""
    words = draw_words(rng, 3 * size)
    moves: list[Move] = []
    for name, number in zip("VWXYZ", (0, 1, 2, 0, 1), strict=True):
        text = words[number * size : (number + 1) * size]
        moves += [("begin", name, text), ("insert", name, text), ("leave", name)]
    return [*moves, ("evict", 1), ("evict", 1), ("evict", 1)]


oldest_leaves_first = check_moves(
    "oldest_leaves_first",
    "PrefixTree",
    draw=draw_ages,
    questions=QUESTIONS,
    praise="The leaf goes that was used least recently, then the next one; looks do not count.",
)


def draw_locked(seed: int) -> Challenge:
    """Draw trees in which blocks are read at the end of a branch, in its middle, by a twin of its words;
    count what can go, ask for one more, then for all. In which order they go is not asked here."""
    rng = np.random.default_rng([seed, 3])
    size = int(rng.integers(1, 4))
    words = draw_words(rng, 12 * size)
    part = [words[at : at + size] for at in range(0, 12 * size, size)]
    trunk = part[0] + part[1]
    left, right = trunk + part[2] + part[3], trunk + part[4]
    alone = part[5] + part[6] + part[7]
    all_of_them: list[Move] = [("evictable",), ("evict too many",), ("evict all",), ("evictable",)]
    moves: list[Move] = [("evictable",), ("evict", 0), ("evict", 1)]
    moves += [("begin", "Z", trunk), ("insert", "Z", trunk), ("leave", "Z"), *all_of_them]
    for name, text in (("X", left), ("Y", right)):
        moves += [("adopt", name, text), ("insert", name, text), ("leave", name)]
    moves += all_of_them
    for name, text in (("A", left), ("B", right), ("C", alone)):
        moves += [("adopt", name, text), ("insert", name, text)]
    moves += [("evictable",), ("evict", 1), ("leave", "C"), ("evictable",)]
    moves += [("leave", "A"), ("evictable",), ("evict too many",)]
    moves += [("adopt", "D", [*alone[: 2 * size], 5]), ("evictable",), *all_of_them]
    moves += [("leave", "B"), ("evictable",), ("leave", "D"), ("evictable",)]
    moves += [
        ("begin", "E", right),
        ("insert", "E", right),
        ("evictable",),
    ]  # a twin: blocks of its own
    moves += [("adopt", "F", [*trunk, 5]), *all_of_them, ("leave", "E"), ("leave", "F")]
    moves += all_of_them
    # The trunk is the tree's alone, and far below it a twin, with a trunk of its own, reads.
    deep = part[8] + part[9] + part[10]
    moves += [("begin", "G", deep), ("insert", "G", deep), ("leave", "G"), ("evictable",)]
    moves += [("begin", "H", deep + part[11]), ("insert", "H", deep + part[11]), ("evictable",)]
    moves += [("evict too many",), ("leave", "H"), *all_of_them]
    # Two such twins read below the same block.
    moves += [("begin", "I", part[0]), ("insert", "I", part[0])]
    for name, end in (("J", part[1]), ("K", part[2])):
        moves += [("begin", name, part[0] + end), ("insert", name, part[0] + end)]
    moves += [("leave", "I"), ("evictable",), ("begin", "L", part[3]), ("insert", "L", part[3])]
    moves += [("leave", "L"), ("evictable",), ("evict too many",), ("leave", "J"), ("evictable",)]
    moves += [("leave", "K"), *all_of_them]
    return {"n_blocks": 20, "size": size, "moves": moves}


def ask_about_count(move: Move, got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Ask about a number of blocks that is too small or too large."""
    if expected["outcome"] == "CacheFull":
        return "How many can go here, and what does evict do where n is more than that?"
    result, right = got["result"], expected["result"]
    if move[0] != "evictable" or not isinstance(result, int | float):
        return ""
    if result < right:
        return "How many own what only the tree owns, and what becomes a leaf when leaves are gone?"
    return "Below which of these does somebody still read?"


counts_what_can_go = check_moves(
    "counts_what_can_go",
    "PrefixTree",
    draw=draw_locked,
    questions=QUESTIONS,
    praise="What only the tree owns is counted, branch by branch; what is read stays.",
    ask_about=ask_about_count,
)
