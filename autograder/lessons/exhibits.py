"""State known wrong answers, and right answers in another style.

Wrong answers that are written out stand in a museum's Python files:

    MUSEUM = Museum("kv_cache")

    bug = MUSEUM.section("causal_mask", check="mask_is_rectangular")

    @bug("mask", "a mask that hides nothing")
    def mask_sees_all(n_new, n_visible, device="cpu"):
        \"\"\"In decode everything cached is visible, so no mask: wrong for a chunk.\"\"\"
        return torch.ones(n_new, n_visible, dtype=torch.bool, device=device)

Those that are the reference answer with a few lines changed stand in text files beside them:

    # causal_mask, caught by mask_is_rectangular

    mask_one_too_far (mask): a mask that lets each token see one token ahead
      The diagonal is counted from 1, so every new token sees one token ahead.
    - <= own
    + <= own + 1

`Museum.read` says what may stand in such a file. `autograder.lessons.assembly` puts either into the
lesson's own cells, as a student's notebook has them.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import autograder.lessons

FAMILIES = {
    "position": "at which position a token stands",
    "mask": "which tokens a token may see",
    "softmax": "how scores become weights",
    "head order": "which head reads what, and how heads are cut, merged and shared",
    "wiring": "which part goes into which, and which one is left out",
    "writes": "where a cache writes, and what it gives back",
    "state": "what a call leaves behind, and for whom",
    "capacity": "where the room ends",
    "cost": "how much is computed, copied or kept, and in how many passes",
    "feeding": "which tokens are fed to the model, and in which pass",
    "choice": "what is chosen, and from which numbers",
    "sampling": "how a token is drawn",
    "off by one": "one too many, or one too few",
    "formula": "what belongs into a count, and what it is multiplied by",
    "timing": "when a clock is read, and what is waited for",
    "arguments": "which arguments are refused, and how",
    "rounding": "how a number becomes a code, and with which others it shares a step",
    "form": "shape and type of a result",
}
"""What mistakes are about: by this an instructor counts them, over a class and over the lessons."""

KINDS = {
    "arguments": "arguments stay as they were",
    "dtype": "dtype and device are kept",
    "layout": "inputs need not be contiguous",
    "batch": "any batch: one row, equal rows, rows that differ late",
    "sizes": "sizes 0, 1, just full, larger than any tempting constant",
    "results": "results are fresh and stay what they were",
    "instances": "two instances share nothing",
    "end": "a text goes on after `<end>`",
    "refusals": "a refusal comes at once and changes nothing",
    "cost": "work that the lesson promises is counted",
    "evidence": "what decides is computed or drawn by the judge",
    "cheapest": "the cheapest wrong answer gets no point",
}
"""The house rules of lesson 00, and what else holds in every lesson: each kind of mistake has wrong
answers in the museum of every lesson where it can be made (the table in docs/grading.md)."""
_reading = threading.Lock()
"""To read a museum adds to it, so only one thread may."""


@dataclass(frozen=True)
class Edits:
    """Changes of the reference answer: pairs of what stands there, exactly once, and what replaces it."""

    pairs: tuple[tuple[str, str], ...]


Answer = Mapping[str, Any]
"""Functions, classes or `Edits`, by the name that they have in the lesson."""


@dataclass(frozen=True)
class Bug:
    """A complete, plausible wrong answer.

    Attributes:
        name: in snake case, the mistake in a few words.
        story: how one comes to write it and what happens then, in one or two lines.
        check: the hidden check that must catch it, "<lesson>.<check>".
        family: one of FAMILIES.
        mistake: what a student who made it is told; completes "This comes from …" and names
            the mistake, not the answer.
        answer: what differs from the reference.
        kind: one of KINDS, where the mistake breaks such a rule; else "".
    """

    name: str
    story: str
    check: str
    family: str
    mistake: str
    answer: Answer = field(repr=False)
    kind: str = ""

    def __post_init__(self) -> None:
        if self.kind and self.kind not in KINDS:
            raise ValueError(f"{self.name}: no kind {self.kind!r}; there are {list(KINDS)}")
        if self.family not in FAMILIES:
            raise ValueError(f"{self.name}: no family {self.family!r}; there are {list(FAMILIES)}")
        if not self.story:
            raise ValueError(f"{self.name}: a bug needs a story")


@dataclass(frozen=True)
class Variant:
    """A correct answer in another style; it must get full points at every check."""

    name: str
    answer: Answer = field(repr=False)


class Line(NamedTuple):
    """A line of a museum's text file, and its number in it."""

    number: int
    text: str


