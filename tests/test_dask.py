"""Judging on a Dask cluster, a real one on this machine: workers supervise, and may be killed."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import dask
import pytest
from changing import lay_out_another_judge
from confined import needs_bubblewrap
from distributed import Client, LocalCluster
from nbgrader_course import CourseFolder
from patience import PATIENCE
from submissions import answers, opening, released, solved, submission

from autograder.authoring.source import POINTS
from autograder.classroom import dask_cluster, dask_task
from autograder.classroom.course import CannotStart
from autograder.classroom.dask_cluster import judge_on_dask
from autograder.classroom.judging import judge_here
from autograder.classroom.submissions import Submission
from autograder.desk import Desk
from autograder.kept_results import Kept
from autograder.nbgrader_steps import Settings
from autograder.sandbox.child import InfraError
from autograder.sandbox.launch import Launcher
from lessons import COURSE, ROOT

pytestmark = needs_bubblewrap

LESSON = COURSE.read("00-start")
LOG = logging.getLogger(__name__)
FOREVER = "while True: pass"


@contextmanager
def cluster(place: Path, **options: object):
    """A cluster of two worker processes, and a client that looks at it."""
    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True, **options}
    with (
        LocalCluster(**workers, dashboard_address=":0", local_directory=place) as running,
        Client(running, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Where the workers of `client` keep files."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def client(scratch):
    with cluster(scratch) as client:
        yield client


def address(client: Client) -> str:
    return client.scheduler.address


class Class:
    """A class that handed in, and its grader's desk."""

    def __init__(self, place: Path, **settings: float) -> None:
        self.place = place
        self.notebook = place / LESSON.student.name
        (place / "grading").mkdir(parents=True)
        self.notebook.write_text(released(LESSON), encoding="utf-8")
        self.settings = {**Settings().plain(), **settings}
        self.submissions: list[Submission] = []

    def hand_in(self, student: str, notebook: object, **files: str) -> Path:
        folder = self.place / "grading" / "submitted" / student
        folder.mkdir(parents=True)
        path = folder / LESSON.student.name
        path.write_bytes(notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode())
        for name, text in files.items():
            (folder / name).write_text(text)
        self.submissions.append(Submission(student, folder, path))
        return path

    def copy(self, place: Path) -> "Class":
        """The same class and secret elsewhere, and no results."""
        there = Class(place, **self.settings)
        for name in ("submitted", "secret"):
            subprocess.run(
                ["cp", "-a", self.place / "grading" / name, place / "grading"], check=True
            )
        for found in self.submissions:
            folder = place / "grading" / "submitted" / found.student
            there.submissions.append(
                Submission(found.student, folder, folder / found.notebook.name)
            )
        return there

    def desk(self) -> Desk:
        grading = self.place / "grading"
        return Desk(self.notebook, grading, self.settings, False, LOG)

    def judge_on(self, client: Client) -> dict[str, str]:
        """Judge on a cluster; why there is no result, by student."""
        with closing(self.desk()) as desk:
            ended = judge_on_dask(desk, self.submissions, address(client))
            return {found.student: problem for found, problem in ended}

    def kept(self) -> dict[str, Kept | None]:
        with closing(self.desk()) as desk:
            return {found.student: desk.find(found.notebook) for found in self.submissions}

    def points(self) -> dict[str, float | None]:
        return {student: kept and kept.result.points for student, kept in self.kept().items()}

    def results(self) -> dict[str, dict]:
        """The files of results by name, without the seconds that they took."""
        found = {}
        for path in (self.place / "grading" / "results").rglob("*.json"):
            found[path.name] = json.loads(path.read_text(encoding="utf-8"))
            del found[path.name]["result"]["seconds"]
        return found


