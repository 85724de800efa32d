"""What several test files share."""

import gc
import os
import shutil
import signal
import sys
from collections import Counter, defaultdict
from functools import cache, partial
from pathlib import Path

import pytest
from selection import (
    Selection,
    begin_night,
    end_night,
    folder_of_replies,
    part_of,
    run_record,
    unit_of,
)
from xdist.scheduler import LoadScopeScheduling

import autograder.lessons
import course.checks
from autograder import judge
from autograder.diagnosis.known_replies import KnownReplies
from autograder.run_record import RunRecord
from lessons import OVERLAY, RELEASES

# nbgrader calls alembic by its bare name, and half-makes a gradebook where that is not found.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Where make runs in the background, a shell may have told it and all it starts to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A collection looks through all that was imported: at the usual 700 a fifth of the museum's time.
gc.set_threshold(10_000)


def pytest_addoption(parser):
    group = parser.getgroup("selection", "which tests run, see tests/selection.py")
    for mode in ("touched", "full", "night"):
        group.addoption(f"--{mode}", dest="mode", action="store_const", const=mode, default="day")
    group.addoption("--shard", default="1/1", metavar="I/N", help="the I-th of N shares")


def pytest_configure(config):
    options = config.option
    if options.mode == "night":
        begin_night()
    share, of = map(int, options.shard.split("/"))
    whole = not (options.file_or_dir or options.keyword or options.markexpr)
    config.selection = Selection(options.mode, (share, of), whole)
    config.ended, config.sizes, config.failed = defaultdict(set), {}, set()  # by part; parts
    config.seconds = Counter()  # by unit
    if not is_worker(config):
        config.pluginmanager.register(FailuresAtOnce(config))


class FailuresAtOnce:
    """Prints which test failed when it does: a night is long."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            words = crash.message.partition("\n")[0] if crash else ""
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(f"\n{report.nodeid}: {words}"[:500])


def pytest_collection_modifyitems(config, items):
    for item in items:  # also of tests that only the night runs
        known = {*item._fixtureinfo.name2fixturedefs, "request"}
        if missing := set(item.fixturenames) - known:
            raise pytest.UsageError(f"{item.nodeid}: no fixture {', '.join(sorted(missing))}")
    items[:], others = config.selection.choose(items)
    config.hook.pytest_deselected(items=others)
    sizes = Counter(map(part_of, items))
    for item in items:
        part = part_of(item)
        item.user_properties += [("part", part), ("tests of the part", sizes[part])]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.selection.left_out


class Units(LoadScopeScheduling):
    """Gives each process one unit after the other, in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return Units(config, log)


def pytest_testnodedown(node):
    node.config.selection.left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_report_from_serializable(config, data):
    """Count here what other processes report, if they run the tests."""
    count(config, *(data[n] for n in ("nodeid", "user_properties", "duration", "outcome", "when")))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    result = (yield).get_result()
    properties = item.user_properties
    count(item.config, item.nodeid, properties, result.duration, result.outcome, result.when)


def count(config, nodeid, properties, seconds, outcome, when):
    part, size = (dict(properties)[name] for name in ("part", "tests of the part"))
    config.sizes[part] = size
    config.seconds[unit_of(nodeid)] += seconds
    if when == "teardown":
        config.ended[part].add(nodeid)
    if outcome == "failed":
        config.failed.add(part)


def pytest_sessionfinish(session, exitstatus):
    """Remember which parts were green from first test to last, also where the run is stopped."""
    config, ends = session.config, pytest.ExitCode
    if exitstatus in (ends.OK, ends.TESTS_FAILED, ends.INTERRUPTED) and not is_worker(config):
        whole = {part for part, ended in config.ended.items() if len(ended) == config.sizes[part]}
        config.selection.remember(whole - config.failed, config.seconds)
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and config.selection.mode == "touched":
        session.exitstatus = pytest.ExitCode.OK  # nothing changed since it was last proven


def pytest_unconfigure(config):
    if config.option.mode == "night" and not is_worker(config):
        end_night()


def is_worker(config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture(scope="session")
def selection(pytestconfig) -> Selection:
    """Which tests run, and with which seeds."""
    return pytestconfig.selection


@pytest.fixture(scope="session")
def record() -> RunRecord:
    """The record of the museum's replies to the checks."""
    return run_record()


@pytest.fixture(scope="session", autouse=True)
def known_replies_are_kept():
    """Share the museum's replies to the challenge that is the same for everyone among all tests;
    otherwise each process that judges a wrong answer would ask all bugs of its lesson."""
    with pytest.MonkeyPatch.context() as patch:
        kept = cache(partial(KnownReplies, folder=folder_of_replies()))
        patch.setattr(judge, "known_in_memory", kept)
        yield


@pytest.fixture
def fixture_checks(monkeypatch):
    """Let this process find the checks of the fixture lessons as well as the real ones."""
    for package in (autograder.lessons, course.checks):
        there = str(OVERLAY / package.__name__.replace(".", "/"))
        monkeypatch.setattr(package, "__path__", [*package.__path__, there])


@pytest.fixture(scope="session")
def desks(tmp_path_factory):
    """The desk that judges submissions to a lesson, by the lesson's folder; each is made on first use."""
    from submissions import Desk  # loads the authoring tools, which most tests do without

    return cache(lambda folder: Desk(folder, tmp_path_factory.mktemp(folder)))


@pytest.fixture(scope="session", autouse=True)
def releases_are_shared(tmp_path_factory, pytestconfig):
    """Release a lesson once for all processes of the session, see `CourseFolder.lay_out`."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if is_worker(pytestconfig) else own) / "releases"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RELEASES, str(folder))
        yield


@pytest.fixture
def empty(tmp_path):
    """A course folder in which lesson 00 is released and nobody has handed in."""
    from nbgrader_course import CourseFolder

    from lessons import COURSE

    return CourseFolder.lay_out(COURSE.read("00-start"), tmp_path / "course")


@pytest.fixture
def no_bubblewrap(tmp_path) -> dict[str, str]:
    """An environment in which every program except bwrap is found."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("choom", "prlimit", "setpriv"):
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    return {"PATH": str(programs)}


def pytest_terminal_summary(terminalreporter):
    """Say which tests were left out, and what tests measured (`record_property("margin", …)`)."""
    terminalreporter.section("selection")
    terminalreporter.write_line("\n".join(terminalreporter.config.selection.summary()))
    reports = terminalreporter.getreports("passed")
    margins = [
        value for report in reports for name, value in report.user_properties if name == "margin"
    ]
    if margins:
        terminalreporter.section("margins of the tolerance")
        terminalreporter.write_line("\n".join(sorted(set(margins))))
