"""The contract that every cache keeps: draw operations, run them, and say which came out wrong first.

An operation is (name, cache, what); caches are numbered in the order in which they begin:

    ("new", 0, places)      make cache 0, or make it anew
    ("feed", 0, tokens)     append them to every layer, and advance
    ("append", 0, tokens)   append them to every layer: they are pending, and count for nothing yet
    ("start", 0, tokens)    append them to the first layer alone, as a pass that stops there does
    ("advance", 0, n)       count the first n pending tokens
    ("truncate", 0, n)      keep the first n tokens
    ("reset", 0, None)      keep none
    ("fork", 1, 0)          begin cache 1 as cache 0 is
    ("adopt", 1, (0, n))    begin cache 1 with the first n blocks of cache 0

Tokens are numbers of the rows that were drawn. A refused operation changes nothing: neither what is held
nor what is pending. A series is a dict of rows, operations and a dtype.

A lesson says what is special: how its cache is made and what one block of rows looks like (`Handling`),
and what has to come back (a function that looks at one record).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from course.checks.caches import USED_AGAIN, InputChanged, copied_pair, feed_parts
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
    "error": str,
    "lengths": Each(int),
    "returned": Each((np.ndarray, str)),
    "moved": bool,
}
"""The form of what `run` records of one operation. A word in the place of rows says what came instead."""
DrawRows = Callable[[np.random.Generator, int], np.ndarray]
"""Draws rows of n tokens, (L, …, n, ·)."""
Question = Callable[[str, Any, int, str], str]
"""Asks about an operation, by its name and `what`, the number of tokens held before, and the expected
outcome."""
WrongRows = Callable[[int, list[int]], str | None]
"""Says of a step, and of the tokens that its layers should have returned, what is wrong with the rows
that came back."""


# --- draw ----------------------------------------------------------------------------------------


def feed_in_turns(split: Sequence[int], places: Any = PLACES) -> list[Operation]:
    """List the operations that feed a split to one cache and, after each of its blocks, as many tokens of
    another text to a second one. The second text's tokens follow the first one's."""
    operations: list[Operation] = [("new", 0, places), ("new", 1, places)]
    total, done = sum(split), 0
    for n in split:
        for cache in (0, 1):
            first = done + cache * total
            operations.append(("feed", cache, list(range(first, first + n))))
        done += n
    return operations


def draw_operations(
    rng: np.random.Generator, n: int, names: Sequence[str], fits: bool = False
) -> list[Operation]:
    """Draw operations on a new cache of 9 places: blocks of 1 … 4 tokens, and whatever has a name.

    Args:
        n: how many.
        names: of what is drawn, as often as it shall be likely.
        fits: every block fits, instead of another there is a truncate; and there are truncates to more
            than is held or to -1. Otherwise blocks often do not fit, and every truncate is possible.
    """
    operations: list[Operation] = [("new", 0, PLACES)]
    for _ in range(n):
        *_, (_, (held,), _) = follow(operations)
        name, size = str(rng.choice(names)) if held else "feed", int(rng.integers(1, 5))
        first = int(rng.integers(0, N_ROWS + 1 - size))
        if fits and name == "feed" and len(held) + size > PLACES:
            name = "truncate"
        low, high = (-1, len(held) + 1) if fits else (0, len(held))
        what = {
            "feed": list(range(first, first + size)),
            "truncate": int(rng.integers(low, high + 1)),
            "new": PLACES,
        }
        operations.append((name, 0, what.get(name)))
    return operations


def draw_returns(seed: int, draw_rows: DrawRows, places: int | None = PLACES) -> dict[str, Any]:
    """Draw a split of 9 tokens, for caches of two dtypes, each beside another cache that is given the
    negatives; and the length of a long text."""
    rng = np.random.default_rng(seed)
    rows, split = draw_rows(rng, PLACES), draw_split(rng, PLACES)
    rows = np.concatenate([rows, -rows], axis=-2)
    operations = feed_in_turns(split, places)
    dtypes = ("float32", ("float16", "float64")[seed % 2])
    series = [{"rows": rows, "operations": operations, "dtype": dtype} for dtype in dtypes]
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
        outcome, error, returned = _attempt(operation, caches, handling)
        now = [handling.copied(result) for result in unfinished]
        if operation[0] == "append" and outcome == "returned":
            unfinished = returned
            returned = [handling.copied(result) for result in returned]
        records.append(
            {
                "outcome": outcome,
                "error": error,
                "lengths": [len(cache) for cache in caches],
                "returned": [] if operation[0] == "start" else returned,
                "moved": not all(map(np.array_equal, now, before)),
            }
        )
    return records


def _attempt(
    operation: Operation, caches: list[Any], handling: Handling
) -> tuple[str, str, list[Any]]:
    """Try an operation: "returned" or the exception's name, its message, and what the layers returned."""
    try:
        return "returned", "", do(operation, caches, handling)
    except NotImplementedError:
        raise
    except InputChanged as error:  # the tokens are in the cache
        return "returned", "", [f"{error}. Whose memory are they?"]
    except CacheFull as error:
        return "CacheFull", f"{error}"[:200], []
    except Exception as error:
        return type(error).__name__, f"{error}"[:200], []


