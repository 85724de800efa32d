"""Choose which tests run, and how thoroughly each lesson is tested.

    make test     by day: all quick tests; of the slow ones, those of one lesson (mostly 03) and of
                  lessons that changed since they were last proven. Skips what was green here on the very
                  same sources.
    make touched  the slow tests whose sources changed since they were last proven; no lesson's if more
                  than three lessons changed.
    make night    everything, with seeds drawn from the date, and without memory of earlier runs.
    pytest --full -k kv_cache     every test that is selected, at the same seeds each time.

A lesson is one part of the tests, and so is every test file, for tests that belong to no lesson. A part
is *proven* when all of it was green at full strength: `tests/proven.json`, which is committed, holds the
digest of the sources on which it was. `build/green.json` records what was green by day on this machine.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autograder.lessons import lesson_folders
from autograder.lessons.assembly import answer_cells
from autograder.run_record import FOLDER, RunRecord, decide, run
from autograder.sources import (
    EVERYTHING,
    Definition,
    digest_of,
    hashed,
    imports_of,
    read_module,
    texts_of,
)
from course.files.writing import write_whole

ROOT = Path(__file__).resolve().parents[1]
PROVEN, GREEN = ROOT / "tests" / "proven.json", ROOT / "build" / "green.json"
NIGHT = "SECOND_TOKEN_NIGHT"
"""Set by `make night` for its processes: the date of the seeds, and the folder of the run record."""
DIGESTS = "SECOND_TOKEN_DIGESTS"
SAMPLE = "kv_cache"
"""The lesson of which by day everything that is marked `sampled` runs."""
MOST_CHANGED = 3
"""Lessons that are tried at full strength by day, or as touched. Where more changed, a shared part did,
and that is the night's work."""
ALWAYS = {"test_imports", "test_sync"}
"""What looks at the project as a whole, and takes seconds: it is never left out."""
BY_LESSON = {"test_museum", "test_margins", "test_exhibits", "test_hollow_evidence", "test_mutants"}
BY_LESSON |= {"test_notebooks", "test_nbgrader", "test_no_truth", "test_cheapest"}
"""Files whose tests of different lessons may run in different processes."""
PICTURES = ("course/plots", "course/widgets")
"""A change here voids only the tests that show it: a picture decides about no result."""
SHOWS_PICTURES = re.compile(r"(?<![/\w])(plots|widgets|build|build_book)\b")
"""In a file of tests that imports no picture: lessons are built, published or opened, with all of it."""
CELL = re.compile(r"^# %%", re.MULTILINE)
"""What begins a cell in a lesson's text."""
LEFT_OUT = {"build", "grading", "recorded", "__pycache__", "second_token.egg-info"}
"""Folders of what is built or measured. Hidden folders are tools' caches, and left out, too."""


