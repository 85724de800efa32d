"""Write the solved notebook from a lesson's text, and execute it as a student would."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tqdm import tqdm

from autograder.authoring.figures import show_figures
from autograder.authoring.source import Cell, Course, Lesson, LessonError
from autograder.lessons import module_of
from autograder.setup_cell import SETUP

CELL_TIMEOUT = 120  # seconds; a whole lesson has 60, on a machine that does nothing else

# With it, the lesson runs on what the student wrote in earlier ones.
USE_MINE = """

from course.mine import use_mine

use_mine("{module}")"""

# The last cell of every lesson.
HAND_IN = """\
import course

course.hand_in()"""

# The end of every graded cell. nbgrader takes it out of the student's notebook.
HIDDEN_TEST = """
### BEGIN HIDDEN TESTS
from autograder.lessons import grade

grade("{module}.{grade_id}", globals())
### END HIDDEN TESTS"""

# In the place of the badge, as long as a lesson was not published.
TO_OPEN = "*To open this lesson: `make lab`.*"
GITHUB = "https://github.com/"

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}


def badge(address: str, folder: str) -> str:
    """Write the badge that opens a published lesson in Colab, as markdown.

    Args:
        address: of the students' repository on GitHub.
    """
    place = address.removeprefix(GITHUB)
    target = f"https://colab.research.google.com/github/{place}/blob/main/lessons/{folder}/{module_of(folder)}.ipynb"
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return f"[![Open this lesson in Colab]({image})]({target})"


def write_notebook(lesson: Lesson) -> NotebookNode:
    """Write the solved notebook, unexecuted; the same text gives the same notebook."""
    notebook = new_notebook(metadata=json.loads(json.dumps(METADATA)))
    ids: set[str] = set()
    for cell in lesson.cells:
        written = _write_cell(lesson, cell)
        written["id"] = _cell_id(cell, written.source, ids)
        ids.add(written["id"])
        notebook.cells.append(written)
    notebook.cells.append(new_code_cell(HAND_IN, id="hand_in"))
    nbformat.validate(notebook)
    return notebook


def _write_cell(lesson: Lesson, cell: Cell) -> NotebookNode:
    if cell.kind == "markdown":
        source = cell.source.replace("{{badge}}", TO_OPEN)
        source = show_figures(source, lesson, f"{lesson.folder}, {cell.name}")
        if left := re.search(r"\{\{.*?\}\}", source):
            raise LessonError(
                f"{lesson.folder}, {cell.name}: {left[0]} stands for nothing; "
                f"there are {{{{badge}}}} and {{{{figure = expression}}}}"
            )
        return new_markdown_cell(source, metadata=_metadata(cell))
    source = cell.source
    if "setup" in cell.tags:
        source = SETUP + USE_MINE.format(module=lesson.module)
    if cell.points is not None:
        source += HIDDEN_TEST.format(module=lesson.module, grade_id=cell.grade_id)
    return new_code_cell(source, metadata=_metadata(cell))


def _metadata(cell: Cell) -> dict[str, object]:
    metadata: dict[str, object] = {"tags": [*cell.tags]} if cell.tags else {}
    if cell.grade_id:
        graded = cell.points is not None
        metadata["nbgrader"] = {
            "grade": graded,
            "grade_id": cell.grade_id,
            "locked": graded and not cell.is_written,
            "schema_version": 3,
            "solution": cell.solution or cell.is_written,
            "task": False,
        }
        if graded:
            metadata["nbgrader"]["points"] = cell.points
    return metadata


def _cell_id(cell: Cell, source: str, taken: set[str]) -> str:
    """Name a cell by its grade_id or a hash of its source; equal cells get different hashes."""
    if cell.grade_id:
        return cell.grade_id[:64]
    attempt, digest = 0, ""
    while not digest or digest in taken:
        digest = hashlib.sha256(f"{cell.kind}\n{attempt}\n{source}".encode()).hexdigest()[:12]
        attempt += 1
    return digest


def without_execution(notebook: NotebookNode) -> NotebookNode:
    """Copy a notebook without outputs, counts, widget state and the record of what it ran with."""
    plain = nbformat.from_dict(json.loads(json.dumps(notebook)))
    plain.metadata = nbformat.from_dict({key: plain.metadata.get(key) for key in METADATA})
    for cell in plain.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return plain


