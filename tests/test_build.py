"""The builder, proven on two tiny lessons: what it makes, what it leaves alone, what it refuses."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from patience import PATIENCE

from autograder.authoring import build as command
from autograder.authoring import notebook
from autograder.authoring.export import module_text
from autograder.authoring.figures import agrees
from autograder.authoring.notebook import fingerprints, write_notebook
from autograder.authoring.source import Course, LessonError
from autograder.setup_cell import SETUP, published
from lessons import lay_out_fixture_course


def run_build(course: Course, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "autograder", "build", *arguments],
        cwd=course.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def built_files(course: Course) -> dict[str, bytes]:
    patterns = ("*/*/*.ipynb", "course/minigpt/[!_]*.py", "course/checks/released/*.json")
    found = [path for pattern in patterns for path in course.root.glob(pattern)]
    return {str(path.relative_to(course.root)): path.read_bytes() for path in found}


def copy_built_files(built: Course, course: Course) -> None:
    for name, content in built_files(built).items():
        (course.root / name).parent.mkdir(parents=True, exist_ok=True)
        (course.root / name).write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Course:
    """The fixture course, built once by the command that `make build` runs. Not to be changed."""
    course = lay_out_fixture_course(tmp_path_factory.mktemp("built"))
    done = run_build(course)
    assert done.returncode == 0, done.stderr
    return course


@pytest.fixture
def course(tmp_path, fixture_checks) -> Course:
    """The fixture course before it is built, to be changed."""
    return lay_out_fixture_course(tmp_path)


@pytest.fixture
def rebuilt(built, course) -> Course:
    """The fixture course, built, to be changed."""
    copy_built_files(built, course)
    return course


@pytest.fixture
def text(course) -> Path:
    return course.root / "solutions" / "00-tiny" / "tiny.py"


def test_a_build_makes_the_four_files_of_every_lesson(built):
    assert sorted(built_files(built)) == [
        "course/checks/released/next_one.json",
        "course/checks/released/tiny.json",
        "course/minigpt/next_one.py",
        "course/minigpt/tiny.py",
        "lessons/00-tiny/tiny.ipynb",
        "lessons/01-next-one/next_one.ipynb",
        "solutions/00-tiny/tiny.ipynb",
        "solutions/01-next-one/next_one.ipynb",
    ]


def test_the_solved_notebook_holds_outputs_and_the_state_of_its_widgets(built):
    found = nbformat.read(built.root / "solutions/00-tiny/tiny.ipynb", as_version=4)
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = [output.get("text") for cell in code for output in cell.outputs]
    assert "3 doubled is 6.0\n" in shown
    assert "PASS  it doubles\n" in shown
    states = found.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert "IntSliderModel" in {state["model_name"] for state in states.values()}


def test_the_exported_page_shows_the_widgets(built):
    page, _ = HTMLExporter().from_filename(built.root / "solutions/00-tiny/tiny.ipynb")
    script = r'<script type="application/vnd.jupyter.widget-{}\+json">(.*?)</script>'
    state, view = (
        json.loads(re.search(script.format(kind), page, re.DOTALL)[1]) for kind in ("state", "view")
    )
    assert view["model_id"] in state["state"]


def test_cells_carry_only_metadata_that_the_text_determines(built):
    found = nbformat.read(built.root / "solutions/00-tiny/tiny.ipynb", as_version=4)
    assert {key for cell in found.cells for key in cell.metadata} == {"tags", "nbgrader"}
    assert "version" not in found.metadata.language_info  # of the builder's own Python


@pytest.mark.slow
def test_a_second_build_changes_nothing_and_says_so(built):
    before = built_files(built)
    done = run_build(built)
    assert done.stdout.splitlines() == ["00-tiny: up to date", "01-next-one: up to date"]
    assert built_files(built) == before


def test_only_what_changed_is_executed_again(rebuilt, capsys):
    visible_checks = rebuilt.root / "course/checks/tiny.py"
    visible_checks.write_text(visible_checks.read_text() + "\n# a change\n")
    for folder in rebuilt.folders():
        command.build(rebuilt.read(folder))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "00-tiny: executing, since course/checks/tiny.py changed"
    assert said[-1] == "01-next-one: up to date"


def test_weights_count_as_what_a_notebook_ran_with(course):
    weights = course.root / "course/weights/mini.safetensors"
    weights.write_bytes(b"old")
    before = fingerprints(course, ["course/weights/__init__.py", "/elsewhere/numpy.py"])
    weights.write_bytes(b"new")
    after = fingerprints(course, list(before))
    assert list(before) == ["course/weights/__init__.py", "course/weights/mini.safetensors"]
    assert [name for name in before if before[name] != after[name]] == list(before)[1:]


def test_the_module_holds_the_answers_without_markers_and_one_block_of_imports(course):
    assert module_text(course.read("00-tiny")) == textwrap.dedent('''\
        """Lesson 00: Twice and thrice.

        Built from solutions/00-tiny/tiny.py by `make build`: change it there.
        """

        from __future__ import annotations

        import math
        from math import floor

        import numpy as np


        def double(x: float) -> float:
            """Twice x."""
            return math.fsum([x, x])


        FACTOR = 3


        class Tripler:
            """Thrice."""

            def __call__(self, x: float) -> int:
                """FACTOR times x, rounded down."""
                hidden_helper = np.asarray(double(x) + x)
                return floor(hidden_helper)

            def factor(self) -> int:
                return FACTOR
        ''')


@pytest.mark.slow
def test_the_student_s_notebook_is_what_the_stock_command_releases(built, rebuilt):
    """Also when the solved notebook holds outputs and widget state, as the committed one does."""
    for folder in rebuilt.folders():
        subprocess.run(
            [sys.executable, "-m", "nbgrader", "generate_assignment", folder, "--force"],
            cwd=rebuilt.root,
            check=True,
        )
    assert built_files(rebuilt) == built_files(built)
    assert {path.name for path in (rebuilt.root / "lessons").rglob("*.*")} == {
        "tiny.ipynb",
        "next_one.ipynb",
    }


def test_the_student_s_notebook_keeps_signatures_and_visible_checks_only(built):
    found = nbformat.read(built.root / "lessons/00-tiny/tiny.ipynb", as_version=4)
    source = {cell.id: cell.source for cell in found.cells}
    assert source["double"].splitlines() == [
        "def double(x: float) -> float:",
        '    """Twice x."""',
        "    # YOUR CODE HERE",
        "    raise NotImplementedError()",
    ]
    assert source["doubles"] == "checks.doubles(double)"
    assert not any(cell.get("outputs") for cell in found.cells)


def test_the_same_text_gives_the_same_notebook(course):
    first, second = (write_notebook(course.read("00-tiny")) for _ in range(2))
    assert first == second
    ids = [cell.id for cell in first.cells]
    assert len(set(ids)) == len(ids)


def test_a_new_cell_leaves_the_ids_of_the_others_alone(course, text):
    before = [cell.id for cell in write_notebook(course.read("00-tiny")).cells]
    edit(text, "# %%\n# Two equal cells\n1 + 1\n\n# %%\n", "# %%\n2 + 2\n\n# %%\n# Two\n\n# %%\n")
    after = [cell.id for cell in write_notebook(course.read("00-tiny")).cells]
    assert len([cell_id for cell_id in before if cell_id not in after]) == 1


def test_a_lesson_says_how_it_is_opened_here(course):
    assert "`make lab`" in write_notebook(course.read("00-tiny")).cells[0].source


def run_setup_cell(tmp_path: Path, colab: bool, cell: str) -> subprocess.CompletedProcess:
    """In a Python that has no course, by PYTHONPATH neither; pip only prints what it is given."""
    if colab:
        (tmp_path / "google" / "colab").mkdir(parents=True)
        (tmp_path / "google" / "colab" / "__init__.py").touch()
    program = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
shell = InteractiveShell.instance()
shell.register_magic_function(lambda line: print("pip", line), magic_name="pip")
for turn in range(2):
    shell.run_cell({cell!r}).raise_error()
"""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={name: os.environ[name] for name in os.environ.keys() - {"PYTHONPATH", "VIRTUAL_ENV"}},
        capture_output=True,
        text=True,
    )


