"""What a student's process sees of the library holds no answer to the lesson that is judged."""

import re
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from submissions import ORDER

from autograder.authoring.leaks import secrets_of
from autograder.publishing.bundle import ROOMS
from autograder.sandbox.launch import Launcher
from autograder.sandbox.library_view import SEEN_FROM, lay_out, left_out
from lessons import COURSE, FOLDERS, ROOT

PLANNED = ["start", "mini_gpt", "naive_decode", "kv_cache", "prefill_and_decode", "roofline", "gqa"]
PLANNED += ["quantized_cache", "sliding_window"]
LATER = [
    "serving/mixed",
    "serving/pages",
    "serving/memory",
    "serving/alone",
    "serving/windowed",
    "serving/sparse",
]
LATER += ["engine", "drafts/model", "given/latent", "given/sparse"]
LATER += ["given/prefixes", "world/chats", "world/siblings", "world/train_latent"]
LATER += ["given/hybrid", "world/train_experts", "world/train_hybrid"]
READS = ["fast/tiled_read", "fast/triton", "given/windowed", *LATER]
TRAINED = ["world/train", *READS]
SERVER = ("serving/metrics", "serving/server")  # which needs packages that not everybody has
COURSE_FILES = sorted((ROOT / "course").rglob("*.py"))


def squeezed_lines(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {re.sub(r"\s", "", re.sub(r"(^|\s)#.*", "", line)) for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(FOLDERS)), ids=FOLDERS)
def test_no_line_of_its_answers_or_of_a_later_lesson_s_stands_in_a_view(place, tmp_path):
    view = lay_out(tmp_path, ORDER[place], ORDER)
    asked = secrets_of(COURSE.read(folder) for folder in FOLDERS[place:]).lines
    # What earlier lessons built may stand there, and what every student reads in what is given.
    given = [
        ROOT / "course" / name for name in ("model/gpt.py", "model/layers.py", "measure/machine.py")
    ]
    given += [ROOT / "course" / "minigpt" / f"{name}.py" for name in ORDER[:place]]
    asked -= set().union(*map(squeezed_lines, given))
    found = {
        path.relative_to(view).as_posix(): hits
        for path in sorted(view.rglob("*.py"))
        if (hits := squeezed_lines(path) & asked)
    }
    assert found == {}


def test_a_view_is_compiled_once_for_all_processes_and_says_nothing_of_where_it_lies():
    launcher = Launcher("kv_cache", unsafe_no_sandbox=True)
    try:
        compiled = [Path(cache_from_source(path)) for path in launcher.view.rglob("*.py")]
        assert len(compiled) > 50
        assert not any(bytes(launcher.view) in path.read_bytes() for path in compiled)
    finally:
        launcher.close()


@pytest.mark.parametrize("name", ["decode", "layer"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_fast_decode_holds_no_line_of_any_answer(folder, name):
    """Students have it beside their notebook, whatever a view leaves out."""
    lines = squeezed_lines(ROOT / "course" / "fast" / f"{name}.py")
    assert lines & secrets_of([COURSE.read(folder)]).lines == set()


def imported_at_once(path: Path) -> set[str]:
    """List the modules of `course` that a file imports at its top, such as "minigpt/gqa"."""
    found = re.findall(
        r"^(?:from|import) course\.([\w.]+)(?: import (\([^)]*\)|[^\n]*))?",
        path.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    packages = {package.replace(".", "/") for package, _ in found}
    inside = {f"{package}/{name}" for package, names in found for name in re.findall(r"\w+", names)}
    return packages | {name.replace(".", "/") for name in inside}


@pytest.mark.parametrize("name", SEEN_FROM)
def test_a_module_named_for_its_answers_exists(name):
    assert (ROOT / "course" / f"{name}.py").is_file()


@pytest.mark.parametrize("place", range(len(ORDER)), ids=ORDER)
def test_all_that_a_view_holds_can_be_imported(place):
    """Apart from what belongs to a later lesson, which nobody asks for."""
    gone = {f"minigpt/{name}" for name in ORDER[place:]} | set(left_out(ORDER[place], ORDER))
    later = {f"{room}/{name}" for room in ROOMS for name in ORDER[place:]}
    files = {p.relative_to(ROOT / "course").with_suffix("").as_posix(): p for p in COURSE_FILES}
    lacking = {
        name: lacks
        for name, path in files.items()
        if name not in gone | set(SERVER) and "/".join(name.split("/")[:2]) not in later
        if (lacks := imported_at_once(path) & gone)
    }
    assert lacking == {}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("start", ["fast/decode", "fast/layer", "fast/steps", *TRAINED]),
        ("kv_cache", ["fast/decode", "fast/layer", "fast/steps", *TRAINED]),
        ("prefill_and_decode", ["fast/decode", "fast/layer", "fast/steps", *TRAINED]),
        ("roofline", TRAINED),
        ("gqa", TRAINED),
        ("quantized_cache", ["fast/triton", "given/windowed", *LATER]),
        ("sliding_window", LATER),
    ],
)
def test_what_holds_answers_is_seen_when_the_last_of_their_lessons_is_over(module, expected):
    assert left_out(module, PLANNED) == expected


def test_a_lesson_that_is_not_written_yet_counts_as_a_later_one():
    assert left_out("kv_cache", PLANNED[:4]) == [
        "fast/decode",
        "fast/layer",
        "fast/steps",
        *TRAINED,
    ]
    assert left_out("gqa", PLANNED[:-2]) == TRAINED


def test_a_view_goes_without_them(tmp_path):
    course = lay_out(tmp_path, "kv_cache", ORDER) / "course"
    assert not (course / "fast/decode.py").exists()
    assert not (course / "world/train.py").exists()
    assert (course / "model" / "gpt.py").exists()
