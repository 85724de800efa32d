"""Evidence comes from the student's process: where something of it is missing, no verdict passes.

Each list, dict and array of true evidence is made hollow, one at a time: emptied, cut by one, or of no
size. Who goes through what came back, instead of what was asked, finds nothing wrong in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from submissions import ORDER

from autograder.lessons import find, hidden_checks
from course.checks.check import Check, Verdict

CHECKS = [f"{lesson}.{check}" for lesson in ORDER for check in hidden_checks(lesson)]
NOT_JUDGED = ("['per_call']", "['steps']")
"""Parts that no point hangs on: they are only told."""


def hollowed(value: Any, where: str = "evidence") -> Iterator[tuple[str, Any]]:
    """The value with one part of it hollow: where that is, and the whole."""
    if isinstance(value, list | tuple) and value:
        for kept in {0, len(value) - 1}:
            yield f"{where}[:{kept}]", value[:kept]
    if isinstance(value, dict) and value:
        yield f"{where} = {{}}", {}
    if isinstance(value, np.ndarray) and value.size > 1:
        for axis in range(value.ndim):
            yield f"{where}, axis {axis} empty", np.take(value, [], axis=axis)
            if value.shape[axis] > 1:
                yield f"{where}, axis {axis} of 1", np.take(value, [0], axis=axis)
        if value.dtype.kind == "f":
            yield f"{where}, not a number", np.full_like(value, np.nan)
    if isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            for place, hollow in hollowed(part, f"{where}[{key!r}]"):
                whole = dict(value) if isinstance(value, dict) else list(value)
                whole[key] = hollow
                yield place, type(value)(whole)


def judge(check: Check, challenge: Any, evidence: Any) -> Verdict | None:
    """None where the verdict cannot be reached, which is no pass either."""
    try:
        with np.errstate(all="ignore"):
            return check.decide(challenge, evidence)
    except Exception:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_hollow_evidence_never_passes(name, record, selection):
    check, lesson = find(name), name.split(".")[0]
    (seed,) = selection.seeds(lesson, by_day=1, full=1)
    challenge = check.challenge(seed)
    evidence = record.ask(lesson, {}, check, seed)["evidence"]
    assert judge(check, challenge, evidence).score == 1
    passed = [
        place
        for place, whole in hollowed(evidence)
        if (verdict := judge(check, challenge, whole)) and verdict.score > 0
        if not any(part in place for part in NOT_JUDGED)
    ]
    assert passed == []
