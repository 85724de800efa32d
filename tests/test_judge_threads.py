"""One submission, judged again and again by several threads at once, gets one and the same grade."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import nbformat
import pytest
from confined import needs_bubblewrap
from submissions import SECRET, answers, released, short

from autograder.assignment import read_assignment
from autograder.authoring.source import POINTS
from autograder.judge import grade_one
from autograder.result import Outcome, Result
from autograder.sandbox.launch import Launcher
from autograder.session import Deadlines
from lessons import COURSE

pytestmark = [needs_bubblewrap, pytest.mark.slow]
LESSON = COURSE.read("03-kv-cache")
TIMES, THREADS = 40, 4
PATIENT = Deadlines(cell=600, question=600, submission=3600)
"""Four processes on two cores are slow, and how slow is not what is asked here."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> list[Result]:
    """A cache that works, fed with positions that restart: some points, and some not."""
    place = tmp_path_factory.mktemp("threads")
    place.chmod(0o755)
    release, notebook = place / LESSON.student.name, place / "submitted" / LESSON.student.name
    release.write_text(released(LESSON), encoding="utf-8")
    assignment = read_assignment(release)
    right = answers(LESSON)["forward_cached"]
    wrong = right.replace("torch.arange(past, past + T", "torch.arange(0, T")
    assert wrong != right
    notebook.parent.mkdir(mode=0o755)
    nbformat.write(short(LESSON, forward_cached=wrong), notebook)
    notebook.chmod(0o644)
    launcher = Launcher(LESSON.module)
    try:
        with launcher.start_for(notebook.parent) as start, ThreadPoolExecutor(THREADS) as pool:
            tasks = [
                pool.submit(grade_one, notebook, assignment, start, SECRET, PATIENT)
                for _ in range(TIMES)
            ]
            return [task.result() for task in tasks]
    finally:
        launcher.close()


def test_no_failure_of_the_machine_is_counted_as_a_grade(judged):
    outcomes = Counter((result.outcome, result.reason) for result in judged)
    assert outcomes == {(Outcome.SCORE, ""): TIMES}


def test_every_time_the_same_grade_for_the_same_reasons(judged):
    answers = [
        Counter(of_one_check) for of_one_check in zip(*(r.answers for r in judged), strict=True)
    ]
    assert [dict(different) for different in answers if len(different) > 1] == []
    assert len({replace(result, output="") for result in judged}) == 1
    assert 0 < judged[0].points < POINTS
