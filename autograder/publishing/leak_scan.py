"""Scan a students' repository for what they must not read: answers of lessons that are open or yet to
come, hidden tests, the museum, the oracle.

It searches for

* lines and names of answers, as in a released notebook;
* functions and methods of answers and of the museum, whatever their names, spaces and comments are;
* words that occur only in instructors' files;
* files of kinds that it cannot read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autograder.authoring.leaks import Secrets, leaks, secrets_of, squeezed
from autograder.authoring.source import Course, parse_python, split_solutions
from autograder.publishing.release import Release
from autograder.publishing.same_code import Form, forms_in

READABLE = {".py", ".ipynb", ".md", ".toml", ".txt", ".yml", ".json", ".svg", ".safetensors", ""}
"""Endings of the files that are published; "" is that of Makefile, LICENSE and .gitignore."""
FORBIDDEN = (
    "BEGIN SOLUTION",
    "END SOLUTION",
    "HIDDEN TESTS",
    "import autograder",
    "from autograder",
)
GIVEN = ("model/gpt.py", "model/layers.py", "measure/machine.py")
"""Modules of `course` whose lines every student reads from the first lesson on."""
SHORTEST_WORD = 10
"""Letters of a word that stands only in what instructors have; shorter ones are everybody's."""


@dataclass(frozen=True)
class Hidden:
    """The secrets that a students' repository must not contain.

    Attributes:
        secrets: of the answers and hidden tests, see `leaks`.
        lines: of answers, without blanks and comments, that stand in nothing given.
        forms: of functions and methods of answers, museum, variants and oracle, each with its name.
        words: that stand only in hidden checks, the museum, the variants and the oracle.
    """

    secrets: Secrets
    lines: frozenset[str]
    forms: Mapping[Form, str]
    words: frozenset[str]


def hidden_of(release: Release) -> Hidden:
    """Collect what a release must not hold."""
    course, answered = release.course, release.order[: release.closed]
    given = [course.root / "course" / name for name in GIVEN]
    given += [course.root / "course" / "minigpt" / f"{module}.py" for module in answered]
    texts = [path.read_text(encoding="utf-8") for path in given]
    unpublished = release.order[release.closed :]
    hidden = list(_hidden_modules(course, unpublished))
    edits = list(_texts_about(course, unpublished, "*.txt"))  # the museum's, of answers
    answers = [cell.answer for of in release.secret for cell in of.answer_cells if cell.solution]
    known = _forms([*texts, *_cells_shown(course)])
    return Hidden(
        secrets_of(map(course.read, course.folders())),
        secrets_of(release.secret).lines
        - {squeezed(line) for t in texts for line in t.splitlines()},
        {form: name for form, name in _forms([*answers, *hidden]).items() if form not in known},
        frozenset(_words([*hidden, *edits]) - _words(_published_texts(course))),
    )


def _forms(sources: Iterable[str]) -> dict[Form, str]:
    """Find the functions of these sources by their forms."""
    return {form: name for text in sources for name, form in forms_in(parse_python(text))}


def _cells_shown(course: Course) -> Iterator[str]:
    """Read the code cells of all lessons without what stands between the markers."""
    for folder in course.folders():
        for cell in course.read(folder).cells:
            if cell.kind == "code":
                yield split_solutions(cell.source)[0]


def _hidden_modules(course: Course, modules: Iterable[str]) -> Iterator[str]:
    """Read the judge's modules about these lessons, and the oracle."""
    yield (course.root / "autograder" / "oracle.py").read_text(encoding="utf-8")
    yield from _texts_about(course, modules, "*.py")


def _texts_about(course: Course, modules: Iterable[str], kinds: str) -> Iterator[str]:
    """Read the judge's files of some kind about these lessons."""
    for module in modules:
        for path in sorted((course.root / "autograder" / "lessons" / module).rglob(kinds)):
            yield path.read_text(encoding="utf-8")


def _published_texts(course: Course) -> Iterator[str]:
    """Read all that any student may see one day: the library, the lessons, the answers of closed ones."""
    for folder, kinds in (
        ("course", "*.py"),
        ("lessons", "*.ipynb"),
        ("autograder/publishing", "*.txt"),
    ):
        for path in (course.root / folder).rglob(kinds):
            yield path.read_text(encoding="utf-8")
    for name in ("constraints.txt", "LICENSE", "pyproject.toml"):
        yield (course.root / name).read_text(encoding="utf-8")


def _words(texts: Iterable[str]) -> set[str]:
    return {
        word
        for text in texts
        for word in re.findall(r"[A-Za-z_]\w+", text)
        if len(word) >= SHORTEST_WORD and "_" in word.strip("_")
    }


def scan(place: Path, hidden: Hidden) -> list[str]:
    """List what leaks from the files of a folder, each with its file; [] where nothing does."""
    paths = (path for path in sorted(place.rglob("*")) if path.is_file() or path.is_symlink())
    return [
        f"{path.relative_to(place)}: {leak}"
        for path in paths
        if ".git" not in path.relative_to(place).parts
        for leak in leaks_of_file(
            path.name, b"" if path.is_symlink() else path.read_bytes(), hidden
        )
    ]


def leaks_of_file(name: str, data: bytes, hidden: Hidden) -> list[str]:
    """List what leaks from one file."""
    suffix = Path(name).suffix if not name.startswith(".") else ""
    if suffix not in READABLE:
        return [f"files that end on {suffix} are not published"]
    if suffix == ".safetensors":
        return []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ["it is not text"]
    if suffix == ".ipynb":
        return _leaks_of_notebook(text, hidden)
    leaking = [f"forbidden: {word}" for word in FORBIDDEN if word in text]
    leaking += [f"a word of the judge: {word}" for word in sorted(_words([text]) & hidden.words)]
    lines = {squeezed(line) for line in text.splitlines()}
    leaking += [f"a line of an answer: {line}" for line in sorted(lines & hidden.lines)]
    return leaking + (_functions(text, hidden) if suffix == ".py" else [])


def _leaks_of_notebook(text: str, hidden: Hidden) -> list[str]:
    try:
        notebook = json.loads(text)
    except ValueError:
        return ["it is not a notebook"]
    leaking = leaks(notebook, hidden.secrets)
    leaking += [f"a word of the judge: {word}" for word in sorted(_words([text]) & hidden.words)]
    for cell in notebook.get("cells", []):
        if cell.get("cell_type") == "code":
            leaking += _functions("".join(cell.get("source", "")), hidden)
    return leaking


def _functions(source: str, hidden: Hidden) -> list[str]:
    """List the functions of a source that are one of the answers or of the judge's, however they look."""
    try:
        tree = parse_python(source)
    except SyntaxError:
        return []
    return [
        f"`{name}` is the {hidden.forms[form]} of an answer or of the judge"
        for name, form in forms_in(tree)
        if form in hidden.forms
    ]
