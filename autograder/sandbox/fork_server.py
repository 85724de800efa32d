"""Start warm: fork a confined Python that has imported torch already, in milliseconds.

`ForkServer.popen` is `command.popen` with the same view, limits and filter, and bubblewrap's
process as the handle. Inside that sandbox waits a shell; the script's
process is forked by `fork_child.py` and joins it, and the shell ends as it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from autograder import account_cache
from autograder.sandbox import command, seccomp
from autograder.sandbox.memory import Confined

_SERVER = Path(__file__).with_name("fork_child.py")  # runs by itself, and is not for every system
IMPORTS = (
    "torch",
    "IPython.core.interactiveshell",
    "matplotlib.pyplot",
    "ipywidgets",
    "safetensors.torch",
    "tqdm",
)
"""What is slow to import, and every lesson imports it."""
IMPORT_SECONDS = 120  # that the server may take for it
# A subshell reads, and the shell waits for it: while it waits, it collects what others leave behind.
_WAIT = "echo ready >&4; exec 4>&- 2>/dev/null; (read code <&3 || code=125; exit $code); exit $?"


class ForkServer:
    """A process to fork from, and the sandboxes that its children join. Threads may share one.

    Use it as a context manager, or `close` it: its process ends with it. It imports while the caller
    goes on, who waits for it at the first `popen`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        fonts = account_cache.path(f"matplotlib-{version('matplotlib')}")
        self._imports = {"modules": IMPORTS, "fonts": str(fonts)}
        self._launch()

    def popen(
        self,
        argv: Sequence[str],
        view: str | Path,
        submission: str | Path,
        limits: command.Limits,
        pass_fds: Iterable[int] = (),
    ) -> Confined:
        """Start a confined Python script warm.

        Args:
            argv: the script's path inside, and its arguments.
            view, submission, limits, pass_fds: see `command.popen`.

        Raises:
            OSError: the sandbox or the server failed, before the script ran.
            SandboxMissing, PermissionError: see `command.popen`.
        """
        front, options = command.surround(view, submission, limits, keep=True)
        numbers = list(pass_fds)
        request = {"argv": list(argv), "numbers": numbers, "limits": command.resources(limits)}
        (status, told), (news, said), (reading, output) = os.pipe(), os.pipe(), os.pipe()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            for fd in (told, news, output):
                ours.callback(os.close, fd)
            for fd in (status, said):
                theirs.callback(os.close, fd)
            process = command.spawn(
                front,
                options,
                command.first_process(limits, _WAIT),
                total_memory=limits.total_memory,
                stdin=status,
                stdout=said,
                stderr=output,
            )
            process.stdout = open(reading, "rb", buffering=0)  # noqa: SIM115 (the caller's)
            theirs.close()
            try:
                _wait_until_made(news, reading)
                inside = os.pidfd_open(process.first)
                ours.callback(os.close, inside)
                self._send(request, [inside, told, output, *numbers])
            except OSError:
                _abandon(process)
                raise
        return process

    def close(self) -> None:
        """End the server's process, which need not import to the end. What it forked lives on in its
        sandbox."""
        self._socket.close()
        if not self._is_ready:
            self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._process.stderr.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> None:
        self._is_ready = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        user = [str(command.NOBODY)] if os.geteuid() == 0 else []
        # Every process that is forked from it shows its command line: no file's name stands there.
        with theirs, open(_SERVER) as program:
            # What runs out of memory here is a student's process, or takes none with it.
            self._process = subprocess.Popen(
                [
                    *(command.program("choom"), "-n", "1000", "--"),
                    *(*command.PYTHON, "-", str(theirs.fileno()), seccomp.program().hex(), *user),
                ],
                stdin=program,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=command.ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket.settimeout(IMPORT_SECONDS)
        self._socket.send(json.dumps(self._imports).encode())

    def _wait_until_ready(self) -> None:
        if self._socket.recv(16) != b"ready":
            said = self._process.stderr.read().decode(errors="replace")
            raise OSError(f"the fork server ended while it imported torch: {said[-2000:]}")
        self._process.stderr.close()
        self._is_ready = True

    def _send(self, request: dict, fds: list[int]) -> None:
        """Ask for one process; a server that has died is replaced by another."""
        with self._lock:
            if self._process.poll() is not None:
                self._socket.close()
                self._process.stderr.close()
                self._launch()
            if not self._is_ready:
                self._wait_until_ready()
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)


def _wait_until_made(news: int, output: int) -> None:
    """Wait for bubblewrap and the shell inside."""
    received = b""
    while not received.endswith(b"ready\n"):
        if not select.select([news], [], [], command.START)[0]:
            raise OSError(f"no sandbox was made within {command.START} s")
        part = os.read(news, 4096)
        if not part:
            why = os.read(output, 4096).decode(errors="replace")
            raise OSError(f"no sandbox was made: {why.strip()}")
        received += part


def _abandon(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
