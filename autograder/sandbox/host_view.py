"""Choose what a confined process sees of this machine: programs, libraries, and Python.

Where a visible folder holds something that only instructors have, an empty folder covers it: the judge is
invisible, and packages for grading, authoring and testing cannot be imported. Packages that a student's
installation has as well are visible as a whole, with their own tests.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SYSTEM = (
    *("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo"),
    *("/etc/fonts", "/usr/share/fontconfig", "/usr/share/fonts"),  # matplotlib asks for them
    *("/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"),
)
_PRIVATE = ("autograder", "course")  # of `course`, the view has the part that a lesson may see
_PROJECT = "second-token"
_OF_INSTRUCTORS, _OF_STUDENTS = (
    ("grading", "authoring", "test"),
    ("lab",),
)  # extras in pyproject.toml
_EVERYWHERE = {"pip": (), "setuptools": (), "ipykernel": ()}
_ABSENT = "/view/absent.py"
"""A module that says of itself, when it is imported, that it is not there; see `library_view`."""


@cache
def options() -> tuple[str, ...]:
    """Return bubblewrap's options that mount these folders, read-only, each at its own path."""
    system = {path for name in _SYSTEM if (path := Path(name)).exists()}
    python = {place for folder in _python_folders() for place in (folder, folder.resolve())}
    shown = system | python
    absent = _both_names(_packages_of_instructors())
    private = _both_names(_private()) | absent
    covered = {path for path in private if any(path.is_relative_to(place) for place in shown)}
    laid_out: list[str] = []
    for path in sorted(shown | covered, key=lambda path: path.parts):
        for parent in reversed(path.parents[:-1]):
            laid_out += ["--dir", str(parent)]  # else bubblewrap makes it for its own user alone
        if path in covered:
            laid_out += ["--tmpfs", str(path)]
            if path in absent:  # else an empty folder would be imported as a package of nothing
                laid_out += ["--symlink", _ABSENT, f"{path}/__init__.py"]
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


def _both_names(paths: Iterable[Path]) -> set[Path]:
    """Name the folders that exist by the paths given, and by those that they have without links."""
    return {name for path in paths if path.is_dir() for name in (path.absolute(), path.resolve())}


def _private() -> Iterable[Path]:
    """Find the judge, the whole library, and the checkout around them, in every copy there is."""
    folders = [Path(name) / package for name in site.getsitepackages() for package in _PRIVATE]
    for package in _PRIVATE:
        spec = importlib.util.find_spec(package)
        for folder in map(Path, spec.submodule_search_locations if spec else ()):
            folders += [
                folder,
                *([folder.parent] if (folder.parent / "pyproject.toml").exists() else []),
            ]
    return folders


def _packages_of_instructors() -> Iterator[Path]:
    """Find the folders of the packages that the project's extras for instructors name, without those
    that a student's installation has as well."""
    instructors = _required(_PROJECT, _OF_INSTRUCTORS)
    for name in instructors - _installed_with({_PROJECT: _OF_STUDENTS, **_EVERYWHERE}):
        with suppress(PackageNotFoundError):
            package = distribution(name)
            tops = {file.parts[0] for file in package.files or () if len(file.parts) > 1}
            tops = {top for top in tops if top.isidentifier() and top != "__pycache__"}
            yield from (Path(package.locate_file(top)) for top in tops)


def _required(name: str, extras: Iterable[str]) -> set[str]:
    """Name the distributions that one requires, with these extras; none where it is not installed."""
    try:
        requirements = list(map(Requirement, distribution(name).requires or ()))
    except PackageNotFoundError:
        return set()
    environments = [{"extra": extra} for extra in ("", *extras)]
    return {
        canonicalize_name(requirement.name)
        for requirement in requirements
        if not requirement.marker or any(map(requirement.marker.evaluate, environments))
    }


def _installed_with(names: Mapping[str, Iterable[str]]) -> set[str]:
    """Name all distributions that come with these, each with its extras."""
    installed: set[str] = set()
    waiting = dict(names)
    while waiting:
        name, extras = waiting.popitem()
        installed.add(name)
        waiting |= dict.fromkeys(_required(name, extras) - installed - set(waiting), ())
    return installed
