"""Count the time that a student's processes use, so that a busy machine costs nobody a point.

It consists of processor seconds, by the kernel's account of all processes together, and of the time for
which none of them wants a processor: who sleeps or waits for ever uses it up as well. Time in which a
process would run, but others do, is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

Account = Callable[[], tuple[float, bool]]
"""Returns the processor seconds that processes have used, and whether one of them wants more now."""
TICK = 0.1
"""Seconds between two looks at processes that work."""
BACKSTOP = 20
"""How many times as long as the time that a process has the clock may run."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
WANTING = ("R", "D")
"""The states of a thread that runs, would run, or waits for a disk."""
STATE, TIMES = 0, slice(11, 15)
"""Where these stand in /proc/N/stat, behind the name; TIMES are of the process itself, and of those that
it has collected, each as user and as system."""


class Stopwatch:
    """Counts the time that processes use, from when it is made.

    Args:
        account: of these processes.

    Attributes:
        used: seconds at the last look.
        wall: seconds on the clock at the last look.
    """

    def __init__(self, account: Account) -> None:
        self._account, self._computed, self._asleep = account, 0.0, 0.0
        self._start, self._before = time.monotonic(), account()[0]
        self.used = self.wall = 0.0

    def look(self, waited: float = 0.0) -> None:
        """Bring the seconds up to date.

        Args:
            waited: for how many seconds nothing has come from the processes.
        """
        seconds, wanting = self._account()
        computed = max(self._computed, seconds - self._before)
        if not wanting:
            self._asleep += max(0.0, waited - (computed - self._computed))
        self._computed = computed
        self.used, self.wall = computed + self._asleep, time.monotonic() - self._start


def account_of(processes: str, session: int | None = None) -> Account:
    """Return the account of the processes in a /proc.

    Args:
        processes: the path of that /proc.
        session: only the processes of this session count, in our own /proc; None if all do.
    """

    def account() -> tuple[float, bool]:
        ticks, wanting = 0, False
        for name in filter(str.isdigit, _names(processes)):
            if session is not None and _session_of(int(name)) != session:
                continue
            fields = _fields(f"{processes}/{name}/stat")
            if not fields:
                continue
            ticks += sum(map(int, fields[TIMES]))
            wanting = wanting or any(state in WANTING for state in _states(f"{processes}/{name}"))
        return ticks / TICKS_PER_SECOND, wanting

    def on_the_clock() -> tuple[float, bool]:
        return time.monotonic(), True

    # Not that of `processes`: in the /proc of a sandbox, whoever looks from outside has no self.
    return account if os.path.exists("/proc/self/stat") else on_the_clock


def _session_of(process: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    try:
        return os.getsid(process)
    except OSError:
        return None


def _states(process: str) -> Iterator[str]:
    """Yield the state of each thread of a process."""
    for thread in _names(f"{process}/task"):
        yield from _fields(f"{process}/task/{thread}/stat")[STATE : STATE + 1]


def _names(folder: str) -> list[str]:
    """List a folder of /proc; [] of what has ended."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _fields(file: str) -> list[str]:
    """Return what stands in a stat file behind the name, which may hold anything; [] if it is gone."""
    try:
        with open(file, "rb") as opened:
            return opened.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []
