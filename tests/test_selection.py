"""Which tests are chosen, and what is remembered of them, where no other test shows it."""

import subprocess
import sys
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
from conftest import count, pytest_sessionfinish

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