class Selection:
    """Which tests run in one session. Every process of a session comes to the same one.

    Args:
        mode: "day", "touched", "full" or "night".
        shard: (i, n): the i-th of n shares of the parts, from 1.
        whole: whether all tests were collected, so that what is green may be remembered.
    """

    def __init__(self, mode: str, shard: tuple[int, int], whole: bool) -> None:
        self.mode, self.shard, self.whole = mode, shard, whole
        self.proven, self.green = _read(PROVEN), _read(GREEN)
        self.digests = digests_of_lessons()
        self.changed = [name for name, now in self.digests.items() if self.proven.get(name) != now]
        self.left_out: dict[str, int] = {}

    def is_full(self, lesson: str) -> bool:
        """Tell whether a lesson is tested at full strength: at many seeds, and with its slow tests."""
        if self.mode in ("full", "night"):
            return True
        return lesson in self.changed and len(self.changed) <= MOST_CHANGED

    def seeds(self, lesson: str, by_day: int, full: int) -> list[int]:
        """Return the seeds at which a lesson's checks are tested."""
        first = int(night()[0]) * 1000 if night() else 1  # as in `measuring`, which shares replies
        return [first + number for number in range(full if self.is_full(lesson) else by_day)]

    def choose(self, items: list[Any]) -> tuple[list[Any], list[Any]]:
        """Split the collected tests into those that run, longest part first, and the others."""
        chosen, others = [], []
        by_part = defaultdict(list)
        for item in items:
            by_part[part_of(item)].append(item)
        for number, part in enumerate(sorted(by_part)):
            wanted = [item for item in by_part[part] if self._is_wanted(item, part)]
            if number % self.shard[1] != self.shard[0] - 1:
                wanted = []
            elif self.whole and self.mode == "day" and self._was_green(part):
                self.left_out[part], wanted = len(wanted), []
            kept = set(map(id, wanted))
            chosen += wanted
            others += [item for item in by_part[part] if id(item) not in kept]
        seconds = _read(PROVEN).get("seconds", {})
        chosen.sort(key=lambda item: -seconds.get(unit_of(item.nodeid), 0))
        return chosen, others

    def _is_wanted(self, item: Any, part: str) -> bool:
        if self.mode in ("full", "night"):
            return True
        if self.mode == "day":
            if item.get_closest_marker("sampled") and part not in set(self.digests) - {SAMPLE}:
                return True
            return not is_slow(item) or (part in self.digests and self.is_full(part))
        if part in self.digests:
            return self.is_full(part)
        return is_slow(item) and self.proven.get(part) != digest_of_file(part)

    def _was_green(self, part: str) -> bool:
        if part in ALWAYS or part not in self.green:
            return False
        return self.green[part] == self._digest_by_day(part)

    def _digest_by_day(self, part: str) -> str:
        """Digest everything that a part's tests, as chosen by day, depend on."""
        if part in self.digests:
            return hashed([digest_of_tree(), self.digests[part], str(self.is_full(part))])[:16]
        return hashed([digest_of_tree(), digest_of_pictures(part)])[:16]

    def remember(self, green: Collection[str], seconds: Mapping[str, float]) -> None:
        """Record which parts were green and, at night, how many seconds each unit took."""
        if not self.whole or not green:
            return
        if self.mode == "day":
            known = {**self.green, **{part: self._digest_by_day(part) for part in green}}
            write_whole(GREEN, json.dumps(known, indent=1).encode())
        proven = dict(self.proven)
        for part in green:
            if part in self.digests:
                if self.is_full(part):
                    proven[part] = self.digests[part]
            elif self.mode != "day":
                proven[part] = digest_of_file(part)
        if self.mode == "night":
            rounded = {unit: round(s) for unit, s in sorted(seconds.items()) if s >= 1}
            proven["seconds"] = {**proven.get("seconds", {}), **rounded}
        if proven != self.proven:
            write_whole(PROVEN, (json.dumps(proven, indent=1, sort_keys=True) + "\n").encode())

    def summary(self) -> list[str]:
        """Say what was left out, and why."""
        lines = []
        if self.left_out:
            lines.append(
                f"left out: {sum(self.left_out.values())} tests in {len(self.left_out)} parts, which "
                f"were green before on these very sources ({GREEN.relative_to(ROOT)} remembers)"
            )
        if self.mode in ("day", "touched") and len(self.changed) > MOST_CHANGED:
            lines.append(
                f"{len(self.changed)} lessons changed since they were last proven, more than "
                f"{MOST_CHANGED}: none was tried at full strength. `make night` does."
            )
        elif self.mode == "day" and self.changed:
            lines.append(f"tried at full strength: {', '.join(self.changed)}")
        if night():
            lines.append(f"seeds of {night()[0]}")
        return lines


def night() -> tuple[str, Path] | None:
    """Return the date from which seeds are drawn, and the folder of the run record; None by day."""
    date, _, folder = os.environ.get(NIGHT, "").partition(":")
    return (date, Path(folder)) if date else None


def begin_night() -> None:
    """Draw seeds from the date, and keep replies in a new folder, for this process and its workers, in
    which that was done already."""
    if NIGHT not in os.environ:
        date = os.environ.get("SEEDS_FROM") or f"{datetime.date.today():%Y%m%d}"
        os.environ[NIGHT] = f"{date}:{tempfile.mkdtemp(prefix='second-token-night-')}"


def end_night() -> None:
    """Remove this night's replies."""
    _, folder = night()
    shutil.rmtree(folder, ignore_errors=True)


def folder_of_replies() -> Path:
    """Return the folder of the museum's replies; by night, it belongs to this night alone."""
    return night()[1] if night() else FOLDER


@cache
def run_record() -> RunRecord:
    """Open the record of the museum's replies."""
    return RunRecord(folder_of_replies())


def is_slow(item: Any) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "sampled"))


