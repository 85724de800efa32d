"""The sandbox keeps a student's process from everything, cold or warm, and says when it cannot."""

import json
import os
import pwd
import re
import signal
import site
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from select import select

import pytest
from confined import Place, finish, needs_bubblewrap, starting
from patience import PATIENCE

from autograder.__main__ import main
from autograder.sandbox import command, doctor, host_view, library_view, seccomp, submission_view
from autograder.sandbox.memory import Confined
from autograder.sandbox.processor_time import Stopwatch
from lessons import ROOT

NAMES = [barrier.name for barrier in doctor.BARRIERS]


@pytest.fixture(scope="module", params=["cold", "warm"])
def start(request):
    with starting(request.param) as way:
        yield way


@pytest.fixture(scope="module")
def findings(start) -> dict[str, doctor.Finding]:
    return {finding.barrier: finding for finding in doctor.doctor(start)}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@needs_bubblewrap
@pytest.mark.parametrize("name", NAMES)
def test_every_barrier_holds_against_a_real_attempt(findings, name):
    assert findings[name].held, findings[name].detail


@needs_bubblewrap
def test_an_exit_code_comes_out(place, start):
    assert place.run(start, "import sys; print('so far'); sys.exit(7)") == (7, "so far")


@needs_bubblewrap
def test_an_exception_is_seen_and_is_exit_code_1(place, start):
    code, output = place.run(start, "raise ValueError('seven')")
    assert code == 1
    assert output.endswith("ValueError: seven")


@needs_bubblewrap
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_that_ended_it_comes_out(place, start, number):
    script = f"import os; os.kill(os.getpid(), {int(number)})"
    assert place.run(start, script)[0] == 128 + number


@needs_bubblewrap
def test_it_sees_its_view_and_its_submission_and_cannot_change_them(place, start):
    (place.submission / "work.ipynb").write_text("{}")
    script = """
import os
print(sorted(os.listdir("/view")), sorted(os.listdir("/submission")), os.getcwd())
for folder in ("/view", "/submission"):
    try:
        os.unlink(os.path.join(folder, os.listdir(folder)[0]))
    except OSError as error:
        print(error.strerror)
"""
    read_only = "Read-only file system"
    assert place.run(start, script) == (
        0,
        f"['script.py'] ['work.ipynb'] /submission\n{read_only}\n{read_only}",
    )


@needs_bubblewrap
def test_its_environment_is_the_one_that_is_written_down(place, start, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    found = json.loads(place.run(start, script)[1])
    assert {key: found[key] for key in command.ENVIRONMENT} == command.ENVIRONMENT
    assert set(found) - set(command.ENVIRONMENT) <= {"PWD", "LC_CTYPE"}


@needs_bubblewrap
def test_descriptors_keep_their_numbers(place, start):
    (asked, asking), (telling, told) = os.pipe(), os.pipe()
    script = (
        "import os, sys\nasked, told = map(int, sys.argv[1:])\nos.write(told, os.read(asked, 9))"
    )
    os.write(asking, b"hello")
    arguments = [str(asked), str(told)]
    assert place.run(start, script, pass_fds=[asked, told], arguments=arguments) == (0, "")
    assert os.read(telling, 9) == b"hello"
    for fd in (asked, asking, telling, told):
        os.close(fd)


@needs_bubblewrap
def test_what_notebooks_need_works_inside(place, start):
    script = """
import subprocess, tempfile, threading, time, torch
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%time x = 1 + 1")
shell.run_cell("!echo of a shell: $((6 * 7))")
thread = threading.Thread(target=lambda: print(torch.ones(8, 8).matmul(torch.ones(8, 8)).sum()))
thread.start(), thread.join()
with tempfile.TemporaryFile() as file:
    file.write(bytes(2**20))
print(open("/dev/stdin").read() == "", torch.rand(4096, 4096).numel())
"""
    code, output = place.run(start, script)
    assert (code, output.splitlines()[-1]) == (0, "True 16777216"), output
    assert "of a shell: 42" in output
    assert "tensor(512.)" in output


@needs_bubblewrap
def test_killing_its_process_group_ends_everything_inside(place, start):
    reading, writing = os.pipe()
    script = "import os, time\nif os.fork() == 0: os.setsid()\nprint('here', flush=True)\ntime.sleep(600)"
    process = place.popen(start, script, pass_fds=[writing])
    os.close(writing)
    assert process.stdout.read(4) == b"here"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert select([reading], [], [], PATIENCE)[0]
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.slow
@needs_bubblewrap
def test_many_threads_start_many_sandboxes(place, start):
    """A `preexec_fn` under threads, or a fixed descriptor, once lost every second start."""
    script = "import sys; print('number', sys.argv[1])"
    (place.view / "script.py").write_text(script)

    def one(number: int) -> tuple[int, str]:
        argv = ["/view/script.py", str(number)]
        return finish(start(argv, place.view, place.submission, command.Limits()))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(40))) == [(0, f"number {n}") for n in range(40)]


