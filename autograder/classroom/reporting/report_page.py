"""Lay out the page about a class: one HTML file that asks nothing of any server. Its only script sorts
tables; no other one can run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autograder.assignment import Assignment, in_words
from autograder.classroom.reporting.class_figures import (
    Bar,
    QuestionFigures,
    Spread,
    by_section,
    handed_in_by_day,
    points_in_bars,
    question_figures,
    seconds_by_part,
)
from autograder.classroom.reporting.class_mistakes import Work, class_mistakes, lost_without_mistake
from autograder.classroom.reporting.equal_answers import equal_answers
from autograder.classroom.reporting.everyone import FAR_BELOW, everyone, over_the_term
from autograder.classroom.standing import Standing, State
from autograder.lessons.exhibits import Bug
from autograder.report.sanitize import plain, visible

MOST_GROUPS, LONGEST_REASON = 40, 400
UNTOUCHED = "the notebook is unchanged: was another file meant?"
SCRIPT = Path(__file__).with_name("report_page.js").read_text(encoding="utf-8")
HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
WIDTH, HEIGHT, BASE, TOP = 660, 262, 205, 28


def page(
    lesson: str,
    assignment: Assignment,
    bugs: Sequence[Bug],
    table: Sequence[Standing],
    works: Sequence[Work],
    tables: Mapping[str, Sequence[Standing]] = MappingProxyType({}),
) -> str:
    """Write the page.

    Args:
        lesson: its folder's name.
        assignment: what it asks.
        bugs: the museum's of the lesson.
        table: how everyone stands.
        works: what lies in the folders of those who handed in a notebook.
        tables: how everyone stands in all lessons so far, by lesson.
    """
    graded = [standing for standing in table if standing.state == State.GRADED]
    ids = {standing.student.id for standing in graded}
    judged = [work for work in works if work.student.id in ids]
    results = [standing.result for standing in graded]
    points = [standing.points for standing in graded]
    most = assignment.most
    bars = points_in_bars(points, most)
    late = sorted((s for s in table if s.seconds_late > 0), key=lambda s: -s.seconds_late)
    parts: dict[str, Any] = {
        "lesson": lesson,
        "made": datetime.now(UTC),
        "class_size": len(table),
        "states": count_states(table),
        "attention": list(_attention(table)),
        "graded": len(graded),
        "most": most,
        "points": Spread.of(points),
        "by_hand": sum(s.is_changed for s in graded),
        "unread": [s.student for s in graded if s.unread],
        "bars": bars,
        "chart": _chart(bars, most),
        "questions": question_figures(assignment, results),
        "mistakes": class_mistakes(judged, assignment, bugs),
        "lost": lost_without_mistake(judged, assignment),
        "most_groups": MOST_GROUPS,
        "sections": _sections(table, assignment),
        "days": handed_in_by_day(table),
        "late": late,
        "judging": seconds_by_part(results),
        "slow": [s.student for s in graded if s.result.timed_out],
        "everyone": everyone(table, works, bugs),
        "term": over_the_term(tables),
        "far_below": FAR_BELOW,
        "equal": equal_answers(works),
        "odd": [work for work in works if work.odd],
    }
    return (
        _environment()
        .get_template("report_page.html.j2")
        .render(contents=_contents(parts), script=Markup(SCRIPT), hash=HASH, **parts)
    )


def count_states(table: Iterable[Standing]) -> dict[State, int]:
    """Count the students in each state."""
    states = [standing.state for standing in table]
    return {state: states.count(state) for state in State}


def _environment() -> Environment:
    """Everything that is put in is escaped, and stripped of what is invisible: there is no way round."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    environment.globals |= {"in_words": in_words, "number": number, "duration": duration}
    return environment


def _visible(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float) -> str:
    """Write points: two decimals at most."""
    return f"{round(value, 2):g}"


def duration(seconds: float) -> str:
    """Write how late something is: "1 d 3 h", "5 min"."""
    minutes = max(1, round(seconds / 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _contents(parts: dict[str, Any]) -> list[tuple[str, str]]:
    titles = {
        "states": "Who is graded",
        "everyone": "Everyone",
        "term": "The term so far",
        "points": "Points",
        "questions": "Questions",
        "mistakes": "Mistakes",
        "sections": "By section",
        "time": "Time",
        "look": "Worth a look",
    }
    optional = {"sections", "term"}
    return [(id, title) for id, title in titles.items() if id not in optional or parts[id]]


def _attention(table: Iterable[Standing]) -> Iterable[dict[str, str]]:
    """List those who have no points, those first for whom the instructor can do something."""
    order = [State.NOT_GRADED, State.UNGRADABLE, State.UNTOUCHED, State.MISSING]
    these = [standing for standing in table if standing.state in order]
    for standing in sorted(these, key=lambda s: order.index(s.state)):
        yield {
            "name": standing.student.name,
            "id": standing.student.id,
            "state": standing.state,
            "reason": plain(standing.reason or UNTOUCHED, LONGEST_REASON),
        }


@dataclass(frozen=True)
class Section:
    """The figures of one section."""

    name: str
    class_size: int
    states: dict[State, int]
    points: Spread | None
    questions: list[QuestionFigures]
    ids: frozenset[str]


def _sections(table: Sequence[Standing], assignment: Assignment) -> list[Section]:
    return [
        Section(
            name or "(no section)",
            len(those),
            count_states(those),
            Spread.of(s.points for s in those if s.state == State.GRADED),
            question_figures(assignment, [s.result for s in those if s.state == State.GRADED]),
            frozenset(standing.student.id for standing in those),
        )
        for name, those in by_section(table).items()
    ]


@dataclass(frozen=True)
class Column:
    """A bar of the chart, drawn."""

    bar: Bar
    label: str
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


def _chart(bars: Sequence[Bar], most: float) -> dict[str, Any]:
    """Measure the chart of points."""
    step, tallest = WIDTH / len(bars), max(1, *(bar.students for bar in bars))
    columns = []
    for place, bar in enumerate(bars):
        height = round((BASE - TOP) * bar.students / tallest, 1)
        label = number(most * place / (len(bars) - 1))
        x, y = round(place * step + step / 8, 1), round(BASE - height, 1)
        columns.append(Column(bar, label, x, y, round(step * 3 / 4, 1), height))
    return {"width": WIDTH, "height": HEIGHT, "base": BASE, "columns": columns}
