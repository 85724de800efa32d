"""Keep the student processes of one submission: one at a time, in which its cells run in order.

A process that ends or hangs is replaced: the cells are run again, without the one that did it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autograder.assignment import CodeCell, names_defined_in
from autograder.sandbox.child import Child, ChildFault, InfraError

Start = Callable[[], Child]
"""Starts a fresh student process for this submission."""

PAUSES = (1, 5)
"""Seconds between attempts to start a process, after which the machine is blamed: what it lacks for a
moment, such as memory, it may have again."""
DEAD_CELLS = 3
"""Cells of one notebook that may end or hang the process; each costs a start."""
MESSAGE, OUTPUT = 2_000, 64 * 2**10
"""Characters that are kept of one message and of all output."""


@dataclass(frozen=True)
class Deadlines:
    """The seconds of wall-clock time that a cell, a question and a whole submission may take."""

    cell: float = 120
    question: float = 60
    submission: float = 600


class GaveUp(Exception):
    """The submission cannot be asked anything more; the message says why."""


class Session:
    """The processes of one submission.

    Args:
        start: starts one.
        cells: what runs in each, in this order.
        deadlines: what to wait for at most.
        end: when no more time is left, as `time.monotonic` counts; if not in `deadlines.submission`
            seconds from now.

    Attributes:
        seconds: what each cell took at its last run, by the cell's number.
    """

    def __init__(
        self,
        start: Start,
        cells: Sequence[CodeCell],
        deadlines: Deadlines,
        end: float | None = None,
    ) -> None:
        self.cells, self.deadlines = cells, deadlines
        self.end = time.monotonic() + deadlines.submission if end is None else end
        self.seconds: dict[int, float] = {}
        self._start_process = start
        self._reports: dict[int, str] = {}  # what went wrong, by cell
        self._dead: set[int] = set()  # cells that are not run again
        self._outputs: list[str] = []
        self._current: Child | None = None
        self._ran = 0  # cells of the current process
        self._gave_up: GaveUp | None = None

    def child(self, place: int) -> Child:
        """Return a living process in which the first `place` cells have run, and no other.

        Raises:
            GaveUp: too many cells that end the process, or no time left.
            InfraError: no process can be started.
        """
        if self._gave_up:
            raise self._gave_up
        while True:
            if self._current is None or not self._current.alive or self._ran > place:
                self.close()
                if time.monotonic() > self.end:
                    self._give_up(
                        f"The {self.deadlines.submission:g} seconds for this notebook were used up."
                    )
                self._current, self._ran = self._start(), 0
            if self._run_until(self._current, place):
                return self._current

    def _start(self) -> Child:
        for pause in PAUSES:
            try:
                return self._start_process()
            except InfraError:
                time.sleep(pause)
        return self._start_process()

    def _run_until(self, child: Child, place: int) -> bool:
        """Run the next cells; say whether the process has outlived them."""
        for cell in self.cells[self._ran : place]:
            if cell.source and cell.number not in self._dead:
                begun = time.monotonic()
                try:
                    self._run(child, cell)
                except ChildFault as fault:
                    self._leave_out(cell, fault)
                    return False
                self.seconds[cell.number] = time.monotonic() - begun
            self._ran += 1
        return True

    def _run(self, child: Child, cell: CodeCell) -> None:
        seconds = min(self.deadlines.cell, self.end - time.monotonic())
        error = child.ask({"cell": cell.source}, seconds).get("error")
        if error is not None:
            kind, words, _ = fields_of(error)
            line = f"Cell {cell.number} stopped with {kind}{': ' if words else ''}{words}"
            self._reports.setdefault(cell.number, line)

    def _leave_out(self, cell: CodeCell, fault: ChildFault) -> None:
        self._reports[cell.number] = f"Cell {cell.number}: {fault}. It is left out."
        self._dead.add(cell.number)
        if len(self._dead) > DEAD_CELLS:
            self._give_up(" ".join(self.reports()))

    def _give_up(self, why: str) -> None:
        self._gave_up = GaveUp(why)
        raise self._gave_up

    def reports_of_cells_that_define(self, names: Sequence[str]) -> list[str]:
        """Return the reports of cells that stopped and should have defined one of these names."""
        return [
            self._reports[cell.number]
            for cell in self.cells
            if cell.number in self._reports and names_defined_in(cell.source) & set(names)
        ]

    def reports(self) -> tuple[str, ...]:
        """Return what went wrong in the cells, one line each."""
        return tuple(self._reports[number] for number in sorted(self._reports))

    def output(self) -> str:
        """Return what the processes of this session wrote, one after another, cut."""
        text = "\n".join(filter(None, self._outputs))
        return text if len(text) <= OUTPUT else f"{text[:OUTPUT]}\n… {len(text) - OUTPUT:,} more"

    def close(self) -> None:
        """End the current process, if there is one."""
        if self._current is not None:
            self._current.close()
            self._outputs.append(self._current.output)
            self._current = None


def fields_of(error: object) -> list[str]:
    """Read kind, words and place of an error record, which may be made up, as strings."""
    record = error if type(error) is dict else {}
    return [str(record.get(name, ""))[:MESSAGE] for name in ("kind", "words", "where")]
