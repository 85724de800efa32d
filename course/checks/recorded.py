"""Look up the oracle's answers to the visible checks.

A visible check has one seed, so what it compares with can be written down: `recorded/<lesson>.json`,
beside this file, is built with the lesson. No function of `course` computes what a lesson asks for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("recorded")


class Recorded:
    """The truth of a visible check, called as the truth of its hidden twin is.

    Args:
        lesson: the module's name, such as "roofline".
        check: the name of the check.
    """

    def __init__(self, lesson: str, check: str) -> None:
        self.lesson, self.check = lesson, check

    def __call__(self, *arguments: Any) -> Any:
        """Return the recorded answer for these arguments.

        Raises:
            LookupError: it was not recorded; visible checks are recorded for the seed of the notebook.
        """
        answers = _read(self.lesson).get(self.check, {})
        key = key_of(arguments)
        if key not in answers:
            raise LookupError(f"{self.lesson}.{self.check}: no answer is recorded for this case")
        return _from_json(answers[key])


def path_of(lesson: str, folder: Path = FOLDER) -> Path:
    """Return the file with a lesson's recorded answers."""
    return folder / f"{lesson}.json"


def key_of(arguments: tuple[Any, ...]) -> str:
    """Name a case by its arguments. Floats count by their first digits alone: on another machine the
    same draw may differ in the last ones."""
    text = json.dumps(_outline(arguments), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_json(value: Any) -> Any:
    """Write an answer as JSON: arrays as {"array": nested lists, "dtype": name}."""
    if isinstance(value, np.ndarray):
        numbers = value.tolist()
        if value.dtype.kind == "f":  # seven digits are more than any tolerance sees
            numbers = _shortened(numbers)
        return {"array": numbers, "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {name: to_json(item) for name, item in value.items()}}
    return value


def _shortened(numbers: Any) -> Any:
    return list(map(_shortened, numbers)) if type(numbers) is list else float(f"{numbers:.7g}")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict) and "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    if isinstance(value, dict):
        return {name: _from_json(item) for name, item in value["dict"].items()}
    return value


@cache
def _read(lesson: str) -> Mapping[str, Any]:
    return json.loads(path_of(lesson).read_text(encoding="utf-8"))


def _outline(value: Any) -> Any:
    """Reduce arguments to what names a case."""
    if isinstance(value, np.ndarray):
        whole = value.dtype.kind in "iub"
        content = value.tolist() if whole else f"{np.abs(value).sum(dtype=np.float64):.4g}"
        return [str(value.dtype), list(value.shape), content]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return [_outline(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _outline(item) for name, item in value.items()}
    return int(value) if isinstance(value, np.integer) else value
