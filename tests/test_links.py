"""Links lead somewhere, no badge leads to an address that nobody has published, pictures have words."""

import re
from pathlib import Path

import nbformat
import pytest

from lessons import ROOT

LINK = re.compile(r"(?P<image>!?)\[(?P<words>(?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?P<to>[^)\s]+)")


def pages(root: Path) -> list[Path]:
    patterns = ("README.md", "docs/*.md", "lessons/*/*.ipynb", "solutions/*/*.ipynb")
    return sorted(path for pattern in patterns for path in root.glob(pattern))


def prose(path: Path) -> str:
    """The markdown of a page or notebook, without what it quotes as code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def broken_links(path: Path, root: Path) -> list[str]:
    """What a page gets wrong: links to nothing, badges to elsewhere, images without alt text."""
    text = prose(path)
    found = links(text)
    found += [image for _, words, _ in found for image in links(words)]
    broken = [f"no alt text: {to}" for image, words, to in found if image and not words.strip()]
    tags = re.findall(r"<img\b[^>]*>", text)
    broken += [f"no alt text: {tag}" for tag in tags if not re.search(r'alt="[^"]', tag)]
    targets = [to for _, _, to in found] + re.findall(r"(?:href|src)=\"([^\"]+)\"", text)
    return broken + [to for to in targets if not leads_somewhere(to, path, root, text)]


def links(text: str) -> list[tuple[str, str, str]]:
    """("!" of an image, its words, where it leads) of each link; a badge is a link around one."""
    return [match.group("image", "words", "to") for match in LINK.finditer(text)]


def leads_somewhere(to: str, path: Path, root: Path, text: str) -> bool:
    """Whether a relative link has its target; other sites are not asked, but for a badge of Colab's: only
    `autograder publish` knows where a lesson will lie."""
    if to.startswith("https://colab.research.google.com/github/"):
        return False
    if re.match(r"[a-z]+:", to):
        return True
    name, _, anchor = to.partition("#")
    target = path if not name else path.parent / name
    if not target.exists():
        return False
    return not anchor or anchor.lower() in anchors(text if not name else prose(target))


def anchors(text: str) -> set[str]:
    """What `#…` may name in a page: its headings, as GitHub and JupyterLab write them."""
    titles = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    kept = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
    return {re.sub(r"\s", "-", title) for title in kept}


@pytest.mark.parametrize("path", pages(ROOT), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere_and_pictures_have_words(path):
    assert broken_links(path, ROOT) == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](docs/authors.md) [b](https://example.org) [c](#a-title)\n\n# A title", []),
        ("[a](docs/nothing.md)", ["docs/nothing.md"]),
        ("[a](#no-title)\n\n# A title", ["#no-title"]),
        ('<a href="nowhere">x</a>', ["nowhere"]),
        ("![](docs/authors.md)", ["no alt text: docs/authors.md"]),
        ('<img src="docs/authors.md">', ['no alt text: <img src="docs/authors.md">']),
        ("[![](docs/authors.md)](docs/authors.md)", ["no alt text: docs/authors.md"]),
        ("[![a](nothing.png)](docs/authors.md)", ["nothing.png"]),
        ("`[a](nothing)`\n\n```\n[a](nothing)\n```", []),
        ("[a]({colab}/some/where.ipynb)", ["{colab}/some/where.ipynb"]),
    ],
)
def test_a_planted_fault_is_found(tmp_path, text, broken):
    names = {"colab": "https://colab.research.google.com/github"}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "authors.md").touch()
    page = tmp_path / "README.md"
    page.write_text(text.format(**names))
    assert broken_links(page, tmp_path) == [line.format(**names) for line in broken]
