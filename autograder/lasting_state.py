"""Tell whether a student's code may keep state from one call to the next.

Code that keeps no state gives the same answer whatever ran before it, so a lost question need not be
asked again after the lesson's own cells have run. The code is only read, and in doubt the answer is yes:
that costs nothing but time.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from autograder.syntax import parse

CONSTANT = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
"""The nodes of an expression whose value cannot change."""
LIBRARIES = {"__future__", "abc", "bisect", "collections", "contextlib", "copy", "course"}
LIBRARIES |= {"dataclasses", "enum", "functools", "hashlib", "heapq", "itertools", "math"}
LIBRARIES |= {"matplotlib", "numbers", "numpy", "operator", "re", "statistics", "string"}
LIBRARIES |= {"time", "torch", "tqdm", "types", "typing", "typing_extensions"}
"""Modules whose functions keep no state, apart from those below."""
KEEPING_FUNCTIONS = {"cache", "lru_cache", "cached_property", "open", "setattr", "delattr", "input"}
KEEPING_ATTRIBUTES = {"lru_cache", "cached_property", "seed", "manual_seed", "save", "write_text"}
KEEPING_ATTRIBUTES |= {"write_bytes", "mkdir", "__class__", "__setattr__", "__dict__"}
"""Functions that keep state, unless the name is local, and attributes that do."""
SETTERS = "set_"
"""The prefix of functions that change a library's settings, such as `torch.set_grad_enabled`."""
DECORATORS = {"staticmethod", "classmethod", "property", "no_grad", "inference_mode", "dataclass"}
DECORATORS |= {"setter", "abstractmethod", "override", "overload", "total_ordering", "wraps"}


def may_keep_state(student: Sequence[str], lesson: Sequence[str], called: Collection[str]) -> bool:
    """Tell whether functions and classes of a student may keep state.

    Args:
        student: the sources of the cells that the student wrote.
        lesson: the sources of the lesson's cells that run as well; they keep no state.
        called: the names of the functions and classes that questions call.
    """
    try:
        trees = [parse(source) for source in student]
        fixed, bound = _bindings([*trees, *_readable(lesson)])
        variable = bound - fixed
        if variable & set(called):
            return True
        return any(
            _Reader(variable, bound, symtable.symtable(source, "cell", "exec")).finds_state(tree)
            for source, tree in zip(student, trees, strict=True)
        )
    except (SyntaxError, ValueError, RecursionError, KeyError):
        return True


def _readable(sources: Sequence[str]) -> Iterator[ast.Module]:
    for source in sources:
        with suppress(SyntaxError):  # a cell of the lesson with magics
            yield parse(source)


def _bindings(trees: Sequence[ast.Module]) -> tuple[set[str], set[str]]:
    """Return the names that are only bound to definitions, imports and constants, and all names."""
    fixed: set[str] = set()
    variable: set[str] = set()
    for node in (node for tree in trees for node in tree.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                fixed.add(name)
            case ast.ClassDef(name=name):
                fixed.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                fixed |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_constant(value):
                fixed.add(name)
            case _:
                variable |= {
                    name_node.id
                    for name_node in ast.walk(node)
                    if isinstance(name_node, ast.Name) and not isinstance(name_node.ctx, ast.Load)
                }
    return fixed - variable, fixed | variable


def _is_constant(value: ast.AST | None) -> bool:
    return value is None or all(isinstance(node, CONSTANT) for node in ast.walk(value))


class _Reader:
    """Reads the functions and classes of one cell.

    Args:
        variable: the module's names that may be bound to something that changes.
        bound: all names of the module.
        table: the symbol table of this cell.
    """

    def __init__(self, variable: set[str], bound: set[str], table: symtable.SymbolTable) -> None:
        self.variable, self.bound = variable, bound
        self.tables = {
            (nested.get_name(), nested.get_lineno()): nested for nested in _nested(table)
        }

    def finds_state(self, tree: ast.Module) -> bool:
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    if self._function_keeps(node):
                        return True
                case ast.ClassDef():
                    if not all(map(_is_harmless_in_class, node.body)) or _is_decorated(node):
                        return True
                case ast.Import() | ast.ImportFrom():
                    if not _is_known_import(node):
                        return True
        return False

    def _function_keeps(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
        if _is_decorated(function) or not all(map(_is_safe_default, defaults)):
            return True
        table = self.tables[function.name, function.lineno]
        return any(self._keeps(node, table) for part in function.body for node in ast.walk(part))

    def _keeps(self, node: ast.AST, table: symtable.SymbolTable) -> bool:
        match node:
            case ast.Global() | ast.Nonlocal():
                return True
            case ast.Name(id=name, ctx=ast.Load()):
                lasting = name in KEEPING_FUNCTIONS or name in self.variable
                return lasting and not _is_local(table, name)
            case ast.Attribute(attr=name, value=value, ctx=ctx):
                if name in KEEPING_ATTRIBUTES or name.startswith(SETTERS):
                    return True
                return not isinstance(ctx, ast.Load) and self._is_lasting(value, table)
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                return self._is_lasting(value, table)
        return False

    def _is_lasting(self, owner: ast.AST, table: symtable.SymbolTable) -> bool:
        """Tell whether an object that is changed here may outlive the call and is not the caller's."""
        while isinstance(owner, ast.Attribute | ast.Subscript):
            owner = owner.value
        return not isinstance(owner, ast.Name) or (
            owner.id in self.bound and not _is_local(table, owner.id)
        )


def _nested(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _nested(child)


def _is_local(table: symtable.SymbolTable, name: str) -> bool:
    """Tell whether a name is local to the function, or to one around it."""
    try:
        return not table.lookup(name).is_global()
    except KeyError:  # of an inner function, which is read by itself
        return True


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Tell whether there is a decorator that may keep state."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in DECORATORS:
            return True
    return False


def _is_safe_default(value: ast.AST) -> bool:
    return _is_constant(value) or isinstance(value, ast.Name | ast.Attribute)


def _is_harmless_in_class(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Pass():
            return True
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
            return _is_constant(value)
    return False


def _is_known_import(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else None
    names = [alias.name for alias in node.names]
    roots = {name.partition(".")[0] for name in modules or names}
    return roots <= LIBRARIES and not KEEPING_FUNCTIONS & set(names)
