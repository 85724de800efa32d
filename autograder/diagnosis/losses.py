"""Know which checks each mistake of the museum loses: `losses.json` beside it, by `autograder museum`.

So a diagnosis tries only the mistakes that can have led to what was lost and what was passed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

import autograder.lessons
from autograder.lessons.exhibits import Bug, bugs_of

ALWAYS, SOMETIMES = "always", "sometimes"
Losses = Mapping[str, Mapping[str, str]]
"""By the name of a bug, the checks that it lost, ALWAYS or SOMETIMES."""


def path_of(lesson: str) -> Path:
    """Return the file with the losses of a lesson's bugs."""
    return Path(autograder.lessons.__file__).parent / lesson / "losses.json"


def suspects(lesson: str, check: str, passed: Collection[str]) -> list[Bug]:
    """List the bugs that lose this check and not always one of those that were passed. One that the
    file does not know yet may lose anything."""
    known = losses_of(lesson)
    return [
        bug
        for bug in bugs_of(lesson)
        if (lost := known.get(bug.name)) is None
        or (check in lost and not any(lost.get(name) == ALWAYS for name in passed))
    ]


def losses_text(lesson: str, lost: Iterable[tuple[str, Collection[Bug], int]]) -> str:
    """Write the file of a lesson.

    Args:
        lost: for each check its name, the bugs that lost points, once for each time that they did,
            and how often it was tried.
    """
    losses: dict[str, dict[str, str]] = {bug.name: {} for bug in bugs_of(lesson)}
    for check, bugs, times in lost:
        for name in {bug.name for bug in bugs}:
            always = sum(bug.name == name for bug in bugs) == times
            losses[name][check] = ALWAYS if always else SOMETIMES
    return json.dumps(losses, indent=1) + "\n"


@cache
def losses_of(lesson: str) -> Losses:
    """Read which checks each bug of a lesson loses; {} where that was never written."""
    path = path_of(lesson)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
