"""Give feedback back: a ZIP file that Moodle or Canvas takes, or a mailbox of messages.

    autograder return 03-kv-cache                          # feedback-03-kv-cache.zip
    autograder return 03-kv-cache --mail us@example.edu    # feedback-03-kv-cache.mbox

It writes everybody's feedback page anew, with the points of now. Files in the ZIP file are named as
`autograder collect` found them in the platform's own archive. Nothing is sent: a mail program that
opens the mailbox does that.

Exit codes: 0 everybody who handed in is in it; 1 somebody is not, and the lines say why; 2 nothing could
be begun.
"""

from __future__ import annotations

import argparse
import io
import mailbox
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import closing
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path

from nbgrader.converters import GenerateFeedback
from nbgrader.utils import rmtree

from autograder.assignment import in_words
from autograder.classroom.collecting.collected import read_prefixes
from autograder.classroom.course import CannotStart, Lesson, open_course
from autograder.classroom.exporting.table_cells import number
from autograder.classroom.gradebook import run_converter
from autograder.classroom.roster import BadRoster
from autograder.classroom.standing import Standing, State, standings
from autograder.classroom.wording import one_line
from course.files.writing import write_whole


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        lesson = open_course(rest).lesson(options.lesson)
        with closing(lesson.desk()) as desk:
            table = [s for s in standings(lesson, desk) if s.state != State.MISSING]
        _write_pages(lesson, table)
        if options.mail:
            content, left_out = _mailbox(lesson, table, options.mail)
        else:
            content, left_out = _archive(lesson, table)
        output = options.output or Path(
            f"feedback-{lesson.name}.{'mbox' if options.mail else 'zip'}"
        )
        write_whole(output, content)
    except (CannotStart, BadRoster) as error:
        print(f"Nothing was written: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"Nothing was written: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{output}: feedback for {len(table) - len(left_out)} of {len(table)}.")
    if left_out:
        print(f"left out ({len(left_out)}):", *left_out, sep="\n  ")
    return int(bool(left_out))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder return",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    parser.add_argument(
        "--mail", metavar="ADDRESS", help="write a mailbox of messages that come from this address"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the file there")
    return parser


def _write_pages(lesson: Lesson, table: Sequence[Standing]) -> None:
    """Write the feedback pages of those who have a graded notebook, by nbgrader's own step."""
    course = lesson.course
    graded = [
        path for s in table if _is_judged(s) and (path := lesson.graded(s.student.id)).exists()
    ]
    directory = course.app.coursedir  # nbgrader's own, which takes along the time of a submission
    directory.assignment_id = lesson.name
    converter = _Pages(coursedir=directory, parent=course.app)
    converter.assignments = {str(path.parent): [str(path)] for path in graded}
    if graded:
        run_converter(converter, lesson, len(graded), "feedback")


def _is_judged(standing: Standing) -> bool:
    return standing.result is not None and standing.state != State.NOT_GRADED


class _Pages(GenerateFeedback):
    """nbgrader's own step over chosen notebooks, each anew."""

    def init_notebooks(self) -> None:
        """Take those that were chosen."""

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        """Make room for a page: the points may be others."""
        place = Path(self._format_dest(assignment_id, student_id))
        if place.exists():
            rmtree(str(place))
        return True


def _why_not(lesson: Lesson, standing: Standing) -> str:
    """Say why somebody has no feedback page; "" for who has one."""
    if _is_judged(standing) and lesson.feedback(standing.student.id).exists():
        return ""
    return f"{standing.state}, {standing.reason or 'the page could not be written'}"


def _archive(lesson: Lesson, table: Sequence[Standing]) -> tuple[bytes, list[str]]:
    """Pack the pages under the names that the platform expects; return who is left out, and why."""
    prefixes = read_prefixes(lesson.course.grading, lesson.name)
    packed, left_out = io.BytesIO(), []
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for standing in table:
            student = standing.student.id
            why = _why_not(lesson, standing)
            if not why and not prefixes.get(student):
                why = "`autograder collect` recorded no platform's name for it: use --mail"
            if why:
                left_out.append(one_line(f"{student}: {why}"))
                continue
            page = lesson.feedback(student)
            archive.writestr(f"{prefixes[student]}{page.name}", page.read_bytes())
    if len(left_out) == len(table):
        raise CannotStart(_nobody(left_out))
    return packed.getvalue(), left_out


def _nobody(left_out: Sequence[str]) -> str:
    return "; ".join(["nobody has feedback to return", *left_out[:3], *["…"] * (len(left_out) > 3)])


def _mailbox(lesson: Lesson, table: Sequence[Standing], sender: str) -> tuple[bytes, list[str]]:
    """Write a message with the page for everybody; return it and who is left out, and why."""
    if "@" not in sender or not sender.isprintable():
        raise CannotStart(f"{sender!r} is not an address that messages can come from")
    left_out = []
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(mailbox.mbox(Path(folder, "mbox"))) as box,
    ):
        for standing in table:
            address = standing.student.email.strip()
            why = _why_not(lesson, standing) or ("" if "@" in address else "no address is known")
            if why:
                left_out.append(one_line(f"{standing.student.id}: {why}"))
            else:
                box.add(_message(lesson, standing, sender))
        if len(left_out) == len(table):
            raise CannotStart(_nobody(left_out))
        box.flush()
        return Path(folder, "mbox").read_bytes(), left_out


def _message(lesson: Lesson, standing: Standing, sender: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = sender, one_line(standing.student.email.strip())
    message["Date"], message["Subject"] = formatdate(localtime=True), f"Feedback: {lesson.name}"
    message.set_content(_words(lesson, standing))
    page = lesson.feedback(standing.student.id)
    message.add_attachment(page.read_bytes(), "text", "html", filename=page.name)
    return message


def _words(lesson: Lesson, standing: Standing) -> str:
    if standing.score is None:
        return f"{lesson.name} has no points: {standing.reason}\n"
    lines = [f"{lesson.name}: {number(standing.score)} of {number(standing.most)} points."]
    if standing.penalty:
        lines.append(f"{number(standing.penalty)} points are taken off for being late.")
    lines += [
        f"  {number(answer.points)} of {number(answer.max_points)}  {in_words(answer.check)}"
        for answer in standing.result.answers
    ]
    return "\n".join([*lines, "", "The page that is attached says more about each."]) + "\n"
