"""Put known answers to the checks, each once: the record of runs.

    record = RunRecord(Path("build/runs"))
    reply = record.ask("kv_cache", bug.answer, find(bug.check), seed=1)
    verdict = decide(check, check.challenge(1), reply)

What an answer of the museum replies to a challenge rests on the answer's own cells, on the pieces of
the check that draw and probe, on what these stand on in `course`, on the seed, and on a few versions. A
digest of all that is the key under which the reply is kept, so a kept reply is never out of date: what
changed has another key. Tests, tables, recognition and the grader are queries of this record. A verdict
is not kept: deciding is quick, and always done by the code as it is.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from autograder import wire
from autograder.lessons.assembly import answer_cells, run_cells
from autograder.lessons.exhibits import Answer
from autograder.sources import digest_of, hashed
from autograder.student import error_record
from course.checks.check import Challenge, Check, Verdict, failed, observe, stopped_with

Reply = Mapping[str, Any]
"""What a probe came to, as a student's process sends it: "evidence" and the house rules that were
"broken", or "error" with "kind" and "words"."""

FOLDER = Path(__file__).parents[1] / "build" / "runs"
"""Where authors' replies are kept: at any time it may be deleted."""
LIMIT = 2**30
"""Bytes that a store may hold before its oldest entries go."""
LIBRARIES = ("torch", "numpy")
_lock = threading.Lock()
"""Torch's random numbers, which probes of sampling seed, are those of all threads."""


class Store:
    """Small results by key, one compressed file each. Any process may read, write or delete at any time:
    a file is there whole or not at all, and one that cannot be read counts as missing.

    Args:
        folder: where the files lie; in memory alone if it is None.
        limit: bytes; beyond it, those that were not used for longest are deleted when a store is opened.
    """

    def __init__(self, folder: Path | None, limit: int = LIMIT) -> None:
        self._folder, self._memory = folder, {}
        if folder is not None:
            self._shrink(limit)

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key; None where nothing legible is."""
        if self._folder is None:
            return self._memory.get(key)
        try:
            path = self._path(key)
            data = zlib.decompress(path.read_bytes())
            os.utime(path)  # used just now
            return data
        except (OSError, zlib.error):
            return None

    def put(self, key: str, data: bytes) -> None:
        """Keep a result. A disk that takes none is no error: it will be computed again."""
        if self._folder is None:
            self._memory[key] = data
            return
        path = self._path(key)
        new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(zlib.compress(data, level=1))
            new.replace(path)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _shrink(self, limit: int) -> None:
        """Delete the entries that were not used for longest, down to four fifths of the limit."""
        files = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another process deletes, too
                state = path.stat()
                files.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= limit:
            return
        for _, size, path in sorted(files):
            if total <= limit * 4 // 5:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


class RunRecord:
    """The replies of known answers to the challenges of checks. Threads may share one.

    Args:
        folder: where they are kept; in memory alone if it is None.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.store = Store(folder)

    def ask(self, lesson: str, answer: Answer, check: Check, seed: int) -> Reply:
        """Return what a notebook with this answer replies to the challenge of a seed.

        Args:
            lesson: the module's name, such as "kv_cache".
            answer: what differs from the reference, by name; {} for the solved notebook.
            check: hidden or visible.
        """
        cells = answer_cells(lesson, answer)
        key = key_of(cells, check, seed)
        frame = self.store.get(key)
        if frame is not None:
            with contextlib.suppress(wire.WireError, ValueError):
                return wire.decode(frame)
        frame = _encoded(run(lesson, cells, check, check.challenge(seed)))
        self.store.put(key, frame)
        return wire.decode(frame)


def run(lesson: str, cells: list[str], check: Check, challenge: Challenge) -> Reply:
    """Run answer cells and put one challenge to what they define, in this process: their code is our own.
    The challenge crosses the wire, for a function may write into it."""
    sent = wire.decode(wire.encode(challenge))
    with _lock, np.errstate(all="ignore"):
        try:
            names = run_cells(lesson, cells)
            evidence, broken = observe(check.probe, names, check.needs, sent)
            return {"evidence": evidence, "broken": broken}
        except Exception as error:
            return {"error": error_record(error)}


def decide(
    check: Check, challenge: Challenge, reply: Reply, tolerance: float | None = None
) -> Verdict:
    """Reach the verdict on a known answer's reply, as the judge does.

    Args:
        tolerance: in the place of the check's own.
    """
    if (error := reply.get("error")) is not None:
        return failed(stopped_with(error["kind"], error["words"]))
    if tolerance is not None:
        check = replace(check, tolerance=tolerance)
    try:
        with np.errstate(all="ignore"):
            return check.decide(challenge, reply["evidence"], reply["broken"])
    except Exception as error:  # evidence of another form than verdicts expect
        return failed(f"This cannot be compared ({type(error).__name__}: {error}).")


def key_of(cells: list[str], check: Check, seed: int) -> str:
    """Digest all that a reply rests on. Checks with the same challenge and probe share their replies."""
    return hashed([*_versions(), digest_of_questions(check), digest_of((), texts=cells), str(seed)])


@cache
def digest_of_questions(check: Check) -> str:
    """Digest what draws and probes for a check, and what runs a probe."""
    return digest_of([check.needs, check.challenge, check.probe, run])


@cache
def _versions() -> list[str]:
    return [platform.python_version(), *(f"{name} {version(name)}" for name in LIBRARIES)]


def _encoded(reply: Reply) -> bytes:
    """Encode a reply as a student's process does: one that cannot cross says why."""
    try:
        return wire.encode(reply)
    except wire.WireError as error:
        return wire.encode({"error": error_record(error)})
