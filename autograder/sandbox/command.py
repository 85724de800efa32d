"""Confine a process: bubblewrap, limits and a filter of system calls around it.

`popen` starts a Python script inside, `spawn` any command. There, only Python, the system's
libraries and programs, `/view` and `/submission` exist, all read-only; the last is the folder in
which it begins. `/tmp` is empty, writable and bounded. There is no network, no environment, no other
process and no privilege, and when the command ends nothing that it started lives on.

The first process inside is a shell that waits and collects what others leave behind. Everything inside
can read its command line, environment and memory, where nothing of the grader's stands; bubblewrap's
own, which hold the grader's folders, stay outside.

Started by root, the sandbox belongs to an unprivileged user all the same, for a limit on processes
does not bind root. What it shows must then be readable for everyone.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from autograder.sandbox import host_view, seccomp
from autograder.sandbox.memory import Confined

VIEW, SUBMISSION = "/view", "/submission"
NOBODY = 65534  # user and group inside; and outside as well, when root starts the sandbox
MIB = 2**20
START = 30  # seconds for bubblewrap to make a sandbox, at most
PYTHON = (sys.executable, "-I", "-B", "-u")
"""Python as it runs inside: deaf to its environment, writing no bytecode, printing at once."""
PACKAGES = {
    "bwrap": "bubblewrap",
    "prlimit": "util-linux",
    "choom": "util-linux",
    "setpriv": "util-linux",
}
"""The programs that a start needs, and the Debian package of each."""
ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "USER": "student",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # there is no compiler; see also `uncompiled` in student.py
    "PIP_NO_INDEX": "1",  # there is no network, and pip would try for half a minute
}
"""All that a confined process finds in its environment."""
# Standard input held the filter. The shell itself would tell on its standard error how it ended.
_RUN = 'exec </dev/null 2>/dev/null; ("$@" 2>&1); exit $?'


class SandboxMissing(Exception):
    """Student code cannot be confined on this machine; the message says what would help."""


@dataclass(frozen=True)
class Limits:
    """What a student's processes may use.

    Attributes:
        memory: bytes of data of one process (RLIMIT_DATA; shared memory lies in `tmp`).
        cpu_seconds: CPU time of one process, in seconds; beyond it the process is killed.
        processes: processes and threads at one time.
        file_size: bytes of one file.
        open_files: file descriptors of one process.
        tmp: bytes that /tmp holds, and again as many that /dev/shm holds.
        total_memory: bytes that all processes and the files in `tmp` hold together; see `memory.py`.
    """

    memory: int = 3072 * MIB
    cpu_seconds: int = 900
    processes: int = 64
    file_size: int = 64 * MIB
    open_files: int = 256
    tmp: int = 128 * MIB
    total_memory: int = 4096 * MIB


def resources(limits: Limits) -> dict[str, int]:
    """Translate limits into the kernel's, by their names there. They are set inside: a limit on
    processes that is set outside counts the user's other processes as well."""
    return {
        "CORE": 0,
        "STACK": 8 * MIB,  # what lies on the stack is not counted as data
        "DATA": limits.memory,
        "CPU": limits.cpu_seconds,
        "NPROC": limits.processes,
        "FSIZE": limits.file_size,
        "NOFILE": limits.open_files,
    }