def part_of(item: Any) -> str:
    """Name the part that a test belongs to: a lesson's module, if the test is slow or runs at several
    seeds and belongs to a lesson; otherwise the test's file, whose fixtures it shares."""
    if not is_slow(item) and "selection" not in item.fixturenames:
        return item.path.stem
    folders = {folder: module for module, folder in lesson_folders().items()}
    values = getattr(item, "callspec", None) and item.callspec.params.values()
    for value in values or ():
        value = getattr(value, "folder", value)
        if isinstance(value, str) and value in folders:
            return folders[value]
        if isinstance(value, str) and value.partition(".")[0] in lesson_folders():
            return value.partition(".")[0]
    return item.path.stem


def unit_of(nodeid: str) -> str:
    """Name the unit that one process runs: a test file, whose tests share fixtures, or a lesson."""
    file, _, rest = nodeid.partition("::")
    stem, case = Path(file).stem, rest.partition("[")[2].rstrip("]")
    for module, folder in lesson_folders().items() if stem in BY_LESSON else ():
        if case == module or case.startswith((folder, f"{module}.")):
            return module
    return stem


@cache
def digests_of_lessons() -> dict[str, str]:
    """Digest every lesson, once for this process and its workers."""
    if DIGESTS not in os.environ:
        digests = {lesson: digest_of_lesson(lesson) for lesson in lesson_folders()}
        os.environ[DIGESTS] = json.dumps(digests)
    return json.loads(os.environ[DIGESTS])


def digest_of_lesson(lesson: str) -> str:
    """Digest what a lesson's tests exercise: its code, checks, museum and right answers in other styles.
    Its prose affects none of them."""
    package, checks = f"autograder.lessons.{lesson}", f"course.checks.{lesson}"
    texts = [text for part in ("museum", "variants") for text in texts_of(f"{package}.{part}")]
    text = (ROOT / "solutions" / lesson_folders()[lesson] / f"{lesson}.py").read_text(
        encoding="utf-8"
    )
    texts += [cell for cell in CELL.split(text) if not cell.startswith(" [markdown]")]
    files = [
        ROOT / "autograder" / "lessons" / lesson / "equivalent.toml",
        ROOT / "course" / "checks" / "recorded" / f"{lesson}.json",
    ]
    texts += [file.read_text(encoding="utf-8") for file in files if file.exists()]
    starts = [
        Definition(f"{package}.hidden", "CHECKS"),
        Definition(checks, EVERYTHING),
        run,
        decide,
    ]
    visible = texts_of(checks)
    return digest_of(starts, texts=[*answer_cells(lesson, {}), *texts, *visible])[:16]


@cache
def digest_of_file(stem: str) -> str:
    """Digest a test file, and the project's modules that it imports directly."""
    text = (ROOT / "tests" / f"{stem}.py").read_text(encoding="utf-8")
    imported = {place.module for place in imports_of(text)}
    imported |= {f"{place.module}.{place.name}" for place in imports_of(text)}
    known = [texts_of(name)[0] for name in sorted(imported) if read_module(name)]
    return hashed([text, *known])[:16]


@cache
def digest_of_tree() -> str:
    """Digest every file of the project except pictures, and the versions of what it runs on."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in LEFT_OUT and n[0] != ".")
        inside = os.path.relpath(folder, ROOT)
        if inside.startswith(PICTURES):
            continue
        for name in sorted(files):
            if (inside, name) != ("tests", PROVEN.name):
                data = Path(folder, name).read_bytes()
                digest.update(f"{inside}/{name}".encode() + hashlib.sha256(data).digest())
    versions = [platform.python_version(), *map(version, ("torch", "numpy", "nbgrader"))]
    return hashed([digest.hexdigest(), *versions])


@cache
def digest_of_pictures(stem: str) -> str:
    """Digest the pictures and widgets that a test file shows."""
    return hashed(path.read_text(encoding="utf-8") for path in pictures_shown_by(stem))


def pictures_shown_by(stem: str) -> list[Path]:
    """List the modules of pictures and widgets that a test file imports, directly or not; all modules if
    it builds or opens lessons."""
    text = (ROOT / "tests" / f"{stem}.py").read_text(encoding="utf-8")
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in PICTURES
        for path in (ROOT / folder).rglob("*.py")
    }
    shown: set[str] = set()
    texts = [text]
    while texts:
        places = imports_of(texts.pop())
        names = {p.module for p in places} | {f"{p.module}.{p.name}" for p in places}
        new = names & modules.keys() - shown
        shown |= new
        texts += [modules[name].read_text(encoding="utf-8") for name in new]
    if not shown and SHOWS_PICTURES.search(text):
        shown = set(modules)
    return [modules[name] for name in sorted(shown)]


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
