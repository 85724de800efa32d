"""What a student writes runs nothing in the browser of whoever reads it: feedback and formgrader, in
a real one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from browsing import IN_BROWSER, chromium
from confined import needs_bubblewrap
from hostile import ELSEWHERE, arm, call
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from playwright.sync_api import Page
from submissions import submission

from lessons import COURSE, ROOT

LESSON = COURSE.read("00-start")
pytestmark = [
    pytest.mark.sampled,
    needs_bubblewrap,
    IN_BROWSER,
]
# Everything that a reader's mouse and keyboard could set off.
POKE = """() => { for (const element of document.querySelectorAll('*'))
    for (const name of ['mouseover', 'focus', 'error', 'load', 'toggle', 'animationstart'])
        element.dispatchEvent(new Event(name)); }"""
LINKS = "() => [...document.links].map(link => link.protocol)"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> CourseFolder:
    """Graded: `mallory`, whose functions and cells are hostile as well as whose notebook is."""
    course = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("hostile"))
    words = f"<script>{call('message')}</script><img src=x onerror={call('message image')}>"
    wrong = f"def matmul_flops(m, k, n):\n    raise ValueError({words!r})"
    course.hand_in("mallory", arm(submission(LESSON, {"matmul_flops": wrong})))
    for command in ("autograde", "generate_feedback"):
        done = course.run(command, LESSON.folder)
        assert done.returncode == 0, done.stderr
    return course


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


class Reader:
    """Somebody who looks at a page and touches everything on it."""

    def __init__(self, browser) -> None:
        self.page: Page = browser.new_page()
        self.caught, self.asked = [], []
        self.page.expose_function("gotcha", lambda name: self.caught.append(name))
        self.page.on("dialog", lambda dialog: (self.caught.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())

    def read(self, address: str) -> None:
        self.page.goto(address)
        self.page.evaluate(POKE)
        self.page.wait_for_timeout(1000)

    def elsewhere(self) -> list[str]:
        return [url for url in self.asked if url.startswith(ELSEWHERE)]


@pytest.fixture
def reader(browser):
    reader = Reader(browser)
    yield reader
    reader.page.close()


@pytest.fixture(scope="module")
def formgrader(course) -> str:
    """The address of mallory's submission in the formgrader, served from the course's folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [
        "--ServerApp.jpserver_extensions={'nbgrader.server_extensions.formgrader': True}",
        *(f"--ServerApp.port={port}", "--ServerApp.open_browser=False", "--allow-root"),
        "--IdentityProvider.token=",
    ]
    log = course.place / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options],
            cwd=course.place,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "JUPYTER_CONFIG_DIR": str(course.place / "config"),
            },
            start_new_session=True,
        )
    try:
        _wait_for(port, server, log)
        with Gradebook(f"sqlite:///{course.place / 'grading' / 'gradebook.db'}") as gradebook:
            found = gradebook.find_submission_notebook(LESSON.module, LESSON.folder, "mallory")
            yield f"http://127.0.0.1:{port}/formgrader/submissions/{found.id}/"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _wait_for(port: int, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"no server after a minute:\n{log.read_text()}")


def test_what_was_handed_in_does_run_where_nothing_is_sanitised(course, reader, tmp_path):
    """Else the tests below would prove nothing."""
    from nbconvert.exporters import HTMLExporter

    raw = json.loads(course.submitted("mallory").read_bytes())
    for number, cell in enumerate(raw["cells"]):  # or nbformat would refuse it
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
    raw = nbformat.reads(json.dumps(raw), as_version=4)
    page = tmp_path / "raw.html"
    exported = HTMLExporter(template_name="classic").from_notebook_node(raw)[0]
    # These two would let nothing else on the page be seen.
    page.write_text(re.sub(r"<base [^>]*>|<meta http-equiv[^>]*>", "", exported), encoding="utf-8")
    reader.read(page.as_uri())
    places, ways = (
        {words[part] for name in reader.caught if len(words := name.rsplit(" ", 1)) == 2}
        for part in (0, 1)
    )
    assert {"markdown", "list", "output", "plain output", "markdown output"} <= places
    assert {"script", "onerror", "mutation", "svg", "srcdoc", "toggle", "focus"} <= ways
    assert reader.elsewhere()


def test_nothing_of_it_runs_in_feedback(course, reader):
    reader.read(course.feedback("mallory").as_uri())
    assert (reader.caught, reader.elsewhere()) == ([], [])
    assert set(reader.page.evaluate(LINKS)) <= {"https:", "http:", "mailto:", "file:"}
    text = reader.page.inner_text("body")
    assert "start (Score: 0.0 / 10.0)" in text
    assert "Title markdown" in text  # what was written is still there to read
    assert "with ValueError: <script>" in text
    assert "Flops of one dot product\t0 / 1\tFAIL\tYour code stopped" in text


def test_nothing_of_it_runs_in_formgrader(formgrader, reader):
    reader.read(formgrader)
    assert (reader.caught, reader.elsewhere()) == ([], [])
    links = reader.page.locator("#notebook a").evaluate_all("links => links.map(a => a.protocol)")
    assert set(links) <= {"https:", "http:", "mailto:", ""}
    assert "Title markdown" in reader.page.inner_text("body")
    scores = reader.page.locator("input.score")
    assert scores.count() == len([cell for cell in LESSON.cells if cell.points])


def test_formgrader_shows_the_points_that_the_judge_gave(formgrader, reader):
    reader.read(formgrader)
    found = reader.page.locator("input.score").evaluate_all(
        "inputs => inputs.map(input => input.placeholder)"
    )
    assert found == ["0"] * len(found)
