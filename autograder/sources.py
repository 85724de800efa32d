"""Digest the source code that a function, a class or a check stands on.

    digest_of([check.probe, draw_prompt])

What counts is definitions, not files: a function, the functions and classes that it names, and what
these name in turn, across the modules of `course` and `autograder`. So a digest changes with every line
that may change a result, and with nothing else: not with a picture, another lesson, or a comment between
functions. Names are followed as they are written. What is looked up by a computed name (`getattr`,
`import_module`) is not seen: name it among the starts.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from autograder.syntax import parse

PACKAGES = ("course", "autograder")
EVERYTHING = ""
"""In the place of a name: all definitions of a module."""


class Definition(NamedTuple):
    """What a name at the top of a module stands for."""

    module: str
    name: str


@dataclass
class Module:
    """The source of a module, by the names that stand at its top.

    Attributes:
        statements: what defines each name; under EVERYTHING what defines none, and runs at import.
        imports: what each imported name stands for.
    """

    text: str
    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Definition] = field(default_factory=dict)


def digest_of(
    starts: Iterable[Any],
    *,
    without: Collection[str] = (),
    texts: Iterable[str] = (),
) -> str:
    """Digest all definitions on which some objects stand.

    Args:
        starts: functions, classes, instances that hold such, modules, or `Definition`s.
        without: modules and packages that are not followed.
        texts: sources that count as well; what they import of the project is followed.

    Returns:
        A SHA-256 digest in hexadecimal, the same on every machine and Python.
    """
    places, parts = [], []
    for start in starts:
        for item in _parts_of(start, set()):
            if isinstance(item, Definition):
                places.append(item)
            parts.append(str(item))  # the starts in their order, too: one is another's argument
    closure = sorted(definitions_behind(places, without))
    parts += [f"{place.module}:{place.name}\n{text_of(place)}" for place in closure]
    return hashed([*parts, *(_digest_of_text(text, tuple(without)) for text in texts)])


def forget() -> None:
    """Read all files again: they may have changed while this process lives."""
    for function in (
        read_module,
        text_of,
        _named_by,
        _digest_of_text,
        _digest_behind,
        _data_beside,
    ):
        function.cache_clear()


def hashed(parts: Iterable[str]) -> str:
    """Digest pieces of text, in their order."""
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()


@cache
def _digest_of_text(text: str, without: tuple[str, ...]) -> str:
    return hashed([text, *(_digest_behind(place, without) for place in imports_of(text))])


@cache
def _digest_behind(place: Definition, without: tuple[str, ...]) -> str:
    return digest_of([place], without=without)


def definitions_behind(
    places: Iterable[Definition], without: Collection[str] = ()
) -> set[Definition]:
    """Follow names from definition to definition; return all that are reached."""
    reached: set[Definition] = set()
    seen: set[Definition] = set()
    todo = list(places)
    while todo:
        place = todo.pop()
        if place in seen or _is_in(place.module, without):
            continue
        seen.add(place)
        module = read_module(place.module)
        if module is None:
            continue
        if place.name in module.imports:
            todo.append(module.imports[place.name])
        elif place.name == EVERYTHING or place.name in module.statements:
            reached.add(place)
            todo += _named_by(place)
        else:
            todo += _in_files_of(place)
    return reached


@cache
def _named_by(place: Definition) -> set[Definition]:
    """Return what the statements of a definition name."""
    module = read_module(place.module)
    names = {place.name, EVERYTHING} if place.name else module.statements
    statements = (statement for name in names for statement in module.statements.get(name, ()))
    return {named for one in statements for named in _named_in(one, place.module, module)}


@cache
def text_of(place: Definition) -> str:
    """Return the source of a definition, with what runs when its module is imported; for EVERYTHING
    the whole file, and for the package of the weights their files' digests."""
    module = read_module(place.module)
    if place.name == EVERYTHING:
        return module.text
    lines = module.text.splitlines()
    statements = module.statements[place.name] + module.statements.get(EVERYTHING, [])
    parts = ["\n".join(lines[_first_line(s) - 1 : s.end_lineno]) for s in statements]
    return "\n".join([*parts, *_data_beside(place.module)])


@cache
def read_module(name: str) -> Module | None:
    """Read a module of the project; None where it is none, or has no source."""
    path = _file_of(name) if _is_in(name, PACKAGES) else None
    if path is None:
        return None
    module = Module(source_of(path))
    for statement in parse(module.text).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for place, alias in _imported_names(statement):
                module.imports[alias] = place
        elif not _runs_only_as_program(statement):
            for defined in _names_defined_by(statement) or [EVERYTHING]:
                module.statements.setdefault(defined, []).append(statement)
    return module


def texts_of(name: str) -> list[str]:
    """Read a module of the project, and a text file of its name beside it; of a package, all Python and
    text files beside its own."""
    files = [path for folder in _folders_of(name) for path in sorted(folder.iterdir())]
    files += [path for path in [_file_of(name).with_suffix(".txt")] if path.is_file()]
    read = (path for path in files if path.suffix in (".py", ".txt") and path.name != "__init__.py")
    return [read_module(name).text, *map(source_of, read)]


def _folders_of(name: str) -> list[Path]:
    """List the folders of a package, without importing it: what is looked up may be large."""
    if name in sys.modules:
        return [Path(folder) for folder in getattr(sys.modules[name], "__path__", [])]
    parent, _, last = name.rpartition(".")
    if not parent:
        return list(map(Path, importlib.util.find_spec(name).submodule_search_locations or []))
    folders = (folder / last for folder in _folders_of(parent))
    return [folder for folder in folders if folder.is_dir()]


