"""Tell what `autograder collect` did, in words and in JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from autograder.classroom.collecting.placing import Placed
from autograder.classroom.roster import Student
from autograder.classroom.wording import one_line
from course.files.writing import write_whole

WIDTH = 100


@dataclass
class Collected:
    """What became of everything that was found.

    Attributes:
        lesson: its name.
        dry_run: whether nothing was written.
        students: of the class, by id.
        placed: what became of the newest attempt, by the student's id.
        renamed: the notebook's name before, by the student's id.
        late: students whom Canvas calls late.
        prefixes: of the name of a file that goes back through the platform, by the student's id.
        times: when it was handed in, by the student's id; None where that is not known.
        unmatched, ambiguous: why, by what the archive calls them.
        unclear: why it is not known which file is the notebook, by the student's id.
        refused: a line for each file and attempt that was left out.
        missing: students without anything.
    """

    lesson: str
    dry_run: bool
    students: Mapping[str, Student]
    placed: dict[str, Placed] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    prefixes: dict[str, str] = field(default_factory=dict)
    times: dict[str, datetime | None] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    ambiguous: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def needs_somebody(self) -> bool:
        """Whether something did not find its way."""
        return bool(self.unmatched or self.ambiguous or self.unclear or self.refused)

    def became(self, what: Placed) -> list[str]:
        """List the students of whose newest attempt this became."""
        return sorted(student for student, placed in self.placed.items() if placed == what)

    def keep_prefixes(self, grading: Path) -> None:
        """Write down for `autograder return` how the platform names its students' files.

        Raises:
            OSError: it cannot be written.
        """
        prefixes = {**read_prefixes(grading, self.lesson), **self.prefixes}
        write_whole(_prefixes(grading, self.lesson), json.dumps(prefixes, indent=1).encode())

    def as_json(self) -> str:
        """Write all of it as JSON."""
        plain = {
            "lesson": self.lesson,
            "dry_run": self.dry_run,
            **{what.value: self.became(what) for what in Placed},
            "renamed": self.renamed,
            "late": sorted(self.late),
            "handed_in": {who: when and when.isoformat() for who, when in self.times.items()},
            "unmatched": self.unmatched,
            "ambiguous": self.ambiguous,
            "unclear": self.unclear,
            "refused": self.refused,
            "missing": self.missing,
        }
        return json.dumps(plain, indent=1)

    def as_text(self) -> str:
        """Write it in lines, those first that need nobody."""
        lines = [f"{self.lesson}: nothing was written (--dry-run)" if self.dry_run else self.lesson]
        for what in Placed:
            lines += _together(what.value, map(self._who, self.became(what)))
        lines += _each("renamed", {self._who(who): was for who, was in self.renamed.items()})
        lines += _together("late", map(self._who, sorted(self.late)))
        lines += _each("unmatched", self.unmatched)
        lines += _each("ambiguous", self.ambiguous)
        lines += _each("unclear", {self._who(who): why for who, why in self.unclear.items()})
        lines += _each("refused", dict.fromkeys(self.refused, ""))
        lines += _together("missing", map(self._who, self.missing))
        return "\n".join([*lines, *self._hints()])

    def _who(self, student: str) -> str:
        name = self.students[student].name
        return student if name == student else f"{name} ({student})"

    def _hints(self) -> Iterable[str]:
        unknown = sum(time is None for time in self.times.values())
        if unknown:
            yield (
                f"Time of submission unknown: {unknown}. The files seem to bear that of the download. "
                "If their times are right after all: --times handed-in."
            )
        if asked := [*self.ambiguous, *self.unmatched]:
            name = one_line(asked[0])
            yield (
                f'Say who it is with --match "{name}=ID", or --match "{name}=" to leave it out; '
                "or name the folder as the student's id."
            )
        for student in list(self.unclear)[:1]:
            yield (
                f'Say which file is the notebook with --take "{one_line(student)}=FILE", or ask for it.'
            )


def read_prefixes(grading: Path, lesson: str) -> dict[str, str]:
    """Read the prefixes of a platform for its students' files, by id; none where nothing is kept."""
    try:
        return dict(json.loads(_prefixes(grading, lesson).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _prefixes(grading: Path, lesson: str) -> Path:
    return grading / "collected" / f"{lesson}.json"


def _together(word: str, names: Iterable[str]) -> list[str]:
    """Write a count and its names, wrapped."""
    names = [one_line(name) for name in names]
    if not names:
        return []
    begin = f"{word:<10} {len(names):>4}  "
    return textwrap.wrap(
        ", ".join(names), WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin)
    )


def _each(word: str, why: Mapping[str, str]) -> list[str]:
    """Write a count, and a line for each name."""
    lines = [one_line(": ".join(filter(None, pair))) for pair in sorted(why.items())]
    begins = [f"{word:<10} {len(lines):>4}  ", *[" " * 17] * len(lines)]
    return [begin + line for begin, line in zip(begins, lines, strict=False)]
