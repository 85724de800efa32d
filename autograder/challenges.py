"""Draw the challenges that are put to one submission."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter

from autograder.lessons import find
from course.checks.check import Challenge

ROUNDS = 3
"""Challenges each time that a check is asked; all must be met."""


class Challenges:
    """Draws the challenges of one submission, and keeps the one that was drawn ahead.

    Args:
        digest: of the file.
        secret: the grader's.
    """

    def __init__(self, digest: str, secret: bytes) -> None:
        self._digest, self._secret = digest, secret
        self._times_asked: Counter[str] = Counter()  # times, by check
        self._ahead: dict[tuple[str, int], Challenge] = {}

    def numbers(self, check: str) -> range:
        """Return the numbers of the challenges with which a check, such as "kv_cache.cache_can_go_back",
        is asked now; the next time it is asked with others."""
        numbers = self._coming(check)
        self._times_asked[check] += 1
        return numbers

    def draw(self, check: str, number: int) -> Challenge:
        """Draw a challenge: the same for the same check and number."""
        drawn = self._ahead.pop((check, number), None)
        if drawn is None:
            seed = draw_seed(self._secret, self._digest, check, number)
            drawn = find(check).challenge(seed)
        return drawn

    def draw_ahead(self, check: str, number: int | None = None) -> None:
        """Draw a challenge before it is wanted, while a student's process works on another.

        Args:
            check: its name.
            number: of the challenge; left out, the first of the next time that the check is asked.
        """
        number = self._coming(check).start if number is None else number
        challenge = self.draw(check, number)
        self._ahead = {(check, number): challenge}

    def _coming(self, check: str) -> range:
        first = ROUNDS * self._times_asked[check]
        return range(first, first + ROUNDS)


def draw_seed(secret: bytes, digest: str, check: str, number: int) -> int:
    """Draw the seed of one challenge, 0 … 2⁶² - 1: an HMAC that nobody without the secret can
    compute, and that is the same in every retry."""
    text = f"{digest}:{check}:{number}".encode()
    return int.from_bytes(hmac.digest(secret, text, hashlib.sha256)[:8], "big") >> 2