@needs_bubblewrap
def test_a_copy_of_the_judge_in_python_s_folder_is_covered(place, tmp_path, monkeypatch):
    packages = tmp_path / "site-packages"
    for package in ("autograder", "course", "harmless"):
        (packages / package).mkdir(parents=True)
        (packages / package / "oracle.py").touch()
    packages.chmod(0o755)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    host_view.options.cache_clear()
    try:
        script = f"""
import os
for name in ("autograder", "course", "harmless"):
    print(name, os.listdir(os.path.join({str(packages)!r}, name)))
"""
        assert place.run(command.popen, script) == (
            0,
            "autograder []\ncourse []\nharmless ['oracle.py']",
        )
    finally:
        host_view.options.cache_clear()


ABSENT = ("nbgrader", "transformers", "pytest", "_pytest", "hypothesis", "jupytext", "playwright")
PRESENT = (
    "torch",
    "torch._dynamo",
    "torch.testing",
    "numpy.testing",
    "matplotlib.pyplot",
    "tqdm.auto",
)
PRESENT += (
    "ipywidgets",
    "IPython.display",
    "safetensors.torch",
    "torch.utils.flop_counter",
    "comm",
)


@needs_bubblewrap
def test_what_a_notebook_imports_is_there_and_packages_of_instructors_are_not(place, start):
    library_view.write_absent(place.view)
    script = f"""
import importlib, os, site
for name in {PRESENT}:
    importlib.import_module(name)
for name in {ABSENT}:
    try:
        importlib.import_module(name)
        print("imported", name)
    except ModuleNotFoundError as error:
        assert error.name == name, error
    for folder in site.getsitepackages():
        place = os.path.join(folder, name)
        print(*(os.listdir(place) if os.path.isdir(place) else ()))
"""
    code, output = place.run(start, script)
    assert (code, set(output.split())) == (0, {"__init__.py"}), output


@needs_bubblewrap
def test_what_others_leave_behind_is_collected(place, start):
    """Each is left to the first process inside, and would count as a process for ever."""
    script = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
    while len([name for name in os.listdir("/proc") if name.isdigit()]) >= 5:
        time.sleep(0.02)
