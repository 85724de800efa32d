"""Draw operations on caches, run them, and follow which tokens must be held.

An operation is (name, cache, what); caches are numbered in the order in which they begin:

    ("new", 0, places)      make cache 0, or make it anew
    ("feed", 0, tokens)     append them to every layer, and advance
    ("append", 0, tokens)   append them to every layer: they are pending, and count for nothing yet
    ("start", 0, tokens)    append them to the first layer alone, as a pass that stops there does
    ("advance", 0, n)       count the first n pending tokens, and forget the rest; of 0 it does nothing
    ("truncate", 0, n)      keep the first n tokens
    ("reset", 0, None)      keep none
    ("fork", 1, 0)          begin cache 1 as cache 0 is
    ("adopt", 1, (0, n))    begin cache 1, leave a token pending, and adopt the first n blocks of cache 0

Tokens are numbers of the rows that were drawn. A refused operation changes nothing: neither what is held
nor what is pending. A series is a dict of rows, operations and a dtype.

A lesson says how its cache is made and what one block of rows looks like, see `Handling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from course.checks.caches import InputChanged, copied_pair, feed_parts
from course.checks.check import Challenge, Each, Evidence
from course.checks.comparing import outcome as outcome_of
from course.checks.drawing import draw_split
from course.measure.allocations import watch_new_tensors
from course.model.cache import CacheFull

Operation = tuple[str, int, Any]
PLACES = 9
"""Of the caches on which operations are drawn."""
N_ROWS = 10
"""Tokens that are drawn for them."""
REFUSED = "an exception"
"""The expected outcome of an operation that may be refused by any exception."""
RECORD = {
    "outcome": str,
    "words": str,
    "lengths": Each(int),
    "returned": Each((np.ndarray, str)),
    "moved": bool,
}
"""The form of what `run` records of one operation. A word in the place of rows says what came instead."""
DrawRows = Callable[[np.random.Generator, int], np.ndarray]
"""Draws rows of n tokens, (L, …, n, ·)."""


# --- draw ----------------------------------------------------------------------------------------


def draw_operations(
    rng: np.random.Generator, n: int, names: Sequence[str], fits: bool = False
) -> list[Operation]:
    """Draw operations on a new cache of 9 places: blocks of 1 … 4 tokens, and whatever has a name.

    Args:
        n: how many.
        names: of what is drawn, as often as it shall be likely.
        fits: every block leaves a place, instead of another there is a truncate; and there are truncates
            to more than is held or to -1. Otherwise blocks often do not fit, and every truncate is
            possible.
    """
    operations: list[Operation] = [("new", 0, PLACES)]
    for _ in range(n):
        *_, (_, (held,), _) = follow(operations)
        name, size = str(rng.choice(names)) if held else "feed", int(rng.integers(1, 5))
        first = int(rng.integers(0, N_ROWS + 1 - size))
        if fits and name == "feed" and len(held) + size >= PLACES:
            name = "truncate"  # whether it can be filled is asked elsewhere
        low, high = (-1, len(held) + 1) if fits else (0, len(held))
        what = {
            "feed": list(range(first, first + size)),
            "truncate": int(rng.integers(low, high + 1)),
            "new": PLACES,
        }
        operations.append((name, 0, what.get(name)))
    return operations


def draw_returns(seed: int, draw_rows: DrawRows, places: int | None = PLACES) -> dict[str, Any]:
    """Draw a split of 9 tokens into two blocks or more, for caches of two dtypes, each beside another
    cache that is given the negatives; and the length of a long text."""
    rng = np.random.default_rng(seed)
    rows, first = draw_rows(rng, PLACES), int(rng.integers(1, PLACES))
    split = [first, *draw_split(rng, PLACES - first)]
    operations: list[Operation] = [("new", 0, places), ("new", 1, places)]
    for end, n in zip(np.cumsum(split).tolist(), split, strict=True):
        tokens = np.arange(end - n, end)
        operations += [("feed", cache, (tokens + PLACES * cache).tolist()) for cache in (0, 1)]
    dtypes = ("float32", ("float16", "float64")[seed % 2])
    both = {"rows": np.concatenate([rows, -rows], axis=-2), "operations": operations}
    series = [{**both, "dtype": dtype} for dtype in dtypes]
    return {"split": split, "series": series, "long": int(rng.integers(4100, 4400))}


def draw_back(seed: int, draw_rows: DrawRows) -> dict[str, Any]:
    """Draw a cache that goes back to impossible lengths, to a possible one and to nothing, and on again;
    and operations that all fit."""
    rng = np.random.default_rng(seed)
    keep = int(rng.choice([2, 4]))  # of 6: keeping 3 would look like dropping 3
    operations: list[Operation] = [("new", 0, PLACES), ("feed", 0, [*range(6)])]
    operations += [("truncate", 0, n) for n in (7, -1, 6, keep)]
    operations += [("feed", 0, [6, 7, 8]), ("reset", 0, None), ("feed", 0, [*range(3, 9)])]
    operations += [("reset", 0, None), ("truncate", 0, 0), ("feed", 0, [3, 4])]
    names = ["feed"] * 4 + ["truncate"] * 3 + ["reset"]
    drawn = draw_operations(rng, 32, names, fits=True)
    return {"keep": keep, "series": list_series(draw_rows(rng, N_ROWS), operations, drawn)}


def list_series(rows: np.ndarray, *operations: list[Operation]) -> list[dict[str, Any]]:
    """Make a series of each list of operations, of float32."""
    return [{"rows": rows, "operations": each, "dtype": "float32"} for each in operations]


def with_the_same_at_once(operations: list[Operation]) -> list[Operation]:
    """After each block that goes in, have a new cache fed all the tokens held at once."""
    longer: list[Operation] = []
    for operation, (expected, _, tokens) in zip(operations, follow(operations), strict=True):
        longer.append(operation)
        if operation[0] == "feed" and expected == "returned":
            longer += [("new", 1, PLACES), ("feed", 1, tokens)]
    return longer


# --- run -----------------------------------------------------------------------------------------


class Handling(NamedTuple):
    """How a lesson's cache is handled.

    Attributes:
        make: makes a cache of so many places.
        parts: what `append` is given for a list of tokens, (L, …, T, ·) each.
        copied: copies what a layer returned.
        feed: appends parts to every layer and advances; copies what came back.
    """

    make: Callable[[Any], Any]
    parts: Callable[[list[int]], Iterable[Tensor]]
    copied: Callable[[Any], Any] = copied_pair
    feed: Callable[[Any, Iterable[Tensor]], list[Any]] = feed_parts


class RefusedInPart(Exception):
    """What should be refused was refused by some layers alone, or not; the message says which."""


ALONE = "Which call looks for room, and does every layer's append?"
"""What to ask where one layer refuses what another one takes."""
FREE_BLOCK_ADOPTED = (
    "a list with a free block was adopted, or changed the cache before it was refused"
)
"""An outcome: such a list is refused before anything changes."""

Handle = Callable[[SimpleNamespace, Challenge], Handling]
"""Says how a student's cache is handled for a series."""


