"""A student process can do what it likes: this side is answered in time, or knows why it is not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from submissions import Desk

from autograder.sandbox.child import OUTPUT, Child, ChildDied, DeadlinePassed, InfraError, TooMuch
from autograder.wire import LENGTH, encode

SOLVED = """
def matmul_flops(m, k, n):
    return 2 * m * k * n
"""
PROBE = {
    "probe": "flops_of_any_product",
    "needs": ["matmul_flops"],
    "challenge": {"sizes": [(2, 3, 4)]},
}


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
def desk(tmp_path_factory) -> Desk:
    return Desk("00-start", tmp_path_factory.mktemp("start"))


@pytest.fixture
def child(desk):
    with desk.start() as child:
        yield child


@pytest.fixture(scope="module")
def shared(desk):
    """For cells that leave nothing behind."""
    with desk.start() as child:
        yield child


def run(child: Child, source: str, seconds: float = 30) -> dict | None:
    """The error of a cell, or None."""
    return child.ask({"cell": source}, seconds)["error"]


def probe(child: Child, seconds: float = 30) -> dict:
    return child.ask(PROBE, seconds)


def test_cells_run_in_order_and_a_probe_is_answered(child):
    assert run(child, "%time x = 20\n!true") is None
    assert run(child, f"{SOLVED}\nx += 4\nprint(x)") is None
    assert run(child, "import asyncio\nawait asyncio.sleep(0)\nassert x == 24") is None
    assert probe(child)["evidence"] == {"values": [48]}
    assert child.output.endswith("24\n")


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
    assert error["where"] == "in matmul_flops, at `return m * none`"


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
        "where": "in matmul_flops, at `raise Evil`",
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
def test_a_hang_ends_at_the_deadline_and_the_process_with_it(child, source):
    with pytest.raises(DeadlinePassed):
        run(child, source, seconds=1)
    assert_gone(child._process.pid)


def assert_gone(pid: int) -> None:
    """No living process has that number: none at all, or one that waits to be collected."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still lives")


def test_its_own_children_die_with_it(desk):
    with desk.start() as child:
        run(child, "import subprocess as s\np = s.Popen(['sleep', '600'])\nprint('pid', p.pid)")
        sleeping = int(child.output.split()[-1])
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


def test_a_request_that_nobody_reads_ends_at_the_deadline(child):
    run(
        child,
        "import os, signal, threading\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()",
    )
    time.sleep(0.6)
    with pytest.raises(DeadlinePassed):
        child.ask({"cell": "#" * 2**20}, 1)


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
    assert probe(child)["evidence"] == {"values": [48]}


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
        "import os\nos.close(1); os.close(2)",
        "import os\nos.read = os.write = os.getpid = os._exit = None",
        "import json, numpy, struct, io\njson.dumps = json.loads = numpy.save = numpy.load = None\n"
        "numpy.lib.format.write_array_header_1_0 = io.BytesIO = struct.Struct = None",
        "import torch\ntorch.tensor = torch.from_numpy = torch.Tensor.numpy = None",
        "import sys\nsys.modules.clear()",
        "import builtins\nbuiltins.print = builtins.open = builtins.sum = builtins.max = None",
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
    assert probe(child)["evidence"] == {"values": [48]}
    assert probe(child)["evidence"] == {"values": [48]}


FIND_REPLIES = """
import os, sys
# What student.py was told: the number of the file that its replies go to.
replies = int(open('/proc/self/cmdline').read().split('\\0')[-3])
"""


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("b'x' * 8 + b'more'", "bytes; .* are allowed"),
        (f"({LENGTH.size}).to_bytes(8, 'big') + bytes(8)", "no proper reply"),
    ],
)
def test_garbage_where_replies_go_is_the_students_fault(child, sent, words):
    with pytest.raises((ChildDied, TooMuch), match=words):
        run(child, f"{FIND_REPLIES}\nos.write(replies, {sent})")


def test_a_reply_to_another_question_is_no_reply(child):
    run(child, FIND_REPLIES)
    forged = (
        "import struct, json\n"
        'text = b\'{"dict":{"number":1,"error":null,"evidence":{"dict":{"values":[48]}}}}\'\n'
        "body = struct.pack('>Q', len(text)) + text\n"
        "os.write(replies, struct.pack('>Q', len(body)) + body)"
    )
    with pytest.raises(ChildDied, match="something of its own"):
        run(child, forged)


def test_a_reply_may_not_be_larger_than_allowed(child):
    run(child, "def matmul_flops(m, k, n):\n    return 10 ** 300")
    with pytest.raises(TooMuch):
        child.ask(PROBE, 30, max_bytes=200)


def test_evidence_that_is_no_plain_data_is_an_error_of_the_student(child):
    challenge = {"sizes": [(2, 3, 4, 1)]}
    run(child, "import numpy as np\nfrom course.checks import counts, start")
    run(child, "start.plain = lambda value: np.float32(value)")
    run(child, "def matmul_bytes(*_):\n    return 1")
    request = {"probe": "bytes_follow_the_element_size", "needs": ["matmul_bytes"]}
    error = child.ask({**request, "challenge": challenge}, 30)["error"]
    assert error["kind"] == "WireError"
    assert "values[0] is a numpy.float32" in error["words"]


def test_a_challenge_arrives_as_it_was_sent(child):
    """The student's functions see arrays and numbers, and may do with them what they like."""
    array = np.arange(6.0).reshape(2, 3)
    run(child, "def matmul_flops(a):\n    a += 1\n    return a.sum()")
    error = child.ask({**PROBE, "challenge": {"sizes": [(array,)]}}, 30)
    assert error["evidence"] == {"values": [21.0]}
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
        ([*PROGRAM, "time.sleep(60)"], "no answer"),
    ],
)
def test_a_process_that_never_was_ready_is_the_machines_fault(command, words):
    with pytest.raises(InfraError, match=words):
        Child(program(command), "start", seconds=2)


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
