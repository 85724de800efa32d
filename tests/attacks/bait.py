"""What an attack may go for: laid out on this machine, and looked at again afterwards."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

from autograder.authoring.leaks import secrets_of
from autograder.authoring.source import Lesson
from lessons import ROOT

VARIABLE = "SECOND_TOKEN_DATABASE_PASSWORD"
LONG = 25
"""Characters, without blanks, of a line that nobody prints by chance."""


class Bait:
    """A gradebook, another student's work, a home, a variable, a listener and a process.

    Args:
        place: an empty folder.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.canaries = {
            name: f"canary-{name}-{secrets.token_hex(8)}"
            for name in ("gradebook", "other", "home", "variable")
        }
        self.gradebook = place / "grading" / "gradebook.db"
        self.other = place / "grading" / "submitted" / "other" / "00-start" / "start.ipynb"
        self.home = place / "home" / ".netrc"
        for file in (self.gradebook, self.other, self.home):
            file.parent.mkdir(parents=True)
        for file, name in ((self.other, "other"), (self.home, "home")):
            file.write_text(self.canaries[name], encoding="utf-8")
        with sqlite3.connect(self.gradebook) as database:
            database.execute("create table grade (score text)")
            database.execute("insert into grade values (?)", [self.canaries["gradebook"]])
        database.close()
        os.environ[VARIABLE] = self.canaries["variable"]
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._listen, daemon=True).start()
        # It waits for the end of its input, so that it does not outlive the tests.
        self.victim = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self._before = self._state()

    @property
    def facts(self) -> dict[str, object]:
        """What an attack is told, so that it need not search: where everything lies."""
        return {
            "gradebook": str(self.gradebook),
            "other": str(self.other),
            "home": str(self.home),
            "root": str(ROOT),
            "variable": VARIABLE,
            "port": self._listener.getsockname()[1],
            "process": self.victim.pid,
        }

    def harm(self) -> list[str]:
        """What is not as it was, in words."""
        found = [f"{self.connections} connections to the listener"] if self.connections else []
        if self.victim.poll() is not None:
            found.append("a process outside was ended")
        return found + [
            f"{path} changed" for path, was in self._before.items() if was != _hash(path)
        ]

    def seen(self, text: str) -> list[str]:
        """Canaries that stand in a text."""
        return [name for name, canary in self.canaries.items() if canary in text]

    def close(self) -> None:
        del os.environ[VARIABLE]
        self._listener.close()
        self.victim.kill()
        self.victim.wait()

    def _state(self) -> dict[Path, str]:
        return {path: _hash(path) for path in (self.gradebook, self.other, self.home)}

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "gone"


def hidden_lines(view: Path) -> set[str]:
    """Lines of the hidden checks and of the oracle that a student's process has no business with:
    those that stand nowhere in a view."""
    sources = [ROOT / "autograder" / "oracle.py", *(ROOT / "autograder" / "checks").glob("*.py")]
    shown = set().union(*(_lines(path.read_text()) for path in view.rglob("*.py")))
    return set().union(*(_lines(path.read_text()) for path in sources)) - shown


def answer_lines(lesson: Lesson) -> set[str]:
    """Lines of the lesson's answers."""
    return {line for line in secrets_of([lesson]).lines if len(line) >= 20}


def _lines(text: str) -> set[str]:
    lines = {"".join(line.split()) for line in text.splitlines()}
    return {line for line in lines if len(line) >= LONG}


def lines_in(text: str, lines: set[str]) -> list[str]:
    """Which of the lines stand in a text, whatever their blanks."""
    squeezed = "".join(text.split())
    return sorted(line for line in lines if line in squeezed)


def processes_that_know(place: Path, patience: float = 5) -> list[str]:
    """Processes that still run with something of `place` mounted or named, after a while."""
    end = time.monotonic() + patience
    while (found := _processes(f"{place.parent.name}/{place.name}")) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _processes(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            told = (process / "cmdline").read_bytes() + (process / "mountinfo").read_bytes()
        except OSError:
            continue
        if word.encode() in told and state != "Z" and process.name != str(os.getpid()):
            found.append(f"{process.name}: {told[:200]!r}")
    return found
