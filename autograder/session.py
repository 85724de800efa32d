"""Run the cells of one submission in student processes, one process at a time.

A process that ends or hangs is replaced: the cells run again, without the one that caused it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autograder.assignment import CodeCell, names_defined_in
from autograder.sandbox.child import Child, ChildFault, DeadlinePassed, InfraError

Start = Callable[[], Child]
"""Starts a fresh student process for this submission."""

PAUSES = (1, 5)
"""Seconds between attempts to start a process, since a shortage, of memory for example, may pass. Then
the machine is blamed."""
DEAD_CELLS = 3
"""How many cells of a notebook may end or hang the process; each costs a new start."""
PYTHON = ".".join(platform.python_version_tuple()[:2])
"""The version of Python that grades."""
MESSAGE, OUTPUT = 2_000, 64 * 2**10
"""The most characters of one message and of all output."""


@dataclass(frozen=True)
class Deadlines:
    """The seconds that a cell, a challenge of a question and a whole submission may use.

    They are not those of a clock: time in which other programs have the processor does not count, see
    `sandbox/processor_time.py`.
    """

    cell: float = 120
    question: float = 60
    submission: float = 600


@dataclass
class Budget:
    """What is left for several sessions together.

    Attributes:
        seconds: that are left.
        used_up: whether a deadline has passed, that of a cell, a question or the submission.
    """

    seconds: float
    used_up: bool = False


class GaveUp(Exception):
    """No more questions can be put to the submission; the message says why."""


class Session:
    """The processes of one submission.

    Args:
        start: starts a process.
        cells: the cells to run in each process, in this order.
        deadlines: the most seconds for a cell, a question and the submission.
        budget: what is left for it; by default `deadlines.submission`.

    Attributes:
        seconds: that each cell has used at its last run, by its number.
    """

    def __init__(
        self,
        start: Start,
        cells: Sequence[CodeCell],
        deadlines: Deadlines,
        budget: Budget | None = None,
    ) -> None:
        self.cells, self.deadlines = cells, deadlines
        self.budget = budget or Budget(deadlines.submission)
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
            if self.budget.seconds <= 0:
                self.budget.used_up = True
                self._give_up(
                    f"The {self.deadlines.submission:g} seconds for this notebook were used up."
                )
            if self._current is None or not self._current.alive or self._ran > n_cells:
                self.close()
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
                try:
                    self._run(child, cell)
                except ChildFault as fault:
                    self._leave_out(cell, fault)
                    return False
                self.seconds[cell.number] = child.used
            self._ran += 1
        return True

    def ask(self, child: Child, request: Mapping[str, Any], seconds: float, **options: Any) -> dict:
        """Ask a process of this session within what is left of the budget; raises as `Child.ask`."""
        try:
            return child.ask(request, min(seconds, self.budget.seconds), **options)
        except DeadlinePassed:
            self.budget.used_up = True
            raise
        finally:
            self.budget.seconds -= child.used

    def _run(self, child: Child, cell: CodeCell) -> None:
        error = self.ask(child, {"cell": cell.source}, self.deadlines.cell).get("error")
        if error is not None:
            kind, words, _ = fields_of(error)
            line = f"Cell {cell.number} stopped with {kind}{': ' if words else ''}{words}"
            if kind == "SyntaxError":  # a newer Python may take it
                line += f" (Python {PYTHON} reads it here)"
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