def diverse_class(place: Path) -> Class:
    """One of each kind that is sent or judged otherwise than the others."""
    half = dict(list(answers(LESSON).items())[:1])
    these = Class(place)
    these.hand_in("ann", solved(LESSON, "name = 'ann'"))
    these.hand_in("ben", solved(LESSON, "open('notes.txt').read()"), **{"notes.txt": "mine"})
    these.hand_in("cleo", submission(LESSON, half))
    these.hand_in("dan", submission(LESSON, {}))
    these.hand_in("eve", b"no notebook")
    these.hand_in("fay", submission(LESSON, dict.fromkeys(answers(LESSON), "1 / 0")))
    linked = these.hand_in("gil", b"")
    linked.unlink()
    linked.symlink_to("/etc/hostname")
    pipe = these.hand_in("hal", b"")
    pipe.unlink()
    os.mkfifo(pipe)
    return these


def test_a_submission_is_judged_on_a_worker_and_its_result_kept_here(client, tmp_path):
    these = Class(tmp_path)
    these.hand_in("ann", solved(LESSON))
    assert these.judge_on(client) == {"ann": ""}
    assert these.points() == {"ann": POINTS}
    assert these.judge_on(client) == {"ann": ""}  # looked up


@pytest.mark.slow
def test_a_worker_with_nothing_to_do_ends_its_sandbox_and_forgets_the_secret(
    client, scratch, tmp_path
):
    these = Class(tmp_path)
    these.hand_in("ann", solved(LESSON, "name = 'another'"))
    there = set(scratch.rglob("second-token-*"))
    before = client.run(set_idle, 3.0)
    try:
        assert these.judge_on(client) == {"ann": ""}
        (place,) = set(scratch.rglob("second-token-*")) - there
        assert (place / "secret").stat().st_mode & 0o777 == 0o600
        servers: dict[int, str] = {}
        for pid in client.run(os.getpid).values():
            servers |= offspring(pid)
        wait_until(lambda: not place.exists())
    finally:
        client.run(set_idle, before.popitem()[1])
    wait_until(lambda: len(still_there(servers)) < len(servers))


def set_idle(seconds: float) -> float:
    """Run by a worker: say when it has been idle for long; return what was said before."""
    before, dask_task.IDLE = dask_task.IDLE, seconds
    return before


@pytest.mark.slow
def test_a_cluster_finds_what_this_machine_finds(client, tmp_path):
    there = diverse_class(tmp_path / "there")
    assert there.judge_on(client) == dict.fromkeys(
        ["ann", "ben", "cleo", "dan", "eve", "fay", "gil", "hal"], ""
    )
    here = there.copy(tmp_path / "here")
    with closing(here.desk()) as desk:
        assert not any(problem for _, problem in judge_here(desk, here.submissions, 2))
    assert there.results() == here.results()
    assert there.points()["ann"] == there.points()["ben"] == POINTS
    assert 0 < there.points()["cleo"] < POINTS


@pytest.mark.slow
def test_what_ends_its_process_or_never_ends_costs_only_its_own(client, tmp_path):
    these = Class(tmp_path, cell_seconds=5.0)
    for number in range(3):
        these.hand_in(f"good{number}", solved(LESSON, f"number = {number}"))
    these.hand_in("exits", solved(LESSON, "import os; os._exit(0)"))
    these.hand_in("hangs", solved(LESSON, **{next(iter(answers(LESSON))): FOREVER}))
    assert not any(these.judge_on(client).values())
    points = these.points()
    assert [points[f"good{number}"] for number in range(3)] == [POINTS] * 3
    assert points["hangs"] < POINTS
    pids = client.run(os.getpid)
    assert len(pids) == 2  # and no worker had to end for it


def test_what_is_handed_in_anew_while_others_are_judged_is_not_taken_for_the_old(client, tmp_path):
    these = Class(tmp_path)
    path = these.hand_in("ann", solved(LESSON))
    with closing(these.desk()) as desk:
        assert desk.find(path) is None  # looked at
        path.write_bytes(b"another")
        ((_, problem),) = judge_on_dask(desk, these.submissions, address(client))
    assert "handed in again" in problem
    assert these.results() == {}


# --- workers that fail ---------------------------------------------------------------------------


def be_unlucky(unlucky: bool) -> None:
    """Run by a worker: fail to start processes for folders with a file of that name, or no longer."""
    from autograder.sandbox import launch

    launch.Launcher.start_for = start_or_fail if unlucky else well


well = Launcher.start_for


