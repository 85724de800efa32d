"""Write the book's pages: lessons with stubs and pictures, the museum a page a lesson, links."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output

from autograder.authoring.source import Lesson, LessonError

PICTURES = "pictures"
"""The folder of the lessons' pictures, in the book's sources."""

BADGE = re.compile(r"\[!\[[^\]]*\]\(https://colab[^)]*\)\]\(([^)]*)\)")
SHIELDS = re.compile(r"^\[?!\[[^\]]*\]\(https://img\.shields\.io/.*$\n", re.MULTILINE)
FORMULA = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)
WIDGET = "application/vnd.jupyter.widget-view+json"
# Where no link belongs: folded parts (HTML), code, headings, formulas, links that are there already.
NO_LINK = re.compile(
    r"<details.*?</details>|```.*?```|\$\$.*?\$\$|`[^`]*`|^#.*?$|!?\[[^\]]*\]\([^)]*\)|<[^>]+>",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Entry:
    """A term of the glossary, or a work of the bibliography.

    Attributes:
        page: where it is explained, from the book's root, such as "docs/glossary.md".
        title: its heading there.
        names: how texts name it: the title, and what "*Also: …*" below it lists.
    """

    page: str
    title: str
    names: tuple[str, ...]

    @property
    def target(self) -> str:
        """The address from the book's root, as GitHub writes the anchors of headings."""
        anchor = re.sub(r"[^\w\s-]", "", self.title).strip().lower()
        return self.page + "#" + re.sub(r"\s", "-", anchor)

    def pattern(self) -> str:
        """A regular expression for a mention; lower-case names may begin a sentence."""
        return "|".join(_mention(name) for name in sorted(self.names, key=len, reverse=True))


def read_entries(text: str, page: str) -> list[Entry]:
    """Read the entries of a glossary or bibliography: "### Title", then perhaps "*Also: …*"."""
    entries = re.findall(r"^### (.+)\n+(?:\*Also: (.+)\*$)?", text, flags=re.MULTILINE)
    return [
        Entry(page, title, (title, *(also.split(", ") if also else []))) for title, also in entries
    ]


def _mention(name: str) -> str:
    cited = re.fullmatch(r"(.+) (\d{4})", name)
    words = re.escape(cited[1] if cited else name).replace(r"\ ", r"\s+")
    if cited:
        return rf"\b{words}\s+\(?{cited[2]}\b\)?"
    # "Token" of a heading is a "token" in a text; "GQA" and "KV cache" stand as they are.
    return rf"\b{words}s?\b" if name[1:] != name[1:].lower() else rf"\b(?i:{words})s?\b"


def link_first_uses(texts: Iterable[str], entries: Iterable[Entry], up: str) -> list[str]:
    """Link each entry where a page first names it.

    Args:
        texts: the page's markdown, piece by piece.
        entries: what is explained elsewhere.
        up: the way from the page to the book's root, such as "../../".
    """
    left = {f"e{number}": entry for number, entry in enumerate(entries)}
    # One expression for all, the longest names first: "KV cache" is no "cache".
    order = sorted(left, key=lambda key: -max(map(len, left[key].names)))
    mention = re.compile("|".join(f"(?P<{key}>{left[key].pattern()})" for key in order))

    def link(match: re.Match[str]) -> str:
        entry = left.pop(match.lastgroup, None)
        return f"[{match[0]}]({up}{entry.target})" if entry else match[0]

    done = []
    for text in texts:
        pieces, start = [], 0
        for kept in NO_LINK.finditer(text):
            pieces += [mention.sub(link, text[start : kept.start()]), kept[0]]
            start = kept.end()
        done.append("".join([*pieces, mention.sub(link, text[start:])]))
    return done


