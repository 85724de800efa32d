"""Lay out the students' repository in a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from autograder.authoring.notebook import GITHUB
from autograder.authoring.pages import lesson_table
from autograder.authoring.source import Course
from autograder.publishing.address import with_address
from autograder.publishing.release import Release
from autograder.sandbox.library_view import copy_course

TEMPLATE = Path(__file__).parent / "template"
"""The files that only students have; `{{NAME}}` stands for what a release says of itself."""
AS_THEY_ARE = ("LICENSE", "docs/second-token.svg")
GET = "git clone {address} second-token\ncd second-token\n"
BADGES = " Or click a badge: the lesson\nopens in Colab, where you save a copy of your own."
PULL = {
    True: "Get new lessons with `git pull`.",
    False: "New lessons come as a new copy of this folder.",
}
URLS = '\n[project.urls]\nRepository = "{address}"\n'
"""What a release says where it has an address."""
ROOMS = ("checks", "plots", "widgets")
"""Packages of `course` with a module or package for each lesson."""


def lay_out(place: Path, release: Release, address: str = "") -> None:
    """Write all files of a release into an empty folder.

    Args:
        address: at which students find the repository, "" where it has none.
    """
    _copy_library(place, release)
    root = release.course.root
    for folder in release.lessons:
        student = release.course.read(folder).student
        copy = place / student.relative_to(root)
        copy.parent.mkdir(parents=True)
        text = with_address(student.read_text(encoding="utf-8"), address, folder)
        copy.write_text(text, encoding="utf-8")
    for name in AS_THEY_ARE:
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(root / name, place / name)
    words = _words(release, address)
    for path in sorted(TEMPLATE.rglob("*.txt")):
        name = path.relative_to(TEMPLATE).as_posix().removesuffix(".txt")
        target = place / (".gitignore" if name == "gitignore" else name)
        target.parent.mkdir(exist_ok=True)
        target.write_text(_filled(path.read_text(encoding="utf-8"), words), encoding="utf-8")


def _copy_library(place: Path, release: Release) -> None:
    """Copy `course` without answers, and without what belongs to lessons that are yet to come."""
    copy_course(place, release.first_open, release.order)
    for module in release.later:
        for room in ROOMS:
            (place / "course" / room / f"{module}.py").unlink(missing_ok=True)
            shutil.rmtree(place / "course" / room / module, ignore_errors=True)
        for record in ("recorded", "released"):
            (place / "course" / "checks" / record / f"{module}.json").unlink(missing_ok=True)


def _words(release: Release, address: str) -> dict[str, str]:
    """Collect what the templates leave open."""
    root, course = release.course.root, release.course
    number = release.lessons[-1][:2]
    pins = _pins(root)
    return {
        "BADGES": BADGES if address.startswith(GITHUB) else "",
        "CONSTRAINTS": "\n".join(pins),
        "DEPENDENCIES": course.project["dependencies"],
        "GET": GET.format(address=address) if address else "",
        "LAB": course.project["optional-dependencies"]["lab"],
        "SERVE": course.project["optional-dependencies"]["serve"],
        "LESSONS": lesson_table(course, release.lessons, address),
        "OPEN": str(list(release.order[release.closed : len(release.lessons)])),
        "PULL": PULL[bool(address)],
        "PACKAGE_DATA": "\n".join(_package_data(course)),
        "URLS": URLS.format(address=address) if address else "",
        "REQUIRES_PYTHON": course.project["requires-python"],
        "VERSION": f"{course.project['version']}+through.{number}",
    }


def _package_data(course: Course) -> Iterator[str]:
    """Write which files of `course` are installed beside its modules, as lines of TOML."""
    for package, patterns in course.settings["tool"]["setuptools"]["package-data"].items():
        if package.split(".")[0] == "course":
            yield f'"{package}" = {json.dumps(patterns)}'


def _pins(root: Path) -> list[str]:
    """Read the pinned versions. Those of packages that only instructors install do no harm."""
    return (root / "constraints.txt").read_text(encoding="utf-8").splitlines()


def _filled(text: str, words: dict[str, object]) -> str:
    """Put the words into a template; a list of strings as one of TOML or Python."""
    return re.sub(
        r"\{\{([A-Z_]+)\}\}",
        lambda match: (
            value
            if isinstance(value := words[match[1]], str)
            else str(list(value)).replace("'", '"')
        ),
        text,
    )
