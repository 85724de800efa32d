"""A fake device with a clock of its own, and a log of what a timer did on it.

Like a GPU it is asynchronous. To queue work takes the caller a moment; the work itself is done later,
while the caller goes on; `synchronize` lets the caller wait until all of it is finished. Its seconds
are drawn call by call, while it is used: no list of them lies anywhere in it.
"""

from __future__ import annotations

import random
from typing import NamedTuple

LAUNCH, WAIT, READ = "l", "w", "t"
"""What a log is made of: a call was queued, the caller waited, the clock was read."""


class Pace(NamedTuple):
    """How fast a fake device is.

    Attributes:
        seed: of its seconds.
        even: whether all calls take equally long.
        slow: how many first calls take many times as long.
        disturbed: number of the call, from 0, that something held up; -1 for none.
        unit: seconds by which all of it is multiplied.
        queued_before: seconds of work that somebody else queued already.
        start: what the clock shows at first, in seconds.
    """

    seed: int
    even: bool = True
    slow: int = 0
    disturbed: int = -1
    unit: float = 1.0
    queued_before: float = 0.0
    start: float = 0.0

    def seconds(self, call: int) -> tuple[float, float]:
        """Draw how long it takes to queue a call, from 0, and how long its work then takes."""
        rng = random.Random(2**20 * self.seed + (0 if self.even else call))
        queueing, work, much = rng.uniform(0.1, 0.3), rng.uniform(1, 2), rng.uniform(10, 30)
        held_up = call < self.slow or call == self.disturbed
        return self.unit * queueing, self.unit * work * (much if held_up else 1)


class FakeDevice:
    """A `course.measure.devices.Device` whose seconds are made up.

    Attributes:
        log: what was done since it was emptied last, a letter each: LAUNCH, WAIT, READ. To wait on an
            empty queue, and to read a clock that stands still once more, change nothing, and are left
            out.
    """

    def __init__(self, pace: Pace) -> None:
        self.log = ""
        self._pace, self._calls = pace, 0
        self._clock, self._busy_until = pace.start, pace.start + pace.queued_before

    @property
    def idle(self) -> bool:
        """Whether all that was queued is finished."""
        return self._busy_until <= self._clock

    def now(self) -> float:
        """Read the clock, in seconds."""
        if not self.log.endswith(READ):
            self.log += READ
        return self._clock

    def synchronize(self) -> None:
        """Wait until all that was queued is finished."""
        if not self.idle:
            self._clock = self._busy_until
            self.log += WAIT

    def launch(self) -> None:
        """Queue the next piece of work. This is the `fn` that a timer is given."""
        queueing, work = self._pace.seconds(self._calls)
        self._calls += 1
        self._clock += queueing
        self._busy_until = max(self._clock, self._busy_until) + work
        self.log += LAUNCH