def test_the_first_cell_installs_the_course_on_colab(tmp_path):
    done = run_setup_cell(tmp_path, True, published(SETUP, "https://address", "00-start"))
    assert "pip install --quiet --no-deps git+https://address@00-start" in done.stdout, done.stderr


def test_a_copy_that_was_not_published_says_so_on_colab(tmp_path):
    done = run_setup_cell(tmp_path, True, SETUP)
    assert done.returncode != 0
    assert "This copy was not published: open the one of your instructor." in done.stderr


def test_the_first_cell_says_what_is_wrong_where_there_is_no_course(tmp_path):
    done = run_setup_cell(tmp_path, False, SETUP)
    assert done.returncode != 0
    assert "No course here: use `make lab`." in done.stderr


# What is refused: (in the text of 00-tiny, replace this, by that) -> the message holds all of these.
REFUSALS: dict[str, tuple[str, str, list[str]]] = {
    "unclosed solution": (
        "    return math.fsum([x, x])\n    ### END SOLUTION\n",
        "    return math.fsum([x, x])\n",
        ["00-tiny, cell 5 (double)", "BEGIN SOLUTION", "never closed"],
    ),
    "nested solution": (
        "    return math.fsum([x, x])\n",
        "    ### BEGIN SOLUTION\n    return math.fsum([x, x])\n",
        ["00-tiny, cell 5 (double)", "line 4", "inside the region that line 3 began"],
    ),
    "stray end of a solution": (
        '    """Twice x."""\n',
        '    """Twice x."""\n    ### END SOLUTION\n',
        ["00-tiny, cell 5 (double)", "END SOLUTION in line 3 closes nothing"],
    ),
    "marker that nbgrader alone would see": (
        '    """Twice x."""\n',
        '    """Twice x."""  # BEGIN SOLUTION below\n',
        ["00-tiny, cell 5 (double)", "line 2", "alone on its line"],
    ),
    "solution in a cell that is none": (
        'print("3 doubled is", double(3))',
        "### BEGIN SOLUTION\nprint()\n### END SOLUTION",
        ["00-tiny, cell 8", '"solution": true'],
    ),
    "hidden tests, which the builder writes": (
        "checks.doubles(double)\n",
        "checks.doubles(double)\n### BEGIN HIDDEN TESTS\nprint()\n### END HIDDEN TESTS\n",
        ["00-tiny, cell 11 (doubles)", "the builder writes the hidden tests"],
    ),
    "solution cell without a region": (
        "    ### BEGIN SOLUTION\n    return math.fsum([x, x])\n    ### END SOLUTION\n",
        "    return math.fsum([x, x])\n",
        ["00-tiny, cell 5 (double)", "needs ### BEGIN SOLUTION"],
    ),
    "duplicate grade_id": (
        '{"grade_id": "triple", "solution": true}',
        '{"grade_id": "double", "solution": true}',
        ["00-tiny, cell 7 (double)", "cell 5 has the same grade_id 'double'"],
    ),
    "points that do not add up": (
        '"points": 6',
        '"points": 7',
        ["00-tiny", "add up to 11, not 10", "cell 11 (doubles): 4", "cell 12 (triples): 7"],
    ),
    "points that are none": (
        '"points": 6',
        '"points": "6"',
        ["00-tiny, cell 12 (triples)", "points are above 0", "'6'"],
    ),
    "grade_id of no hidden check": (
        '{"grade_id": "doubles", "points": 4}',
        '{"grade_id": "twice", "points": 4}',
        ["00-tiny, cell 11 (twice)", "no hidden check 'twice'", "'doubles', 'triples'"],
    ),
    "graded cell without the visible check": (
        "checks.doubles(double)",
        "checks.triples(double)",
        ["00-tiny, cell 11 (doubles)", "does not call the visible check doubles"],
    ),
    "no valid Python": (
        'print("3 doubled is", double(3))',
        'print("3 doubled is", double(3)',
        ["00-tiny, cell 8", "no valid Python", "line 1"],
    ),
    "no valid Python for students": (
        "        return FACTOR\n        ### END SOLUTION\n",
        "        return (\n        ### END SOLUTION\n            FACTOR)\n",
        ["00-tiny, cell 7 (triple)", "no valid Python once answers are out"],
    ),
    "invalid JSON": (
        '{"grade_id": "triple", "solution": true}',
        '{"grade_id": "triple", "solution": tru}',
        ["00-tiny, cell 7", "no valid JSON", "tru}"],
    ),
    "unknown option": (
        'tags=["setup"]',
        'tag=["setup"]',
        ["00-tiny, cell 2", "tag="],
    ),
    "unknown tag": (
        'tags=["export"]\nfrom math',
        'tags=["exprot"]\nfrom math',
        ["00-tiny, cell 6", "['exprot']"],
    ),
    "neither solution nor points": (
        '{"grade_id": "triple", "solution": true}',
        '{"grade_id": "triple", "points": 1, "solution": true}',
        ["00-tiny, cell 7", '"solution" or "points"'],
    ),
    "no setup cell": (
        '# %% tags=["setup"]\n',
        "# %%\n",
        ["00-tiny, cell 2", 'tags=["setup"]'],
    ),
    "no title": (
        "# # Lesson 00: Twice and thrice",
        "# ## Lesson 00: Twice and thrice",
        ["00-tiny", "no title"],
    ),
    "unknown placeholder": (
        "{{badge}}",
        "{{bagde}}",
        ["00-tiny, cell 1", "{{bagde}} stands for nothing"],
    ),
    "figure that is another": (
        "{{6 = ",
        "{{7 = ",
        ["00-tiny, cell 1", "7 is shown, but 2 * FACTOR is 6"],
    ),
    "figure that is no number": (
        "{{6 = ",
        "{{six = ",
        ["00-tiny, cell 1", "six is shown, but 2 * FACTOR is 6"],
    ),
    "figure that cannot be computed": (
        "2 * FACTOR",
        "2 * TRACTOR",
        ["00-tiny, cell 1", "2 * TRACTOR", "not defined"],
    ),
}


