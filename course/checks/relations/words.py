"""The words of relations, and of the axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from course.checks.relations.pairs import Pair

LAST_QUESTIONS = re.compile(r"(?:(?<=[.:)?]) [A-Z](?:[^.?]|\.(?=\S))*\?)+$")
"""The questions at the end of a message, with the blank before each."""
SINGULAR = {
    "B": "batch row",
    "H": "head",
    "G": "KV head",
    "T": "token",
    "N": "new token",
    "S": "key",
    "r": "cache row",
    "k": "side",
}
"""What is counted along an axis. Side 0 of "k" are keys, side 1 are values."""


class Relation(NamedTuple):
    """What is true of wrong numbers.

    Attributes:
        words: a sentence.
        question: what to ask somebody who reads that; "" where the check's own question is as good.
        among: of which numbers of the reply that is true; "" of all.
    """

    words: str
    question: str = ""
    among: str = ""


def with_relations(message: str, relations: Sequence[Relation], most: int) -> str:
    """Append relations to a message. The question of the first takes the place of the message's own.

    Args:
        most: the length of the result; where it is longer, the message is cut, and what is appended to
            half of it.
    """
    if not relations:
        return message
    question = relations[0].question
    added = " ".join([r.words for r in relations] + [question] * bool(question))[: most // 2]
    message = LAST_QUESTIONS.sub("", message) if question else message
    message = message[: most - len(added) - 2]
    end = (
        "" if message.endswith((".", "?", "!", ")", ":")) else "."
    )  # Python's own errors have none
    return f"{message}{end} {added}"


def over_all_cases(relations: Sequence[Relation]) -> list[Relation]:
    """Say that relations hold for all cases of a challenge; a message shows one of them."""
    if not relations:
        return []
    first, *others = relations
    words = uncapitalized(first.words)
    among = f" That is so of {first.among}." if first.among else ""
    return [first._replace(words=f"Over all cases: {words}{among}"), *others]


def slice_name(pair: Pair, axis: int) -> str:
    """Name what one slice along an axis is: "head"; "number" of a list."""
    if letter := pair.axes[axis : axis + 1]:
        return SINGULAR[letter]
    return "number" if pair.expected.ndim == 1 else f"slice of axis {axis}, number"


def axis_name(pair: Pair, axis: int) -> str:
    """Name an axis, "the axis of heads"."""
    letter = pair.axes[axis : axis + 1]
    if letter and letter != "k":
        return f"the axis of {SINGULAR[letter]}s"
    return "the list" if pair.expected.ndim == 1 else f"axis {axis}"


def listed(numbers: Iterable[int], most: int = 8) -> str:
    """Write "0, 1 and 2", of many numbers the first."""
    numbers = list(numbers)
    if len(numbers) > most:
        return f"{', '.join(map(str, numbers[:most]))}, …"
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def uncapitalized(text: str) -> str:
    """Begin a text with a small letter, unless it begins with a name such as "KV" or "CacheFull"."""
    return text[:1].lower() + text[1:] if text.split()[0][1:].islower() else text


def capitalized(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]
