"""A student process can do what it likes: this side is answered in time, or knows why it is not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from grading_runs import wait_until
from patience import PATIENCE
from submissions import Desk

from autograder.sandbox.child import (
    OUTPUT,
    Child,
    ChildDied,
    DeadlinePassed,
    InfraError,
    MachineBusy,
    TooMuch,
)
from autograder.wire import LENGTH, encode
from course.checks.calls import call

SOLVED = """
def matmul_flops(m, k, n):
    return 2 * m * k * n
"""
PROBE = {
    "probe": "flops_of_any_product",
    "needs": ["matmul_flops"],
    "challenge": {"cases": [call("matmul_flops", 2, 3, 4)]},
}
EVIDENCE = {"results": [{"type": "", "value": 48}]}


def program(command: list[str]):
    """Starts another program in the place of the student's."""

    def start(arguments, fds):
        return subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=fds,
            start_new_session=True,
        )

    return start


@pytest.fixture(scope="module")
def desk(desks) -> Desk:
    return desks("00-start")


@pytest.fixture
def child(desk):
    with desk.start_for(desk.new_folder()) as child:
        yield child


@pytest.fixture
def bare(desk):
    """For tests that look at the process itself, and not at the one that holds its sandbox."""
    with desk.start() as child:
        yield child


@pytest.fixture(scope="module")
def shared(desk):
    """For cells that leave nothing behind."""
    with desk.start_for(desk.new_folder()) as child:
        yield child


def run(child: Child, source: str, seconds: float = PATIENCE) -> dict | None:
    """The error of a cell, or None."""
    return child.ask({"cell": source}, seconds)["error"]


def said(child: Child) -> str:
    """What it printed, once there is something: its output is read beside its replies."""
    end = time.monotonic() + PATIENCE
    while not child.output and time.monotonic() < end:
        time.sleep(0.02)
    return child.output


def probe(child: Child, seconds: float = PATIENCE) -> dict:
    return child.ask(PROBE, seconds)


def test_cells_run_in_order_and_a_probe_is_answered(child):
    assert run(child, "%time x = 20\n!true") is None
    assert run(child, f"{SOLVED}\nx += 4\nprint(x)") is None
    assert run(child, "import asyncio\nawait asyncio.sleep(0)\nassert x == 24") is None
    assert probe(child)["evidence"] == EVIDENCE
    wait_until(lambda: child.output.endswith("24\n"))  # a thread of its own reads it


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise NotImplementedError()", "NotImplementedError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import sys\nsys.exit()", "SystemExit"),
        ("input('name? ')", "StdinNotImplementedError|EOFError"),
        ("def f():\n    f()\nf()", "RecursionError"),
        ("bytearray(2**60)", "MemoryError"),
    ],
)
def test_an_error_in_a_cell_is_told_and_the_next_cell_runs(shared, source, kind):
    assert run(shared, source)["kind"] in kind.split("|")
    assert run(shared, "x = 1") is None


def test_an_error_in_a_function_says_where_it_came_up(child):
    run(child, "def matmul_flops(m, k, n):\n    return m * none")
    error = probe(child)["error"]
    assert error["kind"] == "NameError"
    assert error["where"] == "in matmul_flops, at `return m * none`, where m = 2, k = 3, n = 4"


def test_a_function_that_is_not_there_is_named(child):
    assert "no matmul_flops" in probe(child)["error"]["words"]


def test_an_exception_that_fights_back_is_only_an_error(child):
    run(
        child,
        "class Evil(Exception):\n"
        "    def __str__(self):\n        raise Evil\n"
        "def matmul_flops(m, k, n):\n    raise Evil",
    )
    assert probe(child)["error"] == {
        "kind": "Evil",
        "words": "?",
        "where": "in matmul_flops, at `raise Evil`, where m = 2, k = 3, n = 4",
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os._exit(3)", "status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os.closerange(3, 100)\nwhile True: pass", "closed its pipes"),
    ],
)
def test_the_reason_of_a_death_is_told(child, source, words):
    with pytest.raises(ChildDied, match=words):
        run(child, source)
    with pytest.raises(ChildDied, match="ended before"):
        run(child, "1")


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except OSError: pass\nwhile True: pass",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    ],
)
def test_a_hang_ends_at_the_deadline_and_the_process_with_it(bare, source):
    with pytest.raises(DeadlinePassed):
        run(bare, source, seconds=1)
    assert_gone(bare._process.pid)


def state_of(pid: int) -> str:
    """The letter of a process's state: T where it was stopped, Z where it waits to be collected."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def assert_gone(pid: int) -> None:
    """No living process has that number: none at all, or one that waits to be collected."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if state_of(pid) == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still lives")


