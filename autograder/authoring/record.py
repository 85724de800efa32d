"""Record the oracle's answers to a lesson's visible checks, so that `course` need not compute them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from autograder.authoring.export import module_text
from autograder.authoring.source import Lesson, LessonError
from autograder.lessons import find
from course.checks.check import Check, checks_in
from course.checks.recorded import Recorded, key_of, to_json


def recorded_text(lesson: Lesson) -> str | None:
    """Write the recorded answers of a lesson as JSON; None where no check looks any up.

    Raises:
        LessonError: the reference answer does not pass a check whose answers are recorded.
    """
    checks = checks_in(import_module(f"course.checks.{lesson.module}")).values()
    looking_up = [check for check in checks if isinstance(check.truth, Recorded)]
    if not looking_up:
        return None
    functions: dict[str, Any] = {"__name__": f"course.minigpt.{lesson.module}"}
    exec(compile(module_text(lesson), lesson.exported.name, "exec"), functions)
    lines = [
        f"{json.dumps(check.name)}: {{\n{_lines(_record(lesson, check, functions))}\n}}"
        for check in sorted(looking_up, key=lambda check: check.name)
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(answers: dict[str, Any]) -> str:
    """Write one answer a line."""
    return ",\n".join(f'"{key}": {json.dumps(answers[key])}' for key in sorted(answers))


def _record(lesson: Lesson, check: Check, functions: dict[str, Any]) -> dict[str, Any]:
    """Run a check on the reference answer with the oracle's truth; return what that was asked."""
    truth: Callable[..., Any] = find(f"{lesson.module}.{check.name}").truth
    answers: dict[str, Any] = {}

    def ask(*arguments: Any) -> Any:
        answer = truth(*arguments)
        written = to_json(answer)
        if answers.setdefault(key_of(arguments), written) != written:
            raise LessonError(f"{lesson.folder}: {check.name} has two cases that look alike")
        return answer

    verdict = check.hidden(truth=ask).judge(functions, 0)
    if verdict.score < 1:
        raise LessonError(f"{lesson.folder}: {check.name} fails: {verdict.message}")
    return answers