print(True)
"""
    assert place.run(start, script, limits=command.Limits(processes=20)) == (0, "True")


@needs_bubblewrap
def test_the_first_process_inside_has_the_limits_of_all(place, start):
    script = "print(open('/proc/1/limits').read() == open('/proc/self/limits').read())"
    assert place.run(start, script) == (0, "True")


@needs_bubblewrap
def test_nothing_is_said_of_how_it_ended(place, start):
    script = "import os; os.write(1, b'last words'); os.kill(os.getpid(), 9)"
    assert place.run(start, script) == (137, "last words")


@needs_bubblewrap
@pytest.mark.parametrize(
    "script",
    [
        "import os, time\nfor _ in range(4):\n    if os.fork() == 0: x = b'x' * 2**28; time.sleep(600)\n"
        "time.sleep(600)",
        pytest.param(
            "import os\nos.mkdir('/tmp/files')\nfor n in range(10**7):\n"
            "    os.close(os.open(f'/tmp/files/{n}', os.O_CREAT))",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["processes", "empty files"],
)
def test_a_submission_s_memory_as_a_whole_is_bounded_and_the_reason_told(place, start, script):
    process = place.popen(start, script, limits=command.Limits(total_memory=700 * command.MIB))
    assert finish(process)[0] == 137
    told = r"its memory, [\d,]+ MB in all processes together, was more than the 734 MB allowed"
    assert re.fullmatch(told, process.ended_for)


COMPUTE_THEN_SLEEP = """
import subprocess, sys, time
child = "import time\\nwhile time.process_time() < 1: pass"
subprocess.run([sys.executable, "-c", child], check=True)
print("computed", flush=True)
time.sleep(600)
"""


@needs_bubblewrap
def test_the_processor_time_inside_is_counted_and_not_the_clock_s(place, start):
    process = place.popen(start, COMPUTE_THEN_SLEEP)
    stopwatch = Stopwatch(process.account)  # it may be that nothing is there to be counted yet
    assert process.stdout.readline() == b"computed\n"
    for _ in range(10):
        time.sleep(0.1)
        stopwatch.look()
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    assert 0.9 < stopwatch.used < stopwatch.wall - 0.5


@needs_bubblewrap
def test_pages_that_processes_share_count_once(place, start):
    script = "import os, time\nx = b'x' * 2**28\nfor _ in range(5):\n    if os.fork() == 0:\n"
    script += "        time.sleep(2); os._exit(0)\ntime.sleep(1); print('done')"
    limits = command.Limits(total_memory=700 * command.MIB)
    assert place.run(start, script, limits=limits) == (0, "done")


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandbox belongs to another user")
def test_root_is_told_what_nobody_can_read(place):
    (place.submission / "private.txt").touch(mode=0o600)
    assert place.run(command.popen, "print('a file of the student stops nothing')")[0] == 0
    (place.view / "library.py").touch(mode=0o600)
    with pytest.raises(PermissionError, match=r"library\.py has mode 600.*chmod o\+r /"):
        place.run(command.popen, "")
    (place.view / "library.py").unlink()
    place.submission.chmod(0o700)
    with pytest.raises(PermissionError, match=r"submission has mode 700.*chmod o\+rx /"):
        place.run(command.popen, "")


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() == 0, reason="root's sandbox belongs to another user")
def test_what_an_ordinary_user_alone_may_read_can_be_read_inside(place, start):
    (place.submission / "helper.py").touch(mode=0o600)
    for folder in (place.view, place.submission, place.submission.parent):
        folder.chmod(0o700)
    script = "import os; print(os.stat('/submission/helper.py').st_mode & 0o777 == 0o600)\n"
    script += "print(open('/submission/helper.py').read() == '')"
    assert place.run(start, script) == (0, "True\nTrue")


# ---- a barrier that is missing is found -------------------------------------------------------


def unconfined(argv, view, submission, limits, pass_fds=()) -> subprocess.Popen:
    """No sandbox at all, a descriptor too many, and something to read."""
    script, *rest = argv
    spare = os.open("/dev/null", os.O_RDONLY)
    process = subprocess.Popen(
        [*command.PYTHON, script.replace(command.VIEW, str(view)), *rest],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[*pass_fds, spare],
        start_new_session=True,
    )
    os.close(spare)
    process.stdin.write(b"x")
    process.stdin.close()
    process.stdin = None
    return process


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attempts are made on Linux")
def test_every_attempt_succeeds_where_there_is_no_sandbox():
    findings = doctor.doctor(unconfined)
    assert [finding.barrier for finding in findings if finding.held] == ["start"]
    assert [finding.barrier for finding in findings] == NAMES
    assert all(finding.remedy for finding in findings if not finding.held)


def without(*parts: str):
    """Take neighbouring arguments out of a list of them, each time that they stand there."""

    def change(command: list[str]) -> list[str]:
        for at in reversed(range(len(command))):
            if command[at : at + len(parts)] == list(parts):
                del command[at : at + len(parts)]
        return command

    return change


def instead(old: str, *new: str):
    """Put other arguments into the place of each one that begins with `old`."""

    def change(command: list[str]) -> list[str]:
        return [word for part in command for word in (new if part.startswith(old) else (part,))]

    return change


GAPS = [
    ("network", instead("--unshare-all", "--unshare-all", "--share-net")),
    ("files", lambda command: [part.replace("/etc/ld.so.cache", "/etc") for part in command]),
    ("environment", without("--clearenv")),
    ("writing", without("--remount-ro", "/dev")),
    ("writing", without("--remount-ro", "/")),
    ("writing", without("--remount-ro", "/proc")),
    ("storage", without("--size", str(doctor.LIMITS.tmp))),
    ("file_size", instead("--fsize", "--core=0")),
    ("processes", instead("--nproc", "--core=0")),
    ("open_files", instead("--nofile", "--core=0")),
    ("memory", instead("--data", "--core=0")),
    ("uncounted_memory", without("--seccomp", "0")),
    ("uncounted_memory", without("--dev-bind", "/dev/full", "/dev/zero")),
    ("cpu_time", instead("--cpu", "--core=0")),
    ("system_calls", without("--seccomp", "0")),
    ("namespaces", lambda command: without("--seccomp", "0")(without("--disable-userns")(command))),
]


@needs_bubblewrap
@pytest.mark.parametrize(
    ("name", "gap"), GAPS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(GAPS)]
)
def test_a_gap_in_the_command_line_is_found(name, gap, monkeypatch):
    whole = command.spawn

    def spawn(*arguments, **more) -> subprocess.Popen:
        return whole(*map(gap, map(list, arguments)), **more)

    monkeypatch.setattr(command, "spawn", spawn)
    assert_found(name, monkeypatch)


@needs_bubblewrap
def test_a_process_of_bubblewrap_s_own_inside_is_found(monkeypatch):
    """Its command line and its memory hold every option."""
    whole = command.spawn

    def spawn(front, options, command, **more) -> subprocess.Popen:
        return whole(front, without("--as-pid-1")(options), command, **more)

    monkeypatch.setattr(command, "spawn", spawn)
    # Root's own options are those of a second bubblewrap, and name only what is inside.
    monkeypatch.setattr(command, "_again", list)
    monkeypatch.setattr(command, "_as_nobody", lambda bwrap, shown: [])
    assert_found("names", monkeypatch)


@needs_bubblewrap
def test_a_folder_that_is_mounted_under_a_student_s_name_is_found(monkeypatch):
    monkeypatch.setattr(submission_view, "lay_out", lambda submission, place: submission)
    assert_found("names", monkeypatch)


@needs_bubblewrap
@pytest.mark.parametrize(
    "name", ["page_tables", pytest.param("total_memory", marks=pytest.mark.slow)]
)
def test_a_sandbox_that_nobody_watches_is_found(name, monkeypatch):
    monkeypatch.setattr(Confined, "watch", lambda *_: None)
    assert_found(name, monkeypatch)


def assert_found(name: str, monkeypatch) -> None:
    first = doctor.BARRIERS[0]
    tried = [first, *(barrier for barrier in doctor.BARRIERS if barrier.name == name)]
    monkeypatch.setattr(doctor, "BARRIERS", tried)
    started, found = doctor.doctor()
    assert started.held, started.detail
    assert not found.held
    assert found.remedy == tried[1].remedy


def test_a_machine_without_bubblewrap_is_told_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(command.SandboxMissing) as refused:
        doctor.require()
    for word in ("bwrap", "apt-get install bubblewrap", "--Judge.unsafe_no_sandbox=True"):
        assert word in str(refused.value)
    assert main(["doctor"]) == 1
    assert "apt-get install bubblewrap" in capsys.readouterr().out


@needs_bubblewrap
def test_a_machine_without_the_filter_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    for kept in (seccomp.program, seccomp._memory_file):
        kept.cache_clear()
    with pytest.raises(command.SandboxMissing, match=r"pip install pyseccomp.*libseccomp2"):
        doctor.require()


@needs_bubblewrap
def test_a_machine_that_forbids_user_namespaces_gets_a_reason():
    """As in a container, or on Ubuntu 24.04: bubblewrap is there and cannot work."""
    shut = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--uid", "1000"]
    done = subprocess.run(
        [*shut, "--", sys.executable, "-m", "autograder", "doctor"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "OPEN  start" in done.stdout
    assert "bwrap: " in done.stdout
    assert "--Judge.unsafe_no_sandbox=True" in done.stdout


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "/etc/apparmor.d/bwrap"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
    ],
)
def test_a_setting_of_the_kernel_that_forbids_it_is_named(
    setting, value, words, tmp_path, monkeypatch
):
    file = tmp_path / setting
    file.parent.mkdir(parents=True)
    file.write_text(f"{value}\n")
    monkeypatch.setattr(doctor, "SETTINGS", tmp_path)
    assert words in doctor.why_not("bwrap: setting up uid map: Permission denied")


def test_an_old_bubblewrap_is_named():
    assert "0.8 or newer" in doctor.why_not("bwrap: Unknown option --disable-userns")


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_the_sandbox_is_whole_for_an_ordinary_user_too():
    """Root lays this Python out where everyone can read it, and steps down."""
    needed = {Path(path).resolve() for path in (sys.base_prefix, sys.prefix, ROOT)}
    homes = {str(Path.home()), pwd.getpwuid(os.getuid()).pw_dir}  # $HOME may be another folder
    laid_out = [word for home in sorted(homes) for word in ("--tmpfs", home)]
    for path in needed:
        for parent in reversed(path.parents[:-1]):
            laid_out += ["--dir", str(parent)]
        laid_out += ["--ro-bind", str(path), str(path)]
    done = subprocess.run(
        [
            *("bwrap", "--dev-bind", "/", "/", *laid_out, "--"),
            *("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "env", "HOME=/tmp"),
            *(sys.executable, "-m", "autograder", "doctor"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    held = [line for line in done.stdout.splitlines() if line.startswith("held ")]
    assert len(held) == 2 * len(NAMES)


def test_what_needs_linux_is_not_imported_elsewhere():
    program = (
        "import sys\n"
        "for name in ('fcntl', 'resource', 'pyseccomp'): sys.modules[name] = None\n"
        "import autograder.__main__, autograder.sandbox.command, autograder.sandbox.fork_server\n"
        "sys.platform = 'darwin'\n"
        "sys.exit(autograder.__main__.main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "this is darwin" in done.stdout
