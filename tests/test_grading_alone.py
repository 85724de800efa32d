"""Each command that docs/instructors.md shows runs where nothing but the extra `grading` is installed, or
says in one line which extra it needs."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from submissions import solved

from lessons import COURSE, ROOT

pytestmark = [needs_bubblewrap, pytest.mark.slow]
LESSON = COURSE.read("00-start")
SHOWN = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTEAD = {
    "03-kv-cache 04": LESSON.folder,
    "03-kv-cache": LESSON.folder,
    "--students 24": "--students 3",
    "--dask": "--judge-again --dask",
}
"""What makes the page's commands short."""
NEEDS_MORE = {"autograder publish": "authoring", "--dask": "dask"}
"""The extra that a command with these words needs."""
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {blocked!r}:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
"""A module that Python imports at its start, by its name."""


def installed_with(extra: str) -> set[str]:
    """The distributions that an installation of the project with one extra brings."""
    found: set[str] = set()
    left = [Requirement(f"second-token[{extra}]")]
    while left:
        wanted = left.pop()
        try:
            needed = map(Requirement, requires(wanted.name) or ())
        except PackageNotFoundError:  # for another system
            continue
        environments = [{"extra": extra} for extra in (*wanted.extras, "")]
        found.add(canonicalize_name(wanted.name))
        left += [
            new
            for new in needed
            if canonicalize_name(new.name) not in found
            and (not new.marker or any(map(new.marker.evaluate, environments)))
        ]
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Variables with which a process finds what `grading` brings, and nothing else of the extras."""
    extras = metadata("second-token").get_all("Provides-Extra")
    more = set().union(*map(installed_with, extras)) - installed_with("grading")
    blocked = {
        package
        for package, distributions in packages_distributions().items()
        if set(map(canonicalize_name, distributions)) <= more
    }
    assert {"jupytext", "distributed", "pytest"} <= blocked
    assert not {"nbgrader", "torch", "nh3"} & blocked
    place = tmp_path_factory.mktemp("without")
    (place / "sitecustomize.py").write_text(WITHOUT.format(blocked=blocked))
    path = os.pathsep.join([str(place), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "HOME": str(place), "BROWSER": "true"}


def commands() -> Iterator[str]:
    """The page's own commands, in its order."""
    text = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
    for line in "".join(SHOWN.findall(text)).splitlines():
        command = line.partition("  #")[0].strip()
        if re.match(r"(autograder|nbgrader|cd) [^&]+$", command):
            for words, other in INSTEAD.items():
                command = command.replace(words, other)
            yield command


def hand_in(folder: CourseFolder, home: Path) -> None:
    """One notebook in its folder, another in an archive as Moodle packs it, and Moodle's sheet."""
    folder.hand_in("ada", solved(LESSON))
    (folder.place / "grading" / "roster.csv").write_text(
        "id,first_name,last_name,email\nada,Ada,King,a@example.edu\nben,Ben,Low,"
    )
    (home / "Downloads").mkdir()
    with zipfile.ZipFile(home / "Downloads" / "submissions.zip", "w") as archive:
        name = "Ben Low_7_assignsubmission_file_/start.ipynb"
        archive.writestr(name, LESSON.student.read_text(encoding="utf-8"))
    sheet = "Identifier,ID number,Full name,Grade,Maximum Grade,Last modified (grade)\n"
    sheet += "Participant 7,ben,Ben Low,,10,-\n"
    (folder.place / "Grades-CS1.csv").write_text(sheet)


def test_every_command_of_the_instructors_page(environment, tmp_path):
    folder = CourseFolder.lay_out(LESSON, tmp_path)
    hand_in(folder, Path(environment["HOME"]))
    place, ran = tmp_path, set()
    for command in sorted(commands(), key=lambda command: "collect" not in command):
        program, *arguments = shlex.split(command.replace("~", environment["HOME"]))
        if program == "cd":
            place = tmp_path / arguments[0]
        if program == "cd" or (place, command) in ran:
            continue
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
        )
        ran.add((place, command))
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
        extra = next((extra for words, extra in NEEDS_MORE.items() if words in command), "")
        if extra:
            assert done.stderr.endswith(f"'.[{extra}]'\n"), f"{command}\n{done.stderr}"
        else:
            assert done.returncode in (0, 1), f"{command}\n{done.stdout}{done.stderr}"
        if program == "autograder" and arguments[0] == "report" and place != tmp_path:
            place = tmp_path  # the end of the simulated class
    assert len(ran) > 12
