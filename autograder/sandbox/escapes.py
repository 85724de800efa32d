"""Try to escape from the sandbox. Runs inside it, alone: `python escapes.py NAME`.

Each escape yields a line for everything that it got and should not have got; a barrier that holds
leaves it silent. What the process outside has laid out to be found (see `doctor`) stands beside
this file, in `facts.json`: a command line is one of the places that are searched.
Tried without a sandbox, the escapes succeed and do no harm: they clean up after themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
MIB = 2**20
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE3 = 435  # the same number everywhere


def start(facts: Facts) -> Iterator[str]:
    """Try nothing: that the process starts is what is tested."""
    yield from ()


def network(facts: Facts) -> Iterator[str]:
    """Reach a listener on this machine; see a way out of it."""
    unix, inet = socket.AF_UNIX, socket.AF_INET
    for family, address in (
        (inet, ("127.0.0.1", facts["port"])),
        (unix, "\0" + facts["abstract"]),
        (unix, facts["socket"]),
    ):
        with contextlib.suppress(OSError), socket.socket(family) as connection:
            connection.connect(address)
            yield f"connected to {address!r}"
    devices = Path("/proc/net/dev").read_text().splitlines()[2:]
    for name in (line.split(":")[0].strip() for line in devices):
        if name != "lo":
            yield f"saw the network device {name}"


def files(facts: Facts) -> Iterator[str]:
    """Find what is the instructor's alone."""
    for path in facts["private"]:
        with contextlib.suppress(OSError):
            os.stat(path)
            yield f"found {path}"


def environment(facts: Facts) -> Iterator[str]:
    """Find a variable from the environment of the process that started this one."""
    if facts["canary"] in "".join(os.environ.values()):
        yield "read it in the own environment"
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            variables = place.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            names = {variable.partition("=")[0] for variable in variables if variable}
            if more := names - set(facts["variables"]):
                yield f"read {', '.join(sorted(more))} in {place}"


def names(facts: Facts) -> Iterator[str]:
    """Learn from the processes that it sees where the grader keeps what, and whose work it is."""
    names = [*facts["names"], facts["student"]]
    for place in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield from found_in((place / name).read_bytes(), names, place / name)
        if place.name != str(os.getpid()):  # whose memory holds the names that are looked for
            yield from found_in(memory_of(place), names, place / "mem")
    told = Path("/proc/self/mountinfo").read_bytes()
    yield from found_in(told, [facts["student"]], Path("/proc/self/mountinfo"))


def found_in(told: bytes, names: list[str], place: Path) -> Iterator[str]:
    """Say which of the names stand in what a place told."""
    yield from (f"read {name} in {place}" for name in names if name.encode() in told)


