"""Talk to one student process from the trusted side: ask it, wait for it, kill it.

Nothing that a child does can block this side or make it grow: requests are written and replies read
against a deadline, replies have a largest size, and output is drained by a thread that keeps its
first part and counts the rest. The deadline is in time that its processes use, see `processor_time.py`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autograder import wire
from autograder.sandbox.processor_time import BACKSTOP, TICK, Stopwatch, account_of

StartProgram = Callable[[Sequence[str], Sequence[int]], subprocess.Popen]
"""Starts `student.py` with arguments, passing on open files; the process may say `ended_for`, see
`memory.py`."""
OUTPUT = 256 * 2**10
"""Bytes of a child's output that are kept."""
TOO_BUSY = "the machine was too busy"
NO_THREAD = b"Thread creation failed"
"""What OpenMP writes before it ends a process."""


class InfraError(Exception):
    """The machine failed: the student has no part in it."""


class MachineBusy(InfraError):
    """The process got too little of the machine's time to answer, or to start."""


class ChildFault(Exception):
    """The student's process did not answer as it should; the message says what it did instead."""


class ChildDied(ChildFault):
    """The process ended, or what it sent is no reply."""


class DeadlinePassed(ChildFault):
    """The process did not answer in time."""


class TooMuch(ChildFault):
    """The reply is larger than a reply may be."""


@dataclass(frozen=True)
class Deadline:
    """How long a process may take.

    Attributes:
        seconds: that it may use.
        stopwatch: counts what it uses.
    """

    seconds: float
    stopwatch: Stopwatch

    @property
    def tick(self) -> float:
        return max(0.0, min(TICK, self.seconds))

    def check(self) -> None:
        """Look how long it has taken, when nothing has come for a tick.

        Raises:
            DeadlinePassed: the time was used up.
            MachineBusy: it was not, for others used the machine.
        """
        watch = self.stopwatch
        watch.look(waited=self.tick)
        if watch.used >= self.seconds:
            raise DeadlinePassed(f"the time limit of {self.seconds:.3g} seconds ran out")
        if watch.wall >= BACKSTOP * self.seconds:
            raise MachineBusy(
                f"{TOO_BUSY}: in {watch.wall:.0f} seconds the process could use only "
                f"{watch.used:.1f} of the {self.seconds:.3g} that it may"
            )


