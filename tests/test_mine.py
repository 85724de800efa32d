"""Later lessons run on the student's own functions where these pass, and grading never does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from student_folder import kernel, lay_out
from submissions import answers

from autograder.lessons import lesson_folders
from course.mine.choosing import choose
from course.mine.replacing import ours_are_given, take_out
from course.mine.student_code import student_code
from course.mine.trial import TrialResult, key_of, read_result, try_code, write_result
from lessons import COURSE, ROOT

HELPER = "MARK = 'mine'\n\ndef my_product(a, b):\n    return a * b\n"
FLOPS = '''def matmul_flops(m: int, k: int, n: int) -> int:
    """Mine, which needs names of another cell."""
    assert MARK
    return 2 * my_product(my_product(m, k), n)
'''
BYTES_WRONG = """def matmul_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    return 7
"""
USE = """
from course.mine import use_mine
use_mine("naive_decode")
from course.minigpt import start, mini_gpt
print("FLOPS", start.matmul_flops.__code__.co_filename)
"""


@pytest.fixture
def take_ours():
    """Ours stand in this process again when a test ends."""
    yield
    take_out(lesson_folders())


@pytest.fixture(scope="module")
def two_lessons(tmp_path_factory) -> Path:
    """A folder in which lesson 00 has a function that passes, by way of a helper in a cell that the
    student added at the end, and one that fails."""
    place = tmp_path_factory.mktemp("student") / "lessons"
    lay_out(place, "00-start", HELPER, matmul_flops=FLOPS, matmul_bytes=BYTES_WRONG)
    lay_out(place, "01-mini-gpt")
    lay_out(place, "02-naive-decode")
    return place


@pytest.mark.slow
def test_the_engine_runs_on_what_the_student_wrote(tmp_path):
    lay_out(
        tmp_path / "lessons",
        "01-mini-gpt",
        split_heads="def split_heads(x, n_heads):\n    return x\n",
    )
    command = [
        sys.executable,
        "-m",
        "course.engine",
        "--mine",
        "The cat sat",
        "It was a",
        "--new",
        "3",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The cat sat on")
    lines = done.stderr.splitlines()
    (named,) = [line for line in lines if line.startswith("01 ")]
    assert "greedy_next (yours), " in named
    assert named.endswith(" split_heads")
    assert any(
        line.startswith("01-mini-gpt, attention_layer: ours, yours fails ") for line in lines
    )
    assert "[of the lessons: 01 greedy_next (yours), " in lines[-1]
    assert "forward_cached (yours)" not in done.stderr
    no_lessons = [*command[:3], "--mine"]
    elsewhere = subprocess.run(no_lessons, cwd=ROOT / "docs", capture_output=True, text=True)
    assert "no lessons in" in elsewhere.stderr
    assert elsewhere.returncode == 1


def result_of(place: Path) -> TrialResult:
    return try_code("start", student_code(place / "00-start" / "start.ipynb"), [])


@pytest.mark.slow
def test_a_function_counts_that_needs_helpers_from_other_cells_and_one_that_fails_does_not(
    two_lessons,
):
    result = result_of(two_lessons)
    assert result.passes == ["matmul_flops", "rms_norm"]
    assert result.reasons == {"matmul_bytes": "yours fails bytes_of_three_matrices"}


def test_drawing_cells_are_no_part_of_the_code(two_lessons):
    code = student_code(two_lessons / "00-start" / "start.ipynb")
    assert "my_product" in code
    assert "MARK" in code
    assert "draw_" not in code
    assert "checks." not in code


@pytest.mark.slow
def test_an_endless_loop_falls_back_with_the_reason_and_the_others_stay(tmp_path):
    loop = "def matmul_flops(m, k, n):\n    while True:\n        pass\n"
    path = lay_out(tmp_path, "00-start", matmul_flops=loop)
    result = try_code("start", student_code(path), [], check_seconds=5)
    assert result.passes == ["matmul_bytes", "rms_norm"]
    assert result.reasons["matmul_flops"].startswith("yours did not end in flops_of_")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    print('noise'); raise NotImplementedError()", "yours is not written yet"),
        ("    import os; os._exit(3)", "yours ended Python in flops_of_one_dot_product"),
        (
            "    print('noise', flush=True); raise SystemExit",
            "yours fails flops_of_one_dot_product",
        ),
    ],
)
def test_a_function_that_does_not_answer_is_told_by_its_reason(tmp_path, body, reason):
    path = lay_out(tmp_path, "00-start", matmul_flops=f"def matmul_flops(m, k, n):\n{body}\n")
    result = try_code("start", student_code(path), [])
    assert result.passes == ["matmul_bytes", "rms_norm"]
    assert result.reasons["matmul_flops"] == reason


@pytest.mark.slow
def test_code_that_raises_says_so(tmp_path):
    path = lay_out(tmp_path, "00-start", matmul_flops="matmul_flops = nothing_of_that_name\n")
    result = try_code("start", student_code(path), [])
    assert result.reasons[""].startswith("your notebook stops with NameError")


def test_a_result_is_kept_by_content(tmp_path):
    notes = tmp_path / ".second-token" / "mine.json"
    key = key_of("start", "a = 1", [])
    write_result(notes, "start", key, TrialResult(["matmul_flops"], {}))
    assert read_result(notes, "start", key) == TrialResult(["matmul_flops"], {})
    assert read_result(notes, "start", key_of("start", "a = 2", [])) is None
    assert read_result(notes, "mini_gpt", key) is None


@pytest.mark.parametrize("broken", ["", "{", '{"start": 3}', "[]", '{"start": {"key": 1}}', "\0\0"])
def test_a_broken_file_of_notes_is_ignored_and_replaced(tmp_path, broken):
    notes = tmp_path / "mine.json"
    notes.write_text(broken)
    assert read_result(notes, "start", "key") is None
    write_result(notes, "start", "key", TrialResult(["f"], {}))
    assert read_result(notes, "start", "key") == TrialResult(["f"], {})


def test_a_lesson_with_nothing_earlier_says_nothing(two_lessons, take_ours):
    assert choose("start", two_lessons / "00-start" / "start.ipynb", "1") == ""


def test_the_second_lesson_says_whose_function_of_the_first_it_calls(two_lessons, take_ours):
    line = choose("mini_gpt", two_lessons / "01-mini-gpt" / "mini_gpt.ipynb", "1")
    assert "rms_norm: yours" in line


def test_without_earlier_notebooks_it_is_ours_in_one_line(tmp_path, take_ours):
    line = choose("kv_cache", lay_out(tmp_path, "03-kv-cache"), "1")
    assert line == "Earlier lessons: ours, since none of your notebooks is next to this one."
    assert choose("kv_cache", None, "1") == line  # on Colab


@pytest.mark.slow
def test_in_a_kernel_the_first_cell_says_which_and_imports_give_them(two_lessons):
    notebook = two_lessons / "02-naive-decode" / "naive_decode.ipynb"
    with kernel(notebook) as run:
        said = run(USE)
        assert "greedy_next: yours" in said
        assert "FLOPS <your start.ipynb>" in said
        again = run(USE)
        assert "checking" not in again, "it was remembered"
        off = run(
            "use_mine('naive_decode', on=False)\nprint(start.matmul_flops.__code__.co_filename)"
        )
        assert "ours" in off
        assert "minigpt/start.py" in off
    with kernel(notebook, SECOND_TOKEN_MINE="0") as run:
        assert "minigpt/start.py" in run(USE)
    with kernel(notebook, SECOND_TOKEN_MINE="yes") as run:
        assert "ValueError: SECOND_TOKEN_MINE is one of 0, 1, missing, got 'yes'" in run(USE)


@pytest.mark.slow
def test_in_a_kernel_that_no_student_has_open_nothing_happens(two_lessons):
    """As nbval, nbclient and builds start them, in the student's own folder."""
    with kernel(cwd=two_lessons / "02-naive-decode") as run:
        said = run(USE)
    assert "yours" not in said
    assert "minigpt/start.py" in said


