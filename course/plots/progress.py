"""The picture of the progress page."""

from __future__ import annotations

from datetime import datetime

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from course.files.progress_notes import Passed
from course.files.released import Released
from course.plots.style import BLUE, GREY, Picture, course_style


def draw_progress(lessons: list[Released], passed: Passed, what_is_next: str) -> Picture:
    """Draw a row a lesson and a box a check: filled where it passed, with the day of its first pass.

    Args:
        passed: when each check passed first, by module and check.
        what_is_next: a sentence, for the caption.
    """
    with course_style():
        figure, axes = plt.subplots(figsize=(8.5, 0.9 + 0.42 * len(lessons)))
        for row, lesson in enumerate(lessons):
            _draw_lesson(axes, row, lesson, passed.get(lesson.module, {}))
        most = max(len(lesson.graded) for lesson in lessons)
        axes.set(xlim=(0, most), ylim=(len(lessons) - 0.4, -0.6), xticks=[])
        axes.set_yticks(range(len(lessons)), [f"{one.number} · {one.title}" for one in lessons])
        axes.tick_params(left=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_title("Your checks, in the order of the lessons")
        figure.legend(
            handles=[
                Patch(color=BLUE, label="passed, on that day"),
                Patch(facecolor="white", edgecolor=GREY, label="to do"),
            ],
            loc="outside lower center",
            ncols=2,
        )
    counts = [
        f"{one.number}: {sum(cell.name in passed.get(one.module, {}) for cell in one.graded)}"
        f" of {len(one.graded)}"
        for one in lessons
    ]
    alt = f"Checks that passed, by lesson. {'; '.join(counts)}."
    return Picture(figure, alt, f"A box is one visible check. {what_is_next}")


def _draw_lesson(axes: Axes, row: int, lesson: Released, times: dict[str, str]) -> None:
    for column, cell in enumerate(lesson.graded):
        time = times.get(cell.name)
        color = BLUE if time else "white"
        axes.barh(
            row,
            0.92,
            left=column + 0.04,
            height=0.72,
            color=color,
            edgecolor=BLUE if time else GREY,
        )
        if time:
            day = f"{datetime.fromisoformat(time):%d %b}"
            axes.text(column + 0.5, row, day, ha="center", va="center", color="white", fontsize=8)
