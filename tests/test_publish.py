"""The students' repository: it holds no answer to an open lesson, runs by itself, and stays mergeable."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import nbformat
import pytest
from nbgitpuller.pull import GitPuller

from autograder.__main__ import COMMANDS, main
from autograder.assignment import read_assignment, read_submission
from autograder.authoring.source import LessonError
from autograder.publishing import publish
from autograder.publishing.address import address_in, read_address
from autograder.publishing.bundle import lay_out
from autograder.publishing.checkout import MANIFEST, NotPublished, apply, compare
from autograder.publishing.leak_scan import hidden_of, scan
from autograder.publishing.release import read_release
from lessons import COURSE, FOLDERS, ROOT

LAST = "03-kv-cache"
READ_BY_CODE = {".json", ".safetensors", ".txt", ".j2", ".css", ".js"}
AUTHOR = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(place), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **AUTHOR},
    )
    return done.stdout


def commit(place: Path, message: str) -> None:
    if not (place / ".git").exists():
        git(place, "init", "--quiet", "--initial-branch", "main")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", message)


def bundle_of(place: Path, through: str, closed: str | None = None, address: str = "") -> Path:
    place.mkdir()
    lay_out(place, read_release(COURSE, through, closed), address)
    return place


@pytest.fixture(scope="module")
def hidden():
    """What nobody may find while lesson 03 is open."""
    return hidden_of(read_release(COURSE, LAST, None))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return bundle_of(tmp_path_factory.mktemp("release") / "bundle", LAST)


@pytest.fixture(scope="module")
def next_bundle(tmp_path_factory) -> Path:
    return bundle_of(tmp_path_factory.mktemp("next") / "bundle", "04")


@pytest.fixture
def origin(bundle, tmp_path) -> Path:
    """The students' repository with the lessons up to 03, committed."""
    place = tmp_path / "origin"
    apply(compare(bundle, place), bundle, place)
    commit(place, f"Lessons through {LAST}")
    return place


# --- what is in it -------------------------------------------------------------------------------


def test_it_holds_the_lessons_that_are_published_as_they_were_released(bundle):
    notebooks = {path.relative_to(bundle) for path in bundle.rglob("*.ipynb")}
    released = {path.relative_to(ROOT) for path in ROOT.glob("lessons/0[0-3]-*/*.ipynb")}
    assert notebooks == released
    assert all((bundle / path).read_bytes() == (ROOT / path).read_bytes() for path in released)


def test_it_holds_answers_of_closed_lessons_alone_and_nothing_of_those_to_come(bundle):
    minigpt = {path.stem for path in (bundle / "course" / "minigpt").iterdir()}
    assert minigpt == {"__init__", "start", "mini_gpt", "naive_decode"}
    later = {"gqa", "roofline", "paged_cache", "prefill_and_decode"}
    for room in ("checks", "plots", "widgets", "checks/recorded", "checks/released"):
        assert not later & {path.stem for path in (bundle / "course" / room).iterdir()}, room
    assert not (bundle / "autograder").exists()
    assert not (bundle / "solutions").exists()


def test_what_lies_beside_modules_is_installed_with_them(bundle):
    for root, package in ((bundle, "course"), (ROOT, "course"), (ROOT, "autograder")):
        said = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        installed = {
            path
            for name, patterns in said["tool"]["setuptools"]["package-data"].items()
            for pattern in patterns
            for path in (root / name.replace(".", "/")).glob(pattern)
        }
        beside = {path for path in (root / package).rglob("*") if path.suffix in READ_BY_CODE}
        assert beside
        assert beside <= installed


def test_without_an_address_nothing_leads_anywhere(bundle):
    texts = [path.read_text(encoding="utf-8") for path in bundle.glob("lessons/*/*.ipynb")]
    for text in [
        *texts,
        *((bundle / name).read_text() for name in ("README.md", "pyproject.toml")),
    ]:
        assert not re.search(
            r"git\+|git clone|colab\.research\.google\.com|github\.com/(?!python)", text
        )
    assert all("This copy was not published" in text for text in texts)


