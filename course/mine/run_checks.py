"""Run a lesson's visible checks on a student's code: the program of the process that `trial` starts.

It reads one JSON object from stdin and writes one per line to stdout: `start` before each check, `done`
after it. What the student's code prints is discarded.
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
    """Run the checks that the request on stdin asks for."""
    request = json.load(sys.stdin)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    importlib.import_module(
        "course.checks.recorder"
    )  # loads torch before the clock of the code starts
    _send(replies, start="the code", needs=[])
    try:
        for earlier in request["earlier"]:
            space = run_code(earlier["module"], earlier["code"])
            put_in(earlier["module"], {name: space[name] for name in earlier["names"]})
        space = run_code(request["module"], request["code"])
        checks = checks_in(importlib.import_module(f"course.checks.{request['module']}"))
    except BaseException as error:
        _send(replies, broken=f"{type(error).__name__}: {error}")
        return
    for name, check in checks.items():
        if name not in request["skip"] and not set(check.needs) & set(request["stuck"]):
            _send(replies, start=name, needs=check.needs)
            _send(replies, done=name, needs=check.needs, outcome=_outcome(check, space))
    _send(replies, end=True, names=sorted({n for check in checks.values() for n in check.needs}))


def _outcome(check: Check, space: dict[str, Any]) -> str:
    """Return "passes", "fails", "missing" or "not written"."""
    if any(name not in space for name in check.needs):
        return "missing"
    try:
        return "passes" if check.judge(space, 0).score == 1 else "fails"
    except NotImplementedError:
        return "not written"
    except BaseException:
        return "fails"


def _send(replies: TextIO, **fields: Any) -> None:
    print(json.dumps(fields), file=replies, flush=True)


if __name__ == "__main__":
    main()
