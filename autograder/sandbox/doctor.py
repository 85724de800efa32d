"""Prove the sandbox on this machine: each barrier is tried by a real escape from inside.

    autograder doctor

`doctor` reports, `require` refuses: grading begins only when every barrier holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from select import select
from typing import Any

from autograder.sandbox import command, submission_view

Start = Callable[..., subprocess.Popen]
"""`command.popen`, or another way to start with the same arguments."""
LIMITS = command.Limits(
    memory=1024 * command.MIB,
    cpu_seconds=60,
    processes=16,
    file_size=4 * command.MIB,
    open_files=64,
    tmp=8 * command.MIB,
    total_memory=512 * command.MIB,
)
SETTINGS = Path("/proc/sys")
ESCAPES = Path(__file__).with_name("escapes.py")  # runs inside, and is not for every system
LONGEST = 60  # seconds that one attempt may take
PATIENCE = 3  # seconds in which all that it left behind must have ended
SHELL_VARIABLES = ("PWD", "LC_CTYPE")  # set by a shell and by Python, to the same for everyone
ENDED = ("cpu_time", "page_tables", "total_memory")  # escapes that go on until something ends them
_BUBBLEWRAP = "install bubblewrap 0.8 or newer: apt-get install bubblewrap"
_UTIL_LINUX = "install util-linux: apt-get install util-linux"
_WATCHED = "measured from outside, without a cgroup"
_WATCH = "the watch in autograder/sandbox/memory.py needs Linux 4.14 or newer, and /proc"
_FILTER = "install the filter: pip install pyseccomp, and apt-get install libseccomp2"


@dataclass(frozen=True)
class Barrier:
    """A barrier of the sandbox.

    Attributes:
        name: that of the escape tried against it, in `escapes`.
        promise: what is so when it holds.
        remedy: what to do when it does not.
    """

    name: str
    promise: str
    remedy: str


BARRIERS = (
    Barrier("start", "Python starts inside", _BUBBLEWRAP),
    Barrier("network", "no other machine and no server on this one can be reached", _BUBBLEWRAP),
    Barrier(
        "files",
        "your home, the gradebook and the judge cannot be seen",
        f"{_BUBBLEWRAP}; and keep the checkout out of Python's own folders",
    ),
    Barrier("environment", "none of your environment variables can be read", _BUBBLEWRAP),
    Barrier("names", "no process and no mount reveals your folders or a student", _BUBBLEWRAP),
    Barrier("writing", "nothing can be written outside /tmp and /dev/shm", _BUBBLEWRAP),
    Barrier("storage", "how much is written there is limited", _BUBBLEWRAP),
    Barrier("file_size", "the size of a file is limited", _UTIL_LINUX),
    Barrier(
        "processes", "the number of processes is limited", f"{_UTIL_LINUX}; and Linux 5.14 or newer"
    ),
    Barrier("open_files", "the number of open files is limited", _UTIL_LINUX),
    Barrier("memory", "the memory of one process is limited", f"{_UTIL_LINUX}; {_FILTER}"),
    Barrier(
        "uncounted_memory",
        "no memory can be held outside of a process",
        f"{_BUBBLEWRAP}; {_FILTER}",
    ),
    Barrier("page_tables", "no memory can be hidden in page tables", _WATCH),
    Barrier("total_memory", f"the memory of all processes together is limited: {_WATCHED}", _WATCH),
    Barrier("cpu_time", "an endless loop is stopped", _UTIL_LINUX),
    Barrier("namespaces", "no new namespace can be made", f"{_BUBBLEWRAP}; {_FILTER}"),
    Barrier("system_calls", "a filter blocks ptrace and all but the usual sockets", _FILTER),
    Barrier("privileges", "an unprivileged user who can gain no privileges", _BUBBLEWRAP),
    Barrier("others", "no process outside can be seen or killed", _BUBBLEWRAP),
    Barrier("descriptors", "no file is open but its own pipes", _BUBBLEWRAP),
    Barrier("survivors", "no process outlives it", _BUBBLEWRAP),
)


@dataclass(frozen=True)
class Finding:
    """The finding about one barrier.

    Attributes:
        barrier: its name.
        held: whether the escape got nothing.
        detail: the promise when it held, else what was got.
        remedy: what to do when it did not.
    """

    barrier: str
    held: bool
    detail: str
    remedy: str = ""


def doctor(
    start: Start = command.popen, barriers: Sequence[Barrier] | None = None
) -> list[Finding]:
    """Try every barrier. When nothing can be started at all, there is one finding, and why.

    Args:
        start: the way to start that is tried.
        barriers: what is tried, if not all; the first is that anything starts.
    """
    barriers = BARRIERS if barriers is None else barriers
    with _outside() as facts:
        first = _try(barriers[0], start, facts)
        return [first, *(_try(barrier, start, facts) for barrier in barriers[1:] if first.held)]


def require(
    start: Start = command.popen, barriers: Sequence[Barrier] | None = None
) -> list[Finding]:
    """Return the findings if every barrier holds.

    Raises:
        SandboxMissing: one does not; the message names each and the ways out.
    """
    findings = doctor(start, barriers)
    missing = [finding for finding in findings if not finding.held]
    if missing:
        raise command.SandboxMissing(f"{report(missing)}\n{ways_out()}")
    return findings


def main(arguments: list[str]) -> int:
    """Try both ways to start. Returns the exit code: 0 when every barrier holds."""
    import argparse

    from autograder.sandbox.fork_server import ForkServer

    argparse.ArgumentParser(prog="autograder doctor", description=__doc__).parse_args(arguments)
    print(
        f"Python {platform.python_version()} grades: it rejects syntax that only a newer one can parse."
    )
    print("Cold start: every process imports torch itself.")
    findings = doctor()
    print(report(findings))
    if all(finding.held for finding in findings):
        print("Warm start: every process is forked from one that has imported torch.")
        with ForkServer() as server:
            findings = doctor(server.popen)
        print(report(findings))
    if all(finding.held for finding in findings):
        print("Every barrier of the sandbox holds.")
        return 0
    print(ways_out())
    return 1


def report(findings: list[Finding]) -> str:
    """Write the findings as lines for people."""
    lines = []
    for finding in findings:
        lines.append(
            f"{'held' if finding.held else 'OPEN':4}  {finding.barrier:16}  {finding.detail}"
        )
        lines += [f"{'':24}{line}" for line in finding.remedy.splitlines()]
    return "\n".join(lines)


def ways_out() -> str:
    """Say what helps on machines where the sandbox cannot run."""
    return (
        "Student code is not run outside the sandbox. Debian, Ubuntu: apt-get install bubblewrap "
        "libseccomp2, pip install pyseccomp.\nmacOS, Windows: grade in a Linux machine, virtual or "
        "not. To accept the risk by name, with the student's code free to read, write and send all "
        "that you can: add --Judge.unsafe_no_sandbox=True to the command."
    )


def why_not(output: str) -> str:
    """Say what to do when a confined process cannot start, from the kernel's settings and its words."""

    def setting(path: str) -> str:
        with contextlib.suppress(OSError):
            return (SETTINGS / path).read_text().strip()
        return ""

    remedies = []
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        remedies.append(
            "AppArmor keeps user namespaces from bubblewrap (Ubuntu 23.10 and later); allow it:\n"
            "printf 'abi <abi/4.0>,\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,"
            "\\n}\\n' | sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r "
            "/etc/apparmor.d/bwrap"
        )
    if setting("kernel/unprivileged_userns_clone") == "0":
        remedies.append("allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1")
    if setting("user/max_user_namespaces") == "0":
        remedies.append("allow user namespaces: sudo sysctl user.max_user_namespaces=10000")
    if "Unknown option" in output:
        remedies.append(f"{_BUBBLEWRAP} (Debian 12, Ubuntu 24.04)")
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        remedies.append(
            "this is a container: start it with --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined --security-opt systempaths=unconfined"
        )
    return "\n".join(remedies) or _BUBBLEWRAP


