"""Look up what the museum's bugs reply: to the challenge that is the same for everyone, and to any other.

Running all bugs of a lesson takes minutes, and what they reply to the same challenge stays the same. So
that one is asked once, when a bug is first suspected, and kept in a run record beside the results.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from autograder.diagnosis.comparison import TELLING, same_reply
from autograder.diagnosis.deciding import Deciding
from autograder.lessons import canonical_form, find
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import Bug
from autograder.lessons.reach import reached_by
from autograder.run_record import Reply, RunRecord, decide, run
from course.checks.check import Challenge, Check

SEED = 0
"""Of the challenge that everyone gets; who knows it gains nothing, for it gives no points."""


class KnownReplies:
    """The replies of a lesson's bugs. Threads may share one.

    Args:
        lesson: the module's name, such as "kv_cache".
        folder: where they are kept; in memory alone if it is None.
    """

    def __init__(self, lesson: str, folder: Path | None = None) -> None:
        self.lesson = lesson
        self._record = RunRecord(folder)

    def challenge(self, check: str) -> Challenge:
        """Draw the challenge of a check that is the same for everyone."""
        return find(f"{self.lesson}.{check}").challenge(SEED)

    def agreeing(self, check: str, bugs: Iterable[Bug], specimen: object) -> list[Bug]:
        """List the bugs of which a reply to that challenge could be; None could be of any.

        An error's words and numbers count only where they tell something, see `comparison.py`; of
        evidence, what decides is enough."""
        if specimen is None:
            return list(bugs)
        hidden = find(f"{self.lesson}.{check}")
        right = self._record.ask(self.lesson, {}, hidden, SEED)
        deciding = deciding_about(self.lesson, hidden, hidden.challenge(SEED), right)
        return [
            bug
            for bug in reached_by(self.lesson, hidden.needs, bugs)
            if _could_be(
                self._record.ask(self.lesson, bug.answer, hidden, SEED), specimen, deciding
            )
        ]


def deciding_about(lesson: str, check: Check, challenge: Challenge, right: Reply) -> Deciding:
    """Return what compares replies to a challenge of a lesson's check; `right` is the reference's."""
    return Deciding(check, challenge, right, canonical_form(lesson, check.name))


def wrong_replies(
    lesson: str, check: str, challenge: Challenge, bugs: Iterable[Bug]
) -> tuple[Reply, list[tuple[Bug, Reply]]]:
    """Return the reference's reply to this challenge, and the bugs that reply otherwise, with theirs. Who
    is off by no more than rounding replies otherwise if that loses points."""
    hidden = find(f"{lesson}.{check}")
    right = run(lesson, answer_cells(lesson, {}), hidden, challenge)
    replies = [
        (bug, run(lesson, answer_cells(lesson, bug.answer), hidden, challenge))
        for bug in reached_by(lesson, hidden.needs, bugs)
    ]
    return right, [
        (bug, reply)
        for bug, reply in replies
        if not same_reply(right, reply, own_words=True)
        or decide(hidden, challenge, reply).score < 1
    ]


def _could_be(known: Reply, specimen: object, deciding: Deciding) -> bool:
    """Tell whether a reply could be that of a bug whose own is known."""
    error = known.get("error")
    if error is None or error["kind"] == TELLING:
        return same_reply(known, specimen) or deciding.are_same(known, specimen)
    other = specimen.get("error") if type(specimen) is dict else None
    return type(other) is dict and other.get("kind") == error["kind"]
