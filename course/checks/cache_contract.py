"""The contract that every cache keeps: say which of a series of operations came out wrong first.

`cache_operations` runs and follows them. A lesson says what has to come back: a function that looks at
one record, or, where these are the rows that were stored, how to speak of them (`Axes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

import numpy as np

from course.checks.cache_operations import ALONE, REFUSED, Operation, follow
from course.checks.caches import USED_AGAIN
from course.checks.check import Challenge, Evidence
from course.checks.comparing import HOW_MUCH_ROOM, WHICH_EXCEPTION, outcome_in_words
from course.measure.allocations import in_python

Question = Callable[[str, Any, int, str], str]
"""Asks about an operation, by its name and `what`, the number of tokens held before, and the expected
outcome."""
WrongRows = Callable[[int, list[int]], str | None]
"""Says of a step, and of the tokens that its layers should have returned, what is wrong with the rows
that came back."""


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
    before = {}  # of each cache: its last operation, the outcome, and how many tokens it holds
    followed = follow(operations, outcomes)
    for step, (record, (expected, held, tokens)) in enumerate(zip(records, followed, strict=True)):
        name, number, what = operations[step]
        *last, n_held = before.get(number, ("new", "returned", 0))
        asks = partial(question, name, what, n_held, expected) if question else str
        after = last[0] if last[0] in ("truncate", "reset") else ""
        wrong = _wrong_outcome(name, record, expected, n_held, asks, after) or _wrong_length(
            name, number, record, list(map(len, held))
        )
        if not wrong and name in ("feed", "append") and expected == "returned":
            wrong = wrong_rows(step, tokens)
            wrong = wrong and f"{wrong}{_ask_about_before(*last)}"
        if wrong:
            return f"{case}{in_words(operations[: step + 1], records, number)}: {wrong}"
        before[number] = name, expected, len(held[number])
    return None


def _ask_about_before(name: str, outcome: str) -> str:
    """Ask about the operation before the one that returned other rows, where it can be the reason."""
    if outcome == "CacheFull":
        return " Was something written before the room was looked at?"
    if name in ("truncate", "reset"):
        return " Which tokens should still be there, and where is the next one written?"
    return ""


def _wrong_outcome(
    name: str,
    record: Evidence,
    expected: str,
    n_held: int,
    question: Callable[[], str],
    after: str,
) -> str | None:
    outcome = record["outcome"]
    if record["moved"] and outcome != "returned":
        return (
            f"{outcome}, and what append had returned before is other numbers now. Was something "
            f"written before the room was looked at?"
        )
    if outcome == expected or (expected == REFUSED and outcome != "returned"):
        return None
    error = f" ({record['words']})" if record["words"] else ""
    return (
        f"{outcome}{error}, wanted is {outcome_in_words(expected)}; len(cache) was {n_held} before. "
        f"{question() * (outcome in KNOWN) or _ask_about_outcome(name, outcome, expected, after)}"
    )


KNOWN = ("returned", "CacheFull", "ValueError")
"""Outcomes about which a lesson may ask a question of its own."""


def _ask_about_outcome(name: str, outcome: str, expected: str, after: str) -> str:
    if name == "truncate" and outcome in KNOWN:
        return "Which numbers of tokens can be kept?"
    if name == "advance" and outcome in KNOWN:
        return "Which tokens are pending, and what forgets them?"
    if " from layer " in outcome:
        return ALONE
    if expected == "CacheFull" and outcome == "ValueError":
        return WHICH_EXCEPTION
    if expected == "CacheFull":
        return HOW_MUCH_ROOM
    if outcome == "CacheFull":
        return "Which places does your cache take for taken, and is the last one usable?"
    return (
        f"Which of your lines stops it{f', and would it without the {after} before' * bool(after)}?"
    )


def _wrong_length(name: str, number: int, record: Evidence, lengths: list[int]) -> str | None:
    for cache, (n, right) in enumerate(zip_longest(record["lengths"], lengths)):
        if n != right and cache == number:
            return f"then len(cache) is {n}, not {right}. {_ask_about_length(name, record)}"
        if n != right:
            return (
                f"then len() of another cache, which was left alone here, is {n}, not {right}. What do "
                f"two caches share?"
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


LONGEST = 12
"""Operations that are listed. The smallest failing case seldom has more."""


def in_words(operations: Sequence[Operation], records: Sequence[Evidence], number: int) -> str:
    """Say what was done with a cache since it began, and which operation but the last was refused; behind
    the words for the cache."""
    done: list[str] = []
    for step, (name, cache, what) in enumerate(operations):
        if cache == number and name == "new":
            done = []
        elif cache == number:
            size = len(what) if name in MEANINGS else "" if what is None else what
            refused = step + 1 < len(operations) and records[step]["outcome"] != "returned"
            done.append(f"{name}({size}){' refused' * refused}")
    times = [(len(list(alike)), one) for one, alike in groupby(done)]
    lines = [f"{n} times {one}" if n > 1 else one for n, one in times]
    history = ", ".join(["…"] * (len(lines) > LONGEST) + lines[-LONGEST:]) or "a new one"
    meanings = "; ".join(meaning for name, meaning in MEANINGS.items() if f"{name}(" in history)
    return f" ({meanings}): {history}" if meanings else f": {history}"


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
    if np.allclose(got, want, rtol=NEARLY, atol=0):
        return ROUNDED
    if (other == 0).all():
        return "Nothing was written there. Is all of a block stored, and which places does it take?"
    return "Which place, and which layer's storage, does this block belong to?"


NEARLY = 1e-2
"""How far numbers are from others, as a part of them, that were rounded to a dtype of few digits."""
ROUNDED = "They are nearly those. Through which dtype did they go?"


def wrong_long(n: int, places: int, evidence: Evidence, expected: np.ndarray) -> str | None:
    """Say what is wrong after the last of n tokens: with `expected`, all rows of a layer, or with the
    work."""
    if not n:
        return None
    case, got = f"A cache of {places:,} places, and 1 token appended to {n - 1:,}", evidence["long"]
    if isinstance(got, str):
        is_limit = got.startswith("CacheFull")
        cause = (
            "which number in your code is its limit" if is_limit else "which of your lines stops it"
        )
        return (
            f"A cache of {places:,} places is fed {n - 2:,} tokens, then 1, and 1 is appended: {got}. "
            f"All of it fits. Which of these calls is that, and {cause}?"
        )
    if got.shape != expected.shape:
        return (
            f"{case}: rows of shape {got.shape} came back, and not the {expected.shape} that were "
            f"stored. Where does your cache end?"
        )
    if (got != expected).any():
        return (
            f"{case}: other rows came back than were stored. Which places does a block of so many "
            f"tokens take, and which of them are returned?"
        )
    if evidence["written"] > expected.size // 4:
        return (
            f"{case}: {evidence['written']:,} numbers were written into new memory "
            f"({'; '.join(map(in_python, evidence['by']))}), and the rows of 1 token have "
            f"{expected.size // n}. Which of your lines copies older rows?"
        )
    return None
