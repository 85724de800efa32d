"""A Slurm cluster of the tests' own: a controller and one node on this machine, in a temporary folder."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "sinfo")
SYSTEM = "/usr/sbin:/sbin"
"""Where some of them lie, which is on no ordinary user's path."""
"""Seconds until the node must be there."""
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=32000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""The node claims more than this machine may have, so that a job for a real cluster fits."""


def program(name: str) -> str | None:
    """Where a program lies; None where it is not installed."""
    return shutil.which(name, path=f"{os.environ['PATH']}:{SYSTEM}")


def installed() -> bool:
    return all(map(program, PROGRAMS))


@dataclass(frozen=True)
class Cluster:
    """A cluster that is running."""

    place: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.place / "slurm.conf")}

    def submit(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
        """Submit a job from a folder and wait for its end; its exit code is the largest of its tasks."""
        return subprocess.run(
            [program("sbatch"), "--wait", *arguments],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def is_idle(self) -> bool:
        asked = [program("sinfo"), "--noheader", "--format=%T"]
        found = subprocess.run(asked, env=self.environment, capture_output=True, text=True)
        return found.stdout.strip() == "idle"

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.place.glob("*.log"))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster of one node that is ready for jobs, until the block ends."""
    # In no folder of pytest's: the address of a socket is short.
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name,
        ExitStack() as processes,
    ):
        running = Cluster(Path(name))
        _configure(running.place)
        key, at = running.place / "munge.key", running.place / "munge"
        subprocess.run([program("mungekey"), "--create", f"--keyfile={key}"], check=True)
        places = {"key": key, "log": f"{at}.log", "pid": f"{at}.pid", "seed": f"{at}.seed"}
        files = [f"--{kind}-file={path}" for kind, path in places.items()]
        munged = [program("munged"), "--foreground", "--force", f"--socket={at}.socket", *files]
        for command in (munged, [program("slurmctld"), "-D"], [program("slurmd"), "-D"]):
            processes.enter_context(_process(command, running))
        end = time.monotonic() + PATIENCE
        while not running.is_idle():
            assert time.monotonic() < end, running.logs()
            time.sleep(0.2)
        yield running


def _configure(place: Path) -> None:
    for folder in ("state", "spool"):
        (place / folder).mkdir()
    with socket.socket() as first, socket.socket() as second:
        for free in (first, second):
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (first, second)]
    text = CONFIGURATION.format(
        host=socket.gethostname().split(".")[0],
        user=getpass.getuser(),
        place=place,
        controller_port=ports[0],
        node_port=ports[1],
    )
    (place / "slurm.conf").write_text(text, encoding="utf-8")


@contextmanager
def _process(command: list[str], cluster: Cluster) -> Iterator[None]:
    errors = cluster.place / f"{Path(command[0]).name}.errors.log"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            command, env=cluster.environment, stdout=subprocess.DEVNULL, stderr=file
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
