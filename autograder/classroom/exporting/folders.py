"""Write a folder of files that is there with all of them or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autograder.classroom.course import CannotStart


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes the target where nothing failed.

    Raises:
        CannotStart: there is something at the target, which is not replaced.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CannotStart(f"{target} is there already: remove it, or name another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    name = tempfile.mkdtemp(dir=target.parent, prefix=".", suffix=".partial")
    try:
        yield Path(name)
        os.chmod(name, 0o755)
        os.replace(name, target)
    finally:
        shutil.rmtree(name, ignore_errors=True)