@pytest.fixture
def crowded(bare):
    """A process that shares one core with six others, which work without end."""
    core = {min(os.sched_getaffinity(0))}
    for thread in os.listdir(f"/proc/{bare._process.pid}/task"):
        os.sched_setaffinity(int(thread), core)
    endless = [sys.executable, "-c", "while True: pass"]
    # A session each: where the kernel shares time among sessions, these are six and not one.
    others = [subprocess.Popen(endless, start_new_session=True) for _ in range(6)]
    for other in others:
        os.sched_setaffinity(other.pid, core)
    yield bare
    for other in others:
        other.kill()
        other.wait()


def test_time_in_which_others_compute_does_not_count(crowded):
    begun = time.monotonic()
    assert run(crowded, "import time\nbegun = time.process_time()") is None
    assert run(crowded, "while time.process_time() < begun + 0.4: pass", seconds=0.8) is None
    assert time.monotonic() - begun > 0.8, "the others left it alone"
    assert 0.35 < crowded.used < 0.8


def test_on_a_busy_machine_an_endless_loop_ends_at_its_deadline_all_the_same(crowded):
    with pytest.raises(DeadlinePassed):
        run(crowded, "while True: pass", seconds=0.5)


def test_where_the_machine_is_too_busy_it_is_the_machine_that_failed(crowded, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.child.BACKSTOP", 2)
    with pytest.raises(MachineBusy, match=r"in . seconds the process could use only .* of the 2"):
        run(crowded, "while True: pass", seconds=2)


def test_the_processor_time_of_its_own_children_counts(child):
    endless = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])"
    with pytest.raises(DeadlinePassed):
        run(child, endless, seconds=1)


def test_a_death_for_too_many_threads_is_told(child):
    words = "b'libgomp: Thread creation failed: Resource temporarily unavailable'"
    with pytest.raises(ChildDied, match="status 1, since it started more threads than it may"):
        run(child, f"import os\nos.write(2, {words})\nos._exit(1)")


def test_its_own_children_die_with_it(desk):
    with desk.start() as child:
        run(child, "import subprocess as s\np = s.Popen(['sleep', '600'])\nprint(f'pid {p.pid}')")
        sleeping = int(said(child).split()[-1])
        os.kill(sleeping, 0)
    assert_gone(sleeping)


def test_children_of_a_process_that_ended_itself_die_too(desk):
    with desk.start() as child:
        with pytest.raises(ChildDied, match="status 0"):
            run(
                child,
                "import os, subprocess as s\n"
                "p = s.Popen(['sleep', '600'])\nos.write(1, b'pid %d' % p.pid)\nos._exit(0)",
            )
        sleeping = int(child.output.split()[-1])
    assert_gone(sleeping)


def test_a_request_that_nobody_reads_ends_at_the_deadline(bare):
    run(
        bare,
        "import os, signal, threading\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()",
    )
    end = time.monotonic() + PATIENCE
    while state_of(bare._process.pid) != "T":
        assert time.monotonic() < end, "it was never stopped"
        time.sleep(0.02)
    with pytest.raises(DeadlinePassed):
        bare.ask({"cell": "#" * 2**20}, 1)


def test_a_flood_of_output_is_drained_and_cut(child):
    assert run(child, "for _ in range(60): print('x' * 2**20)") is None
    assert len(child.output) < OUTPUT + 100
    assert child.output.endswith("bytes more")


def test_noise_is_harmless(child):
    noise = (
        "import sys, warnings, logging\nfrom tqdm.auto import tqdm\n"
        "warnings.warn('careful')\nlogging.error('hm')\nprint('err', file=sys.stderr)\n"
        "for _ in tqdm(range(3)): pass\nfrom IPython.display import HTML, display\n"
        "display(HTML('<b>x</b>'))\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    )
    assert run(child, noise) is None
    loud = "\n    print('hm'); warnings.warn('x'); sys.stderr.write('y')\n    return"
    run(child, SOLVED.replace("\n    return", loud))
    assert probe(child)["evidence"] == EVIDENCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
        "import os\nos.close(1); os.close(2)",
        "import os\nos.read = os.write = os.getpid = os._exit = None",
        "import json, numpy, struct, io\njson.dumps = json.loads = numpy.save = numpy.load = None\n"
        "numpy.lib.format.write_array_header_1_0 = io.BytesIO = struct.Struct = None",
        "import torch\ntorch.tensor = torch.from_numpy = torch.Tensor.numpy = None",
        "import threading, time\n"
        "def later():\n    import os\n    time.sleep(0.1)\n    os.write = None\n"
        "threading.Thread(target=later).start(); time.sleep(0.3)",
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)",
        "def exit(*_): pass\njudge = wire = PROBES = os = sys = None",
        "import os\nif os.fork(): os.wait()",
        "import os\nos.fork()",
    ],
)
def test_what_a_cell_replaces_does_not_reach_the_channel(child, source):
    run(child, SOLVED)
    run(child, source)
    assert probe(child)["evidence"] == EVIDENCE
    assert probe(child)["evidence"] == EVIDENCE


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.modules.clear()",
        "import asyncio\nasyncio.get_event_loop().stop()",
        *(
            pytest.param(source, marks=pytest.mark.slow)
            for source in (
                "import builtins\nbuiltins.print = builtins.open = builtins.sum = builtins.max = None",
                "import asyncio\n"
                "asyncio.Event = asyncio.Task = asyncio.get_event_loop().create_task = None",
                "import asyncio\nfor task in asyncio.all_tasks(): task.cancel()",
                "import asyncio\nasyncio.get_event_loop()._selector.close()",
            )
        ),
    ],
)
def test_when_python_itself_is_broken_every_request_is_still_answered(child, source):
    run(child, "x = 1")
    assert run(child, source) is None
    assert {"error"} <= set(probe(child))
    assert {"error"} <= set(child.ask({"cell": "x += 1"}, 30))