def memory_of(process: Path) -> bytes:
    """Read what a process keeps in its own memory, as far as that can be read."""
    parts = []
    with contextlib.suppress(OSError), open(process / "mem", "rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(begin)
                parts.append(memory.read(min(end - begin, 16 * MIB)))
    return b"\0".join(parts)


def writing(facts: Facts) -> Iterator[str]:
    """Make a file anywhere but in /tmp and /dev/shm."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    places = {*mounts, "/", "/view", "/submission", "/dev", "/proc", sys.prefix, facts["outside"]}
    for place in sorted(places - {"/tmp", "/dev/shm"}):
        file = os.path.join(place, f"attempt-{os.getpid()}")
        with contextlib.suppress(OSError):
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY))
            os.unlink(file)
            yield f"wrote into {place}"
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
        yield "took itself out of the line for the out-of-memory killer"


def storage(facts: Facts) -> Iterator[str]:
    """Fill /tmp and /dev/shm beyond their bound."""
    for folder in ("/tmp", "/dev/shm"):
        written, paths = 0, []
        with contextlib.suppress(OSError):
            while written <= facts["tmp"]:
                paths.append(os.path.join(folder, f"attempt-{os.getpid()}-{len(paths)}"))
                with open(paths[-1], "wb", buffering=0) as file:
                    written += file.write(bytes(MIB))
        for path in paths:
            os.unlink(path)
        if written > facts["tmp"]:
            yield f"wrote {written:,} bytes into {folder}"


def file_size(facts: Facts) -> Iterator[str]:
    """Write one file that is too large."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = f"/tmp/attempt-{os.getpid()}"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        file.truncate(facts["file_size"] + 1)
        yield f"made a file of {os.path.getsize(path):,} bytes"
    os.unlink(path)


def processes(facts: Facts) -> Iterator[str]:
    """Fork more often than is allowed."""
    children = []
    with contextlib.suppress(OSError):
        while len(children) <= facts["processes"]:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if len(children) > facts["processes"]:
        yield f"had {len(children)} children at one time"


def open_files(facts: Facts) -> Iterator[str]:
    """Hold more descriptors than is allowed."""
    held = []
    with contextlib.suppress(OSError):
        while len(held) <= facts["open_files"]:
            held.append(os.dup(1))
    for descriptor in held:
        os.close(descriptor)
    if len(held) > facts["open_files"]:
        yield f"held {len(held)} descriptors"


def memory(facts: Facts) -> Iterator[str]:
    """Get more memory than is allowed, counted or not."""
    kinds = {
        "private": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        "shared": mmap.MAP_SHARED | mmap.MAP_ANONYMOUS,
        "growing": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100,  # MAP_GROWSDOWN
    }
    for kind, flags in kinds.items():
        with contextlib.suppress(OSError):
            mmap.mmap(-1, facts["memory"], flags=flags).close()
            yield f"mapped {facts['memory']:,} bytes of {kind} memory"
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (facts["memory"], facts["memory"]))
        yield f"raised the size of the stack to {facts['memory']:,} bytes"


def uncounted_memory(facts: Facts) -> Iterator[str]:
    """Get memory that no process answers for."""
    with contextlib.suppress(OSError), open("/dev/zero", "r+b") as file:
        mmap.mmap(file.fileno(), facts["memory"], flags=mmap.MAP_SHARED).close()
        yield f"mapped {facts['memory']:,} bytes of /dev/zero, shared"
    with contextlib.suppress(OSError):
        os.close(os.memfd_create("attempt"))
        yield "made a file in memory"
    key = LIBC.shmget(0, ctypes.c_size_t(4096), 0o1600)
    if key != -1:
        LIBC.shmctl(key, 0, None)  # IPC_RMID
        yield "made a System V shared memory segment"
    ends, page = os.pipe(), ctypes.create_string_buffer(4096)
    if LIBC.vmsplice(ends[1], (ctypes.c_void_p * 2)(ctypes.addressof(page), 4096), 1, 0) > 0:
        yield "kept a page in a pipe"
    for end in ends:
        os.close(end)


def page_tables(facts: Facts) -> Iterator[str]:
    """Have the kernel keep more tables of where pages lie than there may be memory."""
    reach = 2 * MIB  # of one page of such a table, of 4096 bytes
    pages = facts["total_memory"] // 4096 + 1024
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    with mmap.mmap(-1, pages * reach, flags=flags, prot=mmap.PROT_READ) as wide:
        wide.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            wide[page * reach]
        time.sleep(1)
        yield f"held {pages:,} pages of page tables"


def total_memory(facts: Facts) -> Iterator[str]:
    """Hold more memory in many processes than one of them could."""
    each = facts["total_memory"] // 3
    children = []
    said, say = os.pipe()
    for _ in range(4):
        child = os.fork()
        if child == 0:
            held = b"x" * each
            os.write(say, b".")
            time.sleep(60)
            os._exit(len(held))
        children.append(child)
    os.close(say)
    for _ in children:  # on a busy machine it takes a while until they hold it
        os.read(said, 1)
    time.sleep(3)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    yield f"held {len(children)} times {each:,} bytes"


