"""Sort the files of archives by student: who sent them, which attempt is the newest, which file is the
lesson's notebook. The instructor is asked about ambiguous cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from autograder.classroom.collecting.archives import Archive, Entry, Refused
from autograder.classroom.collecting.senders import Platform, Sender, Sent, by_sender, find
from autograder.classroom.roster import Student, key
from autograder.classroom.wording import one_line
from autograder.nbgrader_steps import STAMP
from autograder.sandbox.submission_view import MAX_BYTES, MAX_DEPTH, MAX_ENTRIES

LEFT_OUT = ""
"""In place of a student's id, for somebody who is not in the class."""
_APPENDED = re.compile(r"-(\d{1,2}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=\.[^.]*$|$)")


class Unclear(Exception):
    """What was handed in is ambiguous; the message lists the possibilities."""


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
        unmatched: why a sender matches nobody, by the sender's label.
        ambiguous: why a sender could be several students, by the sender's label.
        candidates: the ids of these students.
    """

    newest: dict[str, Attempt] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    ambiguous: dict[str, str] = field(default_factory=dict)
    candidates: set[str] = field(default_factory=set)


def sort(
    archives: Sequence[Archive], students: Mapping[str, Student], by_hand: Mapping[str, str | None]
) -> Inbox:
    """Find the student of each sender, and each student's newest attempt.

    Args:
        students: the class, by id.
        by_hand: the known students of senders, by the `key` of their labels: an id, LEFT_OUT, or None
            for a sender who is not in the class, whatever the name.
    """
    inbox = Inbox()
    attempts = [
        Attempt(sender, archive, tuple(_newest_of_each(sent)))
        for archive in archives
        for sender, sent in by_sender(archive).items()
    ]
    owners = _owners({attempt.sender for attempt in attempts}, students, by_hand, inbox)
    # Where times are equal, the archive that was named last counts.
    for attempt in sorted(attempts, key=lambda attempt: attempt.time):
        if owner := owners.get(attempt.sender):
            inbox.newest[owner] = attempt
    return inbox


def _owners(
    senders: set[Sender],
    students: Mapping[str, Student],
    by_hand: Mapping[str, str | None],
    inbox: Inbox,
) -> dict[Sender, str]:
    """Return each sender's student; the other senders are noted in the inbox."""
    owners, by_name = {}, set()
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
            owners[sender] = candidates[0].id
            by_name |= set() if certain else {sender}
        elif candidates:
            inbox.ambiguous[sender.label] = f"can be {_names(candidates)}"
            inbox.candidates |= {student.id for student in candidates}
        else:
            inbox.unmatched[sender.label] = "nobody in the class"
    for sender in sorted(by_name, key=lambda sender: sender.label):
        others = [other.label for other in owners if owners[other] == owners[sender]]
        if len(others) > 1:  # one of them has the name alone in common with this student
            who = one_line(" and ".join(sorted(others)))
            inbox.ambiguous[sender.label] = f"{who} can each be {owners[sender]}"
            inbox.candidates.add(owners[sender])
    return {
        sender: owner
        for sender, owner in owners.items()
        if owner and sender.label not in inbox.ambiguous
    }


def _names(students: Sequence[Student]) -> str:
    return " or ".join(
        f"{student.id} ({student.email or student.lms_user_id or student.name})"
        for student in students
    )


def _newest_of_each(files: Sequence[Sent]) -> list[Sent]:
    """Leave out files that Canvas has in a later upload, with a number appended to the name."""
    newest: dict[tuple[str, ...], Sent] = {}
    for sent in sorted(files, key=lambda sent: sent.number):
        *folders, name = sent.parts
        newest[*folders, _APPENDED.sub("", name) if sent.number else name] = sent
    return list(newest.values())


def is_notebook(sent: Sent) -> bool:
    """Say whether a file is a notebook, by its name."""
    return sent.parts[-1].lower().endswith(".ipynb")


@dataclass(frozen=True)
class Arranged:
    """An attempt, arranged for the student's folder.

    Attributes:
        files: the files by their path in the folder.
        renamed: the former name of the notebook if it was renamed, else "".
    """

    files: dict[str, Entry]
    renamed: str


def arrange(attempt: Attempt, name: str) -> Arranged:
    """Find the lesson's notebook, and give it the lesson's name.

    Args:
        name: the name of the lesson's notebook.

    Raises:
        Unclear: several notebooks could be it, or none.
        Refused: the files exceed the judge's limits.
    """
    sent = _without_wrapping(attempt.sent)
    chosen = _lesson_notebook(sent, name)
    files, taken = {name: chosen.entry}, {key(name)}
    for other in reversed(sent):  # of two entries of one name, the later is the newer
        path = "/".join(other.parts)
        # A student's own time stamp would say when it was handed in.
        if key(path) not in taken | {key(STAMP)} and other is not chosen:
            files[path] = other.entry
            taken.add(key(path))
    _check_sizes(files)
    called = chosen.parts[-1]
    is_plain = (
        attempt.sender.platform == Platform.PLAIN and called == f"{attempt.sender.label}.ipynb"
    )
    return Arranged(files, "" if called == name or is_plain else called)


def _without_wrapping(sent: Sequence[Sent]) -> list[Sent]:
    """Leave out the folders that all files of an attempt have in common."""
    sent = list(sent)
    while all(len(one.parts) > 1 for one in sent) and len({one.parts[0] for one in sent}) == 1:
        sent = [replace(one, parts=one.parts[1:]) for one in sent]
    return sent


def _lesson_notebook(sent: Sequence[Sent], name: str) -> Sent:
    notebooks = [one for one in sent if is_notebook(one)]
    same = [one for one in notebooks if one.parts[-1] == name]
    same = same or [one for one in notebooks if key(one.parts[-1]) == key(name)]
    same = same or [one for one in notebooks if one.number and _plain(one) == key(name)]
    uppermost = min((len(one.parts) for one in same), default=0)
    candidates = [one for one in same if len(one.parts) == uppermost] or notebooks
    if len({one.parts for one in candidates}) == 1:
        return candidates[-1]
    names = one_line(", ".join(sorted("/".join(one.parts) for one in notebooks or sent)))
    if notebooks:
        raise Unclear(f"which of these is {name}? {names}")
    raise Unclear(f"no notebook, but {names}")


def _plain(sent: Sent) -> str:
    return key(_APPENDED.sub("", sent.parts[-1]))


def _check_sizes(files: Mapping[str, Entry]) -> None:
    size = sum(entry.size for entry in files.values())
    depth = max(path.count("/") + 1 for path in files)
    if len(files) > MAX_ENTRIES:
        raise Refused(f"{len(files):,} files, and {MAX_ENTRIES:,} are taken")
    if depth > MAX_DEPTH:
        raise Refused(f"folders {depth} deep, and {MAX_DEPTH} are taken")
    if size > MAX_BYTES:
        raise Refused(f"{size / 2**20:,.0f} MiB, and {MAX_BYTES >> 20} are taken")
