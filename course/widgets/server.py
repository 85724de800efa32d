"""Watch a server of the engine while clients talk: whose the pages are, and who shares the next pass.

from course.widgets.server import watch
watch("http://127.0.0.1:8000")           # beside: python -m course.engine --serve
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from IPython.display import display
from ipywidgets import HTML, Button, VBox

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW)
FREE, KNOWN, SHARED = "#FFFFFF", "#D0D0D0", "#000000"
A_ROW, SIDE = 64, 11
"""Pages in a row of the picture, and how wide one is, in pixels."""


def watch(url: str = "http://127.0.0.1:8000", seconds: float = 0.5) -> VBox:
    """Show a server's pages and its batch, anew every so many seconds until Stop is pressed or the server
    ends."""
    page, stop = HTML("…"), Button(description="Stop")
    task = asyncio.ensure_future(_follow(url, seconds, page))
    stop.on_click(lambda _: task.cancel())
    box = VBox([page, stop])
    display(box)
    return box


async def _follow(url: str, seconds: float, page: HTML) -> None:
    while True:
        try:
            state = await asyncio.to_thread(_fetch, f"{url}/state")
        except (URLError, OSError, ValueError) as error:
            page.value = f"<p>No server at {escape(url)}: {escape(str(error))}</p>"
            return
        page.value = page_of(state)
        await asyncio.sleep(seconds)


def _fetch(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=5) as answer:
        return json.load(answer)


def page_of(state: Mapping[str, Any]) -> str:
    """Write what `/state` says as HTML: a sentence, a map of the pages, a row for each conversation."""
    running, known = state["running"], set(state["known"])
    owners: dict[int, list[int]] = {}
    for one in running:
        for block in one["table"]:
            owners.setdefault(block, []).append(one["id"])
    used = len(known | set(owners))
    words = (
        f"{used} of {state['n_blocks']} pages are used; {len(running)} conversations share each pass, "
        f"{state['waiting']} wait."
    )
    squares = [
        _square(block, _colour_of(block, owners, known)) for block in range(state["n_blocks"])
    ]
    height = -(-state["n_blocks"] // A_ROW) * SIDE
    picture = (
        f'<svg role="img" aria-label="{escape(words)}" width="{A_ROW * SIDE}" height="{height}" '
        f'style="max-width: 100%; border: 1px solid {GREY}">{"".join(squares)}</svg>'
    )
    legend = (
        "Each square is a page: white is free, grey holds a prompt that is known, black belongs to "
        "several conversations, a colour to one of those below."
    )
    rows = "".join(_row(one) for one in running)
    head = "".join(f"<th>{name}</th>" for name in ("", "conversation", "prompt", "answer", "pages"))
    table = f"<table><tr>{head}</tr>{rows}</table>" if running else ""
    return f"<p>{words}</p>{picture}<p><em>{legend}</em></p>{table}"


def _colour_of(block: int, owners: Mapping[int, list[int]], known: set[int]) -> str:
    ids = owners.get(block, [])
    if len(ids) > 1:
        return SHARED
    if ids:
        return COLOURS[ids[0] % len(COLOURS)]
    return KNOWN if block in known else FREE


def _square(block: int, colour: str) -> str:
    row, column = divmod(block, A_ROW)
    x, y = column * SIDE, row * SIDE
    return f'<rect x="{x}" y="{y}" width="{SIDE - 1}" height="{SIDE - 1}" fill="{colour}"/>'


def _row(one: Mapping[str, Any]) -> str:
    colour = COLOURS[one["id"] % len(COLOURS)]
    cells = (
        f'<span style="color: {colour}" aria-hidden="true">■</span>',
        one["id"],
        f"{min(one['fed'], one['prompt'])} of {one['prompt']} tokens",
        f"{one['written']} of at most {one['n_new']}",
        len(one["table"]),
    )
    row = "".join(f'<td style="padding: 0 0.6em">{cell}</td>' for cell in cells)
    return f"<tr>{row}</tr>"
