"""Judge what a class handed in, write the gradebook, and say who has no grade: `autograder grade`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from tqdm import tqdm

from autograder.classroom.course import CannotStart, Lesson, NoGradebook, open_course
from autograder.classroom.due_dates import write_penalties
from autograder.classroom.gradebook import require_gradebook, write_gradebook
from autograder.classroom.judging import judge_here
from autograder.classroom.roster import BadRoster
from autograder.classroom.standing import HAS_GRADE, Standing, State, standings
from autograder.classroom.submissions import Submission
from autograder.classroom.wording import one_line
from autograder.desk import Desk
from autograder.sandbox.command import SandboxMissing

if TYPE_CHECKING:
    from autograder.sandbox.fork_server import ForkServer

INTERRUPTED = 130


def grade(options: argparse.Namespace, rest: list[str], server: ForkServer | None) -> int:
    """Grade a class.

    Args:
        options: of `autograder grade`.
        rest: options of nbgrader.
        server: a fork server, if one was started; the caller closes it.

    Returns:
        The exit code, see `autograder grade --help`.
    """
    try:
        course = open_course(rest)
        if "judge_again" in course.app.config.Judge:
            raise CannotStart("say --judge-again in place of --Judge.judge_again")
        lesson = course.lesson(options.lesson)
        if not options.shard:  # said before hours of work
            require_gradebook(lesson)
            _require_known(options.student, {*course.students(), *_handed_in(lesson)})
        with closing(lesson.desk(options.judge_again)) as desk:
            desk.server = server
            return _grade(lesson, desk, options)
    except (CannotStart, BadRoster, SandboxMissing) as error:
        print(f"Nothing was graded: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted. What was judged is kept: run the same command again.", file=sys.stderr)
        return INTERRUPTED


def _handed_in(lesson: Lesson) -> list[str]:
    return [submission.student for submission in lesson.submissions()]


def _require_known(chosen: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(chosen) - set(known)):
        raise CannotStart(f"no student has the id {', '.join(map(repr, unknown))}")


def _grade(lesson: Lesson, desk: Desk, options: argparse.Namespace) -> int:
    problems: dict[str, str] = {}
    if not options.kept_only:
        problems = _judge(desk, _to_judge(lesson, desk, options), options)
    if options.shard:
        return _end_of_shard(lesson, problems)
    try:
        write_gradebook(lesson, desk, options.judge_again, options.student)
        penalties = write_penalties(lesson)
        everyone = standings(lesson, desk, problems, just_graded=True)
        table = [s for s in everyone if _is_chosen(s.student.id, options)]
    except NoGradebook as error:
        print(f"Not everything is in the gradebook: {error}", file=sys.stderr)
        print("What was judged is kept: run the same command again.", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(_plain(lesson, table, problems, penalties), indent=1))
    else:
        print(_words(table, problems, penalties))
    without = any(standing.state in (State.UNGRADABLE, State.NOT_GRADED) for standing in table)
    return int(without or bool(problems))


def _is_chosen(student: str, options: argparse.Namespace) -> bool:
    return not options.student or student in options.student


def _to_judge(lesson: Lesson, desk: Desk, options: argparse.Namespace) -> list[Submission]:
    """List the submissions without a result, of one shard or of single students if that is asked for."""
    number, of = options.shard or (1, 1)
    submissions = [s for s in lesson.submissions() if s.notebook and _is_chosen(s.student, options)]
    return [s for s in submissions[number - 1 :: of] if not desk.find(s.notebook)]


def _judge(
    desk: Desk, submissions: Sequence[Submission], options: argparse.Namespace
) -> dict[str, str]:
    """Judge, with a progress bar; return by student why there is no result."""
    if not submissions:
        return {}
    if options.dask is not None:
        from autograder.classroom.dask_cluster import judge_on_dask  # which few have installed

        ended = judge_on_dask(desk, submissions, options.dask)
    else:
        try:
            desk.open()  # what hinders that hinders all
        except (OSError, ValueError) as error:
            raise CannotStart(one_line(str(error))) from error
        ended = judge_here(desk, submissions, options.jobs)
    return {
        submission.student: problem
        for submission, problem in _with_progress(ended, len(submissions))
        if problem
    }


def _with_progress(
    ended: Iterable[tuple[Submission, str]], total: int
) -> Iterator[tuple[Submission, str]]:
    return iter(tqdm(ended, desc="judging", total=total, unit="submission", file=sys.stderr))


def _end_of_shard(lesson: Lesson, problems: dict[str, str]) -> int:
    for student, problem in sorted(problems.items()):
        print(f"{student}: {one_line(problem)}")
    print(
        "This part is judged. When all are, and their results lie in one grading/results: "
        f"autograder grade {lesson.name} --kept-only"
    )
    return int(bool(problems))


def _words(table: Sequence[Standing], problems: Mapping[str, str], penalties: Sequence[str]) -> str:
    """Write who is in which state; of those without a grade, each with what to do."""
    has_grade = sum(standing.state in HAS_GRADE for standing in table)
    lines = [f"{has_grade} of {len(table)} have a grade."]
    for state in State:
        these = [standing for standing in table if standing.state == state]
        names = ", ".join(one_line(standing.student.id) for standing in these)
        if these:
            lines.append(f"{state} ({len(these)}): {names}")
        if state not in (*HAS_GRADE, State.MISSING):
            lines += [f"  {one_line(s.student.id)}: {one_line(s.reason)}" for s in these]
    if old := [s.student.id for s in table if s.student.id in problems and s.result]:
        names = ", ".join(map(one_line, old))
        lines.append(f"not judged again; the earlier result stands ({len(old)}): {names}")
        lines += [f"  {one_line(student)}: {one_line(problems[student])}" for student in old]
    if slow := [s.student.id for s in table if s.result and s.result.timed_out]:
        lines.append(f"ran out of time ({len(slow)}): {', '.join(map(one_line, slow))}")
        lines.append(
            "  a cell, a question or the whole notebook exceeded its time limit; see docs/grading.md"
        )
    if unread := [s.student.id for s in table if s.unread]:
        names = ", ".join(map(one_line, unread))
        lines.append(f"written answers to be graded by hand in formgrader ({len(unread)}): {names}")
    if penalties:
        names = ", ".join(map(one_line, penalties))
        lines.append(f"penalty for being late changed ({len(penalties)}): {names}")
    return "\n".join(lines)


def _plain(
    lesson: Lesson,
    table: Sequence[Standing],
    problems: Mapping[str, str],
    penalties: Sequence[str],
) -> dict:
    counts = {state: sum(standing.state == state for standing in table) for state in State}
    students = [
        {
            "id": standing.student.id,
            "state": standing.state,
            "score": standing.score,
            "points": standing.points,
            "penalty": standing.penalty,
            "reason": standing.reason,
            "timed_out": bool(standing.result and standing.result.timed_out),
            "unread": standing.unread,
        }
        for standing in table
    ]
    return {
        "lesson": lesson.name,
        "counts": counts,
        "students": students,
        "problems": dict(problems),
        "penalty_changed": list(penalties),
    }
