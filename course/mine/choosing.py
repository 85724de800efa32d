"""Choose, for a lesson, between the student's earlier functions and ours, and say which in one line."""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from course.files.notebooks import NOTES, lessons_folder, notebook_of
from course.files.released import Released, earlier_lessons, released_lessons
from course.mine.replacing import ours_are_given, put_in, run_code, say_why_absent, take_out
from course.mine.student_code import student_code
from course.mine.trial import Earlier, Found, key_of, remember, remembered, try_code

OWN_FILES = "mine.json"
EVERYTHING = ""
"""In the reasons of what was found: one that holds for every function of the lesson."""


def choose(module: str, notebook: Path | None, mode: str) -> str:
    """Put functions in place for a lesson and return the line that says which are whose.

    Args:
        module: the lesson that is open.
        notebook: its file; None where notebooks have none.
        mode: one of `course.mine.MODES`.

    Returns:
        An empty line where the lesson uses nothing of earlier ones.
    """
    earlier = earlier_lessons(module)
    take_out(lesson.module for lesson in earlier)
    uses = released_lessons()[module].imports if earlier else {}
    if not uses:
        return ""
    if notebook is None:
        _say_which_are_missing(earlier, "none of your notebooks lies beside this one")
        return "Earlier lessons: ours, since none of your notebooks lies beside this one."
    found = _find_all(earlier, notebook, mode)
    if mode == "0":
        return "Earlier lessons: ours, since SECOND_TOKEN_MINE or use_mine turned yours off."
    if all(reasons.get(EVERYTHING, "").startswith("there is no") for _, reasons in found.values()):
        return "Earlier lessons: ours, since none of your notebooks lies beside this one."
    said = [
        f"{name}: {_whose(name, lesson, *found[lesson])}"
        for lesson, names in uses.items()
        for name in names
        if lesson in found
    ]
    return " · ".join(said)


def _whose(name: str, module: str, kept: tuple[str, ...], reasons: dict[str, str]) -> str:
    if name in kept:
        return "yours"
    why = reasons.get(name) or reasons.get(EVERYTHING)
    ours = "ours" if ours_are_given(module) else "missing"
    return f"{ours}, {why}" if why else ours  # without a reason: given in the lesson


def _find_all(
    earlier: list[Released], notebook: Path, mode: str
) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """Try and put in place lesson after lesson, since later answers run on earlier ones.

    Returns:
        By module, the names that are the student's, and why the others are not.
    """
    chain: list[Earlier] = []
    chosen = {}
    lessons = lessons_folder(notebook)
    for lesson in earlier:
        given = ours_are_given(lesson.module)
        if mode == "0" or (mode == "missing" and given):
            found, code = Found([], {EVERYTHING: "yours are turned off"}), ""
        else:
            found, code = _find(lesson, lessons, chain)
        functions = {}
        if found.passes:
            try:
                space = run_code(lesson.module, code)
                functions = {name: space[name] for name in found.passes}
            except Exception as error:  # it depends on more than was looked at
                found = Found([], {EVERYTHING: f"yours stops with {type(error).__name__}"})
        put_in(lesson.module, functions)
        if not given:
            say_why_absent(lesson.module, lesson.folder, found.reasons)
        if functions:
            chain.append(Earlier(lesson.module, code, tuple(functions)))
        chosen[lesson.module] = (tuple(functions), found.reasons)
    return chosen


def _say_which_are_missing(earlier: list[Released], why: str) -> None:
    for lesson in earlier:
        if not ours_are_given(lesson.module):
            say_why_absent(lesson.module, lesson.folder, {EVERYTHING: why})


def _find(lesson: Released, lessons: Path, chain: list[Earlier]) -> tuple[Found, str]:
    """Find out which of a lesson's functions pass; look it up where the same content was tried before."""
    path = notebook_of(lesson, lessons)
    if path is None:
        return Found([], {EVERYTHING: f"there is no {lesson.file_name}"}), ""
    try:
        code = student_code(path)
    except ValueError:
        return Found([], {EVERYTHING: f"your {lesson.file_name} cannot be read"}), ""
    notes = lessons / NOTES / OWN_FILES
    key = key_of(lesson.module, code, chain)
    found = remembered(notes, lesson.module, key)
    if found is None:
        found = _try_with_a_bar(lesson, code, chain)
        remember(notes, lesson.module, key, found)
    return found, code


def _try_with_a_bar(lesson: Released, code: str, chain: list[Earlier]) -> Found:
    import sys

    with tqdm(
        desc=f"checking your {lesson.folder}, once",
        bar_format="{desc} … {elapsed}",
        file=sys.stdout,
        leave=False,
    ) as bar:
        found = try_code(lesson.module, code, chain)
        bar.update()
    return found
