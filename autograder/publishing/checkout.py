"""Bring a students' repository up to date: write what changed, and nothing that anybody may have edited.

`.published.json` in it lists the files that were written last time, with their hashes. So files that were
edited there are recognised, and files that are no longer published are removed. A notebook that students
have is not changed: their own copy would conflict with a change at the next `git pull`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from course.files.writing import write_whole

MANIFEST = ".published.json"


class NotPublished(Exception):
    """The folder cannot be brought up to date; nothing in it was changed."""


@dataclass
class Changes:
    """The changes that a checkout needs; paths are relative to it.

    Attributes:
        written: files that are new or differ.
        removed: files that are no longer published.
        left: notebooks whose text changed after students got them.
    """

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def compare(bundle: Path, place: Path, replace: Collection[str] = ()) -> Changes:
    """Compare a checkout with a bundle; return the changes that it needs.

    Args:
        bundle: the folder with all files of a release.
        place: the checkout; it need not exist.
        replace: folders of lessons whose notebooks are published anew, although students have them.

    Raises:
        NotPublished: there are other files in the checkout, or files that were edited there.
    """
    before, changes = _manifest(place), Changes()
    bundled = {path: (bundle / path).read_bytes() for path in files_in(bundle)}
    present = (
        {path: (place / path).read_bytes() for path in files_in(place)} if place.exists() else {}
    )
    foreign, edited = [], []
    for path, data in bundled.items():
        if present.get(path) == data:
            continue
        if path in present and path not in before:
            foreign.append(path)
        elif path in present and hash_of(present[path]) != before[path]:
            edited.append(path)
        elif path in present and path.endswith(".ipynb") and path.split("/")[1] not in replace:
            changes.left.append(path)
        else:
            changes.written.append(path)
    for path in sorted(set(before) & set(present) - set(bundled)):
        (changes.removed if hash_of(present[path]) == before[path] else edited).append(path)
    if foreign:
        raise NotPublished(
            f"{place} holds files that `autograder publish` did not write: {_some(foreign)}. Publish "
            "into an empty folder, or into one that was published before."
        )
    if edited:
        raise NotPublished(
            f"these files were edited in {place}, and would be lost: {_some(edited)}. Take the change "
            "into the course, or undo it with `git checkout`, and publish again."
        )
    return changes


def apply(changes: Changes, bundle: Path, place: Path) -> None:
    """Write and remove the files, each whole or not at all, and then the manifest."""
    before = _manifest(place)
    for path in changes.written:
        write_whole(place / path, (bundle / path).read_bytes())
    for path in changes.removed:
        (place / path).unlink()
        _remove_if_empty((place / path).parent, place)
    hashes = {
        path: before[path] if path in changes.left else hash_of((bundle / path).read_bytes())
        for path in files_in(bundle)
    }
    text = json.dumps(hashes, indent=1, sort_keys=True) + "\n"
    if not (place / MANIFEST).exists() or (place / MANIFEST).read_text(encoding="utf-8") != text:
        write_whole(place / MANIFEST, text.encode())


def files_in(place: Path) -> list[str]:
    """List the files in a folder, except git's, the manifest and those that programs create when they
    run."""
    made = {".git", ".venv", "__pycache__", ".ipynb_checkpoints", ".virtual_documents"}
    return sorted(
        path.relative_to(place).as_posix()
        for path in place.rglob("*")
        if path.is_file()
        and path.name != MANIFEST
        and not made & set(path.relative_to(place).parts)
        and not any(part.endswith(".egg-info") for part in path.relative_to(place).parts)
    )


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


def _manifest(place: Path) -> dict[str, str]:
    """Return the hashes of the files that were published last time; {} if there were none."""
    path = place / MANIFEST
    if not path.exists():
        return {}
    try:
        hashes = json.loads(path.read_text(encoding="utf-8"))
        if type(hashes) is dict and all(type(value) is str for value in hashes.values()):
            return hashes
    except ValueError:
        pass
    raise NotPublished(
        f"{path} cannot be read, so nobody knows what was edited. Restore it with `git checkout`."
    )


def _remove_if_empty(folder: Path, top: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