SECTION = re.compile(r"# (?P<target>\w+), caught by (?P<check>\w+)")
HEAD = re.compile(
    r"(?P<name>[a-z]\w*) \((?P<family>[^(),]+)(, (?P<kind>[^(),]+))?\): (?P<mistake>.+)"
)
MORE_OF_MISTAKE, STORY = " " * 4, " " * 2
"""What lines of prose begin with."""
END = "$"
"""Closes a line of an edit that ends with blanks, which nobody would see, or with this sign itself."""


class Museum:
    """The known wrong answers to one lesson, in the order in which they are stated.

    Args:
        lesson: the module's name, such as "kv_cache".
    """

    def __init__(self, lesson: str) -> None:
        self.lesson = lesson
        self.bugs: list[Bug] = []

    def section(self, target: str, check: str) -> Callable[..., Any]:
        """Begin the wrong answers to one function that one check must catch.

        Args:
            target: the name of the function or class in the lesson.
            check: the name of the hidden check, without the lesson.

        Returns:
            `bug(family, mistake, kind="", **also)`, a decorator for a function or class whose name is
            the bug's and whose docstring is its story; `also` are further functions that differ, by
            name.
        """

        def bug(family: str, mistake: str, kind: str = "", **also: Any) -> Callable[[Any], Any]:
            def stated(definition: Any) -> Any:
                name, story = snake_case(definition.__name__), definition.__doc__ or ""
                answer = {target: definition, **also}
                self.add(name, story, check, family, mistake, answer, kind)
                return definition

            return stated

        return bug

    def add(
        self,
        name: str,
        story: str,
        check: str,
        family: str,
        mistake: str,
        answer: Answer,
        kind: str,
    ) -> None:
        """State a wrong answer; the arguments are those of `Bug`, the check's without the lesson."""
        if any(known.name == name for known in self.bugs):
            raise ValueError(f"{self.lesson}: two bugs are named {name!r}")
        story, check = " ".join(story.split()), f"{self.lesson}.{check}"
        self.bugs.append(Bug(name, story, check, family, mistake, answer, kind))

    def read(self, path: Path) -> None:
        """State the wrong answers of a text file, in blocks with an empty line between any two.

        A section's block is one line, "# target, caught by check". A wrong answer's block consists of

        * "name (family): mistake" or "name (family, kind): mistake", continued in lines that begin with
          four blanks;
        * its story, in lines that begin with two blanks;
        * its edits, one after the other: the old text in lines that begin with "- ", then the new text
          in lines that begin with "+ ". A bare "-" or "+" is an empty line; a bare "+" alone deletes.

        Raises:
            ValueError: something else stands in the file, or `Bug` refuses it. Names file and line.
        """
        section = None
        for block in _blocks(path):
            first = block[0]
            if first.text.startswith("#"):
                if len(block) > 1 or not (section := SECTION.fullmatch(first.text)):
                    raise _error(
                        path, first, 'a line like "# target, caught by check" stands alone'
                    )
                continue
            if section is None:
                raise _error(path, first, 'no "# target, caught by check" stands before it')
            words, edits = _read_block(path, block)
            answer = {section["target"]: edits}
            try:
                self.add(check=section["check"], answer=answer, **words)
            except ValueError as error:
                raise _error(path, first, str(error)) from error


def _blocks(path: Path) -> Iterator[list[Line]]:
    """Cut a text file at its empty lines."""
    lines = path.read_text(encoding="utf-8").split("\n")
    numbered = (Line(number, text) for number, text in enumerate(lines, 1))
    for is_empty, block in groupby(numbered, key=lambda line: line.text == ""):
        if not is_empty:
            yield list(block)


