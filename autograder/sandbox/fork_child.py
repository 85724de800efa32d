"""Run the fork server's process: import what is slow to import, and fork into sandboxes.

    python -I -B -u - SOCKET FILTER [USER] <fork_child.py

It is started with nothing that a student may not have: no part of the judge, an empty environment,
no open files but the socket. For each request it forks a process that joins the namespaces of a
sandbox that bubblewrap has just made, gives up every privilege, takes its limits and the filter of
system calls, and runs the script that it was asked for. Only the standard library at the top: what
is imported here is in every student's process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import socket
import sys
import tempfile
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
# CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET
NAMESPACES = sum(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
MAX_REQUEST, MAX_FDS = 2**16, 64
INFRA = 125  # exit code when the process failed before the script ran


class Filter(ctypes.Structure):
    """struct sock_fprog: the number of instructions of 8 bytes, and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def main(fd: int, program: bytes, user: int | None) -> None:
    """Serve requests until the other side closes; a forked process leaves by running its script. The
    first message says what to import."""
    server = socket.socket(fileno=fd)
    gc.disable()  # imports leave little garbage, and to look for it takes a seventh of their time
    import_all(**json.loads(server.recv(MAX_REQUEST)))
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    gc.freeze()  # a child need not look through what is here now
    gc.enable()
    server.send(b"ready")
    request = serve(server, program)
    if request is not None:
        run(request["argv"])


def import_all(modules: list[str], fonts: str) -> None:
    """Import modules, and leave no trace of it but them. What matplotlib knows of this machine's fonts is
    kept in the folder `fonts`: to look for them takes as long as to import matplotlib."""
    before = dict(os.environ)
    # Else matplotlib makes a folder of its own, which every process would remove when it ends.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPLCONFIGDIR"] = folder
        with contextlib.suppress(OSError):  # the first time, there is none
            shutil.copytree(fonts, folder, dirs_exist_ok=True)
        for name in modules:
            importlib.import_module(name)
        if os.listdir(folder) and not os.path.isdir(fonts):
            with contextlib.suppress(OSError):  # then they are looked for the next time, too
                shutil.copytree(folder, fonts)
    os.environ.clear()  # libraries put their own settings there
    os.environ.update(before)


def serve(server: socket.socket, program: bytes) -> dict[str, Any] | None:
    """Fork for every request; return it in the forked process, None when there are no more."""
    while True:
        data, fds, _, _ = socket.recv_fds(server, MAX_REQUEST, MAX_FDS)
        if not data:
            return None
        if os.fork() == 0:
            server.close()
            request = json.loads(data)
            join(request, fds, program)
            return request
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def join(request: dict[str, Any], fds: list[int], program: bytes) -> None:
    """Enter the sandbox; what returns is a process in it, confined. The process that forked it
    stays outside until it ends, and tells how."""
    sandbox, status, output, *passed = fds
    try:
        _call("setns", sandbox, NAMESPACES)
        child = os.fork()  # only a child is in the new PID namespace
    except OSError as error:
        os.write(output, f"the sandbox cannot be joined: {error}\n".encode())
        os._exit(INFRA)
    if child:
        _tell(child, status, output)
    try:
        _place(output, passed, request["numbers"])
        os.setsid()
        os.umask(0o022)
        os.chdir("/submission")
        _confine(request["limits"], program)
    except BaseException as error:
        os.write(2, f"the process cannot be confined: {error}\n".encode())
        os._exit(INFRA)


def _tell(child: int, status: int, output: int) -> None:
    """Wait for the confined process and write its exit code, as a shell would see it. Where nobody is
    left to read its output, the grader was killed: then end, and the sandbox with it. (bubblewrap's own
    way does not reach from root's processes to nobody's.)"""
    os.dup2(status, 0)
    os.dup2(output, 1)
    os.closerange(2, os.sysconf("SC_OPEN_MAX"))
    waiting, process = select.poll(), os.pidfd_open(child)
    waiting.register(process, select.POLLIN)
    waiting.register(1, 0)  # of a pipe without a reader POLLERR comes unasked
    if process in dict(waiting.poll()):
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(OSError):
            os.write(0, b"%d\n" % (code if code >= 0 else 128 - code))
    os._exit(0)


def _place(output: int, passed: list[int], numbers: list[int]) -> None:
    """Give the descriptors the numbers that the script knows, and close all others."""
    targets = [0, 1, 2, *numbers]
    above = max(targets) + 1
    nothing = os.open("/dev/null", os.O_RDONLY)
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in (nothing, output, output, *passed)]
    for source, number in zip(sources, targets, strict=True):
        os.dup2(source, number)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in targets:
            with contextlib.suppress(OSError):  # the one that lists the folder
                os.close(fd)


def _confine(limits: dict[str, int], program: bytes) -> None:
    """Take the limits, give up every capability for good, load the filter."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    for capability in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel has no more of them
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc/self is closed to it
    loaded = Filter(len(program) // 8, program)
    _call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0)


def _call(name: str, *arguments: Any) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def run(argv: list[str]) -> None:
    """Run the script as Python would; `argv` begins with its path."""
    sys.argv[:] = argv
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    socket_fd, program_hex, *user_id = sys.argv[1:]
    main(int(socket_fd), bytes.fromhex(program_hex), int(user_id[0]) if user_id else None)
