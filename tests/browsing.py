"""What tests in a real browser share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
IN_BROWSER = pytest.mark.skipif(not CHROMIUM, reason="needs chromium: apt-get install chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium of its own, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


def serious(page: Page, within: str | None = None, **options) -> list[tuple[str, str]]:
    """List what axe calls serious or critical: the rule, and the first element that breaks it.

    Args:
        within: a selector; left out, all of the page.
        options: axe's own.
    """
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"], **options}
    found = Axe().run(page, context=within, options=options).response["violations"]
    return [
        (finding["id"], finding["nodes"][0]["html"][:100])
        for finding in found
        if finding["impact"] in ("serious", "critical")
    ]
