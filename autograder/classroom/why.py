"""Say for one submission why it has its points: each question, what decided it, and how to see it again.

    autograder why ada 03-kv-cache

It reads what `autograder grade` found and runs no code of the student. Exit codes: 0 it is said; 1 there
is no result; 2 the command could not start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

from autograder.assignment import in_words, read_submission
from autograder.challenges import draw_seed
from autograder.classroom.course import CannotStart, Lesson, open_course
from autograder.classroom.exporting.table_cells import number
from autograder.classroom.roster import BadRoster
from autograder.classroom.standing import Standing, standings
from autograder.classroom.wording import one_line
from autograder.desk import Desk
from autograder.lessons import find
from autograder.one_definition import Definitions
from autograder.result import Answer, Outcome


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        lesson = open_course(rest).lesson(options.lesson)
        with closing(lesson.desk()) as desk:
            table = {s.student.id: s for s in standings(lesson, desk)}
            if options.student not in table:
                raise CannotStart(f"no student has the id {options.student!r}")
            standing = table[options.student]
            print(*_lines(lesson, desk, standing), sep="\n")
    except (CannotStart, BadRoster) as error:
        print(f"Nothing can be said: {error}", file=sys.stderr)
        return 2
    return int(standing.result is None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder why",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("student", help="the id, which is the name of the student's folder")
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    return parser


def _lines(lesson: Lesson, desk: Desk, standing: Standing) -> Iterator[str]:
    who = one_line(standing.student.id)
    if standing.score is None:
        yield f"{who}, {lesson.name}: {standing.state}. {one_line(standing.reason)}"
    else:
        points = f"{number(standing.score)} of {number(standing.most)} points"
        yield f"{who}, {lesson.name}: {points}{_changes(standing)}."
    result = standing.result
    if result is None or result.outcome != Outcome.SCORE:
        return
    _, cells = read_submission(standing.submission.notebook, desk.assignment)
    definitions = Definitions(cells, desk.assignment.given)
    for answer in result.answers:
        yield f"\n{number(answer.points)} of {number(answer.max_points)}  {in_words(answer.check)}"
        yield from (f"    {one_line(line)}" for line in answer.message.splitlines())
        yield from (
            f"    {line}" for line in _decided_by(desk, definitions, answer, result.submission)
        )
    yield f"\nTo judge it again: autograder grade {lesson.name} --student {who} --judge-again"


def _changes(standing: Standing) -> str:
    words = []
    if standing.written:
        words.append(f"{number(standing.written)} for written answers")
    if standing.is_changed:
        words.append(f"the judge gave {number(standing.result.points)}, changed by hand")
    if standing.penalty:
        words.append(f"{number(standing.penalty)} taken off for being late")
    return f" ({'; '.join(words)})" if words else ""


def _decided_by(
    desk: Desk, definitions: Definitions, answer: Answer, submission: str
) -> Iterator[str]:
    """Say after which cell a question was asked, what it met there, and which challenge lost it."""
    check = f"{desk.assignment.module}.{answer.check}"
    if answer.cell:
        met = definitions.met(find(check).needs, answer.cell)
        where = ", ".join(f"{name} of cell {one.cell}" for name, one in met.items() if one.cell)
        yield f"Asked after cell {answer.cell}{f': {where}' if where else ''}."
    if answer.challenge is not None:
        seed = draw_seed(desk.secret, submission, check, answer.challenge)
        yield f'Lost with autograder.lessons.find("{check}").challenge({seed}).'
