"""What was judged once is not run again: not for a second run, a penalty, or a lost gradebook."""

import subprocess
import sys
from pathlib import Path

import pytest
from changing import change
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from submissions import solved, submission

import autograder.lessons
from autograder import kept_results
from autograder.authoring.source import POINTS
from autograder.kept_results import (
    Kept,
    KeptResults,
    digest_of_grader,
    digest_of_judging,
    digest_of_submission,
)
from autograder.result import Answer, Outcome, Result
from course.files.writing import write_whole
from lessons import COURSE, ROOT

LESSON = COURSE.read("00-start")
__all__ = ["change"]
ANSWERS = (
    Answer("one", Outcome.SCORE, 0.5, 2, "half \ud83d", "a_bug", "mask", True),
    Answer("two", Outcome.STUDENT_FAULT, 0.0, 8, "it hung"),
)
KEPT = Kept(
    Result(
        "start", Outcome.SCORE, "", "5a", ANSWERS, ("cell 2: ValueError",), "said\n", {"names": 0.5}
    ),
    "Judged in a sandbox.",
)


@pytest.fixture
def results(tmp_path) -> KeptResults:
    return KeptResults(tmp_path / "results", "a grader", {"cell_seconds": 120})


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_kept_comes_back(results):
    results.keep("a submission", KEPT)
    found = results.find("a submission")
    assert found == KEPT
    assert found.result.seconds == KEPT.result.seconds
    assert type(found.result.answers[0].outcome) is Outcome
    assert results.find("another submission") is None


def test_another_grader_or_setting_finds_nothing(results, tmp_path):
    results.keep("a submission", KEPT)
    folder = tmp_path / "results"
    assert KeptResults(folder, "b grader", {"cell_seconds": 120}).find("a submission") is None
    other = KeptResults(folder, "a grader", {"cell_seconds": 60})
    assert other.find("a submission") is None
    key = results.key("a submission")
    assert other.find_under(key, "a submission").settings == {"cell_seconds": 120}
    assert other.find_under(key, "another submission") is None
    another = KeptResults(folder, "b grader", {"cell_seconds": 60})
    assert another.find_under(key, "a submission") is None


@pytest.mark.parametrize(
    "said", [b"", b"{", b"[]", b"{}", b'{"result": {"outcome": "?"}}', b"\xff"]
)
def test_a_file_that_cannot_be_read_is_no_result(results, tmp_path, said):
    results.keep("a submission", KEPT)
    (file,) = files(tmp_path)
    file.write_bytes(said)
    assert results.find("a submission") is None


def test_that_the_machine_failed_is_not_kept(results, tmp_path):
    failed = Result("start", Outcome.INFRA_ERROR, "no process today", "5a", ANSWERS)
    results.keep("a submission", Kept(failed, ""))
    assert files(tmp_path) == []


def test_files_that_cannot_be_read_have_no_result(results, tmp_path):
    assert digest_of_submission(tmp_path / "nowhere" / "start.ipynb") == ""
    results.keep("", KEPT)
    assert results.find("") is None


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "result.json"
    write_whole(file, b"old")
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from course.files.writing import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "write_whole(Path(sys.argv[1]), b'x' * 1000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(file)], cwd=ROOT, capture_output=True, text=True
    )
    assert "File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert file.read_bytes() == b"old"


def test_a_digest_is_of_the_files_and_nothing_around_them(tmp_path):
    digests = set()
    for student in ("ann", "bob"):
        folder = tmp_path / student
        folder.mkdir()
        (folder / "start.ipynb").write_text("{}")
        digests.add(digest_of_submission(folder / "start.ipynb"))
    assert len(digests) == 1
    (folder / "helper.py").write_text("a = 1")
    digests.add(digest_of_submission(folder / "start.ipynb"))
    (folder / "helper.py").write_text("a = 2")
    digests.add(digest_of_submission(folder / "start.ipynb"))
    (folder / "other.pyc").write_bytes(b"can be imported, too")
    digests.add(digest_of_submission(folder / "start.ipynb"))
    (folder / "start.ipynb").write_text("{ }")
    digests.add(digest_of_submission(folder / "start.ipynb"))
    (folder / "start.ipynb").unlink()
    (folder / "start.ipynb").symlink_to("helper.py")
    digests.add(digest_of_submission(folder / "start.ipynb"))
    assert len(digests) == 6


def test_the_grader_is_another_with_another_secret_or_lesson(tmp_path):
    lesson = tmp_path / "start.ipynb"
    lesson.write_text("{}")
    graders = {digest_of_grader(lesson, secret) for secret in (b"a", b"b", b"a")}
    lesson.write_text("{ }")
    graders.add(digest_of_grader(lesson, b"a"))
    assert len(graders) == 3


# --- through nbgrader ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> CourseFolder:
    """Graded once: ann's work is solved, bob's is not begun."""
    course = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("course"))
    course.hand_in("ann", solved(LESSON))
    course.hand_in("bob", submission(LESSON, {}))
    done = course.autograde()
    assert done.returncode == 0, done.stderr
    return course


