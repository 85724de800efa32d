"""Read ZIP files and folders of submissions: which files they hold, whatever was put into them.

Nothing is unpacked here. An entry that could leave its folder, or is not a regular file, is left out
and named; what systems put beside files (`__MACOSX`, `.DS_Store`, checkpoints) is left out in silence.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO

from autograder.classroom.wording import one_line
from autograder.sandbox.submission_view import MAX_BYTES

MAX_ENTRIES = 100_000
"""Files and folders of one archive."""
LONGEST_NAME = 200
"""Bytes of a file's name: with what is put before it, file systems take 255."""
DOWNLOAD = timedelta(minutes=10)
"""Within which a platform writes the archive of a class."""
_JUNK_FOLDERS = {"__macosx", ".ipynb_checkpoints", "__pycache__"}
_JUNK = re.compile(r"\._.*|\.ds_store|thumbs\.db|desktop\.ini", re.IGNORECASE)
_UTF8, _ENCRYPTED = 0x800, 0x1
_EXTENDED_TIME = 0x5455
_PIECE = 2**20


class Refused(Exception):
    """An archive or a file in it is not taken; the message says which and why."""


@dataclass(frozen=True)
class Entry:
    """A file in an archive.

    Attributes:
        parts: of its path, none of which leads out of a folder.
        time: that the archive tells, in UTC.
        size: in bytes, and not more is ever read.
        open: gives its content.
    """

    parts: tuple[str, ...]
    time: datetime
    size: int
    open: Callable[[], IO[bytes]]

    @property
    def name(self) -> str:
        return self.parts[-1]


@dataclass(frozen=True)
class Submitter:
    """A student as a platform names one: in full, by address, and by an id of the school."""

    name: str
    address: str
    id: str


@dataclass(frozen=True)
class Archive:
    """A ZIP file or a folder of submissions.

    Attributes:
        name: of the file.
        entries: in the archive's order.
        refused: one line for each entry that was left out.
        submitters: who handed in a folder, by its name, where a file in the archive says so.
    """

    name: str
    entries: list[Entry]
    refused: list[str] = field(default_factory=list)
    submitters: Mapping[str, tuple[Submitter, ...]] = field(default_factory=dict)

    @property
    def tells_when_handed_in(self) -> bool:
        """Whether its times can be those of the hand-in.

        Canvas writes each file's time as that of the download (`ContentZipper`, rubyzip), and so does
        Moodle since 3.10 (`zip_writer`, ZipStream): there the times never fall from one file to the
        next, or all of them lie close together.
        """
        times = [entry.time for entry in self.entries]
        falls = any(after < before for before, after in pairwise(times))
        return falls and max(times) - min(times) > DOWNLOAD


def read_archive(path: Path, zone: tzinfo | None, stack: ExitStack) -> Archive:
    """List what a ZIP file or a folder holds.

    Args:
        path: of it.
        zone: of the times in a ZIP file that tells none; None for this machine's.
        stack: closes the file at the end.

    Raises:
        Refused: it is neither, or cannot be read.
    """
    if not path.is_dir():
        return _read_zip(path.name, path, zone, stack)
    try:
        return _sorted_out(path.name or str(path), _in_folder(path))
    except OSError as error:
        raise Refused(f"{path.name} cannot be read: {error}") from None


def read_inner(entry: Entry, stack: ExitStack) -> Archive:
    """List what a ZIP file holds that lies in an archive; raises as `read_archive`."""
    if entry.size > MAX_BYTES:
        raise Refused(f"{entry.name} has more than {MAX_BYTES >> 20} MiB")
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115, the stack closes it
    copy.writelines(pieces(entry.name, entry))
    return _read_zip(entry.name, copy, None, stack)


