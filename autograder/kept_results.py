"""Keep the result of every submission that was judged, so that its code need not run again.

One JSON file per submission, written whole or not at all. Its name is a digest of all that the result
depends on: what was handed in, the released lesson, the code that judges that lesson, the secret, and
the settings. So whatever changes is judged anew, the lesson's museum included, since a mistake that it
knows costs less; and nothing else is: no picture, no other lesson, no words that a message adds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autograder import account_cache, sources
from autograder.judge import grade_one
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import museum_files
from autograder.result import Answer, Outcome, Result
from autograder.sandbox import submission_view
from autograder.sources import (
    EVERYTHING,
    PACKAGES,
    Definition,
    digest_of,
    forget,
    hashed,
    read_module,
)
from course.files.writing import write_whole

INSIDE = ("autograder.student", "autograder.wire")
"""What runs around a student's code, whole."""
BARRIERS = ("command", "seccomp", "memory", "host_view", "library_view", "submission_view", "child")
BARRIERS += ("launch", "fork_server", "fork_child")
"""Modules of the sandbox that decide in what a student's code runs."""
BESIDE = ("autograder.diagnosis.relations", "course.checks.relations")
BESIDE += ("autograder.sandbox.doctor", "autograder.sandbox.proof")
"""What only adds words to a message, and so changes no point; and what tries the barriers."""
LIBRARIES = ("torch", "numpy", "ipython")
KNOWN, MOST_KNOWN = "judging.json", 100
"""The file of the account's cache that holds the digests of judging, and how many it keeps."""


@dataclass(frozen=True)
class Kept:
    """A result, in what the student's code ran when it was found, and the judge's settings then."""

    result: Result
    level: str
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)


class KeptResults:
    """The results of one lesson under one grader and its settings.

    Args:
        folder: where the files lie; made when there is something to keep.
        grader: of whose answers these are: `digest_of_grader`.
        settings: of the judge, plain data.
    """

    def __init__(self, folder: Path, grader: str, settings: Mapping[str, Any]) -> None:
        self._folder, self._grader, self._settings = folder, grader, dict(settings)

    def find(self, submission: str) -> Kept | None:
        """Return what was found about a submission, by `digest_of_submission`; None when nothing is
        kept, or not legibly."""
        return self._read(self.key(submission)) if submission else None

    def find_under(self, key: str, submission: str) -> Kept | None:
        """Return the result that is kept under a key, with whatever settings it was found; None where
        it is of other files, or of another grader."""
        kept = self._read(key)
        same = kept and submission and self.key(submission, kept.settings) == key
        return kept if same else None

    def _read(self, key: str) -> Kept | None:
        try:
            return read_kept(json.loads(self._path(key).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, submission: str, kept: Kept) -> None:
        """Write a result, but not that the machine failed, nor one of files that could not be read.

        Raises:
            OSError: it cannot be written; then nothing is left of it.
        """
        if submission and kept.result.outcome != Outcome.INFRA_ERROR:
            plain = asdict(replace(kept, settings=self._settings))
            write_whole(self._path(self.key(submission)), json.dumps(plain, indent=1).encode())

    def key(self, submission: str, settings: Mapping[str, Any] | None = None) -> str:
        """Return the name of a submission's result: a digest of all that the result depends on."""
        of = self._settings if settings is None else dict(settings)
        grader = json.dumps([self._grader, of], sort_keys=True)
        return hashlib.sha256(f"{grader}:{submission}".encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def read_kept(said: Mapping[str, Any]) -> Kept:
    """Read a result from the plain data that `asdict` made of it.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    result = dict(said["result"])
    result["outcome"] = Outcome(result["outcome"])
    result["answers"] = tuple(_answer(answer) for answer in result["answers"])
    result["cells"] = tuple(result["cells"])
    return Kept(Result(**result), said["level"], said.get("settings", {}))


def _answer(said: Mapping[str, Any]) -> Answer:
    return Answer(**{**said, "outcome": Outcome(said["outcome"])})


def digest_of_submission(notebook: Path) -> str:
    """Digest a notebook and all files beside it that its process can see. Links are not followed: of a
    notebook that is not a regular file, the kind alone counts. A folder that cannot be read is "".
    """
    try:
        found = os.lstat(notebook)
        parts = [f"{notebook.name}:{found.st_mode >> 12}:{found.st_size}".encode()]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            copy = submission_view.lay_out(notebook.parent, Path(name, "submission"))
            parts.append(_digest_of_files(copy))
    except OSError:
        return ""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def digest_of_grader(released: Path, secret: bytes) -> str:
    """Digest what decides about a submission: the released lesson, the code that judges it, what that
    runs on, and the secret of which challenges are drawn."""
    lesson = released.stem
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    parts = [
        secret,
        released.read_bytes(),
        platform.python_version().encode(),
        *map(str.encode, versions),
        _known_digest_of_judging(lesson).encode(),
    ]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _known_digest_of_judging(lesson: str) -> str:
    """Look `digest_of_judging` up in the account's cache by the contents of all files of the project: to
    follow all names takes a second, to read all files a tenth of that."""
    try:
        project = _digest_of_project([lesson, *answer_cells(lesson, {})])
    except OSError:  # a file went away just now
        return digest_of_judging(lesson)
    try:
        known = json.loads(account_cache.read(KNOWN))
    except ValueError:
        known = {}
    known = known if type(known) is dict else {}
    if type(known.get(project)) is not str:
        known = {**dict([*known.items()][1 - MOST_KNOWN :]), project: digest_of_judging(lesson)}
        with contextlib.suppress(OSError):  # then it is computed again the next time
            account_cache.write(KNOWN, json.dumps(known))
    return known[project]


def _digest_of_project(texts: Iterable[str]) -> str:
    """Digest some texts, and all files of `course` and `autograder`, wherever their parts lie."""
    loaded = (sys.modules[name] for name in sorted(sys.modules) if name.startswith(PACKAGES))
    folders = {Path(folder) for package in loaded for folder in getattr(package, "__path__", ())}
    roots = sorted(folder for folder in folders if folders.isdisjoint(folder.parents))
    return hashed([*texts, *(_digest_of_files(root).hex() for root in roots)])


def digest_of_judging(lesson: str) -> str:
    """Digest the code on which the points of a lesson rest: its hidden checks and probes with all that
    these stand on, the judge, the sandbox, the reference answers, which follow-through puts in, and the
    museum, by which the judge recognizes mistakes."""
    forget()
    probes = f"autograder.lessons.{lesson}.probes"
    whole = [*INSIDE, *(f"autograder.sandbox.{name}" for name in BARRIERS)]
    if read_module(probes):
        whole.append(probes)
    # By name: who looks up what is kept need not wait until the checks are imported, and torch.
    checks = Definition(f"autograder.lessons.{lesson}.hidden", "CHECKS")
    starts = [grade_one, checks, *(Definition(name, EVERYTHING) for name in whole)]
    museum = hashed(map(sources.source_of, museum_files(lesson)))
    return digest_of(starts, without=BESIDE, texts=[*answer_cells(lesson, {}), museum])


def _digest_of_files(folder: Path) -> bytes:
    """Digest the names and contents of the files in a folder."""
    digest = hashlib.sha256()
    for path in _files_in(folder):
        inside = path.relative_to(folder)
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").digest()
        digest.update(hashlib.sha256(os.fsencode(inside)).digest() + inner)
    return digest.digest()


def _files_in(folder: Path) -> list[Path]:
    """List the files in a folder, those aside that Python compiled for itself."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if path.parent.name != "__pycache__")