@needs_bubblewrap
@pytest.mark.slow
def test_a_run_with_nothing_new_needs_no_sandbox(course, no_bubblewrap):
    for arguments in ((), ("--force",)):
        done = course.autograde(*arguments, environment=no_bubblewrap)
        assert done.returncode == 0, done.stderr
    assert "ann: SCORE, 10 points" in done.stderr
    assert sum(course.points("ann").values()) == POINTS
    assert sum(course.points("bob").values()) == 0


@needs_bubblewrap
@pytest.mark.slow
def test_on_request_all_is_judged_again(course, no_bubblewrap):
    options = ("--force", "--Judge.judge_again=True")
    done = course.autograde(*options, environment=no_bubblewrap)
    assert "Nothing was graded." in done.stderr
    assert sum(course.points("ann").values()) == POINTS


@needs_bubblewrap
@pytest.mark.slow
def test_a_changed_file_is_graded_whatever_its_time(course):
    stamp = course.submitted("bob").with_name("timestamp.txt")
    stamp.write_text("2026-11-01 05:00:00 UTC")
    assert course.autograde("--force").returncode == 0
    course.hand_in("bob", solved(LESSON, "my_own = 1"))
    stamp.write_text("2026-10-01 05:00:00 UTC")
    done = course.autograde()
    assert done.returncode == 0, done.stderr
    assert "bob/00-start: handed in again" in done.stderr
    assert "ann: SCORE" not in done.stderr
    assert sum(course.points("bob").values()) == POINTS


JUDGED_ANEW = {
    "a hidden check of that lesson": (
        "autograder/lessons/start/hidden.py",
        "def flops(",
        {"start"},
    ),
    "a visible check of that lesson": ("course/checks/start/products.py", "def draw_", {"start"}),
    "a probe of another lesson": ("autograder/lessons/kv_cache/probes.py", "def ", {"kv_cache"}),
    "the cells that follow-through puts in": ("autograder/follow_through.py", "SLOW = 5", "all"),
    "the judge": ("autograder/judge.py", "def grade_one(", "all"),
    "the program around a student's code": ("autograder/student.py", "def run_cell(", "all"),
    "a barrier": ("autograder/sandbox/seccomp.py", "def ", "all"),
    "the house rules": ("course/checks/recorder.py", "LARGEST = 10**7", "all"),
    "the model": ("course/model/rotary.py", "def rotary_table(", {"kv_cache"}),
    "a museum": ("autograder/lessons/start/museum.py", "def ", {"start"}),
    "a museum's text": ("autograder/lessons/kv_cache/museum/layers.txt", "caught by", {"kv_cache"}),
    "how mistakes are recognized": ("autograder/diagnosis/recognize.py", "def diagnose(", "all"),
    "what is said of wrong numbers": ("course/checks/relations/to_right.py", "def ", set()),
    "a picture": ("course/plots/style.py", "def ", set()),
    "a widget": ("course/widgets/gqa.py", "def ", set()),
    "publishing": ("autograder/publishing/publish.py", "def main(", set()),
    "a class's report": ("autograder/classroom/reporting/report.py", "def main(", set()),
    "authoring": ("autograder/authoring/build.py", "def main(", set()),
    "a comment between functions": ("autograder/judge.py", "\n\n\ndef ", set()),
}


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """The digests of two lessons' judging, with nothing changed."""
    return {lesson: digest_of_judging(lesson) for lesson in ("start", "kv_cache")}


@pytest.mark.parametrize(("file", "old", "anew"), JUDGED_ANEW.values(), ids=JUDGED_ANEW)
def test_a_result_rests_on_its_own_lesson_and_on_what_judges_it(before, change, file, old, anew):
    new = (
        old.replace("\n\n\n", "\n\n# A comment.\n\n") if "\n\n\n" in old else old.replace(" ", "  ")
    )
    change(file, old, new)
    after = {lesson: digest_of_judging(lesson) for lesson in before}
    expected = set(before) if anew == "all" else anew
    assert {lesson for lesson in before if after[lesson] != before[lesson]} == expected


def test_what_judges_is_looked_up_until_a_file_of_the_project_changes(tmp_path, monkeypatch):
    computed, more, lesson = [], tmp_path / "more", tmp_path / "start.ipynb"
    more.mkdir()
    lesson.write_text("{}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(autograder.lessons, "__path__", [*autograder.lessons.__path__, str(more)])
    monkeypatch.setattr(kept_results, "digest_of_judging", lambda name: computed.append(name) or "")
    record = tmp_path / "second-token" / kept_results.KNOWN

    def times_computed() -> int:
        computed.clear()
        digest_of_grader(lesson, b"a")
        return len(computed)

    assert [times_computed(), times_computed()] == [1, 0]
    (more / "new.py").write_text("x = 1")
    assert [times_computed(), times_computed()] == [1, 0]
    (more / "new.py").unlink()
    assert times_computed() == 0
    for damaged in ('{"cut', "[]"):
        record.write_text(damaged)
        assert times_computed() == 1
