"""Which tests are chosen, and what is remembered of them, where no other test shows it."""

import subprocess
import sys
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
from conftest import count, pytest_sessionfinish
from selection import pictures_shown_by

from lessons import ROOT


@pytest.mark.parametrize(("options", "code"), [("--touched", 0), ("--full -k no_such_test", 5)])
def test_it_is_no_failure_that_nothing_was_touched(options, code):
    command = [sys.executable, "-m", "pytest", "-n", "0", *options.split(), "tests/test_links.py"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == code


def test_a_run_that_is_stopped_keeps_the_parts_that_had_ended():
    kept = []
    selection = SimpleNamespace(remember=lambda parts, seconds: kept.append(parts))
    ended = {"ended": defaultdict(set), "sizes": {}, "failed": set(), "seconds": Counter()}
    config = SimpleNamespace(selection=selection, **ended)
    for part, test, outcome in (
        ("whole", 1, "passed"),
        ("whole", 2, "skipped"),
        ("stopped", 1, "passed"),
        ("red", 1, "passed"),
        ("red", 2, "failed"),
    ):
        properties = [("part", part), ("tests of the part", 2)]
        for when in ("setup", "call", "teardown"):
            count(config, f"tests/test_{part}.py::test_{test}", properties, 1.0, outcome, when)
    pytest_sessionfinish(SimpleNamespace(config=config), pytest.ExitCode.INTERRUPTED)
    assert kept == [{"whole"}]


def test_a_picture_concerns_the_tests_that_import_it_and_those_that_build_lessons():
    def concerned(picture):
        stems = (file.stem for file in (ROOT / "tests").glob("test_*.py"))
        return {stem for stem in stems if ROOT / "course" / picture in pictures_shown_by(stem)}

    cache, widget, style = map(concerned, ("plots/kv_cache.py", "widgets/gqa.py", "plots/style.py"))
    builders = cache & widget
    assert {"test_build", "test_book", "test_browser", "test_publish", "test_sync"} <= builders
    assert not builders & {"test_kept_results", "test_judge", "test_museum", "test_grade"}
    assert cache - builders == {"test_figures_03"}
    assert widget - builders == {"test_gqa"}
    assert {f"test_figures_{n:02}" for n in (1, 3, 4, *range(7, 18))} <= style