@pytest.mark.parametrize(
    ("figure", "value", "agreed"),
    [
        ("129", 129, True),
        ("129", 129.0, True),
        ("129", 129.4, True),
        ("129", 129.6, False),
        ("129", 130, False),
        ("1,474,560", 1_474_560, True),
        ("9.66", 9.6637, True),
        ("9.67", 9.6637, False),
        ("9.70", 9.7, True),
        ("9.7", 9, False),
        ("−3", -3, True),
        ("3", True, False),
        ("3", "3", False),
        ("3", float("nan"), False),
        ("three", 3, False),
    ],
)
def test_a_figure_is_rounded_as_it_is_shown(figure, value, agreed):
    assert agrees(figure, value) is agreed


def test_a_figure_at_the_beginning_of_a_line_begins_no_list(course, text):
    edit(text, "Thrice two is {{6 = ", "> Thrice two is not\n# > {{6 = ")
    assert "> Thrice two is not 6, and" in write_notebook(course.read("00-tiny")).cells[0].source


def test_a_reader_sees_the_figure_alone(course):
    first = write_notebook(course.read("00-tiny")).cells[0].source
    assert "Thrice two is 6, and {not} = {1}." in first


@pytest.mark.parametrize("story", REFUSALS)
def test_a_lesson_is_refused_with_its_name_and_the_cell(story, course, text):
    old, new, expected = REFUSALS[story]
    edit(text, old, new)
    with pytest.raises(LessonError) as refused:
        write_notebook(course.read("00-tiny"))
    for part in expected:
        assert part in str(refused.value)


