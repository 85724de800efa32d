"""Make student-written cells and outputs safe to look at: nothing of them runs in a browser.

Everything is rebuilt from what is known to be harmless; what is not known is left out. HTML goes
through nh3, pictures become data that cannot hold a script, and markdown is rendered here once, so
that every later renderer finds only the cleaned result.
"""

from __future__ import annotations

import base64
import binascii
import html as entities
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import nh3
from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder.assignment import text_of

LONGEST_SOURCE = 100_000
"""Characters of one cell that are shown."""
LONGEST_LINE = 1_000
"""Characters of one line of code: colouring takes time quadratic in them."""
LONGEST_MARKDOWN = 20_000
"""Characters of markdown that are rendered; a longer cell is shown as plain text."""
LONGEST_TEXT = 64_000
"""Characters of one output of text that are shown."""
LONGEST_HTML = 100_000
"""Characters of one output of HTML: cleaning deeply nested tags takes time quadratic in them."""
LARGEST_PICTURE = 4 * 2**20
"""Characters of one picture in base64."""
MOST_OUTPUTS = 100
"""Outputs of one cell."""

# Without forms, frames, styles and what else could pretend to be the page around it.
TAGS = nh3.ALLOWED_TAGS - {"map", "area", "article", "aside", "footer", "header", "nav"}
ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "width", "height"},
    "td": {"colspan", "rowspan", "align"},
    "th": {"colspan", "rowspan", "align"},
    "ol": {"start"},
    "details": {"open"},
    "table": {"border"},
}
_LINK = re.compile(r"(https?://|mailto:|#)", re.IGNORECASE)
_PICTURES = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff"}
_PICTURE_DATA = re.compile(r"data:image/(png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/=\s]*")


def plain(text: str, longest: int = LONGEST_TEXT) -> str:
    """Cut a long text, and replace what UTF-8 cannot hold."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else f"{text[:longest]}\n… {len(text) - longest:,} more"


def code(source: str) -> str:
    """Cut a long cell, and its long lines."""
    lines = plain(source, LONGEST_SOURCE).split("\n")
    return "\n".join(
        line
        if len(line) <= LONGEST_LINE
        else f"{line[:LONGEST_LINE]} … {len(line) - LONGEST_LINE:,} more"
        for line in lines
    )


def visible(text: str) -> str:
    """Leave out of a text what cannot be seen: control characters but for line ends and tabs, and
    those that turn the direction of what stands around them."""
    return "".join(
        c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs")
    )


def html(source: str) -> str:
    """Remove scripts, styles, forms, frames and remote pictures from HTML."""
    return nh3.clean(
        source,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},  # the last for pictures alone, see below
    )


def _attribute(_tag: str, name: str, value: str) -> str | None:
    if name == "href":
        return value if _LINK.match(value) else None
    if name == "src":  # a remote one would tell its server who looks at it, and when
        return value if _PICTURE_DATA.fullmatch(value) else None
    return value


def block(clean: str) -> str:
    """Put cleaned HTML into a markdown cell. On one line, it is one HTML block, in which a renderer of
    markdown changes nothing. nbconvert looks behind each bracket for a link, through all that follows."""
    written = {"\r": "", "\n": "&#10;", "[": "&#91;"}
    return f"<div>{clean.translate(str.maketrans(written))}</div>"


def verbatim(text: str) -> str:
    """Escape text as HTML that shows it as it is."""
    return f"<pre>{entities.escape(text)}</pre>"


def markdown(source: str, attachments: Any = None) -> str:
    """Render markdown here once, cleaned, so that every later renderer shows the same.

    Args:
        source: of the student's cell.
        attachments: of the cell: its pasted pictures.
    """
    return block(_rendered(plain(source, LONGEST_SOURCE), attachments))


def _rendered(source: str, attachments: Any = None) -> str:
    # Only here, since it takes a second to import.
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    if len(source) > LONGEST_MARKDOWN:
        return verbatim(source)
    renderer = IPythonRenderer(
        escape=False, exclude_anchor_links=True, attachments=_pasted(attachments)
    )
    try:
        return html(MarkdownWithMath(renderer=renderer).render(source))
    except Exception:  # whatever a renderer stumbles over is still a text
        return verbatim(source)


def _pasted(attachments: Any) -> dict[str, dict[str, str]]:
    """Return the pictures of a cell's attachments."""
    bundles = attachments if isinstance(attachments, Mapping) else {}
    pasted = {}
    for name, bundle in bundles.items():
        pictures = _pictures(bundle) if isinstance(bundle, Mapping) else {}
        if pictures:
            pasted[name] = pictures
    return pasted


def outputs(found: Any) -> list[NotebookNode]:
    """Sanitise a cell's outputs; those of unknown form are left out."""
    found = found if type(found) is list else []
    shown = (_output(output) for output in found[:MOST_OUTPUTS] if isinstance(output, Mapping))
    return [output for output in shown if output is not None]


def _output(output: Mapping[str, Any]) -> NotebookNode | None:
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return new_output("stream", name=name, text=plain(text_of(output.get("text"))))
    if kind == "error":
        lines = plain("\n".join(_texts(output.get("traceback"))))
        name, value = (plain(text_of(output.get(key))) for key in ("ename", "evalue"))
        return new_output("error", ename=name, evalue=value, traceback=lines.split("\n"))
    if kind in ("display_data", "execute_result"):
        data = _bundle(output.get("data"))
        # A result is shown like any display: of its number, the student's word is all there is.
        return new_output("display_data", data, metadata=_alt(output)) if data else None
    return None


def _texts(found: Any) -> list[str]:
    return [text for text in found if type(text) is str] if type(found) is list else []


def _bundle(data: Any) -> dict[str, str]:
    """Sanitise the forms of one output, known ones only."""
    data = data if isinstance(data, Mapping) else {}
    forms = _pictures(data)
    for name in ("text/plain", "text/latex"):
        if text := text_of(data.get(name)):
            forms[name] = plain(text)
    rich = _rich(data)
    return {**forms, "text/html": rich} if rich else forms


def _rich(data: Mapping[str, Any]) -> str:
    source, text, drawing = (
        text_of(data.get(name)) for name in ("text/html", "text/markdown", "image/svg+xml")
    )
    if source and len(source) <= LONGEST_HTML:
        return html(plain(source, LONGEST_HTML))
    if text:
        return _rendered(plain(text))
    if drawing and len(drawing) <= LARGEST_PICTURE:  # as a picture it cannot run its scripts
        code = base64.b64encode(plain(drawing, LARGEST_PICTURE).encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{code}" alt="a drawing">'
    return ""


def _pictures(data: Mapping[str, Any]) -> dict[str, str]:
    """Keep the pictures that are what they say, in base64 that was written here."""
    pictures = {}
    for name, start in _PICTURES.items():
        code = text_of(data.get(name))
        if not code or len(code) > LARGEST_PICTURE:
            continue
        try:
            content = base64.b64decode(code)
        except (binascii.Error, ValueError):
            continue
        if content.startswith(start):
            pictures[name] = base64.b64encode(content).decode()
    return pictures


def _alt(output: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return a picture's alt text."""
    metadata = output.get("metadata")
    metadata = metadata.get("image/png") if isinstance(metadata, Mapping) else None
    words = metadata.get("alt") if isinstance(metadata, Mapping) else None
    return {"image/png": {"alt": plain(words)}} if type(words) is str else {}
