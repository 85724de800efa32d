"""Write results for Gradescope: a results.json per submission, and the autograder that hands them out.

    DIR/results/ada/results.json    in the form that Gradescope documents
    DIR/setup.sh, run_autograder    which look up the result of a submission; no student code runs
    DIR/whose.json                  the address of each student and the file that was judged

All of DIR, zipped, is the autograder of a programming assignment in Gradescope. A file that was handed
in later than it was judged here gets no points: Gradescope says that the autograder failed.

https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autograder.classroom.exporting.folders import whole_folder
from autograder.classroom.exporting.table_cells import number
from autograder.classroom.standing import Standing
from autograder.classroom.wording import one_line
from autograder.report.sanitize import plain
from autograder.result import Answer, Outcome
from course.files.writing import write_whole

VISIBILITIES = ("after_published", "after_due_date", "visible", "hidden")
"""When students see the questions; after_published is when the instructor says so."""
SETUP = "#!/bin/sh\nexit 0\n"
LOOK_UP = '''\
#!/usr/bin/env python3
"""Hand out the result of a submission that was judged elsewhere. It runs nothing of the student."""
import hashlib, json, pathlib, shutil, sys

here = pathlib.Path("/autograder")
whose = json.loads((here / "source/whose.json").read_text())
users = json.loads((here / "submission_metadata.json").read_text())["users"]
files = [path for path in (here / "submission").rglob("*.ipynb") if path.is_file()]
digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
for user in users:
    known = whose.get(user["email"].strip().casefold())
    if known and known["sha256"] in digests:
        (here / "results").mkdir(exist_ok=True)
        shutil.copy(here / "source" / known["results"], here / "results/results.json")
        sys.exit(0)
sys.exit("This file was not judged yet: judge it, export again, and upload the autograder anew.")
'''


def write_results(table: Sequence[Standing], target: Path, visibility: str) -> list[str]:
    """Write the folder.

    Args:
        table: how everyone stands.
        visibility: one of VISIBILITIES.

    Returns:
        A line for everyone who handed in and has no result, or no address to find it by.

    Raises:
        CannotStart: there is something at the target.
        OSError: it cannot be written.
    """
    left_out, whose = [], {}
    addresses = Counter(_address(standing) for standing in table)
    with whole_folder(target) as folder:
        for standing in table:
            student = standing.student
            if standing.score is None:
                if standing.submission:
                    why = f"{standing.state}, {one_line(standing.reason)}"
                    left_out.append(f"{one_line(student.id)}: {why}")
                continue
            place = f"results/{student.id}/results.json"
            _write_json(folder / place, results(standing, visibility))
            address = _address(standing)
            if not address or addresses[address] > 1:
                what = "another has the same address" if address else "no address is known"
                left_out.append(f"{one_line(student.id)}: {what}, so Gradescope cannot find it")
            else:
                whose[address] = {"results": place, "sha256": standing.result.submission}
        _write_json(folder / "whose.json", whose)
        for name, text in (("setup.sh", SETUP), ("run_autograder", LOOK_UP)):
            write_whole(folder / name, text.encode())
            (folder / name).chmod(0o755)
    return left_out


def _address(standing: Standing) -> str:
    return standing.student.email.strip().casefold()


def results(standing: Standing, visibility: str) -> dict[str, Any]:
    """Return one student's results.json. Its score counts, whatever the questions add up to: it holds
    changes by hand and the penalty."""
    result = standing.result
    words = [f"{number(standing.score)} of {number(standing.most)} points."]
    if standing.penalty:
        words.append(f"{number(standing.penalty)} points are taken off for being late.")
    if standing.written:
        words.append(f"{number(standing.written)} of them are for written answers.")
    if standing.is_changed:
        words.append("Points were changed by hand.")
    return {
        "score": standing.score,
        "execution_time": round(sum(result.seconds.values()), 3),
        "output": " ".join(words),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": visibility,
        "stdout_visibility": "hidden",
        "tests": [_test(n, answer) for n, answer in enumerate(result.answers, start=1)],
    }


def _test(place: int, answer: Answer) -> Mapping[str, Any]:
    """Return one question. As text, so that nothing in a message is taken for HTML or for colours."""
    passed = answer.outcome == Outcome.SCORE and answer.score == 1
    return {
        "score": answer.points,
        "max_score": answer.max_points,
        "status": "passed" if passed else "failed",
        "name": answer.check.replace("_", " "),
        "number": str(place),
        "output": _printable(plain(answer.message)),
    }


def _printable(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")


def _write_json(path: Path, content: Any) -> None:
    write_whole(path, json.dumps(content, indent=1).encode())