def test_an_unknown_lesson_is_refused_with_a_list_of_those_there_are(course):
    with pytest.raises(LessonError, match=r"no lesson '07'.*00-tiny, 01-next-one"):
        course.read("07")


# What only running it can show: (replace this, by that) -> the message holds all of these.
FAILURES: dict[str, tuple[str, str, list[str]]] = {
    "solution that fails its own check": (
        "return math.fsum([x, x])",
        "return math.fsum([x, 3])",
        ["00-tiny, cell 11 (doubles)", "CheckFailed", "double(2) gave 5.0. What is twice?"],
    ),
    "cell that raises": (
        'print("3 doubled is", double(3))',
        "double(unheard_of)",
        ["00-tiny, cell 8", "NameError", "unheard_of"],
    ),
    "cell that kills the kernel": (
        'print("3 doubled is", double(3))',
        "import os\n\nos._exit(1)",
        ["00-tiny, cell 8", "the kernel died"],
    ),
    "cell that never ends": (
        'print("3 doubled is", double(3))',
        "while True:\n    pass",
        ["00-tiny, cell 8", "still running after 20 s"],
    ),
    "graded cell that writes to stderr": (
        "checks.doubles(double)",
        'import sys\n\nprint("a warning", file=sys.stderr)\nchecks.doubles(double)',
        ["00-tiny, cell 11 (doubles)", "stderr", "a warning"],
    ),
}