def test_with_an_address_all_lead_there_at_the_lesson_s_tag(tmp_path):
    bundle = bundle_of(tmp_path / "bundle", "01", address="https://github.com/us/lessons")
    for folder in ("00-start", "01-mini-gpt"):
        (path,) = (bundle / "lessons" / folder).glob("*.ipynb")
        notebook = nbformat.read(path, as_version=4)
        assert f"git+https://github.com/us/lessons@{folder}\n" in notebook.cells[1].source
        colab = (
            f"colab.research.google.com/github/us/lessons/blob/main/lessons/{folder}/{path.name}"
        )
        assert colab in notebook.cells[0].source
        assert notebook.metadata.colab.generative_ai_disabled
        assert colab in (bundle / "README.md").read_text(encoding="utf-8")
    readme = (bundle / "README.md").read_text()
    assert "git clone https://github.com/us/lessons " in readme
    assert "Get new lessons with `git pull`." in readme
    assert address_in(bundle) == "https://github.com/us/lessons"


def test_elsewhere_than_on_github_colab_has_no_badge(tmp_path):
    bundle = bundle_of(tmp_path / "bundle", "00", address="https://git.example.edu/us/lessons")
    (path,) = bundle.glob("lessons/*/*.ipynb")
    assert "colab-badge" not in (text := path.read_text(encoding="utf-8"))
    assert "git+https://git.example.edu/us/lessons@00-start" in text


@pytest.mark.parametrize(
    "address", ["https://github.com/us/lessons", "https://git.example.edu/a/b"]
)
def test_the_judge_knows_a_published_notebook_as_the_released_one(tmp_path, address):
    bundle = bundle_of(tmp_path / "bundle", "00", address=address)
    (path,) = bundle.glob("lessons/*/*.ipynb")
    assignment = read_assignment(COURSE.read("00-start").student)
    _, cells = read_submission(path, assignment)
    known = {*assignment.given, *assignment.stubs.values(), ""}
    assert [cell.source for cell in cells if cell.source.strip() not in known] == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://github.com/us/lessons/", "https://github.com/us/lessons"),
        ("https://github.com/us/lessons.git", "https://github.com/us/lessons"),
        ("https://git.example.edu:8443/a/b/c", "https://git.example.edu:8443/a/b/c"),
        ("http://github.com/us/lessons", None),
        ("https://github.com", None),
        ("git@github.com:us/lessons.git", None),
        ("https://us:secret@github.com/us/lessons", None),
        ("https://github.com/us/lessons; rm -rf ~", None),
        ("https://github.com/us/lessons?x=1", None),
    ],
)
def test_an_address_is_checked_at_the_door(text, address):
    if address:
        assert read_address(text) == address
    else:
        with pytest.raises(LessonError, match="is not the address of a repository"):
            read_address(text)


def test_coding_assistants_are_asked_to_tutor(bundle):
    assert "Be a tutor, not an author." in (bundle / "AGENTS.md").read_text(encoding="utf-8")
    assert "[AGENTS.md](AGENTS.md)" in (bundle / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("through", "closed", "answers"),
    [("00", None, 0), ("02", None, 2), ("02", "02", 3), ("02", "none", 0), ("02", "00-start", 1)],
)
def test_the_instructor_says_which_lessons_are_closed(through, closed, answers):
    release = read_release(COURSE, through, closed)
    assert (len(release.lessons), release.closed) == (int(through) + 1, answers)


@pytest.mark.parametrize(
    ("through", "closed", "says"),
    [
        ("3", None, "no lesson '3'"),
        ("02", "03", "03 cannot be closed"),
        ("02", "x", "no lesson 'x'"),
    ],
)
def test_a_release_that_cannot_be_is_refused(through, closed, says):
    with pytest.raises(LessonError, match=says):
        read_release(COURSE, through, closed)


# --- what leaks ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("folder", [FOLDERS[0], FOLDERS[1], FOLDERS[-1]])
def test_nothing_leaks_from_a_release(folder, tmp_path):
    place = bundle_of(tmp_path / "bundle", folder)
    assert scan(place, hidden_of(read_release(COURSE, folder, None))) == []


