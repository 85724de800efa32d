"""Find what is odd in a notebook: a hint to look at it, not a verdict."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from autograder.assignment import Assignment, BadSubmission, names_defined_in, read_submission
from autograder.classroom.reporting.written_answers import without_comments
from autograder.lessons.assembly import by_grade_id

LOOKS_AROUND = re.compile(
    r"\b(_getframe|currentframe|f_locals|f_globals|f_back|get_objects|get_referrers)\b"
)
"""Names by which code finds the variables of those that call it; lessons need none of them."""
LINES = 5
"""Answers that are shorter than this are often equal by themselves."""


def odd_in(notebook: Path, assignment: Assignment) -> Iterator[str]:
    """Yield what is odd in a notebook as it was handed in, a phrase each."""
    try:
        _, cells = read_submission(notebook, assignment)
    except BadSubmission:
        return
    sources = [cell.source.strip() for cell in cells if cell.source.strip()]
    definitions: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        if source not in assignment.given and source not in assignment.stubs.values():
            for name in names_defined_in(source):
                definitions[name].add(source)
    answers = frozenset().union(*assignment.answers.values())
    if several := sorted(name for name in answers if len(definitions[name]) > 1):
        yield f"defined several times: {', '.join(several)}"
    if names := sorted({name for source in sources for name in LOOKS_AROUND.findall(source)}):
        yield f"looks at what called it: {', '.join(names)}"
    published = _published(assignment.module)
    if same := sorted(
        {published[code] for s in sources if (code := without_comments(s)) in published}
    ):
        yield f"the published answer, but for comments: {', '.join(same)}"


@cache
def _published(lesson: str) -> dict[str, str]:
    """Return the names of a lesson's longer answers by their code."""
    codes = {name: without_comments(source) for name, source in by_grade_id(lesson, {}).items()}
    return {code: name for name, code in codes.items() if code and code.count("\n") >= LINES}
