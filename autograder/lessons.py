"""The lessons there are: the folders under solutions/ of the checkout that this package lies in."""

from __future__ import annotations

from pathlib import Path

SOLUTIONS = Path(__file__).resolve().parents[1] / "solutions"


def lesson_folders() -> dict[str, str]:
    """The folder of each lesson's module, such as "kv_cache": "03-kv-cache", first to last."""
    folders = sorted(path.name for path in SOLUTIONS.glob("[0-9][0-9]-*"))
    return {folder.split("-", 1)[1].replace("-", "_"): folder for folder in folders}
