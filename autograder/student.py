"""Run a student's cells and answer probes; this program knows no expected value.

    python student.py REQUESTS_FD REPLIES_FD LESSON

Started in the sandbox from a library view, `sandbox/library_view.py`, where `autograder` is not, in
the folder that was handed in; cells run in a copy of it that they may change, and as in a notebook's
kernel inside an event loop that is running. Requests and replies are frames of `wire.py`; standard
output and error belong to the student.
After the first reply, {"ready": True}, there are two kinds of request, each answered with its own number:

    {"number": n, "cell": source}                          -> {"number": n, "error": None or …}
    {"number": n, "probe": check, "needs": [names],
     "challenge": …}                                       -> … the same, and "evidence": …, "broken": …

Student code can replace anything in this process, so everything that it sends is only a claim.
That is why no expected value, no score and no path to one ever reaches it: a challenge is drawn after
the cells ran, and its evidence is judged on the other side of the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from inspect import CORO_CREATED, getcoroutinestate
from pathlib import Path
from typing import Any

WORDS = 600
"""The most characters of an error's message."""
WORK = "work"
"""The folder in HOME in which cells run."""
COPIED = 32 * 2**20
"""Bytes of the files that are copied there, the smallest first; the others are links to read from."""


def main(requests: int, replies: int, lesson: str) -> None:
    """Serve until the requests end. No exception of a student's code gets out."""
    folder = str(Path(__file__).resolve().parent)
    sys.path[:] = [
        str(Path(folder).parent),
        *(path for path in sys.path if path not in ("", folder)),
    ]
    wire = import_module("judge.wire")
    probes = probes_of(lesson)
    os.chdir(working_copy(Path.cwd(), Path.home() / WORK))
    sys.stdout, sys.stderr = tolerant_output(1), tolerant_output(2)
    torch = import_module("torch")
    torch.compile = uncompiled
    see_one_core(torch)
    shell = new_shell()
    # A student's own module of that name should be found, and not ours.
    for name in [name for name in sys.modules if name.split(".")[0] == "judge"]:
        del sys.modules[name]
    # Last, and not first as the shell has it: a file torch.py beside the notebook is not torch.
    sys.path[:] = [*(path for path in sys.path if path), ""]
    serve(Pipe(requests, replies, wire), shell, shell.user_ns, probes)


def probes_of(lesson: str) -> dict[str, Callable]:
    """Return the probes by check: the judge's own, functions with the name of a check, and for the other
    checks the visible ones. Each is called with (names, needs, challenge)."""
    from functools import partial

    frame = import_module("course.checks.check")
    checks = frame.checks_in(import_module(f"course.checks.{lesson}"))
    replacements = vars(import_module("judge.probes"))
    return {
        name: partial(frame.observe, replacements.get(name, check.probe))
        for name, check in checks.items()
    }


def tolerant_output(descriptor: int) -> io.TextIOWrapper:
    """Open an unbuffered stream that accepts any text, even half an emoji."""
    file = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(file, "utf-8", "backslashreplace", write_through=True)


def uncompiled(model: Any = None, **_: Any) -> Any:
    """Return the model unchanged, in place of `torch.compile`: there is no compiler. PyTorch's own
    function would refuse a full graph, and takes seconds to import."""
    return (lambda decorated: decorated) if model is None else model


def see_one_core(torch: Any) -> None:
    """Say that there is one core, and let nobody ask for more threads: how many cores the grader has may
    change nothing, and the threads of a large machine would be more than a process may have here."""
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    os.cpu_count = os.process_cpu_count = lambda: 1
    os.sched_getaffinity = lambda pid=0: {core}
    torch.set_num_threads = torch.set_num_interop_threads = lambda number: None


def working_copy(source: Path, place: Path) -> Path:
    """Copy a folder to a place where its files can be changed, without files that cannot be read."""
    files = [Path(folder, name) for folder, _, names in os.walk(source) for name in names]
    sizes = {file: file.lstat().st_size for file in files}
    left = COPIED
    place.mkdir()
    for file in sorted(files, key=sizes.__getitem__):
        target = place / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        left -= sizes[file]
        with contextlib.suppress(OSError):
            (shutil.copy if left >= 0 else os.symlink)(file, target)
    return place


class Missing(LookupError):
    """The notebook lacks a function that the probe calls."""


class Pipe:
    """Receives and sends frames by functions that were bound before any student code ran."""

    def __init__(self, requests: int, replies: int, wire: Any) -> None:
        self.requests, self.replies = requests, replies
        self.decode, self.encode = wire.decode, wire.encode
        self.frame_length, self.head = wire.frame_length, wire.LENGTH.size
        self.os_read, self.os_write = os.read, os.write

    def receive(self) -> dict[str, Any] | None:
        """Return the next request, or None when there will be no other."""
        head = self._read(self.head)
        if head is None:
            return None
        body = self._read(self.frame_length(head) - self.head)
        return None if body is None else self.decode(head + body)

    def _read(self, n: int) -> bytes | None:
        parts, left = [], n
        while left:
            part = self.os_read(self.requests, min(left, 2**20))
            if not part:
                return None
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def send(self, frame: bytes) -> None:
        """Write one frame whole."""
        left = memoryview(frame)
        while left:
            left = left[self.os_write(self.replies, left) :]