@pytest.mark.slow
def test_where_ours_are_not_given_yours_serve_and_what_is_missing_is_said(two_lessons, tmp_path):
    library = tmp_path / "library"
    shutil.copytree(
        ROOT / "course", library / "course", ignore=shutil.ignore_patterns("__pycache__")
    )
    for module in ("start", "naive_decode"):
        (library / "course" / "minigpt" / f"{module}.py").unlink()
    notebook = two_lessons / "02-naive-decode" / "naive_decode.ipynb"
    with kernel(notebook, PYTHONPATH=str(library)) as run:
        said = run(USE)
        assert "FLOPS <your start.ipynb>" in said
        said = run("from course.minigpt.start import matmul_bytes")
        assert "There is no matmul_bytes: ours is given when lesson 00-start closes" in said
        assert "yours fails bytes_of_three_matrices" in said
    with kernel(PYTHONPATH=str(library)) as run:  # on Colab no notebook lies beside
        run("from course.mine.choosing import choose; choose('naive_decode', None, '1')")
        said = run("from course.minigpt.start import matmul_bytes")
        assert "and none of your notebooks is next to this one" in said


def test_ours_are_found_without_importing_them():
    assert ours_are_given("kv_cache")
    assert not ours_are_given("never_written")


TRAP = """

_right = greedy_next


def greedy_next(logits):
    import sys
    if sys._getframe(1).f_code.co_name == "generate_naive":
        raise RuntimeError("sabotage")
    return _right(logits)
"""


@pytest.mark.slow
def test_grading_a_later_lesson_never_looks_at_an_earlier_notebook(desks, tmp_path, monkeypatch):
    """An earlier answer passes the visible checks and stops lesson 02, as it does in the student's own
    kernel. Graded beside it, with the session's name set and nothing confined, it has full points."""
    asking = "from course.mine import use_mine\nuse_mine('naive_decode', on=True)"
    lay_out(
        tmp_path,
        "01-mini-gpt",
        greedy_next=answers(COURSE.read("01-mini-gpt"))["greedy_next"] + TRAP,
    )
    notebook = lay_out(tmp_path, "02-naive-decode", asking)
    with kernel(notebook) as run:
        assert "greedy_next: yours" in run(asking)
        written = "def generate_naive(logits):\n    return greedy_next(logits)\n"
        use = "from course.minigpt.mini_gpt import greedy_next\nimport torch\n"
        assert "sabotage" in run(use + written + "generate_naive(torch.zeros(1, 3))")
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    result = desks("02-naive-decode").judge(notebook)
    assert result.answers
    assert [answer for answer in result.answers if answer.score < 1] == []


def test_the_notes_lie_in_a_folder_of_their_own(two_lessons):
    notes = two_lessons / ".second-token" / "mine.json"
    if notes.exists():  # written by the kernel above, where that ran
        assert "start" in json.loads(notes.read_text())
    assert not list(two_lessons.glob("*.json"))
