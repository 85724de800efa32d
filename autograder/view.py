"""What the student's process may see of the library while one lesson is judged.

A view is a folder with `course/`, without the answers of that lesson and of every later one
(neither those exported nor those that stand in a module given, see `HOLDS_ANSWERS`), and
`judge/`, with the program that runs inside, the wire and the lesson's probes. Nothing in it holds an
expected value. One view serves every submission of its lesson, and is mounted read-only.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import autograder
import course

STUDENT = Path("judge", "student.py")
"""The program that runs inside, in a view."""
_JUDGE = ("student.py", "wire.py", "probes/__init__.py")

HOLDS_ANSWERS = {
    "fast_decode": ("kv_cache", "prefill_and_decode"),  # generates as those lessons ask for
    "steps": ("kv_cache", "prefill_and_decode"),  # a forward pass on a cache
    "train": ("mini_gpt", "gqa"),  # an attention layer; the pooling of key and value heads
}
"""Modules of `course`, hand-written and given, in which the answers of some lessons stand all the
same: each is left out of the views of these lessons and of every earlier one."""


def lay_out(place: Path, module: str, order: Sequence[str]) -> Path:
    """Write the view for a lesson into the folder `place`, which must not exist or be empty.

    Args:
        place: where to; made when missing.
        module: the lesson's, such as "kv_cache".
        order: the modules of all lessons, first to last, such as ["start", "mini_gpt", …].

    Raises:
        ValueError: the lesson is not in `order`, or has no probes.
        FileExistsError: `place` holds something.
    """
    if module not in order:
        raise ValueError(f"no lesson {module!r}; there are: {', '.join(order)}")
    library, judge = Path(course.__file__).parent, Path(autograder.__file__).parent
    if not (judge / "probes" / f"{module}.py").is_file():
        raise ValueError(f"no probes for a lesson {module!r} in {judge / 'probes'}")
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise FileExistsError(f"{place} is not empty, so a view cannot be laid out there")
    shutil.copytree(library, place / "course", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (place / "course" / "minigpt").iterdir():
        if path.stem not in ("__init__", *order[: order.index(module)]):
            path.unlink()
    for name in left_out(module, order):
        (place / "course" / f"{name}.py").unlink()
    for name in (*_JUDGE, f"probes/{module}.py"):
        target = place / "judge" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(judge / name, target)
    (place / "judge" / "__init__.py").touch()
    return place


def left_out(module: str, order: Sequence[str]) -> list[str]:
    """The modules of `HOLDS_ANSWERS` that the view of a lesson goes without. A lesson that is not
    in `order` is one that is yet to be written, and so a later one."""
    passed = order[: order.index(module)]
    return [
        name for name, lessons in HOLDS_ANSWERS.items() if any(one not in passed for one in lessons)
    ]