def run(operations: list[Operation], handling: Handling) -> list[Evidence]:
    """Do the operations, and record of each its outcome, how many tokens each cache holds then, what the
    layers returned, and whether it changed what an unfinished append had returned before."""
    caches: list[Any] = []
    unfinished: list[Any] = []  # what the last append returned
    records = []
    for operation in operations:
        before = [handling.copied(result) for result in unfinished]
        outcome, error, returned = attempt(operation, caches, handling)
        now = [handling.copied(result) for result in unfinished]
        if operation[0] == "append" and outcome == "returned":
            unfinished = returned
            returned = [handling.copied(result) for result in returned]
        records.append(
            {
                "outcome": outcome,
                "words": error,
                "lengths": [len(cache) for cache in caches],
                "returned": [] if operation[0] == "start" else returned,
                "moved": not all(map(np.array_equal, now, before)),
            }
        )
    return records


def attempt(
    operation: Operation, caches: list[Any], handling: Handling
) -> tuple[str, str, list[Any]]:
    """Try an operation: "returned" or the exception's name, its message, and what the layers returned."""
    try:
        return "returned", "", do(operation, caches, handling)
    except NotImplementedError:
        raise
    except RefusedInPart as error:
        return f"{error}", "", []
    except InputChanged as error:  # the tokens are in the cache
        return "returned", "", [f"{error}. Whose memory are they?"]
    except CacheFull as error:
        return "CacheFull", f"{error}"[:200], []
    except Exception as error:
        return type(error).__name__, f"{error}"[:200], []


