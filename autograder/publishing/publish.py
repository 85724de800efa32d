"""Write the students' repository: `autograder publish ../lessons --through 03-kv-cache`.

Into the same folder again: what changed is written, notebooks that students have stay as they are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from autograder.authoring.source import Course, LessonError
from autograder.lessons import SOLUTIONS
from autograder.publishing.address import address_in, read_address
from autograder.publishing.bundle import lay_out
from autograder.publishing.checkout import (
    Changes,
    NotPublished,
    apply,
    compare,
    files_in,
)
from autograder.publishing.leak_scan import hidden_of, scan
from autograder.publishing.release import read_release
from autograder.publishing.repository_scan import leaks_beside, leaks_in_history

BOOK = "book"
"""The folder of the book, for people without an instructor."""


def main(arguments: list[str]) -> int:
    """Publish; the exit status is 1 when something leaks or the folder cannot be brought up to date."""
    parser = argparse.ArgumentParser(prog="autograder publish", description=__doc__)
    parser.add_argument("place", metavar="DIR", type=Path, help="the students' repository")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--through", metavar="LESSON", help="the last one to publish")
    which.add_argument(
        "--self-study",
        action="store_true",
        help="publish all lessons with their answers, and the book, in which these are folded",
    )
    parser.add_argument(
        "--closed-through",
        metavar="LESSON",
        help="the last one whose answers students get; left out: the one before the last; "
        "`none`: they get no answers",
    )
    parser.add_argument(
        "--replace",
        nargs="*",
        default=[],
        metavar="LESSON",
        help="publish these notebooks anew, although students have them",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the address at which students find the folder, such as https://github.com/us/lessons: "
        "badges and Colab's set-up lead there; left out: the one that it was published with before",
    )
    options = parser.parse_args(arguments)
    try:
        course = Course(SOLUTIONS.parent)
        last = course.folders()[-1] if options.self_study else options.through
        release = read_release(course, last, last if options.self_study else options.closed_through)
        replace = {read_release(course, name, None).lessons[-1] for name in options.replace}
        address = read_address(options.url) if options.url else address_in(options.place)
        with tempfile.TemporaryDirectory(prefix="second-token-") as folder:
            bundle = Path(folder) / "bundle"
            bundle.mkdir()
            lay_out(bundle, release, address)
            hidden = hidden_of(release)
            leaks = scan(bundle, hidden)
            leaks += leaks_beside(options.place, files_in(bundle), hidden)
            if leaks := leaks + leaks_in_history(options.place, hidden):
                print(
                    f"nothing was written: students would read\n  {_lines(leaks)}", file=sys.stderr
                )
                return 1
            changes = compare(bundle, options.place, replace)
            apply(changes, bundle, options.place)
    except (LessonError, NotPublished) as error:
        print(f"nothing was written: {error}", file=sys.stderr)
        return 1
    _tell(changes, options.place, release.lessons[-1], address)
    return _add_book(course, options.place / BOOK) if options.self_study else 0


def _add_book(course: Course, place: Path) -> int:
    """Build the book with folded answers; the exit status is 1 when it cannot be built."""
    from autograder.authoring.book import BookError, build_book  # needs the extra `book`

    try:
        build_book(course, place, self_study=True)
    except BookError as error:
        print(f"the book was not written: {error}", file=sys.stderr)
        return 1
    print(f"The book: {place / 'index.html'}")
    return 0


def _tell(changes: Changes, place: Path, last: str, address: str) -> None:
    """Say what was done, and what is left to do."""
    for what, paths in (("written", changes.written), ("removed", changes.removed)):
        print(f"{len(paths)} files {what}")
    for path in changes.left:
        print(
            f"left as students have it: {path}. Its text changed since; `--replace {path.split('/')[1]}` "
            "publishes it again, and students who edited it have to merge."
        )
    if not (changes.written or changes.removed):
        print(f"{place} is up to date.")
        return
    if not (place / ".git").exists():
        print(f"Next: git -C {place} init --initial-branch main")
    print(f"Next: git -C {place} add --all && git -C {place} commit -m 'Lessons through {last}'")
    tags = [path.split("/")[1] for path in changes.written if path.endswith(".ipynb")]
    if address and tags:
        # Colab fetches the course from a lesson's tag. The tag of a lesson that is published anew moves.
        named = " ".join(tags)
        print(
            f"Next: for tag in {named}; do git -C {place} tag --force $tag; done\n"
            f"Next: git -C {place} push {address} main && git -C {place} push --force {address} {named}"
        )


def _lines(leaks: list[str]) -> str:
    more = f"\n  and {len(leaks) - 20} more" if len(leaks) > 20 else ""
    return "\n  ".join(leaks[:20]) + more
