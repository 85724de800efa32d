"""Try a student's code: run the visible checks in a separate process, with deadlines, and only once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from course.files.notebooks import read_notes, write_notes

START_SECONDS = 60.0
"""The time until the first check: importing torch takes long on a slow disk."""
CHECK_SECONDS = 30.0
"""The time for one check."""
COURSE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Earlier:
    """A student's code of an earlier lesson, and the names of its functions that are used."""

    module: str
    code: str
    names: tuple[str, ...]


@dataclass
class TrialResult:
    """The result of the visible checks.

    Attributes:
        passes: the functions that pass every check that calls them.
        reasons: why any other function does not, such as "yours fails cache_can_go_back".
    """

    passes: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def key_of(module: str, code: str, earlier: list[Earlier]) -> str:
    """Hash everything that the result depends on: the code, the course and the versions."""
    parts = [module, code, [asdict(lesson) for lesson in earlier], _course_hash(), sys.version]
    for package in ("torch", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            parts.append(version(package))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _course_hash() -> str:
    """Hash the course's modules and recorded answers."""
    digest = hashlib.sha256()
    for path in sorted([*COURSE.rglob("*.py"), *COURSE.rglob("*.json")]):
        digest.update(path.relative_to(COURSE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def read_result(file: Path, module: str, key: str) -> TrialResult | None:
    """Return the earlier result for the same content, or None."""
    match read_notes(file).get(module):
        case {"key": str(known), "passes": list(passes), "reasons": dict(reasons)} if known == key:
            return TrialResult(passes, reasons)
    return None


def write_result(file: Path, module: str, key: str, result: TrialResult) -> None:
    """Write a result; where the folder cannot be written, the code is only tried again next time."""
    with contextlib.suppress(OSError):
        write_notes(file, {**read_notes(file), module: {"key": key, **asdict(result)}})


def try_code(
    module: str, code: str, earlier: list[Earlier], check_seconds: float = CHECK_SECONDS
) -> TrialResult:
    """Run the visible checks of a lesson on a student's code.

    Args:
        earlier: the student's functions of earlier lessons, on which this code runs.
        check_seconds: the time after which a check is stopped; its functions' other checks are left out.
    """
    outcomes: dict[str, tuple[list[str], str]] = {}
    stuck: set[str] = set()
    while True:
        request = {
            "module": module,
            "code": code,
            "earlier": [asdict(lesson) for lesson in earlier],
            "skip": list(outcomes),
            "stuck": sorted(stuck),
        }
        ended, names, running = _run_process(request, outcomes, check_seconds)
        if ended is not None:
            return TrialResult([], {"": ended}) if ended else _sum_up(outcomes, names, stuck)
        check, needs, why = running
        outcomes[check] = (needs, why)
        if not needs:
            return TrialResult([], {"": f"your notebook's code {why.removeprefix('yours ')}"})
        stuck |= set(needs)


def _run_process(
    request: dict[str, Any], outcomes: dict[str, tuple[list[str], str]], check_seconds: float
) -> tuple[str | None, list[str], tuple[str, list[str], str]]:
    """Run one process and add each check's outcome to `outcomes`.

    Returns:
        A triple:

        * "" if the process reached its end, the error if the code itself cannot run, or None if a check
          ended the process or did not end;
        * the names that checks call;
        * the check that ran last, the names that it calls, and why it is left out from now on.
    """
    running: tuple[str, list[str], str] = ("", [], "yours did not start")
    with _process(request) as replies:
        seconds = START_SECONDS
        while True:
            try:
                line = replies.get(timeout=seconds)
            except queue.Empty:
                return None, [], (*running[:2], f"yours did not end in {running[0]}")
            match line:
                case None:
                    return None, [], (*running[:2], f"yours ended Python in {running[0]}")
                case {"start": name, "needs": needs}:
                    running = (name, needs, "")
                case {"done": name, "needs": needs, "outcome": outcome}:
                    outcomes[name] = (needs, outcome)
                case {"broken": why}:
                    return f"your notebook stops with {why.splitlines()[0][:80]}", [], running
                case {"end": True, "names": names}:
                    return "", names, running
            seconds = check_seconds if running[1] else START_SECONDS


@contextlib.contextmanager
def _process(request: dict[str, Any]):
    """Start the process; yield a queue of its replies, in which None stands for its end."""
    environment = {**os.environ, "SECOND_TOKEN_MINE": "0"}
    for name in ("JPY_SESSION_NAME", "MPLBACKEND"):  # no notebook; no drawing into one
        environment.pop(name, None)
    path = os.pathsep.join(filter(None, [str(COURSE.parent), os.environ.get("PYTHONPATH")]))
    environment["PYTHONPATH"] = path
    with tempfile.TemporaryDirectory(prefix="second-token-") as place:
        process = subprocess.Popen(
            [sys.executable, "-m", "course.mine.run_checks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=place,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        replies: queue.Queue = queue.Queue()

        def listen() -> None:
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    replies.put(json.loads(line))
            replies.put(None)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            with contextlib.suppress(OSError):
                json.dump(request, process.stdin)
                process.stdin.close()
            yield replies
        finally:
            process.kill()
            process.wait()
            listener.join(timeout=1)
            process.stdout.close()


def _sum_up(
    outcomes: dict[str, tuple[list[str], str]], names: list[str], stuck: set[str]
) -> TrialResult:
    """Decide about each function: it passes if every check that calls it passes."""
    result = TrialResult()
    for name in names:
        tried = {check: why for check, (needs, why) in outcomes.items() if name in needs}
        wrong = {check: why for check, why in tried.items() if why != "passes"}
        reasons = {why for why in wrong.values() if why.startswith("yours")}
        if reasons:
            result.reasons[name] = min(reasons)
        elif "fails" in wrong.values():
            first = next(check for check, why in wrong.items() if why == "fails")
            result.reasons[name] = f"yours fails {first}"
        elif wrong:
            result.reasons[name] = "yours is not written yet"
        elif tried:
            result.passes.append(name)
        else:
            result.reasons[name] = "no check could be run on yours"
    return result
