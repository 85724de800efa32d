"""Grade a class: everybody's latest work, each file once, and say who has no grade and why.

    autograder grade 03-kv-cache --jobs 4
    autograder grade 03-kv-cache --student ada --judge-again
    autograder grade 03-kv-cache --shard 2/8      # judge an eighth; grade without it afterwards
    autograder grade 03-kv-cache --dask tcp://scheduler:8786       # judge on a Dask cluster

What is judged is kept at once, under grading/results: interrupt it when you like, and run it again.
Options of nbgrader go on to it, such as --Judge.cell_seconds=60, or --force to write all points again.

Exit codes: 0 all that was handed in has a grade; 1 something has none, and the last lines say what to
do; 2 nothing could be begun; 130 interrupted, and what was judged is kept.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from autograder.sandbox.command import SandboxMissing
from autograder.sandbox.launch import start_server

if TYPE_CHECKING:
    from autograder.sandbox.fork_server import ForkServer

CORES = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1
"""Processor cores that this process may use."""


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    with _started_ahead(options) as server:
        # Only now: nbgrader is imported here while PyTorch is imported there.
        gc.disable()  # imports leave little garbage, and to look for it takes a seventh of their time
        from autograder.classroom.grading import grade

        gc.enable()
        return grade(options, rest, server)


@contextmanager
def _started_ahead(options: argparse.Namespace) -> Iterator[ForkServer | None]:
    """Start the fork server where a core is free for it, though perhaps nothing is to be judged. If it
    cannot start, `Launcher` tries again when there is something, and says why."""
    with ExitStack() as stack:
        server = None
        if CORES > 1 and not (options.kept_only or options.dask):
            with suppress(SandboxMissing):
                server = stack.enter_context(start_server())
        yield server


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    parser.add_argument(
        "--jobs",
        type=_at_least_one,
        default=CORES,
        help="submissions to judge at once; by default, as many as there are cores",
    )
    parser.add_argument(
        "--student",
        action="append",
        default=[],
        metavar="ID",
        help="grade only this student; may be given several times",
    )
    parser.add_argument(
        "--shard",
        type=_shard,
        metavar="i/N",
        help="judge one of N parts, 1/N … N/N, and stop there",
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="judge on the workers of a Dask cluster, by its scheduler"
    )
    parser.add_argument(
        "--kept-only",
        action="store_true",
        help="run no code; a submission without a kept result stays ungraded",
    )
    parser.add_argument(
        "--judge-again", action="store_true", help="judge again what has a kept result, too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the last lines")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs, 1 or more")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a part such as 2/8, which is the second of 8"
        )
    return int(number), int(of)
