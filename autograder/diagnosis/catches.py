"""Know which checks catch each mistake of the museum: `museum.json` beside it, by `autograder museum`.

So a diagnosis tries only the mistakes that can have led to what was lost and what was passed, and a page
about the museum is written without running it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import autograder.lessons
from autograder.lessons.exhibits import Bug, bugs_of

ALWAYS, SOMETIMES = "always", "sometimes"
Catches = Mapping[str, Mapping[str, str]]
"""By the name of a bug, the checks at which it loses points, ALWAYS or SOMETIMES."""


def path_of(lesson: str) -> Path:
    """Return the file with what was measured of a lesson's museum."""
    return Path(autograder.lessons.__file__).parent / lesson / "museum.json"


@cache
def measured(lesson: str) -> Mapping[str, Any]:
    """Read what was measured of a lesson's museum: the digest of its "sources", what is "recognized" of
    it, and its "catches"; all empty where that was never written."""
    path = path_of(lesson)
    if not path.exists():
        return {"sources": "", "recognized": {}, "told": {}, "catches": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def catches_of(lesson: str) -> Catches:
    """Return which checks catch each bug of a lesson; {} where that was never written."""
    return measured(lesson)["catches"]


def suspects(
    lesson: str, check: str, passed: Collection[str], catches: Catches | None = None
) -> list[Bug]:
    """List the bugs that lose this check and not always one of those that were passed. One that was
    never measured may lose anything.

    Args:
        catches: what is known of the lesson's bugs; left out, what its file says.
    """
    known = catches_of(lesson) if catches is None else catches
    return [
        bug
        for bug in bugs_of(lesson)
        if (caught := known.get(bug.name)) is None
        or (check in caught and not any(caught.get(name) == ALWAYS for name in passed))
    ]
