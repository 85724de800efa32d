"""Tell whether a student's code may keep something from one call to the next.

Code that keeps nothing gives the same answer whatever ran before it: then a lost question need not be
asked again behind the lesson's own cells. Told from the text alone, and in doubt the answer is yes; that
costs time and nothing else.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from autograder.syntax import parse

CONSTANT = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
"""What an expression is made of whose value nobody can change."""
LIBRARIES = {
    "__future__",
    "abc",
    "collections",
    "contextlib",
    "copy",
    "course",
    "dataclasses",
    "enum",
}
LIBRARIES |= {"functools", "itertools", "math", "matplotlib", "numbers", "numpy", "operator", "re"}
LIBRARIES |= {
    "bisect",
    "hashlib",
    "heapq",
    "statistics",
    "string",
    "time",
    "torch",
    "tqdm",
    "types",
    "typing",
    "typing_extensions",
}
"""Modules that keep nothing of what their functions are given, apart from those below."""
KEEPING_FUNCTIONS = {"cache", "lru_cache", "cached_property", "open", "setattr", "delattr", "input"}
KEEPING_ATTRIBUTES = {"lru_cache", "cached_property", "seed", "manual_seed", "save", "write_text"}
KEEPING_ATTRIBUTES |= {"write_bytes", "mkdir", "__class__", "__setattr__", "__dict__"}
"""Names that stand for something that stays, if they are not the function's own, and attributes."""
SETTERS = "set_"
"""What a library calls functions that change its settings: `torch.set_grad_enabled`."""
DECORATORS = {"staticmethod", "classmethod", "property", "no_grad", "inference_mode", "dataclass"}
DECORATORS |= {"setter", "abstractmethod", "override", "overload", "total_ordering", "wraps"}


def may_keep_state(own: Sequence[str], others: Sequence[str], asked: Collection[str]) -> bool:
    """Tell whether functions and classes of a student may keep state.

    Args:
        own: sources of the cells that the student wrote.
        others: of the lesson's own cells beside them, which keep none.
        asked: names of the functions and classes that questions call.
    """
    try:
        trees = [parse(source) for source in own]
        fixed, bound = _bindings([*trees, *_readable(others)])
        variable = bound - fixed
        if variable & set(asked):
            return True
        return any(
            _Reader(variable, bound, symtable.symtable(source, "cell", "exec")).finds_state(tree)
            for source, tree in zip(own, trees, strict=True)
        )
    except (SyntaxError, ValueError, RecursionError, KeyError):
        return True


def _readable(sources: Sequence[str]) -> Iterator[ast.Module]:
    for source in sources:
        with suppress(SyntaxError):  # a cell of the lesson with magics
            yield parse(source)


def _bindings(trees: Sequence[ast.Module]) -> tuple[set[str], set[str]]:
    """Return the module's names that stand for definitions, imports and constants alone, and all."""
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
                    found.id
                    for found in ast.walk(node)
                    if isinstance(found, ast.Name) and not isinstance(found.ctx, ast.Load)
                }
    return fixed - variable, fixed | variable


def _is_constant(value: ast.AST | None) -> bool:
    return value is None or all(isinstance(node, CONSTANT) for node in ast.walk(value))


class _Reader:
    """Reads the functions and classes of one cell.

    Args:
        variable: names of the module that stand for something that may change.
        bound: all names of the module.
        table: the symbols of this cell.
    """

    def __init__(self, variable: set[str], bound: set[str], table: symtable.SymbolTable) -> None:
        self.variable, self.bound = variable, bound
        self.tables = {(found.get_name(), found.get_lineno()): found for found in _nested(table)}

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
        """Tell whether what is changed here may outlive the call, and is not the caller's."""
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
    """Tell whether a name is the function's own, or that of one around it."""
    try:
        return not table.lookup(name).is_global()
    except KeyError:  # of an inner function, which is read by itself
        return True


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Tell whether a decorator stands there that may keep something."""
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
