"""Simulate a class: museum mistakes, right answers, clumsy files, hangs and empty desks, all known.

    autograder simulate 03-kv-cache --students 24 --seed 1
    cd grading/simulated && autograder grade 03-kv-cache

The class lies in a course folder of its own, and no real one is touched. `expected.json` says how
each student has to stand and between which bounds the points lie, by what is known of the mistakes
and without judging anything. The same lesson, number and seed make the same class.

Exit codes: 0 the class is there; 2 it could not be laid out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autograder.classroom.course import CannotStart
from autograder.classroom.simulation.folder import AGAIN, EXPECTED, Plan, lay_out
from autograder.lessons import lesson_folders

PLACE = Path("grading", "simulated")


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        plan = Plan(_folder_of(options.lesson), options.students, options.seed)
        lay_out(plan, options.into)
    except (CannotStart, OSError) as error:
        print(f"No class was simulated: {error}", file=sys.stderr)
        return 2
    print(f"{plan.students} students of {plan.lesson} are in {options.into}. To grade them:")
    print(f"  cd {options.into} && autograder grade {plan.lesson}")
    print(f"{EXPECTED} says which state and points each must then have.")
    if (options.into / AGAIN).exists():
        print("Some of them hand in a second version. Copy these, and grade again:")
        print(f"  cp -r {AGAIN}/. grading/submitted/")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    parser.add_argument("--students", type=_at_least_one, default=24, help="24 if not given")
    parser.add_argument("--seed", type=int, default=1, help="1 if not given")
    parser.add_argument(
        "--into", type=Path, default=PLACE, metavar="DIR", help=f"{PLACE} if not given"
    )
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of students, 1 or more")
    return int(text)


def _folder_of(name: str) -> str:
    folders = list(lesson_folders().values())
    matching = [folder for folder in folders if name in (folder, folder.partition("-")[0])]
    if not matching:
        raise CannotStart(f"there is no lesson {name!r}; there is {', '.join(folders)}")
    return matching[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
