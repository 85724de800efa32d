"""Draw the challenges for one submission."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter

from autograder.lessons import find
from course.checks.check import Challenge

ROUNDS = 3
"""How many challenges a question has each time that it is asked; all must pass."""


class Challenges:
    """Draws the challenges for one submission, the next one ahead of time.

    Args:
        digest: the digest of the file.
        secret: the grader's secret.
    """

    def __init__(self, digest: str, secret: bytes) -> None:
        self._digest, self._secret = digest, secret
        self._times_asked: Counter[str] = Counter()  # by check
        self._ahead: dict[tuple[str, int], Challenge] = {}

    def numbers(self, check: str) -> range:
        """Return the numbers of the challenges for a check, such as "kv_cache.cache_can_go_back"; each
        call returns new ones."""
        numbers = self._next_numbers(check)
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
        """Draw a challenge in advance, while the student's process works on another.

        Args:
            check: its name.
            number: the number of the challenge; by default the first of the next time.
        """
        number = self._next_numbers(check).start if number is None else number
        challenge = self.draw(check, number)
        self._ahead = {(check, number): challenge}

    def _next_numbers(self, check: str) -> range:
        first = ROUNDS * self._times_asked[check]
        return range(first, first + ROUNDS)


def draw_seed(secret: bytes, digest: str, check: str, number: int) -> int:
    """Return the seed of one challenge, 0 … 2⁶² - 1: an HMAC that nobody can compute without the secret,
    and that is the same in every retry."""
    text = f"{digest}:{check}:{number}".encode()
    return int.from_bytes(hmac.digest(secret, text, hashlib.sha256)[:8], "big") >> 2