def _file_of(name: str) -> Path | None:
    parent, _, last = name.rpartition(".")
    places = [folder / f"{last}.py" for folder in _folders_of(parent)] if parent else []
    places += [folder / "__init__.py" for folder in _folders_of(name)]
    return next((place for place in places if place.is_file()), None)


def source_of(path: Path) -> str:
    """Read a file of the project."""
    return path.read_text(encoding="utf-8")


def _named_in(statement: ast.AST, name: str, module: Module) -> Iterator[Definition]:
    """Yield what a statement may look up: names of its module, attributes of imported modules, and what
    it imports itself."""
    followed = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = module.imports.get(node.value.id)
            if place is not None and (target := _as_module(place)):
                followed.add(id(node.value))
                yield Definition(target, node.attr)
        elif isinstance(node, ast.Name) and id(node) not in followed:
            place = module.imports.get(node.id)
            if place is None and node.id in module.statements:
                yield Definition(name, node.id)
            elif place is not None:
                target = _as_module(place)
                yield Definition(target, EVERYTHING) if target else place
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (place for place, _ in _imported_names(node))


def _as_module(place: Definition) -> str | None:
    """Return the name of the module that an import stands for; None where it is something in one."""
    whole = f"{place.module}.{place.name}" if place.name else place.module
    known = read_module(place.module) if place.name else None
    if known is not None and place.name in {*known.statements, *known.imports}:
        return None
    return whole if read_module(whole) is not None else None


def _in_files_of(place: Definition) -> Iterator[Definition]:
    """Yield what a name of a package stands for that is no definition of its own: a module in it, or what
    one of its files defines and `gather` shows."""
    if read_module(f"{place.module}.{place.name}") is not None:
        yield Definition(f"{place.module}.{place.name}", EVERYTHING)
        return
    for folder in _folders_of(place.module):
        for file in sorted(folder.glob("*.py")):
            inner = read_module(f"{place.module}.{file.stem}")
            if inner is not None and place.name in inner.statements:
                yield Definition(f"{place.module}.{file.stem}", place.name)


def _parts_of(value: Any, seen: set[int]) -> Iterator[Definition | str]:
    """Walk through an object: the definitions behind its functions and classes, and plain values."""
    if id(value) in seen:
        return
    if isinstance(value, Definition):
        yield value
    elif isinstance(value, ModuleType):
        yield Definition(value.__name__, EVERYTHING)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield f"{value!r}"
    else:
        seen.add(id(value))
        for part in _inside(value):
            yield from [part] if isinstance(part, Definition) else _parts_of(part, seen)


def _inside(value: Any) -> Iterator[Any]:
    """Yield what an object is made of, as far as it can change what the object does."""
    if isinstance(value, FunctionType | type):
        if getattr(value, "__qualname__", "") == "<lambda>":
            yield from _inside_lambda(value)
        elif _is_in(value.__module__, PACKAGES):
            yield Definition(value.__module__, value.__qualname__.split(".")[0])
        if isinstance(value, FunctionType):
            yield from (cell.cell_contents for cell in value.__closure__ or () if _is_full(cell))
            yield from value.__defaults__ or ()
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    elif isinstance(value, dict):
        yield from (part for pair in value.items() for part in pair)
    elif _is_in(type(value).__module__, PACKAGES):
        yield type(value)
        yield from getattr(value, "__dict__", {}).values()
    elif " at 0x" not in (text := repr(value)):  # a dtype, or another plain value
        yield text


def _inside_lambda(function: FunctionType) -> Iterator[Definition | str]:
    """Yield the source of a lambda at the top of a module, and what it names; where several begin on its
    line, all of them."""
    module = read_module(function.__module__)
    for node in ast.walk(parse(module.text)) if module else ():
        if isinstance(node, ast.Lambda) and node.lineno == function.__code__.co_firstlineno:
            yield ast.get_source_segment(module.text, node)
            yield from _named_in(node, function.__module__, module)


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def imports_of(text: str) -> list[Definition]:
    """List what a piece of code imports of the project; nothing of one that is no valid Python."""
    if not any(package in text for package in PACKAGES):  # quickly, for most cells
        return []
    try:
        nodes = list(ast.walk(parse(text)))
    except SyntaxError:
        return []
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return [place for node in imports for place, _ in _imported_names(node)]


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[Definition, str]]:
    """Yield what a statement imports of the project, and by which name it is known then."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if _is_in(node.module or "", PACKAGES):
                name = EVERYTHING if alias.name == "*" else alias.name
                yield Definition(node.module, name), alias.asname or alias.name
        elif _is_in(alias.name, PACKAGES):
            yield Definition(alias.name, EVERYTHING), alias.asname or alias.name


def _names_defined_by(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = {
        ast.Assign: lambda s: s.targets,
        ast.AnnAssign: lambda s: [s.target],
        ast.AugAssign: lambda s: [s.target],
    }.get(type(statement), lambda s: [])(statement)
    nodes = (node for target in targets for node in ast.walk(target))
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _runs_only_as_program(statement: ast.stmt) -> bool:
    """Tell whether a statement is `if __name__ == "__main__":`, which no import runs."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


@cache
def _data_beside(module: str) -> tuple[str, ...]:
    """Return the digests of the files that a package holds beside its code, such as weights."""
    origin = _file_of(module)
    if origin.name != "__init__.py":
        return ()
    files = (path for path in sorted(origin.parent.iterdir()) if path.is_file())
    return tuple(
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
        if path.suffix != ".py"
    )


def _is_in(name: str | None, packages: Collection[str]) -> bool:
    return any(name == package or str(name).startswith(f"{package}.") for package in packages)