def _read_zip(name: str, file: Path | IO[bytes], zone: tzinfo | None, stack: ExitStack) -> Archive:
    try:
        return _sorted_out(name, _in_zip(stack.enter_context(zipfile.ZipFile(file)), zone))
    except zipfile.BadZipFile as error:
        raise Refused(f"{name} is not a ZIP file, or a broken one ({error})") from None
    except (OSError, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise Refused(f"{name} cannot be read: {error}") from None


def pieces(path: str, entry: Entry) -> Iterator[bytes]:
    """Read a file of an archive piece by piece, and no more of it than the archive said.

    Raises:
        Refused: it cannot be read.
    """
    left = entry.size
    try:
        with entry.open() as file:
            while left > 0 and (piece := file.read(min(_PIECE, left))):
                left -= len(piece)
                yield piece
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # NotImplementedError, of a compression that Python has not, is a RuntimeError.
        raise Refused(f"{path} cannot be read: {error}") from None


def _sorted_out(name: str, entries: Iterator[tuple[str, Entry | str]]) -> Archive:
    """Leave out junk, and name what is refused."""
    archive = Archive(name, [])
    for count, (where, entry) in enumerate(entries, 1):
        if count > MAX_ENTRIES:
            raise Refused(f"{name} holds more than {MAX_ENTRIES:,} files: collect it in parts")
        parts = tuple(part for part in where.split("/") if part not in ("", "."))
        if _is_junk(parts):
            continue
        why = entry if isinstance(entry, str) else _why_not(where, parts)
        if why:
            archive.refused.append(f"{name}: {one_line(where)} is left out: {why}")
        else:
            archive.entries.append(Entry(parts, entry.time, entry.size, entry.open))
    return archive


def _is_junk(parts: tuple[str, ...]) -> bool:
    if not parts:
        return True
    *folders, name = parts
    return any(folder.lower() in _JUNK_FOLDERS for folder in folders) or bool(_JUNK.fullmatch(name))


def _why_not(where: str, parts: tuple[str, ...]) -> str:
    """Say why no file may have this name; "" where it may."""
    if where.startswith("/") or re.match("[A-Za-z]:", where):
        return "its path begins at the root of a disk"
    if ".." in parts:
        return "its path leads out of the folder"
    if not all(map(str.isprintable, parts)):
        return "its name holds characters that cannot be printed"
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        return f"its name is longer than {LONGEST_NAME} bytes"
    return ""


def _in_zip(opened: zipfile.ZipFile, zone: tzinfo | None) -> Iterator[tuple[str, Entry | str]]:
    for info in opened.infolist():
        where = _name(info).replace("\\", "/")  # which some programs write
        kind = stat.S_IFMT(info.external_attr >> 16)
        if where.endswith("/"):
            continue
        if kind not in (0, stat.S_IFREG):
            yield where, "it is a link, or another thing that is not a file"
        elif info.flag_bits & _ENCRYPTED:
            yield where, "it is encrypted"
        else:
            yield where, Entry((), _time(info, zone), info.file_size, partial(opened.open, info))


def _name(info: zipfile.ZipInfo) -> str:
    """Read a name that is UTF-8 without the mark that says so, as macOS writes it."""
    if info.flag_bits & _UTF8:
        return info.filename
    try:
        return info.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.filename


def _time(info: zipfile.ZipInfo, zone: tzinfo | None) -> datetime:
    """Read an entry's time: local, by 2 seconds, with no zone; or exact where a second field tells it."""
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _EXTENDED_TIME and size >= 5 and len(extra) >= 9 and extra[4] & 1:
            return datetime.fromtimestamp(struct.unpack_from("<i", extra, 5)[0], UTC)
        extra = extra[4 + size :]
    try:
        return datetime(*info.date_time, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):  # such as day 0, which means that there is none
        return datetime(1980, 1, 1, tzinfo=UTC)


def _in_folder(folder: Path) -> Iterator[tuple[str, Entry | str]]:
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = sorted(name for name in folders if name.lower() not in _JUNK_FOLDERS)
        for name in sorted([*files, *links]):
            path = Path(place, name)
            where, status = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISREG(status.st_mode):
                time = datetime.fromtimestamp(int(status.st_mtime), UTC)
                yield where, Entry((), time, status.st_size, partial(_open_file, path))
            else:
                yield where, "it is a link, or another thing that is not a file"


def _open_file(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb")