def start_or_fail(self, submission: Path):
    def fail():
        raise InfraError("no process today")

    return nullcontext(fail) if (submission / "unlucky.txt").exists() else well(self, submission)


@pytest.mark.slow
def test_a_machine_that_fails_is_no_zero_and_another_worker_is_asked(client, tmp_path):
    these = Class(tmp_path)
    these.hand_in("ann", solved(LESSON, "name = 'ann'"))
    these.hand_in("ben", solved(LESSON, "name = 'ben'"), **{"unlucky.txt": ""})
    one, _ = client.nthreads()
    client.run(be_unlucky, True)
    try:
        assert these.judge_on(client) == {"ann": "", "ben": "the machine failed: no process today"}
        assert these.points() == {"ann": POINTS, "ben": None}
        client.run(be_unlucky, False, workers=[one])
        assert not any(these.judge_on(client).values())
        assert these.points() == {"ann": POINTS, "ben": POINTS}
    finally:
        client.run(be_unlucky, False)


# --- workers that end --------------------------------------------------------------------------------


def offspring(pid: int) -> dict[int, str]:
    """The processes that a process started, and those that they started, with when they began."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        parents[int(place.name)] = (int(fields[1]), fields[19])
    found, new = {}, {pid}
    while new:
        new = {child for child, (parent, _) in parents.items() if parent in new}
        found |= {child: parents[child][1] for child in new}
    return found


def wait_until(what, seconds: float = PATIENCE) -> None:
    """Wait for something that has to come; the time is only for tests that fail."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def in_sandbox(client: Client) -> dict[int, dict[int, str]]:
    """By worker, its processes, once it has a fork server and a sandbox; else nothing of it."""
    started = {pid: offspring(pid) for pid in client.run(os.getpid, on_error="ignore").values()}
    return {
        pid: found
        for pid, found in started.items()
        if any(b"bwrap" in command_line(child) for child in found)
    }


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def began(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""


def still_there(processes: dict[int, str]) -> list[int]:
    """Those of some processes, given with when they began, that have not ended."""
    return [pid for pid, when in processes.items() if began(pid) == when]


def judge_in_thread(these: Class, client: Client) -> tuple[threading.Thread, dict[str, str]]:
    problems: dict[str, str] = {}
    thread = threading.Thread(target=lambda: problems.update(these.judge_on(client)), daemon=True)
    thread.start()
    return thread, problems


def kill_workers(client: Client, thread: threading.Thread) -> dict[int, str]:
    """Kill all workers that judge, of which there is one at least; return what they had started.

    Args:
        thread: in which the class is judged.
    """
    judging = {}
    wait_until(lambda: judging.update(in_sandbox(client)) or judging or not thread.is_alive())
    assert judging, "all were judged before a worker could be killed"
    for pid in judging:
        os.kill(pid, signal.SIGKILL)
    return {child: when for found in judging.values() for child, when in found.items()}


@pytest.mark.slow
def test_workers_that_are_killed_cost_nobody_a_grade(client, tmp_path):
    these = Class(tmp_path)
    for number in range(8):
        these.hand_in(f"s{number}", opening(LESSON, f"import time; time.sleep(4 + {number} / 100)"))
    thread, problems = judge_in_thread(these, client)
    orphans = {}
    for _ in range(3):
        orphans |= kill_workers(client, thread)
    assert len(orphans) >= 6  # fork servers and sandboxes
    thread.join()
    assert problems == {f"s{number}": "" for number in range(8)}
    assert these.points() == {f"s{number}": POINTS for number in range(8)}
    wait_until(lambda: not still_there(orphans))


@pytest.mark.slow
def test_who_outlives_no_worker_is_named_and_the_others_go_on(tmp_path):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        cluster(tmp_path / "workers", n_workers=1) as client,
    ):
        these = Class(tmp_path / "class")
        for number in range(4):
            text = f"import time; time.sleep(4 + {number} / 100)"
            these.hand_in(f"s{number}", opening(LESSON, text))
        thread, problems = judge_in_thread(these, client)
        kill_workers(client, thread)
        thread.join()
    lost = {student for student, problem in problems.items() if "were killed" in problem}
    assert 1 <= len(lost) <= 2  # the one that was judged, and the one that waited behind it
    assert these.points() == {name: None if name in lost else POINTS for name in problems}


