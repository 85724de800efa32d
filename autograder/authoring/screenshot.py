"""Take the README's picture of a lesson: a function with a usual mistake, and what its check says.

The cells are those of lesson 03's first function, run and laid out as JupyterLab shows them. The picture
holds a digest of the cells, by which a test says when it is out of date.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert.exporters import HTMLExporter
from PIL import Image, PngImagePlugin

from autograder.authoring.source import Course

PICTURE = "docs/lesson.png"
LESSON, FUNCTION, CHECK = "03-kv-cache", "causal_mask", "mask_is_rectangular"
WRONG = "    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril()"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
WIDTH, SCALE = 940, 1.5
"""In CSS pixels, and how many of the picture's there are for each."""
STYLE = "<style>pre { word-break: normal !important; overflow-wrap: anywhere; }</style>"
KEY = "cells"
"""Of the picture's text that holds the digest."""


def is_out_of_date(course: Course) -> bool:
    """Tell whether the picture shows other cells than the lesson has now."""
    try:
        with Image.open(course.root / PICTURE) as picture:
            return picture.text.get(KEY) != _digest(_notebook(course))
    except OSError:
        return True


def bring_up_to_date(course: Course) -> str:
    """Take the picture anew where it is out of date; returns what was done, "" for nothing."""
    if LESSON not in course.folders() or not is_out_of_date(course):
        return ""
    if not (CHROMIUM and find_spec("playwright")):
        return f"{PICTURE} is out of date: taking it needs chromium, and pip install -e '.[test]'"
    _take(course)
    return f"{PICTURE}: taken anew"


def _take(course: Course) -> None:
    notebook = _notebook(course)
    digest = _digest(notebook)
    place = course.read(LESSON).student.parent
    NotebookClient(
        notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(place)}}
    ).execute()
    notebook.cells = [cell for cell in notebook.cells if cell.metadata.get(KEY)]
    html, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    html = html.replace("</head>", f"{STYLE}</head>", 1)
    picture = Image.open(io.BytesIO(_photograph(html))).convert("P", palette=Image.Palette.ADAPTIVE)
    text = PngImagePlugin.PngInfo()
    text.add_text(KEY, digest)
    target = course.root / PICTURE
    partial = target.with_name(f".{target.name}")
    picture.save(partial, format="PNG", pnginfo=text, optimize=True)
    partial.replace(target)


def _notebook(course: Course) -> nbformat.NotebookNode:
    """Return the student's notebook up to the check, with the mistake; what is shown is marked."""
    notebook = nbformat.read(course.read(LESSON).student, as_version=4)
    names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]
    answer, check = names.index(FUNCTION), names.index(CHECK)
    cell = notebook.cells[answer]
    cell.source = cell.source.replace("    raise NotImplementedError()", WRONG)
    notebook.cells = notebook.cells[: check + 1]
    for shown in notebook.cells[answer - 1 :]:
        shown.metadata[KEY] = True
    return notebook


def _digest(notebook: nbformat.NotebookNode) -> str:
    shown = "\0".join(cell.source for cell in notebook.cells if cell.metadata.get(KEY))
    return hashlib.sha256(shown.encode()).hexdigest()


def _photograph(html: str) -> bytes:
    from playwright.sync_api import sync_playwright  # which only authors have

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder, "lesson.html")
        page_file.write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 600}, device_scale_factor=SCALE)
        page.goto(page_file.as_uri(), wait_until="domcontentloaded")
        picture = page.screenshot(full_page=True, animations="disabled")
        browser.close()
    return picture
