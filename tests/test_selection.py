"""Which tests are chosen, where that is seen from outside alone."""

import subprocess
import sys

import pytest

from lessons import ROOT


@pytest.mark.parametrize(("options", "code"), [("--touched", 0), ("--full -k no_such_test", 5)])
def test_it_is_no_failure_that_nothing_was_touched(options, code):
    command = [sys.executable, "-m", "pytest", "-n", "0", *options.split(), "tests/test_links.py"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == code
