"""Encode texts as tokens and decode them: one token for each word or punctuation mark of the stories.

    encode("The cat sat")             # tensor([[ 86, 111, 220]]), say: (1, 3) int64
    decode(encode("The cat sat"))     # "The cat sat"

The vocabulary is closed: it holds the words of the stories' grammar and nothing else. "The" and
"the" are two entries; "mat." and "mat ." are read alike.
"""

import difflib
import hashlib
import operator
import re
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from course.world.stories import vocabulary

WORDS: tuple[str, ...] = ("<pad>", "<end>", *vocabulary())
"""The vocabulary; a token is an index into it."""
VOCAB_SIZE = len(WORDS)
PAD, END = 0, 1
"""The tokens that fill rows of a batch up to one length, and that close a story."""
FINGERPRINT = hashlib.sha256("\n".join(WORDS).encode()).hexdigest()
"""Tells one vocabulary from another."""

_ID = {word: number for number, word in enumerate(WORDS)}
_PIECE = re.compile(r"<\w+>|[\w'-]+|[^\w\s]")


def encode(text: str) -> Tensor:
    """Encode a text as token ids, (1, T) int64.

    Raises:
        ValueError: not a str, no words at all, or a word that the stories never use; the message
            names the word, its place, and the nearest known ones.
    """
    if not isinstance(text, str):
        raise ValueError(f"encode takes a str, got {type(text).__name__}: {text!r}")
    words = _PIECE.findall(text)
    if not words:
        raise ValueError(f"nothing to encode: the text {text!r} holds no word")
    for place, word in enumerate(words, start=1):
        if word not in _ID:
            raise ValueError(
                f"unknown word {word!r} (word {place} of {len(words)}): the stories have only "
                f"{VOCAB_SIZE} words. The nearest: {', '.join(_nearest(word))}"
            )
    return torch.tensor([[_ID[word] for word in words]])  # (1, T)


def decode(tokens: Tensor | Sequence[int]) -> str:
    """Decode token ids to a text, with a space between any two tokens: "on the mat .".

    Args:
        tokens: (T,) or (1, T) int64, or a sequence of ints. None at all gives "".

    Raises:
        ValueError: another shape or type, or an id outside the vocabulary.
    """
    if isinstance(tokens, Tensor) and tokens.dim() == 2 and tokens.shape[0] == 1:
        tokens = tokens[0]
    if isinstance(tokens, Tensor) and tokens.dim() != 1:
        raise ValueError(
            f"decode takes one text, (T,) or (1, T), got shape {tuple(tokens.shape)}; "
            f"decode a batch row by row"
        )
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise ValueError(f"decode takes token ids, got {type(tokens).__name__}: {tokens!r}")
    numbers = tokens.tolist() if isinstance(tokens, Tensor) else tokens
    return " ".join(WORDS[_checked_id(number, i)] for i, number in enumerate(numbers))


def _checked_id(number: int, place: int) -> int:
    """Give a token id as an int, or raise ValueError with its place."""
    try:
        number = operator.index(number)
    except TypeError:
        raise ValueError(f"token {place} must be a whole number, got {number!r}") from None
    if not 0 <= number < VOCAB_SIZE:
        raise ValueError(f"token {place} is {number}, outside 0 … {VOCAB_SIZE - 1}")
    return number


def _nearest(word: str) -> list[str]:
    """Find the three known words, or punctuation marks, most like this one, capitals aside."""
    is_word = word[0].isalnum()
    known = [other for other in WORDS[2:] if other[0].isalnum() == is_word]
    likeness = {
        other: difflib.SequenceMatcher(None, word.lower(), other.lower()).ratio() for other in known
    }
    return sorted(known, key=likeness.get, reverse=True)[:3]
