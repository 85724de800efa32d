"""Compute the figures in a lesson's prose: `{{129 = expression}}` shows 129, or the build fails.

An expression is Python. It knows the lesson's own answers and exported names, those of earlier lessons,
`math`, `PUBLISHED` and `EXPERTS` (the sizes of published models) and `METRICS` (what was recorded of
the shipped weights). The figure is written as readers see it, so "9.66" holds for 9.6637: it is rounded
to as many decimals as are shown. "1,474,560" and "−3" are read as people read them.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from functools import cache
from typing import Any

from autograder.authoring.source import Lesson, LessonError
from autograder.lessons import module_of

FIGURE = re.compile(r"\{\{\s*(?P<shown>[^={}]+?)\s*=(?!=)\s*(?P<expression>.+?)\s*\}\}", re.DOTALL)


def show_figures(prose: str, lesson: Lesson, where: str) -> str:
    """Replace each `{{figure = expression}}` by its figure, once the expression agrees.

    Raises:
        LessonError: an expression fails, is no number, or is not the figure that is shown.
    """

    def shown(match: re.Match[str]) -> str:
        figure, expression = match["shown"], " ".join(match["expression"].split())
        try:
            value = eval(expression, dict(_names(lesson)))
        except Exception as error:
            raise LessonError(f"{where}: {{{{{figure} = {expression}}}}}: {error}") from error
        if not agrees(figure, value):
            raise LessonError(f"{where}: {figure} is shown, but {expression} is {value!r}")
        return figure

    # A figure that begins a line ends the line before: "4." alone would begin a list.
    joined = re.sub(r"(?<=[^\s|>])\n[> ]*(?=\{\{[^{}=]+=)", " ", prose)
    return FIGURE.sub(shown, joined)


def agrees(figure: str, value: Any) -> bool:
    """Tell whether a number, rounded as the figure is, is the one that the figure shows."""
    plain = figure.replace(",", "").replace("−", "-")
    if not re.fullmatch(r"-?\d+(\.\d+)?", plain):
        return False
    decimals = len(plain.partition(".")[2])
    if type(value) is int:
        return decimals == 0 and int(plain) == value
    if isinstance(value, float) and math.isfinite(value):
        return abs(float(plain) - value) <= 0.5 * 10**-decimals * (1 + 1e-9)
    return False


@cache
def _names(lesson: Lesson) -> dict[str, Any]:
    """Collect the names that an expression in that lesson may use."""
    from course import weights
    from course.published.experts import EXPERTS
    from course.published.models import PUBLISHED

    metrics = json.loads((weights.FOLDER / "metrics.json").read_text(encoding="utf-8"))
    sizes = {"PUBLISHED": PUBLISHED, "EXPERTS": EXPERTS}
    names: dict[str, Any] = {**vars(math), **sizes, "METRICS": metrics}
    folders = lesson.course.folders()
    for folder in folders[: folders.index(lesson.folder)]:
        names |= vars(importlib.import_module(f"course.minigpt.{module_of(folder)}"))
    own: dict[str, Any] = {**names, "__name__": f"course.minigpt.{lesson.module}"}
    for cell in lesson.answer_cells:
        exec(
            compile(cell.answer, f"<{lesson.folder}, {cell.name}>", "exec", dont_inherit=True), own
        )
    return own