NOTEBOOK = {
    "a loop is running": [
        "import asyncio\nassert asyncio.get_running_loop().is_running()",
        "def answer():\n    return asyncio.get_running_loop()",
        "answer()",
    ],
    "a task goes on in later cells": [
        "import asyncio\nasync def later(n):\n    global x\n    await asyncio.sleep(n)\n    x = n\n"
        "    return n",
        "task = asyncio.create_task(later(0.05))",
        "assert await task == 0.05",
        "task = asyncio.create_task(later(0))\nassert x == 0.05",
        "assert x == 0",
        "waiting = [asyncio.create_task(later(10**6)) for _ in range(9)]",
        "assert await asyncio.gather(later(0), later(0)) == [0, 0]",
    ],
    "a task that ends by SystemExit ends nothing else": [
        "import asyncio\nasync def leaves(error):\n    raise error",
        "tasks = [asyncio.create_task(leaves(e)) for e in (SystemExit, KeyboardInterrupt)]",
        "x = 1",
        "await asyncio.sleep(0.01)\nassert x == 1",
    ],
    "the usual way to run a coroutine": [
        "import asyncio\nasync def one():\n    return 1",
        "loop = asyncio.get_event_loop()\n"
        "t = loop.create_task(one()) if loop.is_running() else loop.run_until_complete(one())",
        "assert t.result() == 1",
    ],
    "torch.compile": [
        "import torch\n@torch.compile\ndef double(x):\n    return 2 * x\nassert double(1) == 2",
        "@torch.compile(fullgraph=True, mode='max-autotune')\ndef double(x):\n    return 2 * x",
        "layer = torch.nn.Linear(2, 2)\nlayer.compile()\nlayer(torch.zeros(1, 2))",
        "assert torch.compile(layer, dynamic=True)(torch.zeros(1, 2)).shape == (1, 2)",
    ],
    "magics of a kernel": [
        "%connect_info\n%autosave 60\n%qtconsole\n%no_such_magic at all\nx = 1",
        "%config InlineBackend.figure_format = 'retina'\n%config NoSuchClass.trait = 1\nx += 1",
        "%matplotlib widget\n%load_ext no_such_extension\nx += 1",
        "%pip --version\n!pip --version\nx += 1",
        "y = %no_such_magic\nassert x == 4 and y is None",
        "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n"
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('x.png')",
        "def f():\n    x = 1\n    %time x += 1\n    return x\nassert f() in (1, 2)",
    ],
    "half an emoji": [
        "print('\\ud83d')\nprint('\\ud83d', file=__import__('sys').stderr)",
        "'\\ud83d'",
        "%%writefile half.txt\nx",
    ],
    "what resets the notebook": [
        "x = 1",
        "%reset -f",
        "%reset -f\ny = 1",
        "assert y == 1\nprint(2)",
    ],
    "ways to leave": ["x = 1", "exit", "exit()", "quit()", "assert x == 1"],
    "output kept and redirected": [
        "%%capture out\nprint(1)",
        "assert out.stdout == '1\\n'",
        "import contextlib, io, sys\nsys.stdout = io.StringIO()\nprint(2)",
        "assert sys.stdout.getvalue() == '2\\n'\nsys.stdout = sys.__stdout__\nprint(3)",
        "sys.stdout.close()",
        "x = 1",
    ],
    "settings that last": [
        "import random, signal, sys, warnings, numpy, torch\nwarnings.filterwarnings('error')",
        "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\nrandom.seed(0)",
        "numpy.seterr(all='raise')\nsys.setrecursionlimit(300)",
        "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.alarm(1)\n__import__('time').sleep(1.1)",
        "import os\nos.chdir('/')",
        "assert torch.get_default_dtype() == torch.float64",
    ],
    "threads that print": [
        "import threading, time\ndef chatter():\n    while True:\n        print('so')\n"
        "        time.sleep(0.01)",
        "threading.Thread(target=chatter, daemon=True).start()",
        "time.sleep(0.1)",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOTEBOOK)
def test_what_passes_at_home_passes_here(child, kind):
    for source in NOTEBOOK[kind]:
        assert run(child, source) is None, (source, child.output)
    assert run(child, SOLVED) is None
    assert probe(child)["evidence"] == EVIDENCE


def test_a_magic_that_is_not_there_is_said_to_be_not_there(child):
    run(child, "%no_such_magic at all")
    assert "%no_such_magic is not a magic that works here." in said(child)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nawait asyncio.sleep(10**6)",
        "import asyncio\nasync def busy():\n    while True: pass\nasyncio.create_task(busy())\n"
        "await asyncio.sleep(10)",
    ],
)
def test_an_endless_cell_ends_at_the_deadline_and_other_cells_run_in_another_process(desk, source):
    with desk.start() as first, pytest.raises(DeadlinePassed):
        run(first, source, seconds=1)
    assert_gone(first._process.pid)
    with desk.start() as second:
        assert run(second, SOLVED) is None
        assert probe(second)["evidence"] == EVIDENCE


