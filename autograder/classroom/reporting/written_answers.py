"""Read the answers that a student wrote, and strip them of what could tell whose they are."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from autograder.assignment import Assignment, BadSubmission, names_defined_in, read_submission
from autograder.classroom.roster import Student
from autograder.syntax import parse

LONGEST = 20_000
"""Characters of an answer; honest ones have some thousand."""
LEFT_OUT = "…"
_WORD = re.compile(r"[^\W_]+")


def written_answers(notebook: Path, assignment: Assignment) -> dict[str, str]:
    """Return what a student wrote into the answer cells, by the cell's name. Of several cells that
    define what the lesson asks for there, the last counts, for it ran last.

    Args:
        notebook: as it was handed in; of a file that cannot be read, nothing was written.
        assignment: what the lesson asks.
    """
    try:
        _, cells = read_submission(notebook, assignment)
    except BadSubmission:
        return {}
    last: dict[str, str] = {}
    for cell in cells:
        defined = names_defined_in(cell.source)
        for name, names in assignment.answers.items():
            if names & defined:
                last[name] = cell.source.strip()
    return {
        name: source
        for name, source in last.items()
        if source != assignment.stubs[name] and len(source) <= LONGEST
    }


def without_comments(source: str) -> str | None:
    """Write code anew without comments, docstrings and texts of several words.

    Returns:
        It; None where it is no plain Python, as with a magic in it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(source)
        for node in ast.walk(tree):
            _strip(node)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _strip(node: ast.AST) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if len(node.value.split()) > 1:
            node.value = LEFT_OUT
    elif isinstance(body := getattr(node, "body", None), list):
        node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]


def _is_text(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def without_names(text: str, student: Student) -> str:
    """Leave out of a text the words by which a student is known."""
    words = sorted(_known_by(student), key=len, reverse=True)
    if not words:
        return text
    # A long one also inside of another word, as in LovelaceCache.
    parts = (
        re.escape(word) if len(word) > 3 else rf"(?<![^\W_]){word}(?![^\W_])" for word in words
    )
    return re.sub("|".join(parts), LEFT_OUT, text, flags=re.IGNORECASE)


def _known_by(student: Student) -> set[str]:
    fields = (student.id, student.first_name, student.last_name, student.lms_user_id)
    account, _, _ = student.email.partition("@")
    words: Iterable[str] = (word for text in (*fields, account) for word in _WORD.findall(text))
    # Neither an initial nor a small number tells who it is, and code is full of both.
    return {word for word in words if len(word) > 1 and not (word.isdecimal() and len(word) < 4)}
