"""Get the points out: as a table, into Canvas's or Moodle's sheet, for Gradescope; and the code.

    autograder export                              # grades.csv: everyone, every lesson handed in
    autograder export 03 --into Grades.csv         # fills Grades-03-kv-cache.csv, to be imported
    autograder export 03 --code compare            # for JPlag or Dolos
    autograder export 03 --gradescope results      # a results.json per submission

Nothing is judged and nothing of a student runs: what is exported is what `autograder grade` wrote.
Options of nbgrader go on to it.

Exit codes: 0 all is well; 1 something needs you, and the lines say what; 2 nothing could be begun.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from autograder.classroom.course import CannotStart, Course, Lesson, open_course
from autograder.classroom.exporting.code_for_comparison import write_code
from autograder.classroom.exporting.delimited import BadSheet
from autograder.classroom.exporting.fill import Filling, choose_column, fill
from autograder.classroom.exporting.grades_table import grades_table
from autograder.classroom.exporting.gradescope import VISIBILITIES, write_results
from autograder.classroom.exporting.sheets import Layout, read_layout
from autograder.classroom.exporting.table_cells import number
from autograder.classroom.roster import BadRoster
from autograder.classroom.standing import Standing, State, standings
from autograder.classroom.wording import one_line
from autograder.desk import Desk
from course.files.writing import write_whole


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        course = open_course(rest)
        lessons = [course.lesson(name) for name in options.lessons]
        if not (options.into or options.code or options.gradescope):
            return _write_table(course, lessons, options.output or Path("grades.csv"))
        if len(lessons) != 1:
            raise CannotStart("name one lesson, such as 03-kv-cache, for that")
        with closing(lessons[0].desk()) as desk:
            return _write_lesson(lessons[0], desk, options)
    except (CannotStart, BadRoster) as error:
        print(f"Nothing was exported: {error}", file=sys.stderr)
    except BadSheet as error:
        print(f"Nothing was filled in. {options.into}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"Nothing was exported: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="LESSON",
        help="such as 03-kv-cache, or its number; without one, all that were handed in",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="grades.csv, or the sheet that is written"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--into", type=Path, metavar="SHEET", help="fill the sheet of Canvas or Moodle"
    )
    what.add_argument("--code", type=Path, metavar="DIR", help="write what students wrote as .py")
    what.add_argument(
        "--gradescope", type=Path, metavar="DIR", help="write an autograder's results"
    )
    sheet = parser.add_argument_group("with --into")
    sheet.add_argument("--column", default="", help="the column's name, if none holds the lesson's")
    sheet.add_argument(
        "--maximum",
        type=float,
        metavar="POINTS",
        help="of the column, if the sheet does not say it",
    )
    sheet.add_argument("--scale", action="store_true", help="scale the points to that maximum")
    sheet.add_argument("--partly", action="store_true", help="fill what can be, and leave the rest")
    parser.add_argument("--anonymous", action="store_true", help="with --code: leave out names")
    parser.add_argument(
        "--visibility",
        choices=VISIBILITIES,
        default=VISIBILITIES[0],
        help="with --gradescope: when students see the questions",
    )
    return parser


def _write_table(course: Course, lessons: Sequence[Lesson], output: Path) -> int:
    """Write grades.csv; of no lessons in particular, all that somebody handed in."""
    if not lessons:
        lessons = [lesson for lesson in course.lessons() if any(lesson.submissions())]
    if not lessons:
        raise CannotStart("nobody handed in anything: there are no points yet")
    lines = []
    for lesson in lessons:
        with closing(lesson.desk()) as desk:
            lines += [(lesson.name, standing) for standing in standings(lesson, desk)]
    write_whole(output, grades_table(lines))
    print(f"{output}: {', '.join(lesson.name for lesson in lessons)}.")
    needs = [
        f"{lesson}, {one_line(standing.student.id)}: {standing.state}, {one_line(standing.reason)}"
        for lesson, standing in lines
        if standing.state in (State.UNGRADABLE, State.NOT_GRADED)
    ]
    return _say("without a grade", needs)


def _write_lesson(lesson: Lesson, desk: Desk, options: argparse.Namespace) -> int:
    table = standings(lesson, desk)
    if options.into:
        return _write_sheet(lesson, table, options)
    if options.code:
        left_out = write_code(lesson, desk, table, options.code, options.anonymous)
        print(f"{options.code}: what was written into {lesson.name}.")
    else:
        left_out = write_results(table, options.gradescope, options.visibility)
        print(f"{options.gradescope}: results of {lesson.name}.")
    return _say("left out", left_out)


def _write_sheet(lesson: Lesson, table: Sequence[Standing], options: argparse.Namespace) -> int:
    sheet: Path = options.into
    layout = read_layout(sheet.read_bytes())
    column = choose_column(layout, lesson.released, options.column)
    scale = _scale(layout, column, table, options)
    decimal = "," if layout.writes_comma(column) else "."
    filling = fill(layout, column, table, scale, decimal)
    output = options.output or sheet.with_name(f"{sheet.stem}-{lesson.name}{sheet.suffix}")
    if output.resolve() == sheet.resolve():
        raise CannotStart(f"{output} is the sheet itself: name another file")
    name = one_line(layout.columns[column])
    if filling.refused and not options.partly:
        _say("cannot be filled in", filling.refused)
        print(
            f"Nothing was written. --partly fills in the other grades, which are {len(filling.filled)}."
        )
        return 1
    write_whole(output, layout.sheet.data())
    print(f"{output}: {name!r} of {layout.platform}, grades filled in: {len(filling.filled)}.")
    return _say_what_is_left(filling, table)


def _say_what_is_left(filling: Filling, table: Sequence[Standing]) -> int:
    """Print what was not filled in; who handed in nothing needs nobody."""
    _say("left as they were", filling.left)
    refused = _say("cannot be filled in", filling.refused)
    _say("in the class, but not in the sheet", [_with_points(one) for one in filling.absent])
    waiting = any(standing.state in (State.UNGRADABLE, State.NOT_GRADED) for standing in table)
    lost = any(standing.score is not None for standing in filling.absent)
    return int(bool(refused or lost or waiting))


def _with_points(standing: Standing) -> str:
    has = standing.state if standing.score is None else f"{number(standing.score)} points"
    return f"{one_line(standing.student.id)}: {has}"


def _scale(
    layout: Layout, column: int, table: Sequence[Standing], options: argparse.Namespace
) -> float:
    """Return by what to multiply the points, which is 1 unless something else was asked for.

    Raises:
        BadSheet: the column is worth other points than the lesson, or it is not known how many.
    """
    name, stated = layout.columns[column], layout.most(column)
    most = stated if stated is not None else options.maximum
    if most is None:
        raise BadSheet(f"it does not say what {name!r} is worth: say it, such as --maximum 10")
    if not 0 < most < math.inf:
        raise BadSheet(f"{name!r} is worth {most:g} points, of which nobody can have any")
    lesson = table[0].most if table else most
    if stated is not None and options.maximum not in (None, stated):
        raise BadSheet(
            f"{name!r} is worth {number(stated)} points there, not {number(options.maximum)}"
        )
    if most != lesson and not options.scale:
        both = f"{number(most)} points, and the lesson {number(lesson)}"
        raise BadSheet(f"{name!r} is worth {both}: change it there, or fill in with --scale")
    return most / lesson


def _say(what: str, lines: Sequence[str]) -> int:
    """Print lines below a heading. Returns 1 if there are any."""
    if lines:
        print(f"{what} ({len(lines)}):", *lines, sep="\n  ")
    return int(bool(lines))
