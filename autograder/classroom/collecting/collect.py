"""Collect what was handed in: from the archives of Moodle, Canvas and Gradescope, and from folders.

    autograder collect 03-kv-cache ~/Downloads/submissions.zip
    autograder collect 03-kv-cache moodle.zip --worksheet Grades.csv
    autograder collect 03-kv-cache moodle.zip --match "Wei Zhang_902=wzhang2"
    autograder collect 03-kv-cache canvas.zip --take "ben=my solution.ipynb"

Each student's newest attempt goes to grading/submitted, under the lesson's name and, where that is known,
with its time. Replaced files are kept under grading/replaced. Run it as often as you like.

Exit codes: 0 everything was assigned to a student; 1 something was not, and the lines say what to do; 2
the command could not start.
"""

from __future__ import annotations

import argparse
import sys
import zoneinfo
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, tzinfo
from pathlib import Path

from autograder.classroom.collecting.archives import Archive, Refused, read_archive
from autograder.classroom.collecting.arranging import Arranged, Unclear, arrange
from autograder.classroom.collecting.collected import Collected
from autograder.classroom.collecting.gradescope_export import with_submitters
from autograder.classroom.collecting.inbox import Attempt, Owners, sort
from autograder.classroom.collecting.placing import Placed, place
from autograder.classroom.collecting.senders import Platform, by_sender, prefix_for_return
from autograder.classroom.collecting.worksheet import Participant, read_worksheet
from autograder.classroom.course import CannotStart, Lesson, open_course
from autograder.classroom.roster import BadRoster, Student, key

HANDED_IN, DOWNLOADED = "handed-in", "downloaded"


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        lesson = open_course(rest).lesson(options.lesson)
        with ExitStack() as stack:
            collected = _collect(lesson, options, stack)
    except (CannotStart, BadRoster) as error:
        print(f"Nothing was collected: {error}", file=sys.stderr)
        return 2
    if collected.prefixes and not options.dry_run:
        try:
            collected.keep_prefixes(lesson.course.grading)
        except OSError as error:  # everything else is in its place
            collected.refused.append(f"what `autograder return` needs cannot be written: {error}")
    print(collected.as_json() if options.json else collected.as_text())
    return int(collected.needs_somebody)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autograder collect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="such as 03-kv-cache, or its number")
    parser.add_argument(
        "archives", nargs="+", type=Path, metavar="ZIP", help="ZIP file, or a folder"
    )
    parser.add_argument(
        "--match",
        action="append",
        default=[],
        metavar='"NAME=ID"',
        help="who somebody in an archive is, once for each member of a group; NAME= leaves them out",
    )
    parser.add_argument(
        "--take",
        action="append",
        default=[],
        metavar='"ID=FILE"',
        help="which of a student's files is the lesson's notebook",
    )
    parser.add_argument(
        "--worksheet",
        type=Path,
        metavar="CSV",
        help="Moodle's grading worksheet: who a participant is, and when they handed in",
    )
    parser.add_argument(
        "--zone",
        type=_zone,
        help="of the times in ZIP files and the worksheet, such as Europe/Berlin; else this machine's",
    )
    parser.add_argument(
        "--times",
        choices=(HANDED_IN, DOWNLOADED),
        help="what the times of the files are, where that is not recognised",
    )
    parser.add_argument("--dry-run", action="store_true", help="say it all, and write nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _zone(name: str) -> tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{name!r} is not a time zone, such as Europe/Berlin or UTC"
        ) from None


def _collect(lesson: Lesson, options: argparse.Namespace, stack: ExitStack) -> Collected:
    students = lesson.course.students()
    if not students:
        roster = lesson.course.grading / "roster.csv"
        raise CannotStart(f"no student is known: list the class in {roster}")
    collected = Collected(lesson.name, options.dry_run, students)
    archives = _read(options.archives, options.zone, collected, stack)
    participants = (
        read_worksheet(options.worksheet, students, options.zone) if options.worksheet else {}
    )
    by_hand = _by_hand(options.match, students, archives, participants)
    taken = _taken(options.take, students)
    inbox = sort(archives, students, by_hand)
    collected.unmatched, collected.ambiguous = inbox.unmatched, inbox.ambiguous
    for student, attempt in sorted(inbox.newest.items()):
        row = participants.get(attempt.sender.participant)
        handed_in = (row and row.handed_in) or _handed_in(attempt, options.times)
        try:
            name = lesson.released.name
            take = taken.get(student, "")
            arranged = arrange(attempt.sender, attempt.sent, name, stack, take)
            _place(lesson, student, attempt, arranged, handed_in, collected)
            alone = list(inbox.owners[attempt.sender]) == [student]
            if collected.placed[student] != Placed.OLDER:
                prefix = prefix_for_return(attempt.sender, arranged.notebook) if alone else ""
                collected.prefixes[student] = prefix
        except Unclear as error:
            collected.unclear[student] = str(error)
        except (Refused, OSError) as error:
            who = f"{attempt.archive.name}: {attempt.sender.label}"
            collected.refused.append(f"{who} is left out: {error}")
    collected.missing = sorted(
        student
        for student in students
        if student not in {*inbox.newest, *inbox.candidates}
        and not _folder(lesson, student).exists()
    )
    return collected