BY_DAY = ("cell that raises", "solution that fails its own check")


@pytest.mark.parametrize(
    "story",
    [pytest.param(story, marks=() if story in BY_DAY else pytest.mark.slow) for story in FAILURES],
)
def test_a_notebook_that_fails_leaves_every_built_file_as_it_was(story, rebuilt, text, monkeypatch):
    old, new, expected = FAILURES[story]
    seconds = 20 if "still running after 20 s" in expected else PATIENCE
    monkeypatch.setattr(notebook, "CELL_TIMEOUT", seconds)
    before = built_files(rebuilt)
    edit(text, old, new)
    with pytest.raises(LessonError) as failed:
        command.build(rebuilt.read("00-tiny"))
    for part in expected:
        assert part in str(failed.value)
    assert built_files(rebuilt) == before


@pytest.mark.parametrize("step", ["recorded_text", "execute"])
def test_an_interrupted_build_leaves_every_built_file_as_it_was(rebuilt, text, monkeypatch, step):
    def interrupted(*_):
        raise KeyboardInterrupt

    before = built_files(rebuilt)
    edit(text, "return math.fsum([x, x])", "return x + x")
    monkeypatch.setattr(command, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.build(rebuilt.read("00-tiny"))
    assert built_files(rebuilt) == before


def test_the_command_fails_with_one_line_and_exit_status_1(built):
    done = run_build(built, "no-such-lesson")
    assert done.returncode == 1
    assert done.stderr.startswith("cannot build there is no lesson 'no-such-lesson'")
    assert len(done.stderr.splitlines()) == 1


def test_no_file_is_left_beside_the_built_ones(built):
    left = [path for path in built.root.rglob(".*") if path.is_file()]
    assert left == []


def test_a_build_makes_no_gradebook(built):
    assert list(built.root.rglob("*.db")) == []


def test_the_notebooks_are_valid_and_end_with_a_newline(built):
    for name, content in built_files(built).items():
        assert content.endswith(b"\n"), name
        if name.endswith(".ipynb"):
            nbformat.validate(json.loads(content))