def _try(barrier: Barrier, start: Start, facts: dict[str, Any]) -> Finding:
    limits = replace(LIMITS, cpu_seconds=1) if barrier.name == "cpu_time" else LIMITS
    reading, writing = os.pipe()
    facts = {**facts, **asdict(limits), "pipe": writing, "patience": PATIENCE}
    _write(Path(facts["view"], "facts.json"), json.dumps(facts))
    argv = [f"{command.VIEW}/escapes.py", barrier.name]
    with open(reading, "rb") as pipe:
        try:
            process = start(argv, facts["view"], facts["submission"], limits, pass_fds=[writing])
        except command.SandboxMissing as error:  # which says itself what to install
            return Finding(barrier.name, False, str(error))
        except OSError as error:
            return Finding(barrier.name, False, str(error), why_not(str(error)))
        finally:
            os.close(writing)
        with process:
            try:
                output = process.communicate(timeout=LONGEST)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return _missing(barrier, f"no end within {LONGEST} s")
        if not select([pipe], [], [], PATIENCE)[0]:
            return _missing(barrier, "left a process behind")
    return _judge(barrier, output.strip(), process.returncode)


def _judge(barrier: Barrier, output: str, code: int) -> Finding:
    if barrier.name in ENDED and code == 128 + signal.SIGKILL:
        return Finding(barrier.name, True, barrier.promise)
    try:
        got = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        detail = f"ended with status {code}: {output[-500:] or 'no word'}"
        if barrier.name == "start":
            return Finding(barrier.name, False, detail, why_not(output))
        return _missing(barrier, detail)
    if got:
        return _missing(barrier, "; ".join(got))
    return Finding(barrier.name, True, barrier.promise)


