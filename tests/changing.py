"""Change the project: for the digests of `autograder.sources` alone, or in a checkout of its own."""

import shutil
from pathlib import Path

import pytest

from autograder import run_record, sources
from lessons import ROOT


@pytest.fixture
def change(monkeypatch):
    """`change(file, old, new)`: digests see a file of the project with some text exchanged."""
    read = sources.source_of

    def changed(file: str, old: str, new: str) -> None:
        assert old in read(ROOT / file), f"{file} does not hold {old!r}"

        def source_of(path: Path) -> str:
            text = read(path)
            return text.replace(old, new) if path == ROOT / file else text

        monkeypatch.setattr(sources, "source_of", source_of)
        forget()

    yield changed
    monkeypatch.undo()
    forget()


def forget() -> None:
    sources.forget()
    run_record.digest_of_questions.cache_clear()


def lay_out_another_judge(place: Path) -> None:
    """Write to a folder what a checkout needs for judging, with a line of the judge changed."""
    for name in ("autograder", "course", "lessons", "solutions"):
        shutil.copytree(ROOT / name, place / name)
    changed, line = place / "autograder" / "examiner.py", "MAX_TEST_CELLS = 3\n"
    text = changed.read_text(encoding="utf-8")
    assert line in text
    changed.write_text(text.replace(line, "MAX_TEST_CELLS = 4\n"), encoding="utf-8")
