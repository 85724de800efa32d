"""Sort what archives hold by student: who sent it, and which attempt is the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autograder.classroom.collecting.archives import Archive
from autograder.classroom.collecting.arranging import is_notebook, newest_of_each
from autograder.classroom.collecting.senders import Sender, Sent, by_sender, find, members
from autograder.classroom.roster import Student, key
from autograder.classroom.wording import one_line

Owners = Mapping[str, Sequence[str] | None]
"""The ids of the students of each sender, by the `key` of its label. Of nobody, it is left out; None
stands for somebody who is not in the class, whatever the name."""


@dataclass(frozen=True)
class Attempt:
    """The files of one sender in one archive."""

    sender: Sender
    archive: Archive
    sent: tuple[Sent, ...]

    @property
    def time(self) -> datetime:
        """The archive's time of the newest notebook, or file."""
        notebooks = [sent for sent in self.sent if is_notebook(sent)]
        return max(sent.entry.time for sent in notebooks or self.sent)

    @property
    def late(self) -> bool:
        """Whether Canvas calls it late."""
        return any(sent.late for sent in self.sent)


@dataclass
class Inbox:
    """The attempts by student, and the senders without a student.

    Attributes:
        newest: the newest attempt, by the student's id.
        owners: the ids of the students whom a sender names; others of their team are not among them.
        unmatched: why a sender matches nobody, by the sender's label.
        ambiguous: why a sender could be several students, by the sender's label.
        candidates: the ids of these students.
    """

    newest: dict[str, Attempt] = field(default_factory=dict)
    owners: Mapping[Sender, Sequence[str]] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    ambiguous: dict[str, str] = field(default_factory=dict)
    candidates: set[str] = field(default_factory=set)


def sort(archives: Sequence[Archive], students: Mapping[str, Student], by_hand: Owners) -> Inbox:
    """Find the students of each sender, and each student's newest attempt: of a team, any member's.

    Args:
        students: the class, by id.
        by_hand: the known students of senders.
    """
    inbox = Inbox()
    attempts = [
        Attempt(sender, archive, tuple(newest_of_each(sent)))
        for archive in archives
        for sender, sent in by_sender(archive).items()
    ]
    inbox.owners = _owners({attempt.sender for attempt in attempts}, students, by_hand, inbox)
    # Where times are equal, the archive that was named last counts.
    for attempt in sorted(attempts, key=lambda attempt: attempt.time):
        for owner in inbox.owners.get(attempt.sender, ()):
            team = students[owner].team
            mates = [mate for mate in students if team and students[mate].team == team]
            inbox.newest |= dict.fromkeys(mates or [owner], attempt)
    return inbox


def _owners(
    senders: set[Sender],
    students: Mapping[str, Student],
    by_hand: Owners,
    inbox: Inbox,
) -> dict[Sender, Sequence[str]]:
    """Return each sender's students; the other senders are noted in the inbox."""
    owners: dict[Sender, Sequence[str]] = {}
    by_name: set[Sender] = set()
    for sender in sorted(senders, key=lambda sender: sender.label):
        if key(sender.label) in by_hand:
            owner = by_hand[key(sender.label)]
            if owner is None:
                inbox.unmatched[sender.label] = "the class has nobody with this address or number"
            else:
                owners[sender] = owner
            continue
        candidates, certain = find(sender, students)
        if len(candidates) == 1:
            owners[sender] = [candidates[0].id]
            by_name |= set() if certain else {sender}
        elif candidates:
            inbox.ambiguous[sender.label] = f"can be {_names(candidates)}"
            inbox.candidates |= {student.id for student in candidates}
        elif team := members(sender, students):
            owners[sender] = team
        else:
            inbox.unmatched[sender.label] = "nobody in the class"
    for sender in sorted(by_name, key=lambda sender: sender.label):
        others = [other.label for other in owners if owners[other] == owners[sender]]
        if len(others) > 1:  # one of them has the name alone in common with this student
            who = one_line(" and ".join(sorted(others)))
            (owner,) = owners[sender]
            inbox.ambiguous[sender.label] = f"{who} can each be {owner}"
            inbox.candidates.add(owner)
    return {sender: ids for sender, ids in owners.items() if sender.label not in inbox.ambiguous}


def _names(students: Sequence[Student]) -> str:
    return " or ".join(
        f"{student.id} ({student.email or student.lms_user_id or student.name})"
        for student in students
    )