@pytest.mark.slow
def test_a_scheduler_that_ends_leaves_who_is_not_graded_and_why(tmp_path):
    these = Class(tmp_path)
    for student in ("ann", "ben"):
        these.hand_in(student, solved(LESSON, f"name = {student!r}"))
    file = tmp_path / "scheduler.json"
    scheduler = subprocess.Popen(
        [
            *(sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"),
            *("--no-dashboard", "--scheduler-file", file),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        with Client(json.loads(file.read_text())["address"], set_as_default=False) as client:
            thread, problems = judge_in_thread(these, client)
            tasks = lambda dask_scheduler: len(dask_scheduler.tasks)  # noqa: E731 (by value)
            wait_until(lambda: client.run_on_scheduler(tasks) == 2)
            scheduler.kill()
            thread.join()
    finally:
        scheduler.kill()
        scheduler.wait()
    assert set(problems) == {"ann", "ben"}
    assert all("cluster" in problem for problem in problems.values()), problems


# --- workers that are others -----------------------------------------------------------------------


@contextmanager
def another_grader(client: Client, place: Path):
    """A worker that runs a copy of the judge in which a line is another."""
    lay_out_another_judge(place)
    before = len(client.nthreads())
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "distributed.cli.dask_worker", address(client)),
            *("--name", "elsewhere", "--nthreads", "1", "--no-dashboard", "--no-nanny"),
        ],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(client.nthreads()) > before)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_a_worker_with_another_grader_judges_nothing_and_others_do(client, tmp_path):
    these = Class(tmp_path / "class")
    for number in range(6):
        these.hand_in(f"s{number}", solved(LESSON, f"number = {number}"))
    with another_grader(client, tmp_path / "other"):
        assert not any(these.judge_on(client).values())
    assert set(these.points().values()) == {POINTS}


@pytest.mark.slow
def test_where_all_workers_are_others_it_is_said_which_and_nothing_is_graded(tmp_path):
    these = Class(tmp_path / "class")
    for student in ("ann", "ben", "cleo"):
        these.hand_in(student, solved(LESSON, f"name = {student!r}"))
    with (
        cluster(tmp_path / "workers", n_workers=0) as client,
        another_grader(client, tmp_path / "other"),
    ):
        problems = these.judge_on(client)
    for problem in problems.values():
        assert "worker elsewhere at tcp://" in problem
        assert "its files of the course or the judge are others" in problem
    assert these.points() == dict.fromkeys(problems)


def test_a_worker_with_another_version_is_told_by_name(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_task, "versions", lambda: {"python": "3.0", "torch": "0.4.1"})
    these = Class(tmp_path)
    these.hand_in("ann", solved(LESSON))
    problem = these.judge_on(client)["ann"]
    assert "torch" in problem
    assert "in place of 0.4.1" in problem
    assert these.points() == {"ann": None}


# --- the command -------------------------------------------------------------------------------------


def grade(folder: CourseFolder, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "autograder", "grade", LESSON.folder, *options],
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_command_grades_a_class_on_a_cluster(client, tmp_path):
    folder = CourseFolder.lay_out(LESSON, tmp_path)
    folder.hand_in("ann", solved(LESSON))
    folder.hand_in("ben", b"no notebook")
    done = grade(folder, "--dask", address(client))
    assert "graded (1): ann" in done.stdout, done.stderr
    assert "ungradable (1): ben" in done.stdout
    assert done.returncode == 1
    assert sum(folder.points("ann").values()) == POINTS


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:9", "127.0.0.1", "nonsense://x:1", ""])
def test_a_cluster_that_is_not_there_is_named(where, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "CONNECT", 2.0)
    these = Class(tmp_path)
    these.hand_in("ann", solved(LESSON))
    with closing(these.desk()) as desk, pytest.raises(CannotStart, match="no Dask scheduler"):
        list(judge_on_dask(desk, these.submissions, where))
