"""What several test files share."""

import os
import shutil
import signal
import sys
from functools import cache
from pathlib import Path

import pytest

import autograder.lessons
import course.checks
from lessons import OVERLAY

# nbgrader calls alembic by its bare name, and half-makes a gradebook where that is not found.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Where make runs in the background, a shell may have told it and all it starts to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fixture_checks(monkeypatch):
    """Let this process find the checks of the fixture lessons beside the real ones."""
    for package in (autograder.lessons, course.checks):
        there = str(OVERLAY / package.__name__.replace(".", "/"))
        monkeypatch.setattr(package, "__path__", [*package.__path__, there])


@pytest.fixture(scope="session")
def desks(tmp_path_factory):
    """Where submissions to a lesson are judged, by its folder's name; each made when first asked for."""
    from submissions import Desk  # loads the authoring tools, which most tests do without

    return cache(lambda folder: Desk(folder, tmp_path_factory.mktemp(folder)))


@pytest.fixture(scope="session")
def released(tmp_path_factory) -> Path:
    """A course's folder in which lesson 00 is released, and nobody handed in."""
    from nbgrader_course import CourseFolder

    from lessons import COURSE

    place = tmp_path_factory.mktemp("released")
    CourseFolder.lay_out(COURSE.read("00-start"), place)
    return place


@pytest.fixture
def empty(released, tmp_path):
    """A copy of it."""
    from nbgrader_course import CourseFolder

    from lessons import COURSE

    return CourseFolder(COURSE.read("00-start"), shutil.copytree(released, tmp_path / "course"))


@pytest.fixture
def no_bubblewrap(tmp_path) -> dict[str, str]:
    """An environment in which every program is found but bwrap."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("choom", "prlimit", "setpriv"):
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    return {"PATH": str(programs)}


def pytest_terminal_summary(terminalreporter):
    """What tests measured, also where they ran in other processes (`record_property("margin", …)`)."""
    reports = terminalreporter.getreports("passed")
    margins = [
        value for report in reports for name, value in report.user_properties if name == "margin"
    ]
    if margins:
        terminalreporter.section("margins of the tolerance")
        terminalreporter.write_line("\n".join(sorted(set(margins))))