def do(operation: Operation, caches: list[Any], handling: Handling) -> list[Any]:
    """Do one operation. What one layer refuses of a block is appended to the others nevertheless.

    Returns:
        What the layers returned: copies after "feed", and after "append" and "start" as it was.
    """
    name, number, what = operation
    if name == "new":
        caches[number : number + 1] = [handling.make(what)]
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
            outcome_of(partial(cache.append, layer, *rows))
        raise


def run_series(handle: Handle, student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run every series of a challenge; with a lesson's `handle`, a probe."""
    series = challenge["series"]
    return {"series": [run(each["operations"], handle(student, each)) for each in series]}


def series_form(challenge: Challenge) -> Evidence:
    """The form of what `run_series` returns."""
    return {"series": [[RECORD] * len(series["operations"]) for series in challenge["series"]]}


# --- follow, and judge ---------------------------------------------------------------------------


class Axes(NamedTuple):
    """How a lesson speaks of the rows that one layer returns.

    Attributes:
        names: such as ("B", "G", "S", "D"), for the last axes.
        place: says which number is at an index.
        ask: the lesson's own question about (got, expected), "" for none.
    """

    names: tuple[str, ...]
    place: Callable[[tuple[int, ...]], str]
    ask: Callable[[np.ndarray, np.ndarray], str]


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
            self.held, self.pending = self.held + self.pending[:what], self.pending[what:]
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


def wrong_series(
    challenge: Challenge, evidence: Evidence, axes: Axes | None, name: str = "A cache of {} places"
) -> str | None:
    """Say which operation of a challenge's series came out wrong first.

    Args:
        axes: of the rows that must come back; None where they only have to be those that the same tokens
            give at once, see `with_the_same_at_once`.
        name: of the cache, with room for its places.
    """
    for series, records in zip(challenge["series"], evidence["series"], strict=True):
        rows, operations = series["rows"].astype(series["dtype"]), series["operations"]

        def wrong_rows(step, tokens, rows=rows, operations=operations, records=records):
            if axes is None:
                return wrong_at_once(operations, records, step)
            return wrong_layers(records[step]["returned"], rows[..., tokens, :], axes)

        case = f"{name.format(operations[0][2])}, {series['dtype']}"
        if wrong := wrong_operation(case, operations, records, wrong_rows):
            return wrong
    return None


def wrong_operation(
    case: str,
    operations: list[Operation],
    records: list[Evidence],
    wrong_rows: WrongRows,
    outcomes: Sequence[str] | None = None,
    question: Question | None = None,
) -> str | None:
    """Say which operation came out wrong first.

    Args:
        case: says which cache this is.
        outcomes: see `follow`.
        question: asks about the outcome of an operation; "" for the contract's own question.
    """
    n_held: dict[int, int] = {}
    last = {}  # name and outcome of each cache's operation before
    followed = follow(operations, outcomes)
    for step, (record, (expected, held, tokens)) in enumerate(zip(records, followed, strict=True)):
        name, number, _ = operations[step]
        lengths = dict(enumerate(map(len, held)))
        wrong = _wrong_outcome(
            operations[step], record, expected, n_held.get(number, 0), question
        ) or _wrong_length(name, record, lengths)
        if not wrong and name in ("feed", "append") and expected == "returned":
            wrong = wrong_rows(step, tokens)
            wrong = wrong and f"{wrong}{_ask_about_before(*last[number])}"
        if wrong:
            return f"{case}{in_words(operations[: step + 1], number)}: {wrong}"
        n_held, last[number] = lengths, (name, expected)
    return None


def _ask_about_before(name: str, outcome: str) -> str:
    """Ask about the operation before the one that returned other rows, where it can be the reason."""
    if outcome != "returned":
        return " Was something written before the room was looked at?"
    if name in ("truncate", "reset"):
        return " Which tokens should still be there, and where is the next one written?"
    return ""


def _wrong_outcome(
    operation: Operation, record: Evidence, expected: str, n_held: int, question: Question | None
) -> str | None:
    name, _, what = operation
    outcome = record["outcome"]
    if record["moved"] and outcome != "returned":
        return (
            f"{outcome}, and what append had returned before is other numbers now. Was something "
            f"written before the room was looked at?"
        )
    if outcome == expected or (expected == REFUSED and outcome != "returned"):
        return None
    special = question(name, what, n_held, expected) if question else ""
    error = f" ({record['error']})" if record["error"] else ""
    return (
        f"{outcome}{error}, wanted is {expected}; {n_held} tokens were held before. "
        f"{special or _ask_about_outcome(name, outcome, expected)}"
    )


def _ask_about_outcome(name: str, outcome: str, expected: str) -> str:
    if name == "truncate":
        return "Which numbers of tokens can be kept?"
    if name == "advance":
        return "Which tokens are pending, and what forgets them?"
    if expected == "CacheFull":
        return "How many places are left, how many are needed, and when do you look?"
    if outcome == "CacheFull":
        return "Which places does your cache take for taken, and is the last one usable?"
    return "Which of your lines stops it?"


def _wrong_length(name: str, record: Evidence, lengths: dict[int, int]) -> str | None:
    seen = dict(enumerate(record["lengths"]))
    for number, n in lengths.items():
        if seen.get(number) != n:
            return (
                f"then len(cache) is {seen.get(number)}, not {n}. {_ask_about_length(name, record)}"
            )
    return None


def _ask_about_length(name: str, record: Evidence) -> str:
    if name == "new":
        return "What was put into a new cache?"
    if record["outcome"] != "returned":
        return "What did the refused call change?"
    if name in ("truncate", "reset"):
        return "Which tokens are still held?"
    return "Which method counts, and how often is it called?"


def in_words(operations: Sequence[Operation], number: int) -> str:
    """Say what was done with a cache since it began or was reset, the end of it; behind the words for
    the cache."""
    done: list[str] = []
    for name, cache, what in operations:
        if cache == number and name != "new":
            done = [] if name == "reset" else done
            size = len(what) if name in MEANINGS else "" if what is None else what
            done.append(f"{name}({size})")
    times = [(len(list(alike)), one) for one, alike in groupby(done)]
    said = ", ".join(f"{n} times {one}" if n > 1 else one for n, one in times[-6:]) or "a new one"
    meanings = "; ".join(meaning for name, meaning in MEANINGS.items() if f"{name}(" in said)
    return f" ({meanings}): {said}" if meanings else f": {said}"


MEANINGS = {
    "feed": "feed(n): append n tokens to every layer, then advance",
    "append": "append(n): append n tokens to every layer",
    "start": "start(n): append n tokens to layer 0 alone",
}


def wrong_at_once(
    operations: Sequence[Operation], records: list[Evidence], step: int
) -> str | None:
    """Say that layers returned other rows than a new cache that was fed the same tokens at once, however
    rows look; see `with_the_same_at_once`."""
    if operations[step][1]:  # the new cache itself
        return None
    got, at_once = records[step]["returned"], records[step + 2]["returned"]
    if len(got) == len(at_once) and all(map(_alike, got, at_once)):
        return None
    return (
        "it returned other rows than a new cache that is fed the same tokens at once. What was left "
        "from before, or lost?"
    )


def _alike(got: np.ndarray | str, at_once: np.ndarray | str) -> bool:
    """Tell whether two layers returned the same, NaN where the other has NaN."""
    if isinstance(got, str) or isinstance(at_once, str):
        return isinstance(got, str) and got == at_once
    return np.array_equal(got, at_once, equal_nan=True)


def missing(returned: list[np.ndarray | str], n: int) -> str | None:
    """Say that not n arrays came back, or what a word says of one."""
    words = [part for part in returned if isinstance(part, str)]
    if words or len(returned) != n:
        return words[0] if words else "the rows of a layer did not come back."
    return None


def wrong_layers(returned: list[np.ndarray | str], expected: np.ndarray, axes: Axes) -> str | None:
    """Say how what the layers returned differs from the rows that were stored, (L, …, S, ·)."""
    if len(returned) != len(expected):
        return missing(returned, len(expected))
    for layer, (got, want) in enumerate(zip(returned, expected, strict=True)):
        if wrong := _wrong_layer(got, want, axes):
            return f"layer {layer} returned {wrong}"
    return None


def _wrong_layer(got: np.ndarray | str, want: np.ndarray, axes: Axes) -> str | None:
    if isinstance(got, str):
        return f"{got}; wanted are the rows so far. What do you return?"
    if got.shape != want.shape:
        shapes = [array.shape[want.ndim - len(axes.names) :] for array in (got, want)]
        return (
            f"shape {shapes[0]}, wanted is ({', '.join(axes.names)}) = {shapes[1]}. How many tokens are "
            f"held or new, and which axes has a row?"
        )
    if got.dtype != want.dtype:
        return f"{got.dtype} from a {want.dtype} cache. What is its storage made of?"
    wrong = np.argwhere(got != want)
    if not len(wrong):
        return None
    first = tuple(min(wrong.tolist(), key=lambda index: (index[-2], index)))
    tokens = sorted(set(wrong[:, -2].tolist()))
    return (
        f"other rows than were stored: first at {axes.place(first)} (wrong tokens: {tokens} of "
        f"{want.shape[-2]}; got {got[first]:.3g}, stored {want[first]:.3g}). "
        f"{axes.ask(got, want) or _ask_whose(got, want)}"
    )


def _ask_whose(got: np.ndarray, want: np.ndarray) -> str:
    other = got[got != want]
    if (other == USED_AGAIN).any():
        return f"After advance the caller wrote {USED_AGAIN:g} over its tensors. Is what you keep a copy?"
    if (other == -want[got != want]).all():
        return "Another cache was given those. What do two caches share?"
    if (other == 0).all():
        return "Nothing was written there. Which places does a block of several tokens take?"
    return "Which place, and which layer's storage, does this block belong to?"


# --- a long text ---------------------------------------------------------------------------------

LONG_FORM = {"long": (np.ndarray, str), "written": int, "by": Each(str)}
"""The form of what `append_to_long` returns."""


def append_to_long(n: int, places: int, handling: Handling) -> Evidence:
    """Append all but one of n tokens, one of them alone, and then the last; count what that last append
    writes into new memory."""
    text, cache = list(range(n)), handling.make(places)
    for tokens in (text[:-2], text[-2:-1]):
        outcome, error, _ = _attempt(("feed", 0, tokens), [cache], handling)
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


def wrong_long(n: int, places: int, evidence: Evidence, expected: np.ndarray) -> str | None:
    """Say what is wrong after the last of n tokens: with `expected`, all rows of a layer, or with the
    work."""
    case, got = f"A cache of {places:,} places, and 1 token appended to {n - 1:,}", evidence["long"]
    if isinstance(got, str):
        return f"{case}: {got}. All of it fits. Which number in your code is the limit?"
    if got.shape != expected.shape or (got != expected).any():
        return (
            f"{case}: rows of shape {got.shape} came back, and not the {expected.shape} that were "
            f"stored. Where does your cache end?"
        )
    if evidence["written"] > expected.size // 4:
        return (
            f"{case}: {evidence['written']:,} numbers were written into new memory "
            f"({', '.join(evidence['by'])}), and the rows of 1 token have {expected.size // n}. Which of "
            f"your lines copies older rows?"
        )
    return None