FIND_REPLIES = """
import os, sys
# What student.py was told, if nothing is around it: the number of the file that its replies go to.
replies = int(open('/proc/self/cmdline').read().split('\\0')[-3])
"""


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("b'x' * 8 + b'more'", "bytes; .* are allowed"),
        (f"({LENGTH.size}).to_bytes(8, 'big') + bytes(8)", "no proper reply"),
    ],
)
def test_garbage_where_replies_go_is_the_students_fault(bare, sent, words):
    with pytest.raises((ChildDied, TooMuch), match=words):
        run(bare, f"{FIND_REPLIES}\nos.write(replies, {sent})")


def test_a_reply_to_another_question_is_no_reply(bare):
    run(bare, FIND_REPLIES)
    forged = (
        "import struct, json\n"
        'text = b\'{"dict":{"number":1,"error":null,"evidence":{"dict":{"results":[48]}}}}\'\n'
        "body = struct.pack('>Q', len(text)) + text\n"
        "os.write(replies, struct.pack('>Q', len(body)) + body)"
    )
    with pytest.raises(ChildDied, match="something of its own"):
        run(bare, forged)


def test_a_reply_may_not_be_larger_than_allowed(child):
    run(child, "def matmul_flops(m, k, n):\n    return 10 ** 300")
    with pytest.raises(TooMuch):
        child.ask(PROBE, 30, max_bytes=200)


def test_evidence_that_is_no_plain_data_is_an_error_of_the_student(child):
    challenge = {"cases": [call("matmul_bytes", 2, 3, 4, 1)]}
    run(child, "import numpy as np\nfrom course.checks import recording")
    run(child, "recording.plain = lambda value: np.float32(value)")
    run(child, "def matmul_bytes(*_):\n    return 1")
    request = {"probe": "bytes_follow_the_element_size", "needs": ["matmul_bytes"]}
    error = child.ask({**request, "challenge": challenge}, 30)["error"]
    assert error["kind"] == "WireError"
    assert "results[0].value is a numpy.float32" in error["words"]


def test_a_challenge_arrives_as_it_was_sent(child):
    """The student's functions see arrays and numbers, and may do with them what they like."""
    array = np.arange(6.0).reshape(2, 3)
    run(child, "def matmul_flops(a):\n    a += 1\n    return a.sum().item()")
    error = child.ask({**PROBE, "challenge": {"cases": [call("matmul_flops", array)]}}, 30)
    assert error["evidence"] == {"results": [{"type": "", "value": 21.0}]}
    assert array.sum() == 15


ONE = encode(1)
PROGRAM = (sys.executable, "-c", "import os, sys, time; exec(sys.argv[1])")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "cannot be started"),
        (["/bin/false"], "status 1"),
        (["/bin/sh", "-c", "echo no room >&2; kill -9 $$", "sh"], "no room"),
        ([*PROGRAM, f"os.write(int(sys.argv[3]), {ONE!r}); time.sleep(60)"], "instead"),
        ([*PROGRAM, "time.sleep(600)"], "the time limit of"),
    ],
)
def test_a_process_that_never_was_ready_is_the_machines_fault(command, words):
    with pytest.raises(InfraError, match=words):
        Child(program(command), "start", seconds=2 if words == "the time limit of" else PATIENCE)


@pytest.mark.slow
def test_nothing_of_a_child_stays_open(desk):
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with desk.start():
            pass
        with pytest.raises(InfraError):
            Child(program(["/no/such/program"]), "start")
        with pytest.raises(InfraError):
            Child(program(["/bin/false"]), "start")
    assert sorted(os.listdir("/proc/self/fd")) == before
