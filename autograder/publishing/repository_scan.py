"""Look through a students' repository: what was ever committed, and what the next commit would add."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from autograder.publishing.checkout import MANIFEST, files_in
from autograder.publishing.leak_scan import READABLE, Hidden, leaks_of_file

PACKED = {".gz", ".pickle", ".pkl", ".pt", ".pyc", ".tar", ".whl", ".xz", ".zip"}
"""Endings of files in which an answer may stand where no scan finds it."""


def leaks_beside(place: Path, written: Collection[str], hidden: Hidden) -> list[str]:
    """List what leaks from files of a repository that are not published: its instructor put them there.

    Args:
        place: the repository, or a folder that becomes one.
        written: paths that are about to be published, which are scanned as such.
        hidden: what nobody may find.
    """
    if (place / ".git").exists():
        kinds = ("--cached", "--others", "--exclude-standard")
        paths = _git(place, "ls-files", "-z", *kinds).decode("utf-8", "replace").split("\0")
    else:
        paths = files_in(place) if place.exists() else []
    return [
        f"{path} in {place}: {leak}"
        for path in paths
        if path not in written and path != MANIFEST and (place / path).is_file()
        for leak in leaks_of_own_file(path, (place / path).read_bytes(), hidden)
    ]


def leaks_of_own_file(path: str, data: bytes, hidden: Hidden) -> list[str]:
    """List what leaks from a file of the instructor's own, such as a timetable in PDF."""
    kind = Path(path).suffix
    if kind in PACKED:
        return [f"nobody can see what files that end on {kind} hold"]
    if kind not in READABLE and b"\0" in data:
        return []
    return leaks_of_file(path if kind in READABLE else "text.txt", data, hidden)


def leaks_in_history(place: Path, hidden: Hidden) -> list[str]:
    """List what leaks from any version of any file in the git repository at `place`, if it is one.

    Raises:
        subprocess.CalledProcessError: git cannot read it.
    """
    if not (place / ".git").exists():
        return []
    return [
        f"{path} in commit history ({blob[:10]}): {leak}"
        for blob, path in _blobs(place)
        for leak in leaks_of_own_file(path, _git(place, "cat-file", "blob", blob), hidden)
    ]


def _blobs(place: Path) -> Iterator[tuple[str, str]]:
    """List every version of every file, by its id and a path that it had."""
    listed = _git(place, "rev-list", "--objects", "--all").decode("utf-8", "replace")
    named = (line.split(" ", 1) for line in listed.splitlines() if " " in line)
    paths = {blob: path for blob, path in named if path}
    kinds = subprocess.run(
        ["git", "-C", str(place), "cat-file", "--batch-check=%(objectname) %(objecttype)"],
        input="\n".join(paths),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for line in kinds.splitlines():
        blob, kind = line.split()
        if kind == "blob":
            yield blob, paths[blob]


def _git(place: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(place), *arguments], check=True, capture_output=True
    ).stdout
