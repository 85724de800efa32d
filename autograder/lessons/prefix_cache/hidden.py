"""The hidden checks of lesson 15: a flat dictionary of beginnings, and owners counted on paper."""

from __future__ import annotations

from typing import Any

from course.checks import prefix_cache as visible
from course.checks.check import Challenge, by_name


class Followed:
    """Follow what each move comes to. A beginning is all words up to the end of a block.

    Attributes:
        offered: the name of the block of each known beginning, and the moment at which it was used.
        tables: of each text, its blocks by name; words: how many words it holds.
        contents: the words of each block.
    """

    def __init__(self, n_blocks: int, size: int) -> None:
        self.n_blocks, self.size, self.moment = n_blocks, size, 0
        self.offered: dict[tuple[int, ...], list[Any]] = {}
        self.tables: dict[str, list[str]] = {}
        self.held: dict[str, list[int]] = {}

    def owners(self) -> dict[str, int]:
        """Count the owners of each block: the texts in whose table it stands, and the tree."""
        blocks = [name for table in self.tables.values() for name in table]
        blocks += [name for name, _ in self.offered.values()]
        return {name: blocks.count(name) for name in blocks}

    def free(self) -> int:
        return self.n_blocks - len(self.owners())

    def beginnings(self, tokens: list[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[: n * self.size]) for n in range(1, len(tokens) // self.size + 1)]

    def match(self, tokens: list[int]) -> list[str]:
        found = []
        for beginning in self.beginnings(tokens[:-1]):
            if beginning not in self.offered:
                break
            found.append(self.offered[beginning][0])
        return found

    def begin(self, text: str, tokens: list[int]) -> None:
        self.tables[text], self.held[text] = [], []
        self.write(text, tokens)

    def adopt(self, text: str, tokens: list[int]) -> None:
        self.tables[text] = self.match(tokens)
        known = len(self.tables[text]) * self.size
        self.held[text] = tokens[:known]
        self.write(text, tokens[known:])

    def serve(self, text: str, tokens: list[int]) -> list[str] | str:
        self.tables[text] = self.match(tokens)
        known = len(self.tables[text]) * self.size
        missing = -(-len(tokens) // self.size) - len(self.tables[text]) - self.free()
        gone = self.evict(max(0, missing))
        self.held[text] = tokens[:known]
        self.write(text, tokens[known:])
        return gone

    def write(self, text: str, tokens: list[int]) -> None:
        self.held[text] = self.held[text] + tokens
        table = self.tables[text]
        while len(table) * self.size < len(self.held[text]):
            assert self.free() > 0, f"no room is left for {text}: the challenge is wrong"
            table.append(f"{text}{len(table)}")

    def leave(self, text: str) -> None:
        self.tables[text], self.held[text] = [], []

    def insert(self, text: str, tokens: list[int]) -> int:
        self.moment += 1
        new = 0
        written = tokens[: len(self.held[text])]
        for number, beginning in enumerate(self.beginnings(written)):
            if beginning not in self.offered:
                self.offered[beginning] = [self.tables[text][number], 0]
                new += 1
            self.offered[beginning][1] = self.moment
        return new

    def locked(self, beginning: tuple[int, ...]) -> bool:
        return self.owners()[self.offered[beginning][0]] > 1

    def evictable(self) -> int:
        locked = [b for b in self.offered if self.locked(b)]
        return sum(
            not any(other[: len(b)] == b for other in locked)  # b itself among them
            for b in self.offered
        )

    def evict(self, n: int) -> list[str] | str:
        if n > self.evictable():
            return "CacheFull"
        gone = []
        for _ in range(n):
            leaves = [
                b
                for b in self.offered
                if not self.locked(b)
                and not any(len(o) > len(b) and o[: len(b)] == b for o in self.offered)
            ]
            oldest = min(leaves, key=lambda b: self.offered[b][1])
            gone.append(self.offered.pop(oldest)[0])
        return gone

    def evict_all(self) -> list[str]:
        return sorted(self.evict(self.evictable()))

    def evict_too_many(self) -> list[str] | str:
        return self.evict(self.evictable() + 1)

    def admit(self, text: str, tokens: list[int], n_new: int, promised: int) -> int | None:
        self.tables[text] = self.match(tokens)
        known = len(self.tables[text]) * self.size
        whole = -(-(len(tokens) + n_new - 1) // self.size)
        missing = max(0, whole - len(self.tables[text]) + promised - self.free())
        if self.evict(missing) == "CacheFull":
            self.tables[text], self.held[text] = [], []
            return None
        self.held[text] = tokens[:known]
        return known


def follow(n_blocks: int, size: int, moves: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return what each move comes to."""
    followed, steps = Followed(n_blocks, size), []
    for name, *arguments in moves:
        result = getattr(followed, name.replace(" ", "_"))(*arguments)
        refused = result == "CacheFull"
        steps.append(
            {
                "outcome": "CacheFull" if refused else "returned",
                "result": None if refused else result,
                "offered": len(followed.offered),
                "free": followed.free(),
                "owners": followed.owners(),
                "read": [list(held) for held in followed.held.values()],
            }
        )
    return steps


def order(queue: Challenge) -> list[int]:
    """Return the numbers of the requests, one after the other taken out of the queue."""
    left, chosen = list(range(len(queue["known"]))), []
    while left:
        late = [n for n in left if queue["waited"][n] > queue["max_wait"]]
        best = max((queue["known"][n] for n in left), default=0)
        n = late[0] if late else next(n for n in left if queue["known"][n] == best)
        left.remove(n)
        chosen.append(n)
    return chosen


def link(
    config: dict[str, int], n_prompt: int, n_known: int, rates: list[float], width: int = 2
) -> float:
    """Count FLOPs and bytes of both passes matrix by matrix and pair by pair."""
    C, H = config["d_model"], config["n_heads"]
    D, layers, vocab = C // H, config["n_layers"], config["vocab_size"]
    narrow, mlp = config["n_kv_heads"] * D, config["d_ff"]
    matrices = [(C, C), (C, narrow), (C, narrow), (C, C), (C, mlp), (C, mlp), (mlp, C)]

    def seconds(past: int) -> float:
        flops, moved = 2 * C * vocab, C * vocab + C + vocab
        moved += layers * (n_prompt * 2 * narrow + (n_prompt - past) * 2 * narrow)
        for rows, columns in matrices:
            flops += layers * (n_prompt - past) * 2 * rows * columns
            moved += layers * (rows * columns + (n_prompt - past) * (rows + columns))
        for token in range(past, n_prompt):
            flops += layers * H * (token + 1) * 4 * D
        return max(flops / rates[0], moved * width / rates[1])

    spared = seconds(0) - seconds(n_known)
    return layers * 2 * narrow * n_known * width / spared


CHECKS = by_name(
    visible.finds_the_longest_beginning.hidden(truth=follow),
    visible.collisions_are_no_hits.hidden(truth=follow),
    visible.offers_what_is_written.hidden(truth=follow),
    visible.whose_words.hidden(truth=follow),
    visible.oldest_leaves_first.hidden(truth=follow),
    visible.counts_what_can_go.hidden(truth=follow),
    visible.admits_or_changes_nothing.hidden(truth=follow),
    visible.known_first_late_before_all.hidden(truth=order),
    visible.dearer_than_computing.hidden(truth=link),
)
