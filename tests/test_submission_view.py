"""A submission's folder is copied within bounds, and nothing in it is followed, waited for or lost."""

import os
import socket
import subprocess
import tempfile

import pytest
from confined import Place, needs_bubblewrap, starting

from autograder.kept_results import digest_of_submission
from autograder.sandbox import submission_view
from autograder.sandbox.child import InfraError
from autograder.sandbox.launch import Launcher
from autograder.sandbox.submission_view import MAX_DEPTH, MAX_ENTRIES, lay_out


@pytest.fixture
def folder(tmp_path):
    """Of someone whose name nobody should read."""
    folder = tmp_path / "ann-miller" / "00-start"
    folder.mkdir(parents=True)
    return folder


def copied(folder, place) -> dict[str, bytes]:
    view = lay_out(folder, place / "copy")
    return {
        path.relative_to(view).as_posix(): path.read_bytes()
        for path in sorted(view.rglob("*"))
        if not path.is_dir()
    }


def test_files_are_copied_with_folders_and_can_be_read_by_everyone(folder, tmp_path):
    (folder / "tools").mkdir(mode=0o700)
    for name in ("helper.py", "tools/more.py", "naïve \n.txt"):
        (folder / name).write_text(name)
        (folder / name).chmod(0o600)
    (folder / "run.sh").touch(mode=0o700)
    assert copied(folder, tmp_path) == {
        "helper.py": b"helper.py",
        "naïve \n.txt": "naïve \n.txt".encode(),
        "run.sh": b"",
        "tools/more.py": b"tools/more.py",
    }
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "copy").rglob("*")}
    assert modes == {
        "helper.py": 0o644,
        "naïve \n.txt": 0o644,
        "run.sh": 0o755,
        "tools": 0o755,
        "more.py": 0o644,
    }


def test_when_it_was_handed_in_is_no_part_of_the_work(folder, tmp_path):
    """Nor of its digest: a time that was corrected is no reason to judge again."""
    (folder / "work.ipynb").write_text("{}")
    before = digest_of_submission(folder / "work.ipynb")
    (folder / "timestamp.txt").write_text("2026-12-01 18:00:00 UTC")
    (folder / "data").mkdir()
    (folder / "data" / "timestamp.txt").write_text("the student's own")
    assert set(copied(folder, tmp_path)) == {"work.ipynb", "data/timestamp.txt"}
    (folder / "data" / "timestamp.txt").unlink()
    (folder / "data").rmdir()
    assert digest_of_submission(folder / "work.ipynb") == before


@needs_bubblewrap
def test_folders_of_judges_that_were_killed_are_removed_when_they_are_old(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = {f"judge-{ended.pid}-old": True, f"judge-{ended.pid}-new": False}
    names |= {f"judge-{os.getpid()}-old": True, "judge-mine-old": True}
    for name, old in names.items():
        (tmp_path / name / "view").mkdir(parents=True)
        if old:
            os.utime(tmp_path / name, (0, 0))
    Launcher("start").close()
    assert {path.name for path in tmp_path.iterdir()} == {*names} - {f"judge-{ended.pid}-old"}


def test_links_pipes_and_sockets_are_left_out(folder, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "gradebook.db").write_text("1.0")
    (folder / "file").symlink_to(tmp_path / "private" / "gradebook.db")
    (folder / "folder").symlink_to(tmp_path / "private")
    (folder / "nowhere").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    (folder / "helper.py").touch()
    assert copied(folder, tmp_path) == {"helper.py": b""}


def test_a_submission_folder_that_is_a_link_is_that_of_the_grader_s_choice(folder, tmp_path):
    (folder / "helper.py").touch()
    (tmp_path / "link").symlink_to(folder)
    assert copied(tmp_path / "link", tmp_path) == {"helper.py": b""}


def test_what_is_too_much_is_left_out_and_the_rest_is_not(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(submission_view, "MAX_BYTES", 100)
    for name, size in (("a", 60), ("b", 60), ("c", 40), ("d", 1)):
        (folder / name).write_bytes(bytes(size))
    with open(folder / "hole", "wb") as file:
        file.truncate(2**40)
    assert list(copied(folder, tmp_path)) == ["a", "c"]


def test_files_without_number_are_bounded_and_leave_room_for_others(folder, tmp_path):
    (folder / "helper.py").touch()
    for name in ("data", "tools"):
        (folder / name).mkdir()
    for n in range(MAX_ENTRIES + 10):
        (folder / "data" / str(n)).touch()
    (folder / "tools" / "more.py").touch()
    found = copied(folder, tmp_path)
    assert {"helper.py", "tools/more.py"} <= set(found)
    assert MAX_ENTRIES / 4 < len(found) < MAX_ENTRIES


def test_folders_without_end_are_bounded(folder, tmp_path):
    place = folder
    for n in range(MAX_DEPTH + 5):
        (place / f"at-{n}").touch()
        place = place / "inner"
        place.mkdir()
    assert [name.rpartition("-")[2] for name in copied(folder, tmp_path)] == [
        str(n) for n in range(MAX_DEPTH)
    ]


@needs_bubblewrap
@pytest.mark.parametrize("way", ["cold", "warm"])
def test_a_process_cannot_read_whose_work_it_is(way, folder, tmp_path):
    place = Place(tmp_path)
    place.submission.rmdir()
    lay_out(folder, place.submission)
    script = "print('miller' in open('/proc/self/mountinfo').read())"
    with starting(way) as start:
        assert place.run(start, script) == (0, "False")


def run(start, *cells: str) -> list[dict | None]:
    with start() as child:
        return [child.ask({"cell": cell}, 60)["error"] for cell in cells]


WORK = (
    "%run helper.py\nassert doubled == 42",
    "import helper, torch\nassert torch.ones(1) == 1",
    "with open('settings.json') as file:\n    assert file.read() == '{}'",
    "with open('settings.json', 'w') as file:\n    file.write('[]')",
    "assert open('settings.json').read() == '[]'",
    "with open('inner/log.txt', 'x') as file:\n    file.write('line')",
    "assert len(open('large.bin', 'rb').read()) == 33 * 2**20",
)


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize("unsafe", [False, True], ids=["sandbox", "bare"])
def test_a_notebook_works_in_its_folder_and_the_next_process_finds_it_as_it_was(unsafe, folder):
    (folder / "helper.py").write_text("doubled = 42")
    (folder / "torch.py").write_text("raise AssertionError('not torch')")
    (folder / "settings.json").write_text("{}")
    (folder / "inner").mkdir()
    (folder / "inner" / "data.txt").touch()
    (folder / "large.bin").write_bytes(bytes(33 * 2**20))
    before = sorted(path.name for path in folder.rglob("*"))
    launcher = Launcher("start", unsafe_no_sandbox=unsafe)
    try:
        with launcher.start_for(folder) as start:
            assert run(start, *WORK) == [None] * len(WORK)
            assert run(start, *WORK) == [None] * len(WORK)
            left = list(launcher._folder.iterdir())
            assert len(left) == 2
        assert [path.name for path in launcher._folder.iterdir()] == ["view"]
    finally:
        launcher.close()
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert (folder / "settings.json").read_text() == "{}"


def test_a_folder_that_is_not_there_is_no_fault_of_the_student(tmp_path):
    launcher = Launcher("start", unsafe_no_sandbox=True)
    try:
        with (
            launcher.start_for(tmp_path / "gone") as start,
            pytest.raises(InfraError, match="gone"),
        ):
            start()
    finally:
        launcher.close()
