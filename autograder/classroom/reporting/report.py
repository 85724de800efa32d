"""Write one page about a class and a lesson: points, questions, mistakes, states, time, equal answers.

    autograder report 03-kv-cache --open

It reads what `autograder grade` found and runs no code. The page is one HTML file that needs nothing
beside it: grading/report/LESSON.html. Options of nbgrader go on to it.

Exit codes: 0 the page is written, and all that was handed in has a grade; 1 it is written, and it names
who has none and what to do; 2 it could not be written.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from contextlib import closing
from pathlib import Path

from autograder.classroom.course import CannotStart, Lesson, open_course
from autograder.classroom.reporting.class_mistakes import Work
from autograder.classroom.reporting.report_page import count_states, page
from autograder.classroom.reporting.worth_a_look import odd_in
from autograder.classroom.reporting.written_answers import written_answers
from autograder.classroom.roster import BadRoster
from autograder.classroom.standing import Standing, State, standings
from autograder.desk import Desk
from autograder.lessons.exhibits import bugs_of
from course.files.writing import write_whole


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        lesson = open_course(rest).lesson(options.lesson)
        tables = _tables(lesson)
        with closing(lesson.desk()) as desk:
            table = tables[lesson.name] = standings(lesson, desk)
            works = _works(lesson, table, desk)
            bugs = bugs_of(lesson.module)
            text = page(lesson.name, desk.assignment, bugs, table, works, tables)
        path = options.output or lesson.course.grading / "report" / f"{lesson.name}.html"
        write_whole(path, text.encode())
    except (CannotStart, BadRoster, OSError) as error:
        print(f"No page was written: {error}", file=sys.stderr)
        return 2
    print(f"{_summary(table)} {path}")
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return int(any(s.state in (State.UNGRADABLE, State.NOT_GRADED) for s in table))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser


def _tables(lesson: Lesson) -> dict[str, list[Standing]]:
    """Return how everyone stands in the lessons before this one that somebody handed in."""
    tables = {}
    for other in lesson.course.lessons():
        if other.name < lesson.name and any(other.submissions()):
            with closing(other.desk()) as desk:
                tables[other.name] = standings(other, desk)
    return tables


def _works(lesson: Lesson, table: list[Standing], desk: Desk) -> list[Work]:
    """Read the answers of those who handed in a notebook."""
    return [
        Work(
            s.student,
            written_answers(file, desk.assignment),
            s.result,
            file.absolute().as_uri(),
            page.absolute().as_uri() if (page := lesson.feedback(s.student.id)).exists() else "",
            tuple(odd_in(file, desk.assignment)),
        )
        for s in table
        if s.submission and (file := s.submission.notebook)
    ]


def _summary(table: list[Standing]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in count_states(table).items() if count)
    return f"{len(table)} students{': ' if states else ''}{states}."
