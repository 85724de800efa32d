"""A fake device with a clock of its own: what a timer should read on it is known exactly.

Like a GPU it is asynchronous. To queue work takes the caller a moment; the work itself is done later,
while the caller goes on; `synchronize` lets the caller wait until all of it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence


class FakeDevice:
    """A `course.measure.devices.Device` whose seconds are made up.

    Args:
        works: seconds of work that each call of `launch` queues; calls after the last one queue as
            much as the last.
        queueing: seconds that the caller spends to queue.
        queued_before: seconds of work that somebody else queued already.
        start: what the clock shows at first.
    """

    def __init__(
        self,
        works: Sequence[float],
        queueing: float,
        queued_before: float = 0.0,
        start: float = 0.0,
    ) -> None:
        self.calls = 0
        self._works, self._queueing = list(works), queueing
        self._clock, self._busy_until = start, start + queued_before

    def now(self) -> float:
        """Read the clock, in seconds."""
        return self._clock

    def synchronize(self) -> None:
        """Wait until all that was queued is finished."""
        self._clock = max(self._clock, self._busy_until)

    def launch(self) -> None:
        """Queue the next piece of work. This is the `fn` that a timer is given."""
        work = self._works[min(self.calls, len(self._works) - 1)]
        self.calls += 1
        self._clock += self._queueing
        self._busy_until = max(self._clock, self._busy_until) + work