def do(operation: Operation, caches: list[Any], handling: Handling) -> list[Any]:
    """Do one operation. What one layer refuses of a block must be refused by every other one, too; and a
    free block by a cache that adopts, before it is given others.

    Returns:
        What the layers returned: copies after "feed", and after "append" and "start" as it was.

    Raises:
        RefusedInPart: not all layers refused, or a cache adopted a free block or changed when it refused.
    """
    name, number, what = operation
    if name == "new":
        caches[number : number + 1] = [handling.make(what)]
        return []
    if name == "fork":
        caches.append(caches[what].fork())
        return []
    if name == "adopt":
        blocks = list(caches[what[0]].table[: what[1]])
        cache = handling.make(None)
        caches.append(cache)
        for layer, rows in enumerate(zip(*handling.parts([0]), strict=True)):  # never advanced
            cache.append(layer, *rows)
        pending, owners = list(cache.table), cache.pool.allocator.owners
        free = [block for block in range(cache.pool.n_blocks) if not owners(block)]
        if free:
            outcome_of(partial(cache.adopt, [*blocks, free[0]]))
            if len(cache) or list(cache.table) != pending or not all(map(owners, pending)):
                raise RefusedInPart(FREE_BLOCK_ADOPTED)
        cache.adopt(blocks)
        blocks.clear()  # it is the caller's list
        return []
    cache = caches[number]
    if name not in ("feed", "append", "start"):
        getattr(cache, name)(*[] if what is None else [what])
        return []
    layers = list(zip(*handling.parts(what), strict=True))
    if name == "start":
        return [cache.append(0, *layers[0])]
    if name == "append":
        return [cache.append(layer, *rows) for layer, rows in enumerate(layers)]
    try:
        return handling.feed(cache, handling.parts(what))
    except CacheFull:
        for layer, rows in enumerate(layers[1:], 1):
            outcome = outcome_of(partial(cache.append, layer, *rows))
            if outcome != "CacheFull":
                raise RefusedInPart(
                    f"CacheFull, but {outcome} from layer {layer} by itself"
                ) from None
        raise


def run_series(handle: Handle, student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run every series of a challenge; with a lesson's `handle`, a probe."""
    series = challenge["series"]
    return {"series": [run(each["operations"], handle(student, each)) for each in series]}


def series_form(challenge: Challenge) -> Evidence:
    """The form of what `run_series` returns."""
    return {"series": [[RECORD] * len(series["operations"]) for series in challenge["series"]]}


LONG_FORM = {"long": (np.ndarray, str), "written": int, "by": Each(str)}
"""The form of what `append_to_long` returns."""


def append_to_long(n: int, places: int, handling: Handling) -> Evidence:
    """Append all but one of n tokens, one of them alone, and then the last; count what that last append
    writes into new memory. Of no tokens it does nothing."""
    if not n:
        return {"long": "", "written": 0, "by": []}
    text, cache = list(range(n)), handling.make(places)
    for tokens in (text[:-2], text[-2:-1]):
        outcome, error, _ = attempt(("feed", 0, tokens), [cache], handling)
        if outcome != "returned":
            return {"long": f"{outcome}: {error}", "written": 0, "by": []}
    last = [part[0] for part in handling.parts(text[-1:])]
    with watch_new_tensors(*last) as made:
        returned = cache.append(0, *last)
    new = [tensor for tensor in made.tensors if tensor.made_by != "elsewhere"]
    return {
        "long": handling.copied(returned),
        "written": sum(tensor.numbers for tensor in new),
        "by": sorted({tensor.made_by for tensor in new}),
    }


# --- follow --------------------------------------------------------------------------------------


class _Text:
    """Follow one text: the tokens that its cache holds, and those that are pending."""

    def __init__(self, places: int | None, held: Sequence[int] = ()) -> None:
        self.places, self.held, self.pending = places, list(held), []

    def expected(self, name: str, what: Any) -> str:
        """Tell what an operation must come to."""
        if name in ("feed", "append", "start"):
            full = self.places is not None and len(self.held) + len(what) > self.places
            return "CacheFull" if full else "returned"
        if name == "truncate" and not 0 <= what <= len(self.held):
            return "ValueError"
        return REFUSED if name == "advance" and what > len(self.pending) else "returned"

    def take(self, name: str, what: Any) -> None:
        """Change as an operation that is not refused."""
        if name == "advance":
            if what:
                self.held, self.pending = self.held + self.pending[:what], []
            return
        self.pending = list(what) if name == "append" else []
        if name == "feed":
            self.held = self.held + list(what)
        elif name in ("truncate", "reset"):
            self.held = self.held[: what or 0]


def follow(
    operations: Sequence[Operation], outcomes: Sequence[str] | None = None, block: int = 1
) -> Iterator[tuple[str, list[list[int]], list[int]]]:
    """Tell of each operation what it must come to, which tokens every cache then holds, and which the
    layers of its own cache return.

    Args:
        outcomes: where more than the number of tokens decides about them.
        block: tokens of a block that is adopted.
    """
    texts: list[_Text] = []
    for step, (name, number, what) in enumerate(operations):
        if name == "new":
            texts[number : number + 1] = [_Text(what)]
        elif name == "fork":
            texts.append(_Text(texts[what].places, texts[what].held))
        elif name == "adopt":
            texts.append(_Text(None, texts[what[0]].held[: what[1] * block]))
        text = texts[number]
        outcome = outcomes[step] if outcomes else text.expected(name, what)
        if outcome == "returned" and name not in ("new", "fork", "adopt"):
            text.take(name, what)
        yield outcome, [list(each.held) for each in texts], text.held + text.pending
