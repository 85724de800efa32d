"""Run the cells of one submission in student processes, one process at a time.

A process that ends or hangs is replaced: the cells run again, without the one that caused it.
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
"""Seconds between attempts to start a process, since a shortage, of memory for example, may pass. Then
the machine is blamed."""
DEAD_CELLS = 3
"""How many cells of a notebook may end or hang the process; each costs a new start."""
MESSAGE, OUTPUT = 2_000, 64 * 2**10
"""The most characters of one message and of all output."""


@dataclass(frozen=True)
class Deadlines:
    """The seconds of wall-clock time that a cell, a question and a whole submission may take."""

    cell: float = 120
    question: float = 60
    submission: float = 600


class GaveUp(Exception):
    """No more questions can be put to the submission; the message says why."""


class Session:
    """The processes of one submission.

    Args:
        start: starts a process.
        cells: the cells to run in each process, in this order.
        deadlines: the most seconds for a cell, a question and the submission.
        end: the time by `time.monotonic` at which the session ends; by default `deadlines.submission`
            seconds from now.

    Attributes:
        seconds: the seconds of each cell at its last run, by its number.
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
        self._reports: dict[int, str] = {}  # errors, by cell
        self._dead: set[int] = set()  # cells that are not run again
        self._outputs: list[str] = []
        self._current: Child | None = None
        self._ran = 0  # cells of the current process
        self._gave_up: GaveUp | None = None

    def child(self, n_cells: int) -> Child:
        """Return a living process in which exactly the first `n_cells` cells have run.

        Raises:
            GaveUp: too many cells end the process, or no time is left.
            InfraError: no process can be started.
        """
        if self._gave_up:
            raise self._gave_up
        while True:
            if self._current is None or not self._current.alive or self._ran > n_cells:
                self.close()
                if time.monotonic() > self.end:
                    self._give_up(
                        f"The {self.deadlines.submission:g} seconds for this notebook were used up."
                    )
                self._current, self._ran = self._start(), 0
            if self._run_until(self._current, n_cells):
                return self._current

    def _start(self) -> Child:
        for pause in PAUSES:
            try:
                return self._start_process()
            except InfraError:
                time.sleep(pause)
        return self._start_process()

    def _run_until(self, child: Child, n_cells: int) -> bool:
        """Run the next cells; tell whether the process has survived them."""
        for cell in self.cells[self._ran : n_cells]:
            if cell.source and cell.number not in self._dead:
                start = time.monotonic()
                try:
                    self._run(child, cell)
                except ChildFault as fault:
                    self._leave_out(cell, fault)
                    return False
                self.seconds[cell.number] = time.monotonic() - start
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
        """Return the errors of the cells, one line each."""
        return tuple(self._reports[number] for number in sorted(self._reports))

    def output(self) -> str:
        """Return the output of all processes of this session, truncated."""
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
