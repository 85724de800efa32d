"""Lay out the part of the library that a student's process may see while one lesson is judged.

A view is a folder with two packages:

* `course/`, without the answers of that lesson and of every later one, neither the exported ones nor
  those in modules that are given (see `SEEN_FROM`);
* `judge/`, with the program that runs inside, the wire and the lesson's probes.

Nothing in it holds an expected value. One view serves every submission to its lesson; it is read-only.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path

import autograder
import course

STUDENT = Path("judge", "student.py")
"""The program that runs inside, in a view."""
_JUDGE = ("student.py", "wire.py")

AFTER_ALL = "after the last lesson"

SEEN_FROM = {
    "fast/decode": "roofline",  # it generates as lessons 03 and 04 ask for
    "fast/layer": "roofline",  # heads as lesson 01 asks for them
    "fast/steps": "roofline",  # its forward pass is lesson 03's
    "world/train": "quantized_cache",  # lesson 01's attention layer; imports lesson 06's pooling
    "fast/tiled_read": "quantized_cache",  # lesson 06's grouped attention
    "fast/triton": "sliding_window",  # the same, and lesson 07's unpacking of codes
    "given/windowed": "sliding_window",  # lesson 01's attention and lesson 03's cached pass
    "serving/mixed": "serving",  # the same, over the tokens of many texts
    "serving/pages": "latent_attention",  # the same, over pages of lesson 10
    "serving/memory": "latent_attention",  # pages of lesson 10
    "serving/alone": "latent_attention",  # the loop of lesson 12
    "serving/windowed": "latent_attention",  # the loop of lesson 03, with lesson 08's cache
    "serving/sparse": "prefix_cache",  # the loop of lesson 03; it stands on lesson 14
    "engine": "latent_attention",  # lessons 03 to 12
    "drafts/model": "speculative",  # a loop as lesson 03 asks for
    "given/latent": "latent_attention",  # lesson 03's cached pass
    "given/sparse": "sparse_read",  # the same
    "given/prefixes": "prefix_cache",  # lesson 10's cache, without numbers
    "world/chats": "prefix_cache",  # it stands on these
    "world/siblings": "latent_attention",  # it builds on world/train
    "world/train_latent": "latent_attention",  # lesson 01's heads; it builds on these
    "given/hybrid": "linear_state",  # lesson 03's cached pass
    "world/train_experts": "linear_state",  # lesson 16's experts
    "world/train_hybrid": AFTER_ALL,  # lesson 17's states
}
"""Given modules of `course` that contain answers, each with the first lesson whose view may hold it: the
one after the last lesson that asks for these answers."""


def lay_out(place: Path, module: str, order: Sequence[str]) -> Path:
    """Write the library view of a lesson into the folder `place`, which must not exist or be empty.

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
    judge = Path(autograder.__file__).parent
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise FileExistsError(f"{place} is not empty, so a view cannot be laid out there")
    copy_course(place, module, order)
    copy_compiled(place)
    write_absent(place)
    (place / "judge").mkdir()
    for name in _JUDGE:
        shutil.copyfile(judge / name, place / "judge" / name)
    (place / "judge" / "__init__.py").touch()
    probes = (
        judge / "lessons" / module / "probes.py"
    )  # a lesson may do with those of its visible checks
    (place / "judge" / "probes.py").write_text(
        probes.read_text(encoding="utf-8") if probes.exists() else "", encoding="utf-8"
    )
    return place


def copy_course(place: Path, module: str, order: Sequence[str]) -> None:
    """Copy `course` into the folder `place`, without what answers a lesson or a later one.

    Args:
        module, order: as of `lay_out`; a module that is not in `order` stands behind all that are.
    """
    library = Path(course.__file__).parent
    shutil.copytree(library, place / "course", ignore=shutil.ignore_patterns("__pycache__"))
    before = order[: order.index(module)] if module in order else order
    for path in (place / "course" / "minigpt").iterdir():
        if path.stem not in ("__init__", *before):
            path.unlink()
    for name in left_out(module, order) if module in order else ():
        (place / "course" / f"{name}.py").unlink()


def copy_compiled(view: Path) -> None:
    """Copy what is compiled of those modules of `course` that a view holds."""
    library = Path(course.__file__).parent
    for path in (view / "course").rglob("*.py"):
        compiled = Path(cache_from_source(library / path.relative_to(view / "course")))
        if compiled.exists():
            (path.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copyfile(compiled, path.parent / "__pycache__" / compiled.name)


def write_absent(view: Path) -> None:
    """Write the module that stands in a view for each package that is not shown, see `host_view`."""
    text = 'raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)\n'
    (view / "absent.py").write_text(text, encoding="utf-8")


def left_out(module: str, order: Sequence[str]) -> list[str]:
    """List the modules of `SEEN_FROM` that the view of a lesson goes without. A lesson that is not in
    `order` is one that is yet to be written, and so a later one; so is `AFTER_ALL`."""
    reached = order[: order.index(module) + 1]
    return [name for name, first in SEEN_FROM.items() if first not in reached]