class Child:
    """A process that runs `student.py`, until it is closed or breaks a rule; then it is killed.

    Args:
        start: starts the program with these arguments, and passes on these two open files; its output
            is in one pipe, and its process leads a group of its own. See `launch.py`.
        lesson: module name, such as "kv_cache".
        seconds: that it may use until it is ready.

    Attributes:
        used: seconds that it has used for the last request.

    Raises:
        InfraError: it could not be started, or was not ready in time.
    """

    def __init__(self, start: StartProgram, lesson: str, seconds: float = 60) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        try:
            self._process = start([str(requests), str(replies), lesson], (requests, replies))
        except OSError as error:
            os.close(self._requests)
            os.close(self._replies)
            raise InfraError(f"the student process cannot be started: {error}") from error
        finally:
            os.close(requests)
            os.close(replies)
        self._number, self.alive, self.used = 0, True, 0.0
        self._account = getattr(self._process, "account", None)
        if self._account is None:
            self._account = account_of("/proc", session=self._process.pid)
        self._output, self._output_cut = bytearray(), 0
        self._drain = threading.Thread(target=self._keep_output, daemon=True)
        self._drain.start()
        os.set_blocking(self._requests, False)
        self._wait_until_ready(seconds)

    def _wait_until_ready(self, seconds: float) -> None:
        try:
            first = self._receive(self._deadline(seconds), 2**10)
        except ChildFault as fault:
            raise InfraError(f"{fault}; it said: {self.output[-2000:].strip()}") from fault
        if first != {"ready": True}:
            self.close()
            raise InfraError(f"the process began with {first!s:.200} instead of being ready")

    def ask(
        self,
        request: Mapping[str, Any],
        seconds: float,
        max_bytes: int = wire.MAX_BYTES,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Send a request and wait for its reply. After an exception the process is dead.

        Args:
            request: see `student.py`, without its number.
            seconds: that its processes may use until the whole reply is here.
            max_bytes: of the reply's frame.
            meanwhile: called once the process works on the request.

        Raises:
            ChildDied, DeadlinePassed, TooMuch: see there.
            MachineBusy: the clock ran BACKSTOP times as long, and it had used less.
        """
        if not self.alive:
            raise ChildDied("the process has ended before")
        deadline = self._deadline(seconds)
        self._number += 1
        try:
            self._send(wire.encode({"number": self._number, **request}), deadline)
            meanwhile()
            reply = self._receive(deadline, max_bytes)
        finally:
            deadline.stopwatch.look()
            self.used = deadline.stopwatch.used
        if type(reply) is not dict or reply.get("number") != self._number:
            self.close()
            raise ChildDied("the process wrote something of its own where its replies go")
        return reply

    @property
    def output(self) -> str:
        """Return what it wrote to standard output and error so far, cut when it was very much."""
        text = bytes(self._output).decode("utf-8", "replace")
        return f"{text}\n… {self._output_cut:,} bytes more" if self._output_cut else text

    def close(self) -> None:
        """Kill the process with its whole group. Safe to call again."""
        self.alive = False
        # Not yet waited for, so its number, which is that of its group, cannot be another's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for name in ("_requests", "_replies"):
            if (fd := getattr(self, name)) >= 0:
                os.close(fd)
                setattr(self, name, -1)
        self._drain.join(timeout=2)  # a process that left the group may hold the pipe open

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds, Stopwatch(self._account))

    def _send(self, frame: bytes, deadline: Deadline) -> None:
        left = memoryview(frame)
        while left:
            self._wait(self._requests, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._requests, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._died() from None

    def _receive(self, deadline: Deadline, max_bytes: int) -> Any:
        frame = self._read(wire.LENGTH.size, deadline)
        length = wire.frame_length(frame)
        if length > max_bytes:
            self.close()
            raise TooMuch(f"a reply of {length:,} bytes; {max_bytes:,} are allowed")
        frame += self._read(length - len(frame), deadline)
        try:
            return wire.decode(frame)
        except wire.WireError as error:
            self.close()
            raise ChildDied(f"the process sent no proper reply: {error}") from error

    def _read(self, n: int, deadline: Deadline) -> bytes:
        parts, left = [], n
        while left:
            self._wait(self._replies, select.POLLIN, deadline)
            part = os.read(self._replies, min(left, 2**20))
            if not part:
                raise self._died()
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _wait(self, fd: int, event: int, deadline: Deadline) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while not poll.poll(1000 * deadline.tick):
            try:
                deadline.check()
            except (DeadlinePassed, MachineBusy):
                self.close()
                raise

    def _died(self) -> ChildDied:
        """Return the reason of death as an exception. A process that only closed its pipe is killed."""
        end = time.monotonic() + 2
        while not (ended := self._has_ended()) and time.monotonic() < end:
            time.sleep(0.005)
        self.close()
        if why := getattr(self._process, "ended_for", ""):
            return ChildDied(f"the process was ended: {why}")
        reason = reason_of_death(self._process.returncode if ended else None)
        if NO_THREAD in self._output[-2000:]:
            reason += ", since it started more threads than it may"
        return ChildDied(reason)

    def _has_ended(self) -> bool:
        """Tell whether it ended by itself. It is not waited for: that would free the group's number."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return ended is not None

    def _keep_output(self) -> None:
        pipe = self._process.stdout
        with pipe:
            while part := os.read(pipe.fileno(), 2**16):
                kept = part[: OUTPUT - len(self._output)]
                self._output += kept
                self._output_cut += len(part) - len(kept)


def reason_of_death(code: int | None) -> str:
    """Say an exit status in words. A sandbox passes a signal on as 128 + its number."""
    if code is None:
        return "the process closed its pipes"
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f"the process ended itself with status {code}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"the process ended itself with status {code}"
    hint = {
        "SIGKILL": ": killed, perhaps for the memory it took",
        "SIGXCPU": ": its CPU time was used up",
        "SIGSEGV": ": it crashed",
        "SIGABRT": ": it crashed",
        "SIGSYS": ": it asked the system for what is forbidden here",
        "SIGXFSZ": ": it wrote a file that is too large",
    }.get(name, "")
    return f"the process was ended by {name}{hint}"
