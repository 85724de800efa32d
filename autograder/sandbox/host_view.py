"""Choose what a confined process sees of this machine: programs, libraries, and Python.

Where a folder that is shown holds something that instructors alone have, an empty one covers it.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_SYSTEM = (
    *("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo"),
    *("/etc/fonts", "/usr/share/fontconfig", "/usr/share/fonts"),  # matplotlib asks for them
    *("/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"),
)
_PRIVATE = ("autograder", "course")  # of `course`, the view has the part that a lesson may see


@cache
def options() -> tuple[str, ...]:
    """Write the options of bubblewrap that lay it out, read-only, each at the path it has here."""
    system = {path for name in _SYSTEM if (path := Path(name)).exists()}
    python = {place for folder in _python_folders() for place in (folder, folder.resolve())}
    shown = system | python
    covered = {path for path in _private() if any(path.is_relative_to(place) for place in shown)}
    laid_out: list[str] = []
    for path in sorted(shown | covered, key=lambda path: path.parts):
        for parent in reversed(path.parents[:-1]):
            laid_out += ["--dir", str(parent)]  # else bubblewrap makes it for its own user alone
        if path in covered:
            laid_out += ["--tmpfs", str(path)]
        elif path in system and path.is_symlink():
            laid_out += ["--symlink", os.readlink(path), str(path)]
        else:
            laid_out += ["--ro-bind", str(path), str(path)]
    return (*laid_out, *(part for path in covered for part in ("--remount-ro", str(path))))


def _python_folders() -> Iterator[Path]:
    """Find the folders of this Python and of the packages that it imports."""
    prefixes = (sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix)
    for name in (*prefixes, *site.getsitepackages()):
        if name not in ("/", "/usr") and os.path.isdir(name):
            yield Path(name)


def _private() -> Iterable[Path]:
    """Find the judge, the whole library, and the checkout around them, in every copy there is."""
    found = [Path(name) / package for name in site.getsitepackages() for package in _PRIVATE]
    for package in _PRIVATE:
        spec = importlib.util.find_spec(package)
        for folder in map(Path, spec.submodule_search_locations if spec else ()):
            found += [
                folder,
                *([folder.parent] if (folder.parent / "pyproject.toml").exists() else []),
            ]
    return {place for path in found if path.is_dir() for place in (path.absolute(), path.resolve())}