def _missing(barrier: Barrier, detail: str) -> Finding:
    return Finding(barrier.name, False, detail, barrier.remedy)


def _write(path: Path, text: str) -> None:
    """A file that everyone may read, whatever the umask is: see `command.popen`."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


@contextlib.contextmanager
def _outside() -> Iterator[dict[str, Any]]:
    """Lay out what an escape could find: files, listeners, a word in the environment, a process.

    The submission comes as it does in grading, as a copy.
    """
    canary = secrets.token_hex(8)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doctor-")))
        view, handed_in = folder / "view", folder / f"student-{secrets.token_hex(8)}" / "lesson"
        for path in (view, handed_in):
            path.mkdir(parents=True)
        view.chmod(0o755)  # whatever the umask is: see command.popen
        submission = submission_view.lay_out(handed_in, folder / "submission")
        _write(view / "escapes.py", ESCAPES.read_text(encoding="utf-8"))
        (folder / "private").write_text(canary, encoding="utf-8")
        listeners = {
            "inet": (socket.AF_INET, ("127.0.0.1", 0)),
            "abstract": (socket.AF_UNIX, f"\0{canary}"),
            "path": (socket.AF_UNIX, str(folder / "socket")),
        }
        opened = {}
        for name, (family, address) in listeners.items():
            opened[name] = stack.enter_context(socket.socket(family))
            opened[name].bind(address)
            opened[name].listen()
        sleeper = subprocess.Popen(["/bin/sh", "-c", "read _", canary], stdin=subprocess.PIPE)
        stack.callback(sleeper.wait)
        stack.callback(sleeper.kill)
        os.environ["SECOND_TOKEN_CANARY"] = canary
        stack.callback(os.environ.pop, "SECOND_TOKEN_CANARY")
        home = Path.home()
        at_home = [str(path) for path in home.iterdir() if path.is_file()] if home.is_dir() else []
        yield {
            "view": str(view),
            "submission": str(submission),
            "names": [str(folder), str(Path(__file__).parent)],
            "student": handed_in.parent.name,
            "variables": [*command.ENVIRONMENT, *SHELL_VARIABLES],
            "private": [str(folder / "private"), __file__, "/etc/passwd", *at_home[:50]],
            "port": opened["inet"].getsockname()[1],
            "abstract": canary,
            "socket": str(folder / "socket"),
            "outside": str(folder),
            "canary": canary,
        }