def _read_block(path: Path, block: list[Line]) -> tuple[dict[str, str], Edits]:
    """Read a wrong answer: its name, family, kind, mistake and story, and its edits."""
    for line in block:
        if line.text != line.text.rstrip():
            raise _error(path, line, f"it ends with blanks; in an edit, {END} closes such a line")
    first, *others = block
    head = HEAD.fullmatch(first.text)
    if not head:
        raise _error(path, first, 'a wrong answer begins with "name (family): mistake"')
    n_prose = next((i for i, line in enumerate(others) if line.text[0] in "-+"), len(others))
    mistake, story = [head["mistake"]], []
    for line in others[:n_prose]:
        if line.text.startswith(MORE_OF_MISTAKE) and not story:
            mistake.append(line.text.strip())
        elif re.match(rf"{STORY}\S", line.text):
            story.append(line.text.strip())
        else:
            raise _error(path, line, "a story's line begins with two blanks, an edit's with - or +")
    if n_prose == len(others):
        raise _error(path, first, "no edit follows")
    words = {**head.groupdict(default=""), "mistake": " ".join(mistake), "story": " ".join(story)}
    return words, Edits(tuple(_pairs(path, others[n_prose:])))


def _pairs(path: Path, lines: Iterable[Line]) -> Iterator[tuple[str, str]]:
    """Read edits: what stands in the reference, and what replaces it."""
    runs = [list(run) for _, run in groupby(lines, key=lambda line: line.text[0])]
    for run in runs:
        for line in run:
            if not re.match(r"[-+]( |$)", line.text):
                raise _error(path, line, 'an edit\'s line begins with "- " or "+ "')
    if runs[0][0].text[0] == "+":
        raise _error(path, runs[0][0], "nothing stands before it that is replaced")
    if len(runs) % 2:
        raise _error(path, runs[-1][-1], "nothing replaces it; a bare + deletes")
    for old, new in zip(runs[::2], runs[1::2], strict=True):
        pair = tuple(
            "\n".join(line.text[2:].removesuffix(END) for line in run) for run in (old, new)
        )
        if not pair[0] or pair[0] == pair[1]:
            raise _error(path, old[0], "it changes nothing")
        yield pair


def _error(path: Path, line: Line, what: str) -> ValueError:
    return ValueError(f"{path}, line {line.number}: {line.text!r}: {what}")


def snake_case(name: str) -> str:
    """ "counts_in_append" of "CountsInAppend"; a name in snake case stays."""
    parts = ["_" + c.lower() if c.isupper() else c for c in name]
    return "".join(parts).lstrip("_")


def bugs_of(lesson: str) -> list[Bug]:
    """Return the known wrong answers to a lesson, by its module's name, those to one check together.

    They are stated in the files `museum.py` and `museum.txt`, or in those of the folder `museum`, in the
    order of their names. Threads may ask at once.
    """
    with _reading:
        return _read_museum(lesson)


@cache
def _read_museum(lesson: str) -> list[Bug]:
    museum = importlib.import_module(f"autograder.lessons.{lesson}.museum")
    for path in museum_files(lesson):
        if path.suffix == ".txt":
            museum.MUSEUM.read(path)
        elif path != Path(museum.__file__):
            importlib.import_module(f"{museum.__name__}.{path.stem}")
    checks = list(dict.fromkeys(bug.check for bug in museum.MUSEUM.bugs))
    return sorted(museum.MUSEUM.bugs, key=lambda bug: checks.index(bug.check))


def museum_files(lesson: str) -> list[Path]:
    """List the files in which a lesson's wrong answers are stated, in the order of their names."""
    folder = Path(autograder.lessons.__file__).parent / lesson
    files = [*folder.glob("museum.*"), *folder.glob("museum/*")]
    return sorted(path for path in files if path.suffix in (".py", ".txt"))


def variants_of(lesson: str) -> list[Variant]:
    """Return the right answers to a lesson in other styles."""
    return importlib.import_module(f"autograder.lessons.{lesson}.variants").VARIANTS