def test_nothing_leaks_while_03_is_open(bundle, hidden):
    assert scan(bundle, hidden) == []


def answer(name: str) -> str:
    """The source of an answer cell of lesson 03."""
    cells = COURSE.read(LAST).cells
    return next(cell.answer for cell in cells if cell.solution and f"def {name}(" in cell.source)


def renamed_and_reformatted() -> str:
    """An answer under another name, with other names of its own and a comment in each line."""
    source = answer("causal_mask").replace("causal_mask", "helper")
    source = source.replace("n_visible", "wide").replace("n_new", "tall")
    return "\n".join(
        f"{line}  # noted" if line.strip().endswith(")") else line for line in source.splitlines()
    )


def solved() -> str:
    return COURSE.read(LAST).solved.read_text(encoding="utf-8")


def with_output() -> str:
    """The released notebook, with a line of an answer in what a cell printed."""
    notebook = nbformat.read(COURSE.read(LAST).student, as_version=4)
    line = next(line for line in answer("causal_mask").splitlines() if "unsqueeze" in line)
    code = next(cell for cell in notebook.cells if cell.cell_type == "code")
    code.outputs = [nbformat.v4.new_output("stream", text=line)]
    return nbformat.writes(notebook)


def with_metadata() -> str:
    notebook = nbformat.read(COURSE.read(LAST).student, as_version=4)
    notebook.metadata["note"] = "### BEGIN HIDDEN TESTS"
    return nbformat.writes(notebook)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


PLANTED = {
    "course/minigpt/kv_cache.py": lambda: read("course/minigpt/kv_cache.py"),
    "course/helper.py": renamed_and_reformatted,
    "course/fast/decode.py": lambda: read("course/minigpt/prefill_and_decode.py"),
    "course/checks/kv_cache/truth.py": lambda: read("autograder/oracle.py"),
    "course/museum.py": lambda: read("autograder/lessons/kv_cache/museum/caches.py"),
    "course/museum.txt": lambda: read("autograder/lessons/kv_cache/museum/causal_masks.txt"),
    "course/probes.py": lambda: read("autograder/lessons/kv_cache/hidden.py"),
    "lessons/03-kv-cache/solved.ipynb": solved,
    "lessons/03-kv-cache/kv_cache.ipynb": with_output,
    "lessons/03-kv-cache/copy.ipynb": with_metadata,
    "docs/notes.md": lambda: f"Hint:\n\n```\n{answer('forward_cached')}\n```\n",
    "course/kv_cache.pyc": lambda: base64.b64encode(answer("causal_mask").encode()).decode(),
    "tests/test_more.py": lambda: "from autograder.lessons import grade\n",
}


@pytest.mark.parametrize("path", PLANTED)
def test_a_planted_leak_is_found_and_named(path, hidden, tmp_path):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(PLANTED[path](), encoding="utf-8")
    found = scan(tmp_path, hidden)
    assert found
    assert all(leak.startswith(f"{path}: ") for leak in found)


@pytest.mark.slow
def test_a_leak_in_the_history_keeps_everything_from_being_written(origin, capsys):
    (origin / "course" / "helper.py").write_text(answer("causal_mask"), encoding="utf-8")
    commit(origin, "A helper")
    (origin / "course" / "helper.py").unlink()
    commit(origin, "No helper")
    before = git(origin, "status", "--porcelain")
    assert publish.main([str(origin), "--through", LAST]) == 1
    assert "course/helper.py in commit history" in capsys.readouterr().err
    assert git(origin, "status", "--porcelain") == before