def lesson_page(lesson: Lesson, entries: list[Entry], pictures: Path, answers: bool) -> str:
    """Write a lesson's page: the student's notebook with the outputs of the solved one.

    Args:
        lesson: both its notebooks are built.
        entries: what is linked where it is first named.
        pictures: the folder into which its pictures are written.
        answers: whether its end shows the answers, folded.

    Raises:
        LessonError: the notebooks do not belong together, or the lesson was not executed.
    """
    page = nbformat.read(lesson.student, as_version=4)
    solved = nbformat.read(lesson.solved, as_version=4)
    if [cell.id for cell in page.cells] != [cell.id for cell in solved.cells]:
        raise LessonError(f"{lesson.folder}: its notebooks differ in their cells; `make build`")
    for cell, executed in zip(page.cells, solved.cells, strict=True):
        if cell.cell_type == "code":
            if executed.execution_count is None:
                raise LessonError(f"{lesson.folder}: it was not executed; `make build`")
            cell.outputs = [
                kept for output in executed.outputs if (kept := _still(output, pictures))
            ]
            if "setup" in cell.metadata.get("tags", []):
                cell.metadata["tags"] = ["hide-input"]
    if answers:
        page.cells.append(new_markdown_cell(_folded_answers(lesson)))
    prose = [cell for cell in page.cells if cell.cell_type == "markdown"]
    # The badge is a picture that lies elsewhere: its words will do.
    texts = [BADGE.sub(r"[Open this lesson in Colab](\1)", cell.source) for cell in prose]
    for cell, text in zip(prose, link_first_uses(texts, entries, "../../"), strict=True):
        cell.source = FORMULA.sub(_as_mathml, text)
    page.metadata.pop("widgets", None)
    return nbformat.writes(page)


def _as_mathml(formula: re.Match[str]) -> str:
    """Browsers draw MathML themselves: no script, and nothing fetched from elsewhere."""
    written = convert(formula[1].strip(), display="block").replace("\n", "")
    # Where fonts are wide it scrolls, and who has no mouse has to reach it.
    return written.replace("<math ", '<math tabindex="0" ', 1)


def _still(output: NotebookNode, pictures: Path) -> NotebookNode | None:
    """Keep of an output what a page can show: pictures with alt text, texts, no controls."""
    if output.output_type == "stream":
        lines = [line.split("\r")[-1] for line in output.text.rstrip("\n").split("\n")]
        return new_output("stream", name=output.name, text="\n".join(lines) + "\n")
    data = output.get("data", {})
    if "image/png" in data:
        alt = output.metadata.get("image/png", {}).get("alt", "A picture that the cell drew.")
        image = base64.b64decode(data["image/png"])
        name = f"{hashlib.sha256(image).hexdigest()[:16]}.png"
        (pictures / name).write_bytes(image)
        alt = re.sub(r"([\[\]*_`<>\\])", r"\\\1", alt.replace("\n", " "))
        return _display({"text/markdown": f"![{alt}](../../{PICTURES}/{name})"})
    if WIDGET in data:  # the picture that it moves stands below it
        words = data.get("text/plain", "")
        return _display({"text/markdown": f"*{words}*"}) if words.startswith("Controls:") else None
    return output


def _display(data: dict[str, str]) -> NotebookNode:
    return new_output("display_data", data=data)


def _folded_answers(lesson: Lesson) -> str:
    parts = ["## Answers", "Each answer of this lesson, folded. Write your own first."]
    for cell in lesson.cells:
        if cell.solution or cell.is_written:
            answer = cell.answer.strip()
            if cell.solution:
                answer = f"```python\n{answer}\n```"
            parts.append(
                f"<details><summary><code>{cell.grade_id}</code></summary>\n\n{answer}\n\n</details>"
            )
    return "\n\n".join(parts)


def museum_pages(text: str, folders: list[str]) -> dict[str, str]:
    """Cut the museum into its head and one page a lesson, by path in the book."""
    head, *parts = re.split(r"^## (?=\d\d-)", text, flags=re.MULTILINE)
    by_folder = {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1] for part in parts}
    shown = [folder for folder in folders if folder in by_folder]
    tree = "\n".join(f"museum/{folder}" for folder in shown)
    pages = {"docs/museum.md": f"{head}\n## Lessons\n\n```{{toctree}}\n{tree}\n```\n"}
    legend = head.split("## ", 1)[0].split("\n\n", 2)[-1]
    for folder in shown:
        title = f"# The museum of {folder}\n\n"
        pages[f"docs/museum/{folder}.md"] = title + legend + "\n" + by_folder[folder]
    return pages
