"""Keep what a bug of a lesson replies to one challenge of each check, the same for everyone.

Running all bugs of a lesson takes minutes; what they reply is the same until the course or the judge
changes. So it is found out once, when a bug is first suspected, and kept beside the results.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from autograder import wire
from autograder.diagnosis.comparison import TELLING, Reply, same_reply
from autograder.diagnosis.replies import reply_of
from autograder.lessons import find
from autograder.lessons.exhibits import Bug
from course.checks.check import Challenge
from course.files.writing import write_whole

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
        self._known: dict[tuple[str, str], Reply | None] = {}  # by check and bug

    def challenge(self, check: str) -> Challenge:
        """Draw the challenge of a check that is the same for everyone."""
        return find(f"{self.lesson}.{check}").challenge(SEED)

    def agreeing(self, check: str, bugs: Iterable[Bug], specimen: object) -> list[Bug]:
        """List the bugs of which a reply to that challenge could be; None could be of any.

        An error's words and numbers count only where they tell something, see `comparison.py`."""
        if specimen is None:
            return list(bugs)
        return [bug for bug in bugs if _could_be(self._reply(check, bug), specimen)]

    def _reply(self, check: str, bug: Bug) -> Reply | None:
        """Return what a bug replies; None where the check does not reach it, or nothing can cross."""
        with self._lock:
            if (check, bug.name) not in self._known:
                try:
                    reply = self._read(check, bug)
                except (OSError, ValueError, zlib.error):
                    reply = self._find_out(check, bug)
                self._known[check, bug.name] = reply
            return self._known[check, bug.name]

    def _find_out(self, check: str, bug: Bug) -> Reply | None:
        with np.errstate(all="ignore"):
            reply = reply_of(self.lesson, check, self.challenge(check), bug)
        try:
            frame = wire.encode(reply)
        except wire.WireError:
            frame, reply = wire.encode(None), None
        if self._folder:
            with contextlib.suppress(OSError):  # then it is found out again
                write_whole(self._path(check, bug), zlib.compress(frame, level=1))
        return reply

    def _read(self, check: str, bug: Bug) -> Reply | None:
        """Read what was kept; OSError, ValueError or zlib.error where that cannot be read."""
        if not self._folder:
            raise FileNotFoundError
        return wire.decode(zlib.decompress(self._path(check, bug).read_bytes()))

    def _path(self, check: str, bug: Bug) -> Path:
        return self._folder / f"{self.lesson}.{check}.{bug.name}.z"


def _could_be(known: Reply | None, specimen: object) -> bool:
    """Tell whether a reply could be that of a bug whose own is known."""
    if known is None:
        return False
    error = known.get("error")
    if error is None or error["kind"] == TELLING:
        return same_reply(known, specimen)
    other = specimen.get("error") if type(specimen) is dict else None
    return type(other) is dict and other.get("kind") == error["kind"]
