"""Choose, for a lesson, between the student's earlier functions and ours, and say which in one line."""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from course.files.notebooks import NOTES, lessons_folder, notebook_of
from course.files.released import Released, earlier_lessons, released_lessons
from course.mine.replacing import ours_are_given, put_in, run_code, say_why_absent, take_out
from course.mine.student_code import student_code
from course.mine.trial import Earlier, TrialResult, key_of, read_result, try_code, write_result

RESULTS_FILE = "mine.json"
EVERY_FUNCTION = ""
"""The key of a reason that holds for every function of the lesson."""


def choose(module: str, notebook: Path | None, mode: str) -> str:
    """Put functions in place for a lesson, and return the line that says which are whose.

    The line is empty where the lesson imports nothing from earlier ones.

    Args:
        module: the lesson that is open.
        notebook: its file; None where notebooks have no files.
        mode: one of `course.mine.MODES`.
    """
    earlier = earlier_lessons(module)
    take_out(lesson.module for lesson in earlier)
    uses = released_lessons()[module].imports if earlier else {}
    if not uses:
        return ""
    if notebook is None:
        _say_which_are_missing(earlier, "none of your notebooks is next to this one")
        return "Earlier lessons: ours, since none of your notebooks is next to this one."
    chosen = choose_all(earlier, lessons_folder(notebook), mode)
    if mode == "0":
        return "Earlier lessons: ours, since SECOND_TOKEN_MINE or use_mine turned yours off."
    if all(
        reasons.get(EVERY_FUNCTION, "").startswith("there is no") for _, reasons in chosen.values()
    ):
        return "Earlier lessons: ours, since none of your notebooks is next to this one."
    parts = [
        f"{name}: {_whose(name, lesson, *chosen[lesson])}"
        for lesson, names in uses.items()
        for name in names
        if lesson in chosen
    ]
    return " · ".join(parts)


def _whose(name: str, module: str, passed: tuple[str, ...], reasons: dict[str, str]) -> str:
    if name in passed:
        return "yours"
    why = reasons.get(name) or reasons.get(EVERY_FUNCTION)
    ours = "ours" if ours_are_given(module) else "missing"
    return f"{ours}, {why}" if why else ours  # without a reason: given in the lesson


def choose_all(
    earlier: list[Released], lessons: Path, mode: str
) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """Try the code of each lesson and put it in place, in order: later answers run on earlier ones.

    Args:
        lessons: the folder that holds the lessons' folders.

    Returns:
        By module, the names that are taken from the student, and why the others are not.
    """
    chain: list[Earlier] = []
    chosen = {}
    for lesson in earlier:
        given = ours_are_given(lesson.module)
        if mode == "0" or (mode == "missing" and given):
            result, code = TrialResult([], {EVERY_FUNCTION: "yours are turned off"}), ""
        else:
            result, code = _result_of(lesson, lessons, chain)
        functions = {}
        if result.passes:
            try:
                space = run_code(lesson.module, code)
                functions = {name: space[name] for name in result.passes}
            except Exception as error:  # the code depends on something that its key leaves out
                result = TrialResult(
                    [], {EVERY_FUNCTION: f"yours stops with {type(error).__name__}"}
                )
        put_in(lesson.module, functions)
        if not given:
            say_why_absent(lesson.module, lesson.folder, result.reasons)
        if functions:
            chain.append(Earlier(lesson.module, code, tuple(functions)))
        chosen[lesson.module] = (tuple(functions), result.reasons)
    return chosen


def _say_which_are_missing(earlier: list[Released], why: str) -> None:
    for lesson in earlier:
        if not ours_are_given(lesson.module):
            say_why_absent(lesson.module, lesson.folder, {EVERY_FUNCTION: why})


def _result_of(lesson: Released, lessons: Path, chain: list[Earlier]) -> tuple[TrialResult, str]:
    """Return which of a lesson's functions pass, and the code. The same content is tried only once."""
    path = notebook_of(lesson, lessons)
    if path is None:
        return TrialResult([], {EVERY_FUNCTION: f"there is no {lesson.file_name}"}), ""
    try:
        code = student_code(path)
    except ValueError:
        return TrialResult([], {EVERY_FUNCTION: f"your {lesson.file_name} cannot be read"}), ""
    file = lessons / NOTES / RESULTS_FILE
    key = key_of(lesson.module, code, chain)
    result = read_result(file, lesson.module, key)
    if result is None:
        result = _try_with_a_bar(lesson, code, chain)
        write_result(file, lesson.module, key, result)
    return result, code


def _try_with_a_bar(lesson: Released, code: str, chain: list[Earlier]) -> TrialResult:
    import sys

    with tqdm(
        desc=f"checking your {lesson.folder}, once",
        bar_format="{desc} … {elapsed}",
        file=sys.stdout,
        leave=False,
    ) as bar:
        result = try_code(lesson.module, code, chain)
        bar.update()
    return result