def to_text(notebook: NotebookNode) -> str:
    """Write a notebook as text, as it stands in its file."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def execute(notebook: NotebookNode, lesson: Lesson) -> None:
    """Run a solved notebook from top to bottom in a fresh kernel, in the student's folder.

    Outputs and the widgets' state are kept in it, and what it ran with, so that a later build knows
    when to run it again.

    Raises:
        LessonError: a cell raised, took too long or killed the kernel, or a graded cell wrote to
            stderr, for which nbgrader gives no points.
    """
    lesson.student.parent.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(lesson.student.parent)}},
    )
    progress = tqdm(lesson.cells, lesson.folder, unit="cell", file=sys.stdout, leave=False)
    with client.setup_kernel(env=_kernel_environment(lesson.course)):
        for index, cell in enumerate(progress):
            _execute_cell(client, index, lesson, cell)
        last = len(notebook.cells) - 1
        client.execute_cell(
            notebook.cells[last], last, execution_count=client.code_cells_executed + 1
        )
        client.set_widgets_metadata()
        used = _modules_used(client)
    notebook.metadata["second_token"] = {"executed_with": fingerprints(lesson.course, used)}


def _kernel_environment(course: Course) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(course.root)}
    environment.pop("MPLBACKEND", None)  # else figures do not reach the notebook
    return environment


def _execute_cell(client: NotebookClient, index: int, lesson: Lesson, cell: Cell) -> None:
    written = client.nb.cells[index]
    where = f"{lesson.folder}, {cell.name}"
    try:
        client.execute_cell(written, index, execution_count=client.code_cells_executed + 1)
    except CellExecutionError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback)
        raise LessonError(f"{where}: {error.ename}: {error.evalue}\n{trace}") from None
    except CellTimeoutError:
        raise LessonError(f"{where}: still running after {CELL_TIMEOUT} s") from None
    except DeadKernelError:
        raise LessonError(f"{where}: the kernel died") from None
    for output in written.get("outputs", []):
        if output.get("name") == "stderr":
            text = output["text"].strip()
            if cell.points is not None:
                raise LessonError(
                    f"{where}: a graded cell must not write to stderr, "
                    f"or nbgrader gives it 0 points: {text}"
                )
            tqdm.write(f"{where} writes to stderr: {text}", file=sys.stdout)


def _modules_used(client: NotebookClient) -> list[str]:
    """List the files of the course's modules that the kernel has imported."""
    probe = new_code_cell(
        "import sys as _sys\n"
        "print(*sorted(m.__file__ for n, m in list(_sys.modules.items())"
        " if n.split('.')[0] == 'course' and getattr(m, '__file__', None)), sep='\\n')"
    )
    client.nb.cells.append(probe)
    try:
        client.execute_cell(probe, len(client.nb.cells) - 1)
    finally:
        client.nb.cells.pop()
    return "".join(output.get("text", "") for output in probe.outputs).split("\n")


def fingerprints(course: Course, files: list[str]) -> dict[str, str]:
    """Hash each of these files that is the course's own, by its path in the course;
    with a package come the weights that lie in it."""
    paths = {course.root / file for file in files if file}
    packages = [path.parent for path in paths if path.name == "__init__.py"]
    paths |= {weights for package in packages for weights in package.glob("*.safetensors")}
    return {
        path.relative_to(course.root).as_posix(): _fingerprint(path)
        for path in sorted(paths)
        if path.is_relative_to(course.root)
    }


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"


def why_stale(committed: NotebookNode, expected: NotebookNode, course: Course) -> str | None:
    """Say why a solved notebook must be executed again, or return None."""
    if to_text(without_execution(committed)) != to_text(expected):
        return "its text changed"
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    ran_with = committed.metadata.get("second_token", {}).get("executed_with")
    if ran_with is None or any(cell.execution_count is None for cell in code):
        return "it was not executed"
    now = fingerprints(course, list(ran_with))
    changed = [name for name, mark in ran_with.items() if now.get(name) != mark]
    return f"{', '.join(changed)} changed" if changed else None
