"""The lessons there are, for tests that hold for each of them, and the fixture course."""

import ast
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autograder.authoring.source import Course

ROOT = Path(__file__).resolve().parents[1]
COURSE = Course(ROOT)
FOLDERS = COURSE.folders()
OVERLAY = ROOT / "tests" / "fixtures" / "overlay"
RELEASES = "SECOND_TOKEN_RELEASES"
"""Names the folder in which the processes of one session keep the lessons that they released."""


def definitions_in(folder: str, **computed: Any) -> SimpleNamespace:
    """Run the imports, functions and classes of a lesson's page, and nothing that it computes; what they
    need of that is given by name."""
    source = next((ROOT / "solutions" / folder).glob("*.py"))
    tree = ast.parse(source.read_text(encoding="utf-8"))
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    exec(compile(tree, str(source), "exec"), computed)
    return SimpleNamespace(**computed)


def lay_out_fixture_course(place: Path) -> Course:
    """Two tiny lessons in a course of their own: `course` and `autograder` as here, without what
    the real lessons add to them, and `nbgrader_config.py`."""
    leave_out = shutil.ignore_patterns(
        "__pycache__", "*.safetensors", "minigpt", "recorded", "released"
    )
    for package in ("course", "autograder"):
        shutil.copytree(ROOT / package, place / package, ignore=leave_out, dirs_exist_ok=True)
    for name in ("pyproject.toml", "nbgrader_config.py", "course/minigpt/__init__.py"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    shutil.copytree(OVERLAY, place, dirs_exist_ok=True, ignore=leave_out)
    return Course(place)
