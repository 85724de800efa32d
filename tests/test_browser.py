"""JupyterLab as `make lab` starts it, in a real browser: a lesson runs, and its widget answers."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from lessons import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="needs chromium: apt-get install chromium"),
    pytest.mark.slow,
]

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


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
            recipe[recipe.index("jupyter lab") :],
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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.goto(lab)
        page.wait_for_function("window.jupyterapp")
        yield page
        browser.close()


def run_all(page, path: str) -> None:
    """Open a notebook and run its cells, up to the first that fails."""
    page.evaluate(
        """async path => {
            const app = window.jupyterapp;
            await app.restored;
            const panel = await app.commands.execute('docmanager:open', { path });
            await panel.context.ready;
            await panel.sessionContext.ready;
            app.shell.activateById(panel.id);
            await app.commands.execute('notebook:run-all-cells');
        }""",
        path,
    )


def await_output(page, selector: str) -> None:
    """Wait for something in a notebook, scrolled into view or not."""
    page.locator(f".jp-Notebook {selector}").first.wait_for(state="attached", timeout=120_000)


def test_make_lab_opens_lesson_00_and_the_first_unfinished_function_stops_it(page):
    await_output(page, "h1:has-text('Start here')")
    run_all(page, "lessons/00-start/start.ipynb")
    await_output(page, ".jp-RenderedImage img")  # the machine's card
    await_output(page, ".jp-OutputArea-output:has-text('NotImplementedError')")


def test_the_slider_of_lesson_03_redraws_the_cache(page):
    run_all(page, "solutions/03-kv-cache/kv_cache.ipynb")
    cell = page.locator(".jp-Notebook .jp-CodeCell:has(.widget-hslider)").first
    cell.wait_for(state="attached", timeout=120_000)
    slider = cell.locator(".widget-hslider:has-text('step') .noUi-handle")
    slider.scroll_into_view_if_needed()
    picture = cell.locator(".jp-RenderedImage img")
    before = picture.get_attribute("src")
    slider.press("ArrowRight")
    expect(picture).not_to_have_attribute("src", before, timeout=60_000)
    expect(cell.locator(".widget-hslider:has-text('step') .widget-readout")).to_have_text("3")