@pytest.mark.slow
def test_a_leak_that_the_next_commit_would_add_keeps_everything_from_being_written(origin, capsys):
    (origin / "notes.txt").write_text("Bring a laptop.\n", encoding="utf-8")
    (origin / "timetable.pdf").write_bytes(b"%PDF\0")
    assert publish.main([str(origin), "--through", LAST]) == 0
    (origin / "notes.txt").write_text(answer("causal_mask"), encoding="utf-8")
    assert publish.main([str(origin), "--through", LAST]) == 1
    assert f"notes.txt in {origin}: a line of an answer" in capsys.readouterr().err
    (origin / ".git" / "info" / "exclude").write_text("notes.txt\n", encoding="utf-8")
    assert publish.main([str(origin), "--through", LAST]) == 0
    (origin / "answers.zip").write_bytes(b"PK\0")
    assert publish.main([str(origin), "--through", LAST]) == 1
    assert "nobody can see what files that end on .zip hold" in capsys.readouterr().err


@pytest.mark.slow
def test_a_leak_in_a_folder_that_becomes_the_repository_is_found(tmp_path, capsys):
    (tmp_path / "old.py").write_text(answer("causal_mask"), encoding="utf-8")
    assert publish.main([str(tmp_path), "--through", LAST]) == 1
    assert f"old.py in {tmp_path}: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["old.py"]


# --- again into the same checkout ----------------------------------------------------------------


@pytest.mark.slow
def test_a_second_run_changes_nothing(origin, capsys):
    assert publish.main([str(origin), "--through", LAST]) == 0
    assert "is up to date" in capsys.readouterr().out
    assert git(origin, "status", "--porcelain") == ""


def test_the_next_lesson_brings_itself_and_the_answers_of_the_one_before(origin, next_bundle):
    changes = compare(next_bundle, origin)
    assert "lessons/04-prefill-and-decode/prefill_and_decode.ipynb" in changes.written
    assert "course/minigpt/kv_cache.py" in changes.written
    assert not [path for path in changes.written if path.startswith(f"lessons/{LAST}")]
    assert (changes.removed, changes.left) == ([], [])


def test_what_is_published_no_more_is_removed(next_bundle, bundle, tmp_path):
    place = tmp_path / "origin"
    apply(compare(next_bundle, place), next_bundle, place)
    apply(compare(bundle, place), bundle, place)
    assert not (place / "lessons" / "04-prefill-and-decode").exists()
    assert compare(bundle, place).written == []


def changed(bundle: Path, place: Path, path: str) -> Path:
    """A copy of a bundle in which a notebook's text is another."""
    shutil.copytree(bundle, place)
    notebook = nbformat.read(place / path, as_version=4)
    notebook.cells[0].source += "\n\nA correction."
    nbformat.write(notebook, place / path)
    return place


def test_a_notebook_that_students_have_is_left_unless_it_is_named(origin, bundle, tmp_path):
    path = f"lessons/{LAST}/kv_cache.ipynb"
    newer = changed(bundle, tmp_path / "newer", path)
    for _ in range(2):
        changes = compare(newer, origin)
        assert (changes.written, changes.left) == ([], [path])
        apply(changes, newer, origin)
        assert git(origin, "status", "--porcelain") == ""
    assert compare(newer, origin, [LAST]).written == [path]


def test_a_file_that_was_edited_there_is_not_overwritten(origin, next_bundle):
    (origin / "README.md").write_text("Ours.", encoding="utf-8")
    with pytest.raises(NotPublished, match=r"edited in .*README\.md"):
        compare(next_bundle, origin)
    assert (origin / "README.md").read_text(encoding="utf-8") == "Ours."


def test_a_folder_of_something_else_is_not_overwritten(bundle, tmp_path):
    (tmp_path / "README.md").write_text("Another project.", encoding="utf-8")
    with pytest.raises(NotPublished, match=r"did not write: README\.md"):
        compare(bundle, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"README.md": 3}'])
def test_a_manifest_that_cannot_be_read_is_named(origin, bundle, text):
    (origin / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(NotPublished, match="cannot be read"):
        compare(bundle, origin)


# --- at students' ---------------------------------------------------------------------------------


def work_on(clone: Path) -> Path:
    """Answer something in a student's clone; the notebook."""
    path = clone / "lessons" / LAST / "kv_cache.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution")
    ).source = "mine = 1"
    nbformat.write(notebook, path)
    return path


def publish_next(origin: Path, bundle: Path) -> None:
    apply(compare(bundle, origin), bundle, origin)
    commit(origin, "The next lesson")


