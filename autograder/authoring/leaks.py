"""Find answers and hidden tests in what students get."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autograder.authoring.source import (
    Cell,
    Lesson,
    parse_python,
    split_solutions,
)

# Never in front of a student, whatever the lessons say.
FORBIDDEN = ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "autograder")
SHORTEST_LINE = 20  # characters without blanks; `return x` is nobody's secret
SHORTEST_STRING = 5
# Refusals at the door: what they refuse is told to the student, and so may be how.
NO_SECRET = re.compile(r"raise|(\w+\.)*check_\w+\(")


@dataclass(frozen=True)
class Secrets:
    """What stands in answers and hidden tests, and nowhere else in any lesson.

    Attributes:
        names: identifiers.
        strings: string constants.
        lines: of code, without blanks and comments, and of written answers; these also where a lesson
            shows them.
    """

    names: frozenset[str]
    strings: frozenset[str]
    lines: frozenset[str]


def secrets_of(lessons: Iterable[Lesson]) -> Secrets:
    """Collect the secrets of these lessons; a name that one of them shows is no secret."""
    names: set[str] = set()
    strings: set[str] = set()
    lines: set[str] = set()
    shown: list[str] = []
    for module, cell in ((of.module, cell) for of in lessons for cell in of.cells):
        if cell.is_written:
            lines |= {squeezed(line) for line in cell.source.splitlines()}
            continue
        if cell.points is not None:  # the hidden test that the builder adds
            names.add("grade")
            strings.add(f"{module}.{cell.grade_id}")
        visible, regions = split_solutions(cell.source)
        shown.append(visible)
        lines |= {squeezed(line) for region in regions for line in region.splitlines()}
        if regions:
            for word, is_string in _words_between_markers(cell):
                (strings if is_string else names).add(word)
    text = "\n".join(shown)
    known = set(re.findall(r"\w+", text))
    return Secrets(
        frozenset(name for name in names if len(name) > 1 and name not in known),
        frozenset(s for s in strings if len(s) >= SHORTEST_STRING and s not in text),
        frozenset(
            line for line in lines if len(line) >= SHORTEST_LINE and not NO_SECRET.match(line)
        ),
    )


def leaks(notebook: Any, secrets: Secrets) -> list[str]:
    """List the secrets that stand in a notebook: in its cells, outputs or metadata."""
    texts = list(_strings(notebook))
    words = set(re.findall(r"\w+", "\n".join(texts)))
    without_blanks = [re.sub(r"\s", "", text) for text in texts]
    return [
        *(f"forbidden: {word}" for word in FORBIDDEN if any(word in text for text in texts)),
        *(f"name: {name}" for name in sorted(secrets.names & words)),
        *(f"string: {s}" for s in sorted(secrets.strings) if any(s in text for text in texts)),
        *(
            f"line: {line}"
            for line in sorted(secrets.lines)
            if any(line in t for t in without_blanks)
        ),
    ]


def squeezed(line: str) -> str:
    """Remove blanks, and a comment that ends the line."""
    return re.sub(r"\s", "", re.sub(r"(^|\s)#.*", "", line))


def _words_between_markers(cell: Cell) -> Iterator[tuple[str, bool]]:
    """Find every name and string constant between a cell's markers; say which are strings."""
    inside, secret_lines = False, set()
    for number, line in enumerate(cell.source.splitlines(), start=1):
        if line.strip().startswith(("### BEGIN", "### END")):
            inside = line.strip().startswith("### BEGIN")
        elif inside:
            secret_lines.add(number)
    for node in ast.walk(parse_python(cell.source)):
        if getattr(node, "lineno", None) in secret_lines:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, True
            for field in ("id", "attr", "arg", "name", "asname", "module"):
                for word in re.findall(r"\w+", getattr(node, field, None) or ""):
                    yield word, False


def _strings(value: Any) -> Iterator[str]:
    """Find every string in a notebook, however deep, keys aside: they are nbformat's own."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(list(value.values()))
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
