"""Write the course as a static site: `autograder book [--self-study] [--into DIR]`, or `make book`."""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from autograder.authoring.book_pages import (
    BADGE,
    PICTURES,
    SHIELDS,
    lesson_page,
    museum_pages,
    read_entries,
)
from autograder.authoring.leaks import Secrets, leaks, secrets_of
from autograder.authoring.source import Course, LessonError

REFERENCE = ("glossary", "notation", "bibliography")
TEACHING = (
    "instructors",
    "syllabus",
    "grading",
    "museum",
    "authors",
    "map",
    "engine",
    "LOG",
    "accessibility",
)


class BookError(Exception):
    """A book that cannot be built; the message says what is wrong, and where."""


def main(arguments: list[str]) -> int:
    """Build the book; the exit status is 1 when it cannot be built."""
    parser = argparse.ArgumentParser(prog="autograder book", description=__doc__)
    parser.add_argument(
        "--self-study",
        action="store_true",
        help="show the answers, folded, at the end of each lesson: for people without an instructor",
    )
    parser.add_argument(
        "--into", type=Path, help="the folder of the site, which is replaced [build/book]"
    )
    chosen = parser.parse_args(arguments)
    course = Course(Path(__file__).resolve().parents[2])
    into = chosen.into or course.root / "build" / "book"
    try:
        build_book(course, into, self_study=chosen.self_study)
    except (BookError, LessonError, OSError) as error:
        print(f"cannot build the book: {error}", file=sys.stderr)
        return 1
    print(f"The book is in {into}: open {into / 'index.html'}")
    return 0


def build_book(
    course: Course, into: Path, *, self_study: bool = False, folders: list[str] | None = None
) -> None:
    """Build the site of the lessons as they were last executed; nothing is executed.

    Args:
        course: its notebooks are built.
        into: the site's folder; it is replaced when the new site is complete.
        self_study: show the answers, folded, at the end of each lesson's page.
        folders: the lessons of the book, such as ["00-start"]; all, where it is left out.

    Raises:
        BookError: a folder that is no book stands in the way, Sphinx warns of something, or an
            answer stands in a page; what stood in the folder is as it was.
        LessonError: a lesson's notebooks are not built.
    """
    folders = course.folders() if folders is None else folders
    if into.exists() and any(into.iterdir()) and not (into / "objects.inv").exists():
        raise BookError(f"{into} holds something that is no book; name an empty or a new folder")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".book-") as place:
        sources, site = Path(place) / "sources", Path(place) / "site"
        write_sources(course, folders, sources, self_study)
        run_sphinx(course, sources, site, Path(place) / "work")
        if not self_study:
            secrets = secrets_of(course.read(folder) for folder in course.folders())
            if leaking := site_leaks(site, secrets):
                raise BookError("answers stand in it: " + "; ".join(leaking[:10]))
        if into.exists():
            into.rename(Path(place) / "before")
        site.rename(into)


def write_sources(course: Course, folders: list[str], sources: Path, self_study: bool) -> None:
    """Write what Sphinx reads, laid out as the repository, so that its links lead on."""
    shutil.copytree(course.root / "docs", sources / "docs")
    shutil.copy(course.root / "LICENSE", sources / "LICENSE")
    (sources / PICTURES).mkdir()
    entries = [
        entry
        for name in ("glossary", "bibliography")
        for entry in read_entries(
            (sources / "docs" / f"{name}.md").read_text(encoding="utf-8"), f"docs/{name}.md"
        )
    ]
    pages = {}
    for folder in tqdm(folders, "lessons", unit="page", file=sys.stdout, leave=False):
        lesson = course.read(folder)
        path = lesson.student.relative_to(course.root).as_posix()
        pages[path] = lesson_page(lesson, entries, sources / PICTURES, self_study)
    museum = (course.root / "docs" / "museum.md").read_text(encoding="utf-8")
    pages |= _pages_of_contents(course, list(pages)) | museum_pages(museum, folders)
    for path, text in pages.items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text, encoding="utf-8")


def _pages_of_contents(course: Course, lessons: list[str]) -> dict[str, str]:
    """Write the first page, which is the README, and the tables of contents."""
    readme = course.readme.read_text(encoding="utf-8")
    # The book shows no picture that lies elsewhere.
    start = BADGE.sub(r"[Colab](\1)", SHIELDS.sub("", readme))
    # A lesson that is not in the book has no row in its table.
    rows = start.split("\n")
    start = "\n".join(
        row
        for row in rows
        if not (link := re.search(r"\]\((lessons/[^)]+\.ipynb)\)", row)) or link[1] in lessons
    )
    start = start.replace("[LICENSE](LICENSE)", "LICENSE")
    tree = ["lessons/index", *(f"docs/{name}" for name in REFERENCE), "docs/teaching"]
    places = "\n".join(path.removeprefix("lessons/").removesuffix(".ipynb") for path in lessons)
    return {
        "index.md": f"{start}\n\n{_tree(tree, hidden=True)}",
        "lessons/index.md": f"# Lessons\n\n```{{toctree}}\n:maxdepth: 1\n{places}\n```\n",
        "docs/teaching.md": f"# Teaching\n\n{_tree(list(TEACHING))}",
    }


def _tree(names: list[str], hidden: bool = False) -> str:
    options = ":hidden:\n" if hidden else ":maxdepth: 1\n"
    return "```{toctree}\n" + options + "\n".join(names) + "\n```\n"


def run_sphinx(course: Course, sources: Path, site: Path, work: Path) -> None:
    """Let Sphinx write the site from the sources; a warning, such as a broken link, is an error.

    Raises:
        BookError: with what Sphinx said.
    """
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    warnings = io.StringIO()
    configuration = course.root / "docs" / "book"
    try:
        with patch_docutils(str(configuration)), docutils_namespace():
            app = Sphinx(
                str(sources),
                str(configuration),
                str(site),
                str(work),
                "html",
                status=None,
                warning=warnings,
                freshenv=True,
            )
            app.build(force_all=True)
    except SphinxError as error:
        raise BookError(f"Sphinx: {error}") from error
    if app.statuscode or warnings.getvalue().strip():
        raise BookError(f"Sphinx warns:\n{warnings.getvalue().replace(str(sources) + '/', '')}")
    shutil.rmtree(site / ".doctrees", ignore_errors=True)


def site_leaks(site: Path, secrets: Secrets) -> list[str]:
    """List the pages with an answer, and what of it stands there.

    In lessons nothing of an answer may stand; in their outputs an answer's name is a word as any
    other. Pages for authors may speak of the judge and quote markers, but show no line of an answer.
    """
    from bs4 import BeautifulSoup

    leaking = []
    lines_only = Secrets(frozenset(), frozenset(), secrets.lines)
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        if name.startswith("lessons/"):
            article = soup.find("article") or soup
            outputs = [output.extract().get_text() for output in article.select(".cell_output")]
            here = leaks([article.get_text()], secrets) + leaks(outputs, lines_only)
        else:
            here = [leak for leak in leaks([soup.get_text()], lines_only) if "line:" in leak]
        leaking += [f"{name}: {leak}" for leak in here]
    return leaking