def test_git_pull_brings_the_next_lesson_and_leaves_a_student_s_work(origin, next_bundle, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    mine = work_on(clone).read_bytes()
    publish_next(origin, next_bundle)
    git(clone, "pull", "--quiet")
    assert (clone / "lessons/04-prefill-and-decode/prefill_and_decode.ipynb").exists()
    assert (clone / "lessons" / LAST / "kv_cache.ipynb").read_bytes() == mine
    assert git(clone, "status", "--porcelain").split() == ["M", f"lessons/{LAST}/kv_cache.ipynb"]


def test_nbgitpuller_does_so_too(origin, next_bundle, tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)

    def pull() -> None:
        list(GitPuller(f"file://{origin}", str(clone), branch="main").pull())

    pull()
    mine = work_on(clone).read_bytes()
    publish_next(origin, next_bundle)
    pull()
    assert (clone / "lessons/04-prefill-and-decode/prefill_and_decode.ipynb").exists()
    assert (clone / "lessons" / LAST / "kv_cache.ipynb").read_bytes() == mine


@pytest.mark.slow
@pytest.mark.parametrize("closed", [None, "none"])
def test_it_installs_by_itself_and_passes_its_own_tests(closed, tmp_path):
    """In an environment that has the packages from outside, and neither this course nor its judge."""
    place = bundle_of(tmp_path / "bundle", LAST, closed)
    venv.create(tmp_path / "venv")  # pip is that of outside
    python = tmp_path / "venv" / "bin" / "python"
    inside = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    outside = sysconfig.get_path("purelib")
    Path(inside.strip(), "outside.pth").write_text(outside + "\n", encoding="utf-8")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", "."]
    subprocess.run([python, *install], cwd=place, check=True, env=_plain())
    where = "import course; print(course.__file__)"
    found = subprocess.check_output([python, "-c", where], cwd=tmp_path, text=True, env=_plain())
    assert str(place) in found
    missing = subprocess.run(
        [python, "-c", "import autograder"],
        cwd=place,
        env=_plain(),
        capture_output=True,
        check=False,
    )
    assert b"ModuleNotFoundError" in missing.stderr
    tests = [python, "-m", "unittest", "discover", "--start-directory", "tests"]
    ran = subprocess.run(
        tests, cwd=place, env=_plain(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def _plain() -> dict[str, str]:
    """The environment without a way to this repository."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_its_manifest_names_every_file(origin):
    named = json.loads((origin / MANIFEST).read_text(encoding="utf-8"))
    there = set(git(origin, "ls-files").split()) - {MANIFEST}
    assert set(named) == there


@pytest.mark.slow
def test_the_command_says_what_to_do_next(tmp_path):
    command = [sys.executable, "-m", "autograder", "publish", "new", "--through", "00"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "git -C new init" in done.stdout
    assert "git -C new add --all" in done.stdout


@pytest.mark.slow
def test_for_self_study_all_lessons_come_with_their_answers_and_the_book(tmp_path):
    place = tmp_path / "self-study"
    assert publish.main([str(place), "--self-study"]) == 0
    assert len(list(place.glob("lessons/*/*.ipynb"))) == len(FOLDERS)
    assert {path.stem for path in place.glob("course/minigpt/*.py")} >= {"start", "paged_cache"}
    page = (place / "book" / "lessons" / LAST / "kv_cache.html").read_text(encoding="utf-8")
    assert "unsqueeze" in page  # in an answer


@pytest.mark.parametrize(("package", "extra"), [("jupytext", "authoring"), ("nbgrader", "grading")])
def test_a_command_that_needs_more_than_is_installed_says_so_in_one_line(
    tmp_path, monkeypatch, capsys, package, extra
):
    (tmp_path / "a_command.py").write_text(f"import {package}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(COMMANDS, "publish", ("a_command", ""))
    monkeypatch.delitem(sys.modules, "a_command", raising=False)
    assert main(["publish"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"autograder publish needs {package}, which is not installed here")
    assert line.endswith(f"'.[{extra}]'")