def cpu_time(facts: Facts) -> Iterator[str]:
    """Compute for longer than is allowed."""
    while time.process_time() <= facts["cpu_seconds"] + 1:
        pass
    yield f"computed for {time.process_time():.1f} s"


def namespaces(facts: Facts) -> Iterator[str]:
    """Become root in a user namespace of its own, by three system calls."""
    numbers = {"x86_64": 56, "aarch64": 220}
    new_user = 0x10000000
    size = 88
    arguments = (ctypes.c_uint64 * (size // 8))(new_user, 0, 0, 0, signal.SIGCHLD)
    calls = {
        "unshare": lambda: LIBC.unshare(new_user),
        "clone3": lambda: LIBC.syscall(CLONE3, arguments, size),
    }
    if number := numbers.get(os.uname().machine):
        calls["clone"] = lambda: LIBC.syscall(number, new_user | signal.SIGCHLD, 0, 0, 0, 0)
    for name, call in calls.items():
        child = os.fork()
        if child == 0:
            os._exit(0 if call() >= 0 else 1)
        if os.waitpid(child, 0)[1] == 0:
            yield f"made a user namespace by {name}"


def system_calls(facts: Facts) -> Iterator[str]:
    """Make calls that no namespace stops, but the filter."""
    status = Path("/proc/self/status").read_text().split()
    if status[status.index("Seccomp:") + 1] != "2":
        yield "is under no filter"
    for name, family in (("AF_NETLINK", 16), ("AF_VSOCK", 40)):
        with contextlib.suppress(OSError):
            socket.socket(family, socket.SOCK_RAW if family == 16 else socket.SOCK_STREAM).close()
            yield f"opened a socket of the family {name}"
    child = os.fork()
    if child == 0:
        os._exit(0 if LIBC.ptrace(0, 0, 0, 0) == 0 else 1)  # PTRACE_TRACEME
    if os.waitpid(child, 0)[1] == 0:
        yield "called ptrace"
    if LIBC.personality(ctypes.c_ulong(0xFFFFFFFF)) != -1:
        yield "called personality"


def privileges(facts: Facts) -> Iterator[str]:
    """Be root, or hold a part of what root may do."""
    if 0 in (*os.getresuid(), *os.getresgid()):
        yield "is root"
    for line in Path("/proc/self/status").read_text().splitlines():
        name, value = line.split(":", 1)
        if name.startswith("Cap") and int(value, 16):
            yield f"holds capabilities: {name} {value.strip()}"
        if name == "NoNewPrivs" and value.strip() != "1":
            yield "may gain privileges by starting a program"


def others(facts: Facts) -> Iterator[str]:
    """See and end a process outside."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if facts["canary"].encode() in place.read_bytes().split(b"\0"):
                yield f"saw {place.parent}"
                os.kill(int(place.parent.name), signal.SIGKILL)
                yield f"killed process {place.parent.name}"


def descriptors(facts: Facts) -> Iterator[str]:
    """Find an open descriptor that it was not given."""
    for descriptor in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):  # the one that listed the folder is closed again
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if descriptor not in (0, 1, 2, facts["pipe"]):
                yield f"found descriptor {descriptor}, {target}"
    if os.read(0, 1):
        yield "read from standard input"


def survivors(facts: Facts) -> Iterator[str]:
    """Leave a process behind, which holds a pipe open: the end of the pipe is seen outside."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            time.sleep(facts["patience"] * 2)
        os._exit(0)
    yield from ()


ESCAPES = {
    escape.__name__: escape
    for escape in (
        *(start, network, files, environment, names, writing, storage, file_size, processes),
        *(open_files, memory, uncounted_memory, page_tables, total_memory, cpu_time, namespaces),
        *(system_calls, privileges, others, descriptors, survivors),
    )
}

if __name__ == "__main__":
    known = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
    got = list(ESCAPES[sys.argv[1]](known))
    print(json.dumps(got), flush=True)
    os._exit(0)  # what was imported need not be taken apart