def popen(
    argv: Sequence[str],
    view: str | Path,
    submission: str | Path,
    limits: Limits,
    pass_fds: Iterable[int] = (),
) -> Confined:
    """Start a confined Python script cold, in a process group of its own, its output in one pipe.

    Standard input is /dev/null. The exit code is the script's, or 128 + the signal that ended it.
    Everything inside ends with its process group, and with the thread that started it.

    Args:
        argv: the script's path inside, and its arguments.
        view: the folder that is seen as /view.
        submission: the folder that is seen as /submission.
        limits: what the processes inside may use.
        pass_fds: open descriptors that it is given, under the same numbers.

    Raises:
        SandboxMissing: a program or the filter of system calls is not installed.
        PermissionError: root asks, and the submission's folder or something in the view is not
            readable for everyone.
    """
    return spawn(
        *surround(view, submission, limits),
        [*first_process(limits, _RUN), *PYTHON, *argv],
        total_memory=limits.total_memory,
        pass_fds=pass_fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def first_process(limits: Limits, script: str) -> list[str]:
    """The command of the shell that is the first process inside, under the limits of all others."""
    limited = [f"--{name.lower()}={value}" for name, value in resources(limits).items()]
    return ["/usr/bin/prlimit", *limited, "--", "/bin/sh", "-c", script, "sh"]


def spawn(
    front: Sequence[str],
    options: Sequence[str],
    command: Sequence[str],
    *,
    total_memory: int,
    pass_fds: Iterable[int] = (),
    **streams: Any,
) -> Confined:
    """Start a command inside, in a process group of its own.

    Args:
        front, options: see `surround`.
        command: what runs inside as its first process, with its arguments.
        total_memory: see `Limits`.
        pass_fds: open descriptors that it is given, under the same numbers.
        streams: standard input, output and error, as for `subprocess.Popen`.
    """
    reading, told = os.pipe()
    with open(reading, "rb", buffering=0) as news:
        with _above_4(told) as told:
            process = Confined(
                [*front, *options, "--info-fd", str(told), "--", *command],
                pass_fds=(*pass_fds, told),
                cwd="/",
                start_new_session=True,
                **streams,
            )
        process.first = _first_process_id(news)
    if process.first:
        process.watch(total_memory)
    return process


def _first_process_id(news: IO[bytes]) -> int | None:
    """Wait until bubblewrap tells the number of the first process inside; None if it fails before."""
    received = b""
    while b"}" not in received:
        if not select.select([news], [], [], START)[0] or not (part := news.read(4096)):
            return None
        received += part
    return json.loads(received)["child-pid"]


def surround(
    view: str | Path, submission: str | Path, limits: Limits, keep: bool = False
) -> tuple[list[str], list[str]]:
    """The command line in front of bubblewrap's options, and these: every barrier but the limits.

    Args:
        view, submission, limits: see `popen`, also for what is raised.
        keep: what comes as standard input and output is also 3 and 4 inside.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxMissing(f"the sandbox is made of parts of Linux; this is {sys.platform}")
    bwrap = program("bwrap")
    shown = list(host_view.options())
    for folder, place in ((view, VIEW), (submission, SUBMISSION)):
        shown += ["--ro-bind", os.path.abspath(folder), place]
    as_root = os.geteuid() == 0
    if as_root:
        _check_readable([Path(view), *Path(view).rglob("*")])
        _check_readable([Path(submission)])  # the modes of its files are the student's affair
    front = [
        *(program("choom"), "-n", "1000", "--"),  # when memory runs out, these processes go first
        *("/bin/sh", "-c", f'exec "$@" {"3<&0 4>&1" if keep else ""} <"$0"', _filter_path()),
        *(_as_nobody(bwrap, shown) if as_root else ()),
        bwrap,
    ]
    options = [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"),
        "--as-pid-1",
        *("--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--new-session"),
        # A checkout may lie in /tmp: what is shown of it comes after.
        *(*_writable(limits.tmp), *(_again(shown) if as_root else shown), *_closed()),
        *("--seccomp", "0", "--chdir", SUBMISSION, "--clearenv"),
        *(part for pair in ENVIRONMENT.items() for part in ("--setenv", *pair)),
    ]
    return front, options


def program(name: str) -> str:
    """Find a program on PATH.

    Raises:
        SandboxMissing: it is not on PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise SandboxMissing(f"{name} is not on PATH; apt-get install {PACKAGES[name]}")
    return path


@contextmanager
def _above_4(descriptor: int) -> Iterator[int]:
    """Move a descriptor to a number above 4, until the block ends: the shell in front of bubblewrap
    gives 3 and 4 away."""
    import fcntl  # not on every system

    number = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 5)
    os.close(descriptor)
    try:
        yield number
    finally:
        os.close(number)


def _filter_path() -> str:
    try:
        return seccomp.path()
    except (ImportError, RuntimeError) as error:
        raise SandboxMissing(
            f"no filter of system calls: {error}; pip install pyseccomp, and "
            "apt-get install libseccomp2"
        ) from error


def _as_nobody(bwrap: str, shown: list[str]) -> list[str]:
    """Start as root: lay out what is shown first, for nobody may not look into root's folders."""
    return [
        *(bwrap, "--die-with-parent", *shown, "--dir", "/tmp"),
        *("--dev-bind", "/dev", "/dev", "--dev-bind", "/proc", "/proc", "--"),
        *("/usr/bin/setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"),
    ]


def _again(shown: list[str]) -> list[str]:
    """Repeat the layout inside the one that root made, where everything lies at its new place."""
    again = list(shown)
    for n, option in enumerate(shown):
        if option == "--ro-bind":
            again[n + 1] = shown[n + 2]
    return again


def _writable(tmp: int) -> list[str]:
    """Lay out two bounded folders that can be written, /proc and /dev."""
    held = [
        part
        for folder in ("/tmp", "/dev/shm")
        for part in ("--perms", "1777", "--size", str(tmp), "--tmpfs", folder)
    ]
    # /dev/full gives zeros as well; but a shared map of /dev/zero is memory that nobody counts.
    devices = ["--dev", "/dev", "--dev-bind", "/dev/full", "/dev/zero"]
    return ["--proc", "/proc", *devices, *held]


def _closed() -> list[str]:
    """Close everything else against writing, once all is laid out; terminals, which `!command` in a
    notebook opens, are no storage."""
    places = ("/proc", "/dev", "/")
    return [part for place in places for part in ("--remount-ro", place)]


def _check_readable(paths: Iterable[Path]) -> None:
    for path in paths:
        mode = path.lstat().st_mode
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        if not stat.S_ISLNK(mode) and mode & needed != needed:
            raise PermissionError(
                f"{path} has mode {stat.S_IMODE(mode):o}; root's sandbox belongs to nobody, who "
                f"must be able to read it: chmod o+r{'x' * stat.S_ISDIR(mode)} {path}"
            )
