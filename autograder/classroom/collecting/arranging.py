"""Arrange what somebody handed in for the folder of a lesson: which file is the notebook, what it was
called, and what lies beside it. The instructor is asked about ambiguous cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from autograder.classroom.collecting.archives import Entry, Refused, read_inner
from autograder.classroom.collecting.senders import Platform, Sender, Sent
from autograder.classroom.roster import key
from autograder.classroom.wording import one_line
from autograder.nbgrader_steps import STAMP
from autograder.sandbox.submission_view import MAX_BYTES, MAX_DEPTH, MAX_ENTRIES

_NOTEBOOK = re.compile(r"(.*\.ipynb)(\.txt|\.json)?", re.IGNORECASE | re.DOTALL)
"""A notebook's name, also with what browsers put behind it."""
_APPENDED = re.compile(r"-(\d{1,2}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=\.[^.]*$|$)")


class Unclear(Exception):
    """What was handed in is ambiguous; the message lists the possibilities."""


def newest_of_each(files: Sequence[Sent]) -> list[Sent]:
    """Leave out files that Canvas has in a later upload, with a number appended to the name."""
    newest: dict[tuple[str, ...], Sent] = {}
    for sent in sorted(files, key=lambda sent: sent.number):
        *folders, name = sent.parts
        newest[*folders, _APPENDED.sub("", name) if sent.number else name] = sent
    return list(newest.values())


def is_notebook(sent: Sent) -> bool:
    """Say whether a file is a notebook, by its name."""
    return bool(_NOTEBOOK.fullmatch(sent.parts[-1]))


def _called(sent: Sent) -> str:
    """Return a notebook's name without what a browser put behind it."""
    return _NOTEBOOK.sub(r"\1", sent.parts[-1])


@dataclass(frozen=True)
class Arranged:
    """An attempt, arranged for the student's folder.

    Attributes:
        files: the files by their path in the folder.
        renamed: the former name of the notebook if it was renamed, else "".
        refused: one line for each file of an inner archive that was left out.
        notebook: which of them is the notebook.
    """

    files: dict[str, Entry]
    renamed: str
    refused: list[str]
    notebook: Sent


def arrange(
    sender: Sender, sent: Sequence[Sent], name: str, stack: ExitStack, take: str = ""
) -> Arranged:
    """Find the lesson's notebook, and give it the lesson's name.

    Args:
        sender, sent: who handed in what.
        name: the name of the lesson's notebook.
        stack: closes a ZIP file that was handed in, at the end.
        take: which file to take, if the instructor said so.

    Raises:
        Unclear: several notebooks could be it, or none.
        Refused: the files exceed the judge's limits, or cannot be read.
    """
    sent, refused = _without_inner_archive(sent, stack)
    sent = _without_wrapping(sent)
    chosen = _lesson_notebook(sent, name, take)
    files, taken = {name: chosen.entry}, {key(name)}
    for other in reversed(sent):  # of two entries of one name, the later is the newer
        path = "/".join(other.parts)
        # A student's own time stamp would say when it was handed in.
        if key(path) not in taken | {key(STAMP)} and other is not chosen:
            files[path] = other.entry
            taken.add(key(path))
    _check_sizes(files)
    called = chosen.parts[-1]
    is_plain = sender.platform == Platform.PLAIN and called == f"{sender.label}.ipynb"
    return Arranged(files, "" if called == name or is_plain else called, refused, chosen)


def _without_inner_archive(
    sent: Sequence[Sent], stack: ExitStack
) -> tuple[Sequence[Sent], list[str]]:
    """Read a ZIP file that was handed in where a notebook should be: its files, and what was left out."""
    archives = [one for one in sent if one.parts[-1].lower().endswith(".zip")]
    if len(archives) != 1 or any(map(is_notebook, sent)):
        return sent, []
    inner = read_inner(archives[0].entry, stack)
    # Canvas's number, by which a platform knows what was handed in, is that of the archive.
    files = [replace(archives[0], entry=entry, parts=entry.parts) for entry in inner.entries]
    return files or sent, inner.refused


def _without_wrapping(sent: Sequence[Sent]) -> list[Sent]:
    """Leave out the folders that all files of an attempt have in common."""
    sent = list(sent)
    while all(len(one.parts) > 1 for one in sent) and len({one.parts[0] for one in sent}) == 1:
        sent = [replace(one, parts=one.parts[1:]) for one in sent]
    return sent


def _lesson_notebook(sent: Sequence[Sent], name: str, take: str) -> Sent:
    notebooks = [one for one in sent if is_notebook(one)]
    if take:
        same = [one for one in sent if take in (one.parts[-1], "/".join(one.parts))]
        notebooks = []
    else:
        same = [one for one in notebooks if one.parts[-1] == name]
    same = same or [one for one in notebooks if key(_called(one)) == key(name)]
    same = same or [one for one in notebooks if one.number and _plain(one) == key(name)]
    uppermost = min((len(one.parts) for one in same), default=0)
    candidates = [one for one in same if len(one.parts) == uppermost] or notebooks
    if len({one.parts for one in candidates}) == 1:
        return candidates[-1]
    names = one_line(", ".join(sorted("/".join(one.parts) for one in notebooks or sent)))
    if take:
        raise Unclear(f"no file {one_line(take)} to take, but {names}")
    if notebooks:
        raise Unclear(f"which of these is {name}? {names}")
    raise Unclear(f"no notebook, but {names}")


def _plain(sent: Sent) -> str:
    return key(_APPENDED.sub("", _called(sent)))


def _check_sizes(files: Mapping[str, Entry]) -> None:
    size = sum(entry.size for entry in files.values())
    depth = max(path.count("/") + 1 for path in files)
    if len(files) > MAX_ENTRIES:
        raise Refused(f"{len(files):,} files, and {MAX_ENTRIES:,} are taken")
    if depth > MAX_DEPTH:
        raise Refused(f"folders {depth} deep, and {MAX_DEPTH} are taken")
    if size > MAX_BYTES:
        raise Refused(f"{size / 2**20:,.0f} MiB, and {MAX_BYTES >> 20} are taken")
