"""Try a student's code: run the visible checks in a process of its own, with deadlines, and only once."""

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
"""How long the process may take until its first check: importing torch takes long on a slow disk."""
CHECK_SECONDS = 30.0
"""How long one check may take."""
COURSE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Earlier:
    """A student's code of a lesson, and which of its functions are used."""

    module: str
    code: str
    kept: tuple[str, ...]


@dataclass
class Found:
    """What the visible checks found.

    Attributes:
        passes: the functions that pass every check that calls them.
        reasons: of every other function, why not, such as "yours fails cache_can_go_back".
    """

    passes: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def key_of(module: str, code: str, earlier: list[Earlier]) -> str:
    """Name the content on which the checks' outcome depends: code, course and versions."""
    parts = [module, code, [asdict(one) for one in earlier], _course_hash(), sys.version]
    for package in ("torch", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            parts.append(version(package))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _course_hash() -> str:
    """Hash the course's own modules and what is recorded."""
    digest = hashlib.sha256()
    for path in sorted([*COURSE.rglob("*.py"), *COURSE.rglob("*.json")]):
        digest.update(path.relative_to(COURSE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def remembered(notes: Path, module: str, key: str) -> Found | None:
    """Return what was found of the same content before, or None."""
    match read_notes(notes).get(module):
        case {"key": str(known), "passes": list(passes), "reasons": dict(reasons)} if known == key:
            return Found(passes, reasons)
    return None


def remember(notes: Path, module: str, key: str, found: Found) -> None:
    """Write down what was found; a folder that cannot be written costs only the next start's time."""
    with contextlib.suppress(OSError):
        write_notes(notes, {**read_notes(notes), module: {"key": key, **asdict(found)}})


def try_code(
    module: str, code: str, earlier: list[Earlier], check_seconds: float = CHECK_SECONDS
) -> Found:
    """Run the visible checks of a lesson on a student's code.

    Args:
        earlier: the student's functions of earlier lessons, on which this code runs.
        check_seconds: after which a check counts as endless; its functions' other checks are left out.
    """
    outcomes: dict[str, tuple[list[str], str]] = {}
    stuck: set[str] = set()
    while True:
        asked = {
            "module": module,
            "code": code,
            "earlier": [asdict(one) for one in earlier],
            "skip": list(outcomes),
            "stuck": sorted(stuck),
        }
        ended, names, running = _run_process(asked, outcomes, check_seconds)
        if ended is not None:
            return Found([], {"": ended}) if ended else _sum_up(outcomes, names, stuck)
        check, needs, why = running
        outcomes[check] = (needs, why)
        if not needs:
            return Found([], {"": f"your notebook's code {why.removeprefix('yours ')}"})
        stuck |= set(needs)


def _run_process(
    asked: dict[str, Any], outcomes: dict[str, tuple[list[str], str]], check_seconds: float
) -> tuple[str | None, list[str], tuple[str, list[str], str]]:
    """Run one process and note each check's outcome.

    Returns:
        "" when it reached its end, or what is wrong with all of the code, or None when a check killed
        it or did not end; the names that checks call; the check that ran last, what it calls, and why
        it is out.
    """
    running: tuple[str, list[str], str] = ("", [], "yours did not start")
    with _process(asked) as replies:
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
def _process(asked: dict[str, Any]):
    """Start the process, and give its replies as they come; None is its end."""
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
                json.dump(asked, process.stdin)
                process.stdin.close()
            yield replies
        finally:
            process.kill()
            process.wait()
            listener.join(timeout=1)
            process.stdout.close()


def _sum_up(outcomes: dict[str, tuple[list[str], str]], names: list[str], stuck: set[str]) -> Found:
    """Decide for each function: it passes when every check that calls it does."""
    found = Found()
    for name in names:
        own = {check: why for check, (needs, why) in outcomes.items() if name in needs}
        wrong = {check: why for check, why in own.items() if why != "passes"}
        words = {why for why in wrong.values() if why.startswith("yours")}
        if words:
            found.reasons[name] = min(words)
        elif "fails" in wrong.values():
            first = next(check for check, why in wrong.items() if why == "fails")
            found.reasons[name] = f"yours fails {first}"
        elif wrong:
            found.reasons[name] = "yours is not written yet"
        elif own:
            found.passes.append(name)
        else:
            found.reasons[name] = "no check could be run on yours"
    return found