def _read(
    paths: Sequence[Path], zone: tzinfo | None, collected: Collected, stack: ExitStack
) -> list[Archive]:
    """Read the archives; a broken one is named, and the others are read."""
    if absent := [str(path) for path in paths if not path.exists()]:
        raise CannotStart(f"there is no {' and no '.join(absent)}")
    archives = []
    for path in paths:
        try:
            archives.append(with_submitters(read_archive(path.resolve(), zone, stack)))
            collected.refused += archives[-1].refused
        except Refused as error:
            collected.refused.append(str(error))
    return archives


def _by_hand(
    matches: Sequence[str],
    students: Mapping[str, Student],
    archives: Sequence[Archive],
    participants: Mapping[str, Participant],
) -> Owners:
    """Return the senders' students by the worksheet and by `--match`.

    Raises:
        CannotStart: `--match` names nobody in the archives, or nobody in the class.
    """
    senders = [sender for archive in archives for sender in by_sender(archive)]
    labels = {key(sender.label) for sender in senders}
    by_worksheet: dict[str, list[str] | None] = {
        key(sender.label): [row.student] if row.student else None
        for sender in senders
        if (row := participants.get(sender.participant)) and row.is_named
    }
    by_match: dict[str, list[str] | None] = {}
    for words in matches:
        label, equals, student = words.rpartition("=")
        if not equals or key(label) not in labels:
            raise CannotStart(f"--match {words!r}: nothing in the archives is called {label!r}")
        if student and student not in students:
            raise CannotStart(f"--match {words!r}: no student has the id {student!r}")
        by_match.setdefault(key(label), []).extend([student] if student else [])
    return by_worksheet | by_match


def _taken(takes: Sequence[str], students: Mapping[str, Student]) -> dict[str, str]:
    """Return which file to take, by the student's id.

    Raises:
        CannotStart: `--take` names nobody in the class, or no file.
    """
    taken = {}
    for words in takes:
        student, _, file = words.partition("=")
        if student not in students or not file:
            raise CannotStart(
                f"--take {words!r}: say a student's id and a file, such as ada=my.ipynb"
            )
        taken[student] = file
    return taken


def _place(
    lesson: Lesson,
    student: str,
    attempt: Attempt,
    arranged: Arranged,
    handed_in: datetime | None,
    collected: Collected,
) -> None:
    """Put one student's newest attempt into its folder, and note the outcome."""
    replaced = lesson.course.grading / "replaced" / student / lesson.name
    collected.refused += arranged.refused
    placed = place(
        _folder(lesson, student),
        arranged.files,
        attempt.time,
        handed_in,
        None if collected.dry_run else replaced,
    )
    collected.placed[student] = placed
    if placed == Placed.COLLECTED:
        collected.times[student] = handed_in
        if arranged.renamed:
            collected.renamed[student] = arranged.renamed
        if attempt.late:
            collected.late.append(student)


def _handed_in(attempt: Attempt, times: str | None) -> datetime | None:
    """Return the time at which an attempt was handed in, if the archive has it.

    Args:
        times: the value of `--times`; None if it has to be recognised.
    """
    if times is None:
        platform = attempt.sender.platform
        told = platform == Platform.GRADESCOPE or (
            attempt.archive.tells_when_handed_in and platform != Platform.CANVAS
        )
        times = HANDED_IN if told else DOWNLOADED
    return attempt.time if times == HANDED_IN else None


def _folder(lesson: Lesson, student: str) -> Path:
    directory = lesson.course.directory
    return Path(directory.format_path(directory.submitted_directory, student, lesson.name))
