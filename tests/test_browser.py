"""JupyterLab as `make lab` starts it, in a real browser: each lesson runs up to its first gap, a typed
answer passes its check, a widget's picture moves, and what was typed is there after a reload."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import nbformat
import pytest
from browsing import IN_BROWSER, chromium, serious
from patience import PATIENCE
from playwright.sync_api import expect

from autograder.lessons import find, module_of
from autograder.needed_cells import names_of
from lessons import COURSE, FOLDERS, ROOT

pytestmark = [IN_BROWSER, pytest.mark.sampled]
NOT_OURS = {name: {"enabled": False} for name in ("image-alt", "aria-input-field-name")}
"""JupyterLab drops the alt text of an output, and a slider of ipywidgets has no name for a screen reader:
docs/accessibility.md."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the notebooks, so that they can be run and saved."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copy2(ROOT / "Makefile", folder)
    for name in ("lessons", "solutions"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def lab(checkout) -> str:
    """Address of a JupyterLab that was started as `make lab` starts it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = f"ARGS=--no-browser --expose-app-in-browser --ServerApp.port={port}"
    # Dry, since a second checkout must not install itself into the environment of this one.
    dry = ["make", "--dry-run", "--assume-old=.venv/installed-lab", "lab", arguments]
    recipe = subprocess.run(dry, cwd=checkout, check=True, capture_output=True, text=True).stdout
    log = checkout / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            recipe[recipe.index("python -m course lab") :],
            shell=True,
            cwd=checkout,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "JUPYTER_CONFIG_DIR": str(checkout / "config")},
            start_new_session=True,
        )
    try:
        yield _address(server, log)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _address(server: subprocess.Popen, log: Path) -> str:
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\S+", log.read_text())
        if found:
            return found[0]
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"no address after a minute:\n{log.read_text()}")


@pytest.fixture(scope="module")
def page(lab):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.goto(lab)
        page.wait_for_function("window.jupyterapp")
        await_output(page, "h1:has-text('Start here')")  # else it opens over what a test opens
        yield page


def open_notebook(page, path: str) -> None:
    """Save and close what is open, open a notebook, and wait until its kernel is there."""
    page.evaluate(
        """async path => {
            const app = window.jupyterapp;
            await app.restored;
            await app.commands.execute('docmanager:save-all');
            await app.commands.execute('application:close-all');
            await app.serviceManager.sessions.shutdownAll();
            const panel = await app.commands.execute('docmanager:open', { path });
            await panel.context.ready;
            await panel.sessionContext.ready;
            app.shell.activateById(panel.id);
        }""",
        path,
    )


def run_all(page, path: str) -> None:
    """Open a notebook and run its cells, up to the first that fails."""
    open_notebook(page, path)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")


def go_to(page, number: int) -> None:
    """Make a cell of the open notebook the active one, by the arrow keys."""
    active = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    page.keyboard.press("Escape")
    steps = number - page.evaluate(active)
    for _ in range(abs(steps)):
        page.keyboard.press("ArrowDown" if steps > 0 else "ArrowUp")
    assert page.evaluate(active) == number


def run_cell(page, number: int, source: str | None = None) -> None:
    """Run a cell of the open notebook by the keyboard; first replace what stands in it, if a source is
    given."""
    go_to(page, number)
    if source is not None:
        page.keyboard.press("Enter")
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")


def await_output(page, selector: str) -> None:
    """Wait for something in a notebook, scrolled into view or not."""
    page.locator(f".jp-Notebook {selector}").first.wait_for(
        state="attached", timeout=1000 * PATIENCE
    )


def await_error(page, name: str) -> None:
    """Wait until a cell has stopped with an error, which must be this one, and scroll to it: the page
    holds only cells that are near to what is in sight."""
    found = page.wait_for_function(
        """() => {
            const panel = window.jupyterapp.shell.currentWidget;
            const cells = panel.content.model.cells;
            for (let number = 0; number < cells.length; number++) {
                const outputs = cells.get(number).sharedModel.outputs ?? [];
                const error = outputs.find(output => output.ename);
                if (error) return [number, error.ename, error.evalue];
            }
            const status = panel.sessionContext.session?.kernel?.status ?? 'missing';
            const gone = ['missing', 'dead', 'terminating', 'restarting', 'autorestarting'];
            if (gone.includes(status)) return [0, 'the kernel', status];
        }""",
        timeout=1000 * PATIENCE,
    )
    assert found.json_value()[1] == name, found.json_value()
    page.evaluate(
        "([number]) => window.jupyterapp.shell.currentWidget.content.scrollToItem(number, 'center')",
        found.json_value(),
    )
    await_output(page, f".jp-OutputArea-output:has-text('{name}')")


def move(page, cell) -> None:
    """Move the first control of a widget, a slider, by the keyboard, to a neighbour of its value."""
    control = cell.locator(".noUi-handle").first
    for _ in range(30):
        page.keyboard.press("Tab")
        if control.evaluate("control => control === document.activeElement"):
            break
    expect(control).to_be_focused()
    value, most = (control.get_attribute(f"aria-value{name}") for name in ("now", "max"))
    page.keyboard.press("ArrowLeft" if float(value) == float(most) else "ArrowRight")


def cells_of(folder: str) -> list:
    """The cells of the solved lesson; the student's has the same, in the same places."""
    return nbformat.read(COURSE.read(folder).solved, as_version=4).cells


def first_question(folder: str, cells: list) -> tuple[int, int]:
    """Find the first test cell that asks for the names of one answer cell alone; the places of both."""
    answers = {
        number: names_of(cell.source).binds
        for number, cell in enumerate(cells)
        if cell.metadata.get("nbgrader", {}).get("solution")
    }
    for test, cell in enumerate(cells):
        settings = cell.metadata.get("nbgrader", {})
        if settings.get("grade"):
            needs = set(find(f"{module_of(folder)}.{settings['grade_id']}").needs)
            for answer, binds in answers.items():
                if needs <= binds:
                    return answer, test
    raise AssertionError(f"{folder} asks for no answer alone")


def playground_of(cells: list) -> tuple[int, list[int]]:
    """Find the first cell that shows a widget, and the cells before it that it stands on."""
    readable = (n for n, c in enumerate(cells) if c.cell_type == "code" and "%pip" not in c.source)
    code = {n: names_of(cells[n].source) for n in readable}
    shown = next(
        {name.strip() for name in line.partition(" import ")[2].split(",")}
        for cell in cells
        for line in cell.source.splitlines()
        if line.startswith("from course.widgets.")
    )
    place = next(n for n, names in code.items() if names.needs & shown)
    wanted, needed = set(code[place].needs), set()
    while more := {n for n in code if n < place and code[n].binds & wanted} - needed:
        needed |= more
        wanted = wanted.union(*(code[n].needs for n in more))
    return place, sorted(needed)


def test_make_lab_opens_lesson_00_and_the_first_unfinished_function_stops_it(page, checkout):
    released = "lessons/00-start/released.ipynb"  # another test may have answered in start.ipynb
    shutil.copy2(ROOT / "lessons/00-start/start.ipynb", checkout / released)
    run_all(page, released)
    await_output(page, ".jp-RenderedImage img")  # the machine's card
    await_error(page, "NotImplementedError")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_student_answers_the_first_question_and_plays(page, folder):
    cells = cells_of(folder)
    run_all(page, f"lessons/{folder}/{module_of(folder)}.ipynb")
    await_error(page, "NotImplementedError")
    answer, test = first_question(folder, cells)
    run_cell(page, answer, cells[answer].source)
    run_cell(page, test)
    await_output(page, f".jp-Cell[data-windowed-list-index='{test}'] :text('PASS')")
    place, needed = playground_of(cells)
    for number in needed:
        run_cell(page, number, cells[number].source)
    run_cell(page, place)
    widget = page.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{place}']")
    picture = widget.locator(".jp-RenderedImage img").first
    picture.wait_for(state="attached", timeout=1000 * PATIENCE)
    before = picture.get_attribute("src")
    move(page, widget)
    expect(picture).not_to_have_attribute("src", before, timeout=1000 * PATIENCE)
    assert serious(page, ".jp-Notebook .jp-OutputArea-output", rules=NOT_OURS) == []


def test_a_reload_keeps_the_work(page):
    path, mine = "lessons/03-kv-cache/kv_cache.ipynb", "# what I noted before I went home"
    open_notebook(page, path)
    run_cell(page, first_question("03-kv-cache", cells_of("03-kv-cache"))[0], mine)
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    page.wait_for_function("window.jupyterapp")
    open_notebook(page, path)
    await_output(page, f".jp-CodeCell:has-text('{mine}')")
