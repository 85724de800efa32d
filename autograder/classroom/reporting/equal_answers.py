"""Find students whose answers are equal: a hint to look at both, not a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from autograder.classroom.reporting.class_mistakes import Work
from autograder.classroom.reporting.written_answers import without_comments

FILES, ANSWERS, CODE = (
    "the same file, byte for byte",
    "the same answers, letter for letter",
    "the same code; comments, layout or texts differ",
)


@dataclass(frozen=True)
class EqualAnswers:
    """Students with equal answers.

    Attributes:
        students: their names, ids and notebooks, at least two.
        how: FILES, ANSWERS or CODE, whichever holds for all of them.
        lines: of code that are equal; a few can be equal by chance.
    """

    students: tuple[tuple[str, str, str], ...]
    how: str
    lines: int


def equal_answers(works: Iterable[Work]) -> list[EqualAnswers]:
    """Group students whose answers hold the same code: long code that few have first, for what many
    have is mostly what the lesson leads to.

    Args:
        works: of which those with nothing written are left out.
    """
    groups: dict[tuple, list[Work]] = defaultdict(list)
    for work in works:
        if code := tuple((name, _code(text)) for name, text in sorted(work.written.items())):
            groups[code].append(work)
    equal = [
        EqualAnswers(
            tuple((work.student.name, work.student.id, work.notebook) for work in those),
            _how(those),
            sum(len(text.splitlines()) for _, text in code),
        )
        for code, those in groups.items()
        if len(those) > 1
    ]
    return sorted(equal, key=lambda group: (-group.lines / len(group.students), group.students))


def _code(source: str) -> str:
    stripped = without_comments(source)
    return " ".join(source.split()) if stripped is None else stripped


def _how(those: list[Work]) -> str:
    files = {work.result.submission if work.result else "" for work in those}
    if len(files) == 1 and "" not in files:
        return FILES
    same = all(work.written == those[0].written for work in those)
    return ANSWERS if same else CODE