def new_shell() -> Any:
    """Make an IPython shell without history, as similar to a notebook's as possible without a kernel."""
    from IPython.core.error import UsageError
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class NotebookShell(InteractiveShell):
        def enable_matplotlib(self, gui: str | None = None) -> tuple[str, str]:
            """Do nothing for %matplotlib, whatever backend it names: there are no windows."""
            return "agg", "agg"

        def ask_exit(self) -> None:
            """Do nothing for exit: the process goes on."""

        def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
            """Run a magic; if it needs a kernel or a missing package, the cell goes on."""
            try:
                if self._find_with_lazy_load("line", magic_name):
                    return super().run_line_magic(magic_name, line, _stack_depth + 1)
                print(f"%{magic_name} is not a magic that works here.")
            except (UsageError, ImportError) as error:
                if magic_name not in ("config", "load_ext", "reload_ext", "pylab"):
                    raise
                print(f"%{magic_name} {line}: {error}")

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Plain"
    return NotebookShell.instance(config=config)


def serve(pipe: Pipe, shell: Any, names: Mapping[str, Any], probes: Mapping[str, Callable]) -> None:
    """Answer requests until there are no more."""
    own_id, process_id, leave, describe = os.getpid(), os.getpid, os._exit, error_record
    run, ask, complete, wait = run_cell, run_probe, run_in_loop, readable
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def answer(request: Mapping[str, Any], frames: list[bytes]) -> None:
        number = {"number": request["number"]}
        try:
            if "cell" in request:
                reply = {**number, "error": await run(shell, request["cell"])}
            else:
                evidence, broken = ask(names, probes, request)
                reply = {**number, "error": None, "evidence": evidence, "broken": broken}
            frames.append(pipe.encode(reply))
        except BaseException as error:  # also of evidence that is no plain data
            frames.append(pipe.encode({**number, "error": describe(error)}))
        if process_id() != own_id:  # a cell forked, and this is the copy: only one may answer
            leave(0)

    pipe.send(pipe.encode({"ready": True}))
    while True:
        complete(loop, wait(loop, pipe.requests))  # meanwhile, tasks that a cell has left go on
        request = pipe.receive()
        if request is None:
            return
        frames: list[bytes] = []
        complete(loop, answer(request, frames))
        if not frames:
            lost = RuntimeError("the event loop ended before this did")
            frames = [pipe.encode({"number": request["number"], "error": describe(lost)})]
        pipe.send(frames[0])


async def readable(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    """Wait until something can be read."""
    arrived = asyncio.Event()
    loop.add_reader(descriptor, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(descriptor)


def run_in_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine) -> None:
    """Run a coroutine to its end, or as far as possible. It raises nothing, whatever student code did
    to the loop: if the loop is broken, a coroutine that awaits nothing still runs."""
    with contextlib.suppress(BaseException):
        task = loop.create_task(coroutine)
        while not task.done():
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of another task
                loop.run_until_complete(task)
    if getcoroutinestate(coroutine) == CORO_CREATED:
        with contextlib.suppress(BaseException):
            coroutine.send(None)


async def run_cell(shell: Any, source: str) -> dict[str, str] | None:
    """Run one cell; return the record of its error, or None. IPython prints the traceback."""
    if _awaits(shell, source):
        transformed = shell.transform_cell(source)
        result = await shell.run_cell_async(
            source, store_history=True, transformed_cell=transformed
        )
        shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)
    else:
        result = shell.run_cell(source, store_history=True)
    error = result.error_before_exec or result.error_in_exec
    return None if error is None else error_record(error)


def _awaits(shell: Any, source: str) -> bool:
    """Tell whether a cell has an `await` at its top level."""
    try:
        return shell.should_run_async(source, transformed_cell=shell.transform_cell(source))
    except Exception:  # running it will say what is wrong with it
        return False


def run_probe(
    names: Mapping[str, Any], probes: Mapping[str, Callable], request: Mapping[str, Any]
) -> Any:
    """Run one probe; return its evidence, and which house rules were broken.

    Raises:
        Missing: a function that the probe calls does not exist.
    """
    missing = [name for name in request["needs"] if names.get(name) is None]
    if missing:
        raise Missing(f"There is no {' and no '.join(missing)} in this notebook.")
    return probes[request["probe"]](names, request["needs"], request["challenge"])


def error_record(error: BaseException) -> dict[str, str]:
    """Describe an exception in plain words: kind, message, and where in the notebook it came up."""
    record = {"kind": "Exception", "words": "", "where": ""}
    for part, say in (
        ("kind", lambda: type(error).__name__),
        ("words", lambda: str(error)),
        ("where", lambda: import_module("course.checks.stopped").where_it_stopped(error)),
    ):
        try:  # an exception of the student's may raise another one when it is looked at
            record[part] = str.__getitem__(say(), slice(WORDS))
        except BaseException:
            record[part] = record[part] or "?"
    return record


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
