"""Who may import whom, beside the contracts in pyproject.toml: no answers, and nothing heavy."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import nbformat
import pytest
from grimp import build_graph

from autograder.authoring.source import Course, parse_python
from autograder.lessons import module_of
from lessons import ROOT, lay_out_fixture_course

# What `course` may import when it is imported: pyproject's dependencies, and IPython with
# ipywidgets. What is rarely needed may be imported where it is used.
LIGHT = {"course", "torch", "numpy", "matplotlib", "ipywidgets", "IPython", "safetensors", "tqdm"}
FOR_LESSONS = LIGHT - {"safetensors"}
OF_EXTRAS = {
    "course/serving/server": {"starlette", "uvicorn"},
    "course/serving/metrics": {"prometheus_client"},
}
"""What modules may import that nothing else imports when it is imported itself."""


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all that is imported anywhere in a tree: of `from a import b`, "a.b"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            first = node.args[0] if node.args else None
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield first.value


def at_import(tree: ast.Module) -> Iterator[str]:
    """The imports that run when the module itself is imported."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(node)


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def broken_rules(root: Path) -> list[str]:
    """Every import in a course that breaks a rule: "file imports name"."""
    lessons = {module_of(folder): folder for folder in Course(root).folders()}
    order = list(lessons)
    broken = []
    for path in sorted(root.glob("course/**/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = path.relative_to(root).with_suffix("").parts
        forbidden = _forbidden(parts, order)
        named = list(imports(tree))
        wrong = [name for name in named if is_in(name, *forbidden) or name.startswith(".")]
        light = LIGHT | OF_EXTRAS.get("/".join(parts), set())
        wrong += [name for name in at_import(tree) if _is_heavy(name, light)]
        broken += [f"{'/'.join(parts)} imports {name}" for name in wrong]
    for path in sorted(root.glob("lessons/*/*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                for name in imports(parse_python(cell.source)):
                    own = is_in(name, *_later(path.stem, order))
                    if own or _is_heavy(name, FOR_LESSONS):
                        broken.append(f"lessons/{path.parent.name} imports {name}")
    return broken


def _forbidden(parts: tuple[str, ...], order: list[str]) -> list[str]:
    """What a module may not import: later answers, and the visible checks of any other lesson."""
    if parts[1] not in ("minigpt", "checks") or len(parts) < 3:
        return []
    if parts[1] == "minigpt" or parts[2] not in order:
        return _later(parts[2], order)
    others = [f"course.checks.{name}" for name in order if name != parts[2]]
    return _later(parts[2], order) + others


def _later(module: str, order: list[str]) -> list[str]:
    """What that lesson and every later one exports."""
    later = order[order.index(module) :] if module in order else []
    return [f"course.minigpt.{name}" for name in later]


def _is_heavy(name: str, allowed: set[str]) -> bool:
    return re.split(r"\.", name)[0] not in allowed | sys.stdlib_module_names


def test_every_import_keeps_the_rules():
    assert broken_rules(ROOT) == []


def test_no_circle_of_files_import_each_other():
    graph = build_graph("course", "autograder")
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # By default a model attends as lesson 01's answer does; that is looked up when one is made.
    imported["course.model.gpt"].discard("course.minigpt.mini_gpt")
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the files


@pytest.mark.parametrize(
    ("planted", "contract"),
    [
        ("course/model/gpt.py", "Nothing that students have knows the judge"),
        ("autograder/oracle.py", "The oracle shares no code with the course"),
        ("autograder/wire.py", "What runs beside a student's code knows nothing of the judge"),
        ("autograder/lessons/exhibits.py", "The judge's rooms, from the top floor down"),
        ("course/model/layers.py", "Pictures and widgets stand on the library"),
    ],
)
def test_a_contract_sees_what_breaks_it(planted, contract, tmp_path):
    line = {
        "course/model/gpt.py": "import autograder.wire",
        "autograder/oracle.py": "import course.model.rotary",
        "course/model/layers.py": "import course.plots.style",
    }.get(planted, "def f():\n    import autograder.judge")
    for name in ("course", "autograder"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / planted).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.search(rf"{contract}.* BROKEN", done.stdout)


def test_the_oracle_brings_no_torch_and_nothing_of_the_course():
    program = (
        "import sys, autograder.oracle\n"
        "print(*{name.split('.')[0] for name in sys.modules} & {'torch', 'course'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = lay_out_fixture_course(tmp_path_factory.mktemp("course")).root
    for name in ("tiny", "next_one"):
        (root / f"course/minigpt/{name}.py").touch()
    cells = [nbformat.v4.new_code_cell("import torch\n\nfrom course.checks import tiny")]
    (root / "lessons/00-tiny").mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / "lessons/00-tiny/tiny.ipynb")
    assert broken_rules(root) == []
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "named"),
    [
        ("course/plots/style.py", "import pandas", "pandas"),
        (
            "course/minigpt/tiny.py",
            "from course.minigpt import next_one",
            "course.minigpt.next_one",
        ),
        ("course/checks/tiny.py", "import course.minigpt.tiny", "course.minigpt.tiny"),
        (
            "course/checks/tiny.py",
            "def f():\n    import course.minigpt.next_one",
            "course.minigpt.next_one",
        ),
        (
            "course/checks/next_one.py",
            "from course.minigpt.next_one import next_one",
            "course.minigpt.next_one.next_one",
        ),
        ("lessons/00-tiny/tiny.ipynb", "import pandas", "pandas"),
        ("lessons/00-tiny/tiny.ipynb", "from autograder import lessons", "autograder.lessons"),
        (
            "lessons/00-tiny/tiny.ipynb",
            "from course.minigpt.tiny import double",
            "course.minigpt.tiny.double",
        ),
    ],
)
def test_a_planted_import_is_found(root, path, line, named):
    file = root / path
    before = file.read_text()
    if file.suffix == ".ipynb":
        cells = [nbformat.v4.new_code_cell(line)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), file)
    else:
        file.write_text(f"{before}\n{line}\n")
    try:
        found = broken_rules(root)
    finally:
        file.write_text(before)
    assert found
    assert {report.split(" imports ")[1] for report in found} == {named}


@pytest.mark.parametrize("path", ["course/minigpt/next_one.py", "course/checks/next_one.py"])
def test_a_lesson_may_import_what_earlier_lessons_built(root, path):
    file = root / path
    before = file.read_text()
    file.write_text(f"{before}\nfrom course.minigpt.tiny import double\n")
    try:
        assert broken_rules(root) == []
    finally:
        file.write_text(before)
