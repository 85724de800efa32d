"""Keep what every bug of a lesson replies to one challenge of each check, the same for everyone.

Running all bugs of a lesson takes seconds; what they reply is the same until the course or the judge
changes. So it is found out once, and kept beside the results.
"""

from __future__ import annotations

import contextlib
import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autograder import wire
from autograder.diagnosis.comparison import TELLING, Reply, same_reply
from autograder.diagnosis.replies import all_replies
from autograder.files import write_whole
from autograder.lessons import find
from autograder.lessons.exhibits import Bug
from course.checks.check import Challenge

SEED = 0
"""Of the challenge that everyone gets; who knows it gains nothing, for it gives no points."""


class KnownReplies:
    """The replies of a lesson's bugs. Threads may share one.

    Args:
        lesson: the module's name, such as "kv_cache".
        folder: where they are kept; in memory alone if it is None.
    """

    def __init__(self, lesson: str, folder: Path | None = None) -> None:
        self.lesson = lesson
        self._folder = folder
        self._lock = threading.Lock()
        self._by_check: dict[str, Mapping[str, Reply]] = {}

    def challenge(self, check: str) -> Challenge:
        """Draw the challenge of a check that is the same for everyone."""
        return find(f"{self.lesson}.{check}").challenge(SEED)

    def agrees(self, check: str, bug: Bug, specimen: object) -> bool:
        """Tell whether a reply to that challenge could be a bug's; None could be of any.

        An error's words and numbers count only where they tell something, see `comparison.py`."""
        if specimen is None:
            return True
        known = self._replies(check).get(bug.name)
        if known is None:  # the check does not reach it
            return False
        error = known.get("error")
        if error is None or error["kind"] == TELLING:
            return same_reply(known, specimen)
        other = specimen.get("error") if type(specimen) is dict else None
        return type(other) is dict and other.get("kind") == error["kind"]

    def _replies(self, check: str) -> Mapping[str, Reply]:
        """Return the replies by the bugs' names."""
        with self._lock:
            if check not in self._by_check:
                self._by_check[check] = self._read(check) or self._find_out(check)
            return self._by_check[check]

    def _find_out(self, check: str) -> Mapping[str, Reply]:
        with np.errstate(all="ignore"):
            _, found = all_replies(self.lesson, check, self.challenge(check))
        replies = {bug.name: reply for bug, reply in found}
        if self._folder:
            with contextlib.suppress(OSError):  # then it is found out again
                write_whole(self._path(check), _packed(replies))
        return replies

    def _read(self, check: str) -> Mapping[str, Reply] | None:
        if not self._folder:
            return None
        try:
            return _unpacked(self._path(check).read_bytes())
        except (OSError, ValueError, KeyError, zlib.error):
            return None

    def _path(self, check: str) -> Path:
        return self._folder / f"{self.lesson}.{check}.z"


def _packed(replies: Mapping[str, Reply]) -> bytes:
    """Pack replies, many of which are the same: their numbers by name, then each once as a frame."""
    frames: dict[bytes, int] = {}
    numbers = {}
    for name, reply in replies.items():
        try:
            frame = wire.encode(reply)
        except wire.WireError:  # which no process can send, so nobody's reply is like it
            continue
        numbers[name] = frames.setdefault(frame, len(frames))
    head = json.dumps(numbers).encode()
    blocks = [wire.LENGTH.pack(len(head)), head, *frames]
    return zlib.compress(b"".join(blocks), level=1)


def _unpacked(data: bytes) -> dict[str, Reply]:
    data = zlib.decompress(data)
    size = wire.LENGTH.size
    begin = size + wire.LENGTH.unpack_from(data)[0]
    numbers = json.loads(data[size:begin])
    replies = []
    while begin < len(data):
        end = begin + wire.frame_length(data[begin : begin + size])
        replies.append(wire.decode(data[begin:end]))
        begin = end
    return {name: replies[number] for name, number in numbers.items()}
