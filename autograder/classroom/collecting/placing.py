"""Put a student's files into the folder of a lesson: all of them or none, and nothing gets lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from autograder.classroom.collecting.archives import Entry, pieces
from autograder.nbgrader_steps import Submitted
from autograder.sandbox.submission_view import STAMP
from course.files.writing import write_whole

LEFT_OVER = 3600
"""Seconds after which no other run writes such a folder any more."""


class Placed(StrEnum):
    """What became of an attempt."""

    COLLECTED = "collected"
    """It lies there now."""
    UNCHANGED = "unchanged"
    """The same files lay there; they were left alone."""
    OLDER = "older"
    """What lies there is newer, and was left alone."""


def place(
    folder: Path,
    files: Mapping[str, Entry],
    when: datetime,
    handed_in: datetime | None,
    replaced: Path | None,
) -> Placed:
    """Put files into a folder, unless it holds the same or newer ones.

    Args:
        folder: of the student and lesson.
        files: by their path in it.
        when: the time of the attempt, which decides what is newer; the files get it.
        handed_in: goes into timestamp.txt; None where it is not known.
        replaced: folder to which goes what lay there before; None to change nothing and say what would
            be done.

    Raises:
        Refused: a file cannot be read from the archive.
        OSError: a file cannot be written.
    """
    with _new_folder(folder, replaced is None) as new:
        _unpack(files, new, when)
        if folder.exists():
            if _contents(folder) == _contents(new):
                if handed_in and replaced is not None and not (folder / STAMP).exists():
                    _write_stamp(folder, handed_in)
                return Placed.UNCHANGED
            if when < _time_of(folder):
                return Placed.OLDER
        if handed_in:
            _write_stamp(new, handed_in)
        if replaced is not None:
            if os.path.lexists(folder):
                _move_aside(folder, replaced)
            os.rename(new, folder)
    return Placed.COLLECTED


@contextmanager
def _new_folder(folder: Path, elsewhere: bool) -> Iterator[Path]:
    """Make a folder beside another one, or in the system's place for temporary ones."""
    ending = f".{folder.name}.partial"
    if not elsewhere:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left_over in folder.parent.glob(f".*{ending}"):  # by a run that was killed
            if left_over.stat().st_mtime < time.time() - LEFT_OVER:
                shutil.rmtree(left_over, ignore_errors=True)
    beside = None if elsewhere else folder.parent
    with tempfile.TemporaryDirectory(dir=beside, prefix=".", suffix=ending) as name:
        new = Path(name, "new")
        new.mkdir()  # unlike the one around it, with the permissions that the umask says
        yield new


def _unpack(files: Mapping[str, Entry], folder: Path, when: datetime) -> None:
    for path, entry in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            for piece in pieces(path, entry):
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        os.utime(target, (when.timestamp(), when.timestamp()))


def _write_stamp(folder: Path, handed_in: datetime) -> None:
    write_whole(folder / STAMP, handed_in.strftime("%Y-%m-%d %H:%M:%S UTC").encode())


def _contents(folder: Path) -> dict[str, bytes | int]:
    """Digest a folder's files, the time of the hand-in aside."""
    contents: dict[str, bytes | int] = {}
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        if not stat.S_ISDIR(kind) and path != folder / STAMP:
            name = path.relative_to(folder).as_posix()
            contents[name] = _digest(path) if stat.S_ISREG(kind) else stat.S_IFMT(kind)
    return contents


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _time_of(folder: Path) -> datetime:
    """Return when a folder's files were handed in; else when the newest was written."""
    stamp = Submitted().get_existing_timestamp(str(folder))
    if stamp:
        return stamp.replace(tzinfo=UTC)
    files = [path.lstat().st_mtime for path in folder.rglob("*") if not path.is_dir()]
    return datetime.fromtimestamp(max(files, default=0), UTC)


def _move_aside(folder: Path, replaced: Path) -> None:
    """Keep what is replaced, in a folder named by its time."""
    name = _time_of(folder).strftime("%Y-%m-%dT%H%M%SZ")
    number, target = 1, replaced / name
    while os.path.lexists(target):
        number += 1
        target = replaced / f"{name}-{number}"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, target)
