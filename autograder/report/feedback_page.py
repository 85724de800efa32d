"""Write the page that a student gets: it begins with the questions, their points and messages.

`GenerateFeedback.exporter_class`. It is nbgrader's page with another head: see feedback_page.html.j2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from traitlets import default

from autograder.assignment import in_words
from autograder.report.sanitize import visible

LONGEST = 300
"""Characters of a message at the head; all of it stands at the graded cell."""
_SENTENCE = re.compile(r".+?(?<!\.)[.?!](?=\s+[^a-z.]|$)")


@dataclass(frozen=True)
class QuestionShown:
    """A question at the head of the page; `score` is the gradebook's, changes by hand included.

    Attributes:
        is_written: whether its answer is prose, which is graded by hand.
    """

    check: str
    score: float
    points: float
    message: str
    is_written: bool = False

    @property
    def words(self) -> str:
        return in_words(self.check)

    @property
    def earned(self) -> str:
        return f"{round(self.score, 2):g} / {self.points:g}"

    @property
    def mark(self) -> str:
        if self.is_written:
            return ""
        if self.score >= self.points:
            return "PASS"
        return "PART" if self.score > 0 else "FAIL"


class FeedbackPage(HTMLExporter):
    """Export a graded notebook as the page for its student."""

    def __init__(self, **options: Any) -> None:
        super().__init__(extra_loaders=[FileSystemLoader(Path(__file__).parent)], **options)

    @default("template_file")
    def _template_file_default(self) -> str:
        return "feedback_page.html.j2"

    @default("exclude_anchor_links")
    def _exclude_anchor_links_default(self) -> bool:
        return True

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """Add what the template needs to nbconvert's own."""
        yield from super().default_filters()
        yield "questions", questions_of


def questions_of(cells: Iterable[NotebookNode]) -> list[QuestionShown]:
    """List the questions of a graded notebook, after nbgrader's GetGrades, in its order."""
    return [
        QuestionShown(kind.grade_id, kind.score, kind.points, _message(cell), kind.solution)
        for cell in cells
        if (kind := cell.metadata.get("nbgrader", {})).get("grade")
    ]


def _message(cell: NotebookNode) -> str:
    """Return the first sentence that the judge says at a graded cell, behind whether its points hold."""
    if cell.cell_type == "markdown":
        return "A written answer: its points are given by hand."
    stream, result = cell.outputs
    _mark, _, message = stream.text.partition("  ")
    message = " ".join(visible(message).split())
    sentence = match[0] if (match := _SENTENCE.match(message)) else message
    if len(sentence) > LONGEST:
        sentence = f"{sentence[:LONGEST]}…"
    judged, score = float(result.data["text/plain"]), cell.metadata.nbgrader.score
    return sentence if abs(judged - score) < 1e-6 else f"Points changed by hand. {sentence}"
