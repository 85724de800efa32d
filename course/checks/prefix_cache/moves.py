"""Play moves of an engine on a student's tree, with caches on paper, and find the first that went wrong.

A move is a name and its arguments:

    ("begin", text, tokens)      a new cache that holds these tokens, in blocks of its own
    ("adopt", text, tokens)      a new cache that begins with what match finds, and then holds them
    ("serve", text, tokens)      the same, and as many blocks are evicted as are missing for it
    ("write", text, tokens)      tokens more
    ("leave", text)              the cache is reset
    ("match", tokens)
    ("insert", text, tokens)     tokens of its cache, or more or fewer
    ("evictable",)
    ("evict", n)
    ("evict all",), ("evict too many",)     what evictable() says, and one block more
    ("admit", text, tokens, n_new, promised)

Which numbers an allocator hands out is its own affair. So blocks are written down by who wrote them: "A0"
is the first block of text A.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.comparing import WHICH_LINE, outcome, outcome_in_words
from course.checks.counts import in_words, plain
from course.checks.recorded import Recorded
from course.checks.recording import one_each
from course.given.prefixes import PaperCache, PaperPool
from course.minigpt.paged_cache import BlockAllocator

Move = tuple[Any, ...]
STEP = {
    "outcome": str,
    "result": (list, int, float, str, type(None)),
    "offered": (int, float, str),
    "free": int,
    "owners": dict,
    "read": Each(Each(int)),
}
"""The form of what is recorded of a move."""
Follow = Callable[[int, int, list[Move]], list[dict[str, Any]]]
"""The truth: what each of the moves comes to, (n_blocks, block_size, moves)."""
steps_form = one_each("moves", steps=STEP)


class Named(list):
    """Blocks that are written by name already."""


class Told(str):
    """What a call did beside returning something."""


class Engine:
    """A pool on paper, a student's tree, and the caches of some texts."""

    def __init__(self, student: SimpleNamespace, n_blocks: int, size: int) -> None:
        self.student, self.keeps_lists = student, False
        self.pool = PaperPool(BlockAllocator(n_blocks), size)
        self.tree = student.PrefixTree(self.pool.allocator, size)
        self.caches: dict[str, PaperCache] = {}
        self.names: dict[int, str] = {}
        self.found: list[list] = []  # what match gave, while somebody looks whose lists these are

    def play(self, move: Move) -> dict[str, Any]:
        """Make a move; record what it came to, and how everything stands."""
        name, *arguments = move
        results: list[Any] = []
        ending = outcome(lambda: results.append(getattr(self, name.replace(" ", "_"))(*arguments)))
        for text, cache in self.caches.items():
            for place, block in enumerate(cache.table):
                self.names.setdefault(block, f"{text}{place}")
        allocator = self.pool.allocator
        counts = {block: allocator.owners(block) for block in list(self.names)}
        result = self.named(results[0]) if results else None
        step = {
            "outcome": ending,
            "result": list(result) if isinstance(result, list) else result,
            "offered": plain(len(self.tree)),
            "free": len(allocator),
            "owners": {self.names[block]: n for block, n in sorted(counts.items()) if n},
            "read": [cache.read() for cache in self.caches.values()],
        }
        self.forget_free()
        return step

    def forget_free(self) -> None:
        """Forget the names of blocks that are free, for they may be handed out again."""
        owners = self.pool.allocator.owners
        self.names = {block: name for block, name in self.names.items() if owners(block)}

    def named(self, result: Any) -> Any:
        """Write blocks by who wrote them, and anything else as plain data."""
        if isinstance(result, Named):
            return result
        if isinstance(result, list):
            numbers = [plain(block) for block in result]
            return Named(self.names.get(n, f"block {n}") for n in numbers)
        if isinstance(result, Told):
            return str(result)
        return None if result is None else plain(result)

    def begin(self, text: str, tokens: list[int]) -> None:
        self.caches[text] = PaperCache(self.pool)
        self.caches[text].write(tokens)

    def adopt(self, text: str, tokens: list[int]) -> None:
        self.caches[text] = PaperCache(self.pool)
        self.caches[text].adopt(self.tree.match(list(tokens)))
        self.caches[text].write(tokens[len(self.caches[text]) :])

    def serve(self, text: str, tokens: list[int]) -> Any:
        self.caches[text] = PaperCache(self.pool)
        self.caches[text].adopt(self.tree.match(list(tokens)))
        needed = -(-len(tokens) // self.pool.block_size) - len(self.caches[text].table)
        missing = needed - len(self.pool.allocator)
        gone = self.evict(missing) if missing > 0 else []
        self.caches[text].write(tokens[len(self.caches[text]) :])
        return gone

    def write(self, text: str, tokens: list[int]) -> None:
        self.caches[text].write(tokens)

    def leave(self, text: str) -> None:
        self.caches[text].reset()

    def match(self, tokens: list[int]) -> Any:
        given = list(tokens)
        found = self.tree.match(given)
        if isinstance(found, list) and any(found is earlier for earlier in self.found):
            return Told("the very list that an earlier match gave")
        if self.keeps_lists:
            self.found.append(found)
        named = self.named(found) if isinstance(found, list) else Told(in_words(found))
        if isinstance(found, list):
            found.clear()  # it is the caller's
        return named if given == tokens else Told(f"{named}, and changed the tokens")

    def insert(self, text: str, tokens: list[int]) -> Any:
        cache, given = self.caches[text], list(tokens)
        table = list(cache.table)
        new = self.tree.insert(given, cache)
        as_they_were = (given, cache.table) == (tokens, table)
        return (
            new if as_they_were else Told("a number, and changed the tokens or the cache's table")
        )

    def evictable(self) -> Any:
        return self.tree.evictable()

    def evict(self, n: int) -> Any:
        gone = self.tree.evict(n)
        named = self.named(gone) if isinstance(gone, list) else Told(in_words(gone))
        self.forget_free()
        return named

    def evict_all(self) -> Any:
        gone = self.evict(self.tree.evictable())
        return Named(sorted(gone)) if isinstance(gone, list) else gone

    def evict_too_many(self) -> Any:
        return self.evict(self.tree.evictable() + 1)

    def admit(self, text: str, tokens: list[int], n_new: int, promised: int) -> Any:
        self.caches[text] = PaperCache(self.pool)
        given = list(tokens)
        beside = [promised] if promised else []  # it may be left out
        known = self.student.admit(self.tree, self.caches[text], given, n_new, *beside)
        return known if given == tokens else Told("a number, and changed the prompt")


def probe_moves(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Play all moves on one engine; a second tree of another pool knows other words all along."""
    engine = Engine(student, challenge["n_blocks"], challenge["size"])
    engine.keeps_lists = "keeps_lists" in challenge
    other = Engine(student, 4, 1)
    other.begin("Z", [7, 8, 9])
    other.insert("Z", [7, 8, 9])
    return {"steps": [engine.play(move) for move in challenge["moves"]]}


Ask = Callable[[Move, dict[str, Any], dict[str, Any]], str]
"""Of a move, what it came to, and what is right: a question that fits better, or ""."""


def check_moves(
    name: str,
    *needs: str,
    draw: Callable[[int], Challenge],
    questions: dict[str, str],
    praise: str,
    ask_about: Ask = lambda *_: "",
) -> Check:
    """Make a check that compares what every move comes to with what it must.

    Args:
        needs: what students write of what the moves call.
        questions: by the name of a move, and "owners", what to ask about it.
        praise: the message of a pass; `{n}` is the number of moves.
    """

    def verdict(challenge: Challenge, evidence: Evidence, truth: Follow) -> Verdict:
        if wrong := wrong_move(challenge, evidence, truth, questions, ask_about):
            return failed(wrong)
        return passed(praise.format(n=len(challenge["moves"])))

    right = Recorded("prefix_cache", name)
    return Check(name, needs, draw, probe_moves, verdict, evidence=steps_form, truth=right)


def wrong_move(
    challenge: Challenge,
    evidence: Evidence,
    truth: Follow,
    questions: dict[str, str],
    ask_about: Ask,
) -> str | None:
    """Tell the first move that came to something else than it must; None where none did."""
    n_blocks, size, moves = challenge["n_blocks"], challenge["size"], challenge["moves"]
    right = truth(n_blocks, size, moves)
    for number, (move, got, expected) in enumerate(
        zip(moves, evidence["steps"], right, strict=True)
    ):
        before = "; ".join(map(move_text, moves[max(0, number - SHOWN) : number]))
        case = (
            f"{n_blocks} blocks of {size}. After {'… ' * (number > SHOWN)}{before or 'nothing'}: "
        )
        case += move_text(move)
        offers = any(name == "insert" for name, *_ in moves[: number + 1])
        if got["offered"] != expected["offered"] and not offers:
            return (
                f"{case}: two trees share something, for nothing was offered to this one, and len(tree) "
                f"is {got['offered']}. Where are a tree's nodes made?"
            )
        question = ask_about(move, got, expected) or questions.get(move[0], "")
        if got["outcome"] != expected["outcome"]:
            came, due = (outcome_in_words(one["outcome"]) for one in (got, expected))
            if expected["outcome"] == "returned":
                due = expected["result"]  # None, where a request has to wait
                if got["outcome"] != "CacheFull":
                    question = WHICH_LINE
            return f"{case} came to {came}; right is {due}. {question}"
        if got["result"] != expected["result"]:
            if _all_could_go(got, expected):
                question = WHEN_USED
            return f"{case} gave {got['result']}; right is {expected['result']}. {question}"
        if got["read"] != expected["read"]:
            return f"{case}: {read_text(got, expected)} {questions['owners']}"
        if got["owners"] != expected["owners"] or got["free"] != expected["free"]:
            return f"{case}: {owners_text(got, expected)} {questions['owners']}"
        if got["offered"] != expected["offered"]:
            return (
                f"{case}: len(tree) is {got['offered']}, and {expected['offered']} blocks are offered. "
                f"What does it count?"
            )
    return None


SHOWN = 8
"""Moves that are told before the one that went wrong; most smallest cases have fewer."""
WHEN_USED = (
    "Nobody else reads these. Which are leaves then, and which calls make them used, the insert of what "
    "is known included?"
)


def _all_could_go(got: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Tell whether all blocks that went, and should have stayed, are the tree's alone."""
    if not (isinstance(got["result"], list) and isinstance(expected["result"], list)):
        return False
    wrong = [name for name in got["result"] if name not in expected["result"]]
    return bool(wrong) and all(expected["owners"].get(name) == 1 for name in wrong)


def read_text(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say which words a cache reads in the place of others."""
    read, right = next(
        both for both in zip(got["read"], expected["read"], strict=True) if both[0] != both[1]
    )
    return f"a cache now reads {read}; right is {right}."


def owners_text(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say of which block the owners are wrong, or how many blocks are free."""
    for name in sorted({*got["owners"], *expected["owners"]}):
        is_, right = (step["owners"].get(name, 0) for step in (got, expected))
        if is_ != right:
            return f"block {name} has {is_} owners, and {right} is right."
    return f"{got['free']} blocks are free, and {expected['free']} is right."


def move_text(move: Move) -> str:
    """Write a move as a reader would say it."""
    name, *arguments = move
    if name in ("begin", "adopt", "serve", "write"):
        adopts = "adopts what is known, then holds"
        verb = {
            "begin": "holds",
            "adopt": adopts,
            "serve": "adopts what is known, makes room for the rest, then holds",
            "write": "writes",
        }
        return f"{arguments[0]} {verb[name]} {arguments[1]}"
    if name == "leave":
        return f"{arguments[0]} leaves"
    if name == "insert":
        return f"insert({arguments[1]}, {arguments[0]})"
    if name == "admit":
        return (
            f"admit({arguments[0]}, {arguments[1]}, n_new={arguments[2]}, promised={arguments[3]})"
        )
    return f"{name}({', '.join(map(str, arguments))})"


def draw_words(rng: np.random.Generator, n: int) -> list[int]:
    """Draw n different words."""
    return rng.choice(np.arange(100, 1000), n, replace=False).tolist()
