"""Tell from a file's path in an archive who handed it in, as the platform writes it; and find that
sender in the class.

Moodle, "Download all submissions" (`mod_assign\\downloader`), with "Download submissions in folders"
and without; the number is the participant's in this assignment, and stands in no roster:

    Ada Lovelace_123456_assignsubmission_file/kv_cache.ipynb
    Ada Lovelace_123456_assignsubmission_file_kv_cache.ipynb

Canvas, "Download Submissions" (`ContentZipper`): sortable name, LATE if it was, user, file, its name,
to which Canvas appends -1, -2 … where the student uploaded one of that name before:

    lovelaceada_LATE_1815_4242_kv_cache-1.ipynb

Gradescope names nobody in its paths, but in a file beside them (`gradescope_export`).

Else a folder or a notebook is named as the student: by id, by address, or in full. Where a group hands
in, Moodle and folders name the group, which a roster has as `team`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autograder.classroom.collecting.archives import Archive, Entry, Submitter
from autograder.classroom.roster import Student, key

# The first part of a path decides, and in it the leftmost match: what comes later, a student may name.
_MOODLE_FOLDER = re.compile(r"(?P<name>.*?)_(?P<number>\d+)_assignsubmission_[a-z0-9]+_?")
_MOODLE_FILE = re.compile(
    r"(?P<name>.*?)_(?P<number>\d+)_assignsubmission_[a-z0-9]+?_(?P<file>.+)", re.DOTALL
)
_CANVAS = re.compile(
    r"(?P<name>\w+?)_(?P<late>LATE_)?(?P<user>\d+)_((?P<number>\d+)_(?P<file>.+)|(text|link)\.html)"
)


class Platform(StrEnum):
    """Who wrote the archive."""

    MOODLE = "Moodle"
    CANVAS = "Canvas"
    GRADESCOPE = "Gradescope"
    PLAIN = "plain"


@dataclass(frozen=True)
class Sender:
    """Who handed something in.

    Attributes:
        label: as the archive writes it, and `--match` takes it.
        platform: that named them so.
        name: in full; Canvas's without blanks.
        id: by which a roster may know them; "" where the archive has none.
    """

    label: str
    platform: Platform
    name: str
    id: str

    @property
    def participant(self) -> str:
        """Moodle's number of the participant; "" of another platform."""
        return self.label.rpartition("_")[2] if self.platform == Platform.MOODLE else ""


@dataclass(frozen=True)
class Sent:
    """A file that was handed in.

    Attributes:
        entry: of the archive.
        parts: of its path in what this sender handed in.
        number: Canvas's of the file, which grows; else 0.
        late: whether Canvas calls it late.
    """

    entry: Entry
    parts: tuple[str, ...]
    number: int = 0
    late: bool = False


def by_sender(archive: Archive) -> dict[Sender, list[Sent]]:
    """Sort an archive's files by who handed them in."""
    files: dict[Sender, list[Sent]] = {}
    skip = _wrapping(archive)
    for entry in archive.entries:
        first, *rest = entry.parts[skip:]
        if first in archive.submitters and rest:
            named = [
                (_in_gradescope(submitter), Sent(entry, tuple(rest)))
                for submitter in archive.submitters[first]
            ]
        else:
            named = [_read(entry, entry.parts[skip:])]
        for sender, sent in named:
            files.setdefault(sender, []).append(sent)
    return files


def _in_gradescope(submitter: Submitter) -> Sender:
    known_by = submitter.address or submitter.id
    return Sender(known_by or submitter.name, Platform.GRADESCOPE, submitter.name, known_by)


def _wrapping(archive: Archive) -> int:
    """Count the folders around everything: the one of the archive's own name, if it is there."""
    (first, *others) = {entry.parts[0] for entry in archive.entries} or {""}
    name = re.sub(r"( \(\d+\))?\.zip$", "", archive.name, flags=re.IGNORECASE)
    inside = all(len(entry.parts) > 1 for entry in archive.entries)
    return int(not others and inside and first == name)


def _read(entry: Entry, parts: tuple[str, ...]) -> tuple[Sender, Sent]:
    first, *rest = parts
    if match := (_MOODLE_FOLDER.fullmatch(first) if rest else _MOODLE_FILE.fullmatch(first)):
        label = f"{match['name']}_{match['number']}"
        inner = tuple(rest) or (match["file"],)
        return Sender(label, Platform.MOODLE, match["name"], ""), Sent(entry, inner)
    if not rest and (match := _CANVAS.fullmatch(first)):
        sender = Sender(
            f"{match['name']}_{match['user']}", Platform.CANVAS, match["name"], match["user"]
        )
        name = match["file"] or first.rpartition("_")[2]
        return sender, Sent(entry, (name,), int(match["number"] or 0), bool(match["late"]))
    label = first if rest else first.rpartition(".")[0] or first
    return Sender(label, Platform.PLAIN, label, label), Sent(entry, tuple(rest) or (first,))


def prefix_for_return(sender: Sender, notebook: Sent) -> str:
    """Return what has to stand before the name of a file that goes back through the platform; "" where
    it takes none."""
    if sender.platform == Platform.MOODLE:
        return f"{sender.label}_assignsubmission_file_"
    if sender.platform == Platform.CANVAS:
        return f"{sender.label}_{notebook.number}_"
    return ""


def fold(text: str) -> str:
    """Write a name so that two spellings of it are one: case, blanks, punctuation, composed accents."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(re.sub(r"[^\w\s]", "", text.replace("_", " ")).split())


def find(sender: Sender, students: Mapping[str, Student]) -> tuple[list[Student], bool]:
    """Find who a sender can be: exactly one, several or none; and whether an id or address says so."""
    if sender.platform == Platform.PLAIN and sender.id in students:
        return [students[sender.id]], True
    if sender.id:
        # Canvas's number is no address, and a student's id only where the instructor made it so.
        known = [student for student in students.values() if key(sender.id) in student.named_by()]
        if known:
            return known, True
    same = [student for student in students.values() if _has_name(sender, student)]
    if sender.platform == Platform.CANVAS:  # whoever has another number there is somebody else
        same = [student for student in same if not student.lms_user_id]
    return same, False


def members(sender: Sender, students: Mapping[str, Student]) -> list[str]:
    """List the ids of the students whose team has the sender's name."""
    team = fold(sender.name)
    return [student.id for student in students.values() if team and fold(student.team) == team]


def _has_name(sender: Sender, student: Student) -> bool:
    first, last = fold(student.first_name), fold(student.last_name)
    names = {f"{first} {last}".strip(), f"{last} {first}".strip()} - {""}
    if sender.platform == Platform.CANVAS:
        return fold(sender.name).replace(" ", "") in {name.replace(" ", "") for name in names}
    spelled = {fold(sender.name)}
    if sender.platform == Platform.MOODLE:  # which was used to put a group before the name
        groups = {fold(student.section), fold(student.team)} - {""}
        parts = sender.name.split("-")
        spelled |= {
            fold("-".join(parts[place:]))
            for place in range(1, len(parts))
            if fold("-".join(parts[:place])) in groups
        }
    return not names.isdisjoint(spelled)
