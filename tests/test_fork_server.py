"""A warm start is a cold one without the wait: nothing of the judge, nothing of another student."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confined import Place, needs_bubblewrap, starting
from patience import PATIENCE
from submissions import Desk

from autograder.sandbox import fork_server
from autograder.sandbox.command import Limits
from autograder.sandbox.fork_server import ForkServer
from autograder.sandbox.launch import sandboxed
from course.checks.calls import call

pytestmark = needs_bubblewrap


@pytest.fixture(scope="module")
def server():
    with ForkServer() as server:
        yield server


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module", params=["cold", "warm"])
def start(request):
    with starting(request.param) as way:
        yield way


@pytest.fixture(scope="module")
def desk(desks) -> Desk:
    return desks("00-start")


def test_torch_is_there_before_it_is_imported_and_the_judge_is_not(server, place):
    script = """
import sys
print("torch" in sys.modules, "IPython" in sys.modules)
print([name for name in sys.modules if name.split(".")[0] in ("autograder", "course", "nbgrader")])
try:
    import autograder.oracle
except ImportError as error:
    print(type(error).__name__)
"""
    assert place.run(server.popen, script) == (0, "True True\n[]\nModuleNotFoundError")


@pytest.mark.slow
def test_the_fonts_are_looked_for_once(place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = """
import os, sys
print("matplotlib.font_manager" in sys.modules, "torch._dynamo" in sys.modules)
print([name for name in os.environ if "MPL" in name])
"""
    changed = []
    for _ in range(2):
        with ForkServer() as server:
            assert place.run(server.popen, script) == (0, "True False\n[]")
        (fonts,) = (tmp_path / "cache").rglob("fontlist-*.json")
        changed.append(fonts.stat().st_mtime_ns)
    assert changed[0] == changed[1]


def test_a_server_that_cannot_import_says_why(place, monkeypatch):
    monkeypatch.setattr(fork_server, "IMPORTS", ("no_such_module",))
    with (
        ForkServer() as server,
        pytest.raises(
            OSError, match=r"(?s)the fork server ended .*No module named 'no_such_module'"
        ),
    ):
        place.run(server.popen, "print(1)")


def test_what_one_process_changes_no_other_sees(server, place):
    script = """
import os, torch
print(hasattr(torch, "mark"), "MARK" in os.environ, os.path.exists("/tmp/mark"))
torch.mark = os.environ["MARK"] = "here"
open("/tmp/mark", "w").close()
"""
    for _ in range(2):
        assert place.run(server.popen, script) == (0, "False False False")


def test_a_process_has_one_thread_and_no_parent(server, place):
    script = "import os; print(len(os.listdir('/proc/self/task')), os.getppid())"
    assert place.run(server.popen, script) == (0, "1 0")


def test_a_server_that_was_killed_is_replaced(place):
    with ForkServer() as server:
        assert place.run(server.popen, "print('first')") == (0, "first")
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
        assert place.run(server.popen, "print('second')") == (0, "second")


def test_an_ended_server_leaves_no_process(place):
    server = ForkServer()
    pid = server._process.pid
    server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


GRADER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from confined import Place
from autograder.sandbox.fork_server import ForkServer
server, place = ForkServer(), Place(Path(sys.argv[2]))
process = place.popen(server.popen, "print('begun')\\nwhile True: pass")
process.stdout.readline()
print(process.first, flush=True)
time.sleep(3600)
"""


def test_what_runs_ends_with_a_grader_that_is_killed(tmp_path):
    """An endless loop reads nothing, and nobody ends it by its deadline. Root's lived on, for there
    bubblewrap's processes belong to two users."""
    tmp_path.chmod(0o755)
    words = [sys.executable, "-c", GRADER, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as grader:
        inside = os.pidfd_open(int(grader.stdout.readline()))
        grader.kill()
    ended = select.poll()
    ended.register(inside, select.POLLIN)
    assert ended.poll(1000 * PATIENCE), "the sandbox outlived its grader"


def test_limits_that_leave_no_room_are_an_end_and_not_a_silence(server, place):
    with pytest.raises(OSError, match=r"no sandbox was made: \S+"):
        place.run(server.popen, "print(1)", limits=Limits(open_files=3))


def test_a_submission_is_judged_inside(start, desk, tmp_path):
    """The student's program itself: cells, magics, errors and a probe, as without a sandbox."""
    (tmp_path / "notes.txt").write_text("mine")
    tmp_path.chmod(0o755)
    cell = "def matmul_flops(m, k, n):\n    return 2 * m * k * n\nprint('so far')\n!true"
    with sandboxed(start, desk.view, desk.lesson.module, tmp_path) as child:
        assert child.ask({"cell": cell}, PATIENCE)["error"] is None
        assert (
            child.ask({"cell": "import autograder"}, PATIENCE)["error"]["kind"]
            == "ModuleNotFoundError"
        )
        request = {
            "probe": "flops_of_any_product",
            "needs": ["matmul_flops"],
            "challenge": {"cases": [call("matmul_flops", 2, 3, 4)]},
        }
        assert child.ask(request, PATIENCE)["evidence"] == {"results": [{"type": "", "value": 48}]}
    assert "so far" in child.output
    assert sys.executable not in child.output
