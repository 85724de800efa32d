"""Judge one submission: run its cells in a student process, ask every question, decide here.

The student's cells run in a process that knows nothing (`student.py`). Cells of the lesson that no answer
needs are left out at first. They run as well where a point is lost that they might have saved: where
an answer may keep state from one call to the next, or a name was missing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from autograder.assignment import Assignment, BadSubmission, CodeCell, read_submission
from autograder.diagnosis.known_replies import KnownReplies
from autograder.diagnosis.recognize import diagnose, kind_of_error
from autograder.diagnosis.relations import relations
from autograder.examiner import Attempt, Examiner
from autograder.lessons.exhibits import bugs_of
from autograder.one_mistake import charge_once
from autograder.result import Answer, Outcome, Result
from autograder.sandbox.child import InfraError
from autograder.second_chances import SecondChances
from autograder.session import MESSAGE, Deadlines, GaveUp, Session, Start
from course.checks.relations.words import Relation, over_all_cases, with_relations

WHERE = "Where in your code does that happen?"
"""The question after the name of a mistake."""


def grade_one(
    notebook: Path,
    assignment: Assignment,
    start: Start,
    secret: bytes,
    deadlines: Deadlines | None = None,
    follow_through: bool = True,
    known: KnownReplies | None = None,
    names: bool = True,
) -> Result:
    """Judge one submission. Never raises; the same file and secret give the same grade.

    Args:
        notebook: the file as it was handed in.
        assignment: what the lesson asks.
        start: starts a student process, from a view of that lesson.
        secret: the grader's, from which seeds are made.
        deadlines: what to wait for at most.
        follow_through: whether what is lost through another cell's mistake is asked again.
        known: the replies of the museum's bugs of the lesson, by which a mistake is recognised.
        names: whether known mistakes are looked for, named, and cost few points (`one_mistake.py`).
    """
    digest = ""
    try:
        digest, cells = read_submission(notebook, assignment)
        known = known or known_in_memory(assignment.module)
        examiner, seconds = Examiner(assignment, digest, secret, known, cells), {}
        session = Session(start, examiner.needed, deadlines or Deadlines())
        with _timed(seconds, "cells and questions"), closing(session):
            attempts = examiner.ask_all(session)
        if examiner.may_gain_from_all_cells(session, attempts):
            whole = Session(start, cells, session.deadlines, session.budget)
            with _timed(seconds, "again, with all cells"), closing(whole):
                session, attempts = whole, examiner.ask_lost(whole, attempts)
        chances = SecondChances(examiner, start)
        with _timed(seconds, "one definition"):
            attempts = chances.decide_by_one_definition(session, attempts)
        if follow_through:
            with _timed(seconds, "follow-through"):
                attempts = chances.follow_through(session, attempts)
        with _timed(seconds, "house rules"):
            attempts = chances.charge_rules_once(session, attempts)
        with _timed(seconds, "names of mistakes"):
            answers = [attempts[question.check].answer for question in assignment.questions]
            if names:
                answers = _name_mistakes(assignment, known, attempts)
        answers = [_with_place(answer, attempts[answer.check], session) for answer in answers]
        result = _result(assignment, Outcome.SCORE, "", digest, answers, session)
        skipped = sum(a != b for a, b in zip(session.cells, cells, strict=True))
        untouched = _is_untouched(cells, assignment)
        return replace(result, skipped=skipped, untouched=untouched, seconds=seconds)
    except BadSubmission as error:
        return without_score(assignment, Outcome.STUDENT_FAULT, str(error), digest)
    except GaveUp as error:  # before anything could be asked
        return without_score(assignment, Outcome.STUDENT_FAULT, str(error), digest, session)
    except InfraError as error:
        return without_score(assignment, Outcome.INFRA_ERROR, str(error), digest)
    except Exception:  # whatever it is, it is ours, and no student may get a zero for it
        reason = f"the judge itself failed:\n{traceback.format_exc(limit=-5)}"
        return without_score(assignment, Outcome.INFRA_ERROR, reason, digest)


def _with_place(answer: Answer, attempt: Attempt, session: Session) -> Answer:
    """Add after which cell a question was asked; what was credited was asked in another notebook."""
    return replace(answer, cell=session.cells[attempt.n_cells - 1].number if attempt.n_cells else 0)


def _is_untouched(cells: tuple[CodeCell, ...], assignment: Assignment) -> bool:
    released = {*assignment.given, *assignment.stubs.values(), ""}
    return all(cell.source.strip() in released for cell in cells)


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[part] = round(time.perf_counter() - begun, 3)


def without_score(
    assignment: Assignment,
    outcome: Outcome,
    reason: str,
    digest: str = "",
    session: Session | None = None,
) -> Result:
    """Return the result of a submission that could not be judged."""
    reason = reason[:MESSAGE]
    answers = (Answer(q.check, outcome, 0.0, q.points, reason) for q in assignment.questions)
    return _result(assignment, outcome, reason, digest, answers, session)


def _result(assignment, outcome, reason, digest, answers, session) -> Result:
    module, answers = assignment.module, tuple(answers)
    if session is None:
        return Result(module, outcome, reason, digest, answers)
    cells, output, timed_out = session.reports(), session.output(), session.budget.used_up
    return Result(module, outcome, reason, digest, answers, cells, output, timed_out=timed_out)


@cache
def known_in_memory(lesson: str) -> KnownReplies:
    """Return the replies of a lesson's bugs, kept as long as this process lives."""
    return KnownReplies(lesson)


def _name_mistakes(
    assignment: Assignment, known: KnownReplies, attempts: dict[str, Attempt]
) -> list[Answer]:
    """Return the answers. A lost one names the known mistake that fits it and the checks that passed; or
    else it says what is true of its numbers. What a known mistake has cost beyond MOST points is given
    back."""
    passed = {name for name, a in attempts.items() if a.is_full and not a.answer.credited}
    answers, may_be, shown = [], {}, set()
    for question in assignment.questions:
        attempt = attempts[question.check]
        answer = attempt.answer
        if attempt.reply is not None and attempt.challenge is not None:
            what = (question.check, attempt.challenge, attempt.reply)
            named = diagnose(known, *what, attempt.specimen, passed)
            stopped = kind_of_error(attempt.reply)
            may_be[question.check] = named.may_be
            shown |= set() if stopped else named.may_be
            # A check asks without knowing the mistake; where it is known, that would lead elsewhere.
            known_of_it = [Relation(named.sentence, WHERE if named.bug and not stopped else "")]
            if not named.bug:
                said = over_all_cases(relations(assignment.module, *what))
                known_of_it = said + known_of_it * bool(named.sentence)
            message = with_relations(answer.message, known_of_it, MESSAGE)
            answer = replace(answer, message=message, bug=named.bug, family=named.family)
        answers.append(answer)
    # An exception has many causes: a mistake counts that another question has shown.
    may_be = {check: bugs & shown for check, bugs in may_be.items()}
    cheap = {bug.name for bug in bugs_of(assignment.module) if bug.kind == "cheapest"}
    return charge_once(answers, may_be, cheap)
