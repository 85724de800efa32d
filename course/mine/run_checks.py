"""Run a lesson's visible checks on a student's code: the program of the process that `trial` starts.

It reads one JSON from stdin and writes a JSON a line to what was its stdout: `start` before each check,
`done` after it. What the student's code prints goes nowhere.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, TextIO

from course.checks.check import Check, checks_in
from course.mine.replacing import put_in, run_code


def main() -> None:
    """Run what stdin asks for."""
    asked = json.load(sys.stdin)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    importlib.import_module("course.checks.recorder")  # loads torch, which is no fault of the code
    _say(replies, start="the code", needs=[])
    try:
        for earlier in asked["earlier"]:
            space = run_code(earlier["module"], earlier["code"])
            put_in(earlier["module"], {name: space[name] for name in earlier["kept"]})
        space = run_code(asked["module"], asked["code"])
        checks = checks_in(importlib.import_module(f"course.checks.{asked['module']}"))
    except BaseException as error:
        _say(replies, broken=f"{type(error).__name__}: {error}")
        return
    for name, check in checks.items():
        if name not in asked["skip"] and not set(check.needs) & set(asked["stuck"]):
            _say(replies, start=name, needs=check.needs)
            _say(replies, done=name, needs=check.needs, outcome=_outcome(check, space))
    _say(replies, end=True, names=sorted({n for check in checks.values() for n in check.needs}))


def _outcome(check: Check, space: dict[str, Any]) -> str:
    """ "passes", "fails", "missing" or "not written"."""
    if any(name not in space for name in check.needs):
        return "missing"
    try:
        return "passes" if check.judge(space, 0).score == 1 else "fails"
    except NotImplementedError:
        return "not written"
    except BaseException:
        return "fails"


def _say(replies: TextIO, **words: Any) -> None:
    print(json.dumps(words), file=replies, flush=True)


if __name__ == "__main__":
    main()
