"""A PostgreSQL server of the tests' own, in a temporary folder, reached by a socket that lies there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

OWNER = "nobody"  # the server refuses to be root


def programs() -> Path | None:
    """Where PostgreSQL's programs lie, the newest of several; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    on_path = shutil.which("initdb")
    return found[-1].parent if found else on_path and Path(on_path).resolve().parent


def _version(initdb: Path) -> int:
    return int(initdb.parts[-3]) if initdb.parts[-3].isdecimal() else 0


@dataclass(frozen=True)
class Server:
    """A server that can be stopped and started again."""

    place: Path

    def start(self) -> None:
        options = f"-k {self.place} -c listen_addresses="
        self._run("pg_ctl", "-w", "-l", str(self.place / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """End it; in the mode "immediate" as if it had crashed."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def url(self, database: str) -> str:
        return f"postgresql+psycopg2://grader@/{database}?host={self.place}"

    def make(self, database: str) -> str:
        """Make an empty database; return its address."""
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {database}"))
        engine.dispose()
        return self.url(database)

    def _run(self, program: str, *arguments: str) -> None:
        as_owner = ["runuser", "-u", OWNER, "--"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*as_owner, programs() / program, "-D", self.place / "data", *arguments],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # no pipe, which the server would hold open
            stderr=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{program} {arguments}"


@contextmanager
def server() -> Iterator[Server]:
    """A server, until the block ends."""
    # In no folder of pytest's: the address of a socket is short, and root's folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:
            shutil.chown(name, OWNER)
        running = Server(Path(name))
        running._run("initdb", "-U", "grader", "--auth=trust", "-E", "UTF8", "--locale=C")
        running.start()
        try:
            yield running
        finally:
            running.stop("immediate")
