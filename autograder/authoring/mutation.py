"""Make every one-place mutant of the answers in a cell: the same code with one small thing changed.

Changed is what stands between `### BEGIN SOLUTION` and `### END SOLUTION`, and the default arguments of
the functions around it. The operators are those of mutation testing tools: another operator, another
comparison, a constant one off, a condition negated, a bound moved, a statement or a keyword left out.
Text is never changed: not strings, and not what an error says.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from autograder.authoring.source import SOLUTION, parse_python

WIDTH = 100
"""Characters of the code by which a mutant is named; of a longer statement the part that changes."""
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
ORDER = (ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt)
ALIKE = (
    (ast.And, ast.Or),
    ARITHMETIC,
    BITS,
    (ast.MatMult, ast.Mult),
    ORDER,
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
"""Operators that take each other's place; the first group that holds an operator counts."""
LEFT_OUT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Raise, ast.Assert)
"""Statements that may be left out."""
KEPT = (ast.JoinedStr, ast.FunctionDef, ast.ClassDef)
"""Nodes in which nothing changes: messages, and definitions, which are looked into on their own."""


@dataclass(frozen=True)
class Mutant:
    """One change of a cell.

    Attributes:
        function: where it is, such as "KVCache.append".
        before, after: the statement, or the part of it that changes, as code on one line.
        place: counted from 1 among the mutants of this function that read the same.
        source: the whole cell, changed.
    """

    function: str
    before: str
    after: str
    place: int
    source: str

    def __str__(self) -> str:
        """What names it, wherever its function stands and whatever stands around it."""
        count = f" ({self.place})" if self.place > 1 else ""
        return f"{self.function}: {self.before}  ->  {self.after}{count}"


def mutants_of(source: str) -> list[Mutant]:
    """Every mutant of a solution cell, markers included, in the order of the code."""
    tree, lines = parse_python(source), _lines_of_solutions(source)
    unchanged = ast.unparse(tree)
    mutants: dict[str, Mutant] = {}
    for function, site in _sites(tree, lines):
        for new in changes(site.node):
            before, after, mutated = site.exchanged(new, tree)
            if mutated != unchanged and mutated not in mutants:
                mutants[mutated] = Mutant(function, before, after, 1, mutated)
    return list(_counted(mutants.values()))


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may take the place of a node: the one-place changes of the node itself, not of its parts."""
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            yield from (_with(node, op=op) for op in _others(node.op))
        case ast.Compare():
            for i, old in enumerate(node.ops):
                for op in _others(old):
                    yield _with(node, ops=[*node.ops[:i], op, *node.ops[i + 1 :]])
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            yield node.operand
        case ast.Constant():
            yield from _other_constants(node)
        case ast.Slice():
            yield from _other_bounds(node)
        case ast.Call():
            for keyword in node.keywords:
                if keyword.arg is not None:
                    yield _with(node, keywords=[k for k in node.keywords if k is not keyword])
        case ast.If() | ast.While() | ast.IfExp():
            yield from (_with(node, test=test) for test in _negated(node.test))
        case ast.comprehension():
            for i, test in enumerate(node.ifs):
                for other in _negated(test):
                    yield _with(node, ifs=[*node.ifs[:i], other, *node.ifs[i + 1 :]])
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    if isinstance(node, LEFT_OUT):
        yield ast.Pass()


def _others(old: Any) -> Iterator[Any]:
    alike = next((group for group in ALIKE if isinstance(old, group)), ())
    return (kind() for kind in alike if not isinstance(old, kind))


def _other_constants(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        for other in dict.fromkeys((value + 1, value - 1, 0, 1)):
            if other != value:
                yield _number(other)


def _number(value: float) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _other_bounds(node: ast.Slice) -> Iterator[ast.Slice]:
    """Each bound left out, moved by one where it is no constant, and put in where it is missing."""
    for name, missing in (("lower", 1), ("upper", -1), ("step", None)):
        bound = getattr(node, name)
        if bound is not None and ast.unparse(bound) != "0":
            yield _with(node, **{name: None})
        elif bound is None and missing is not None:
            yield _with(node, **{name: _number(missing)})
        if bound is not None and not _is_number(bound):
            for move in (ast.Add(), ast.Sub()):
                yield _with(node, **{name: ast.BinOp(bound, move, ast.Constant(1))})


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _negated(test: ast.expr) -> Iterator[ast.expr]:
    """The opposite of a condition, where no other change is the same as that."""
    changed_anyway = isinstance(test, ast.Compare) and len(test.ops) == 1
    if not changed_anyway and not isinstance(getattr(test, "op", None), ast.Not):
        yield ast.UnaryOp(ast.Not(), test)


def _with(node: ast.AST, **fields: Any) -> Any:
    """A copy that shares its parts, but for those given."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


@dataclass(frozen=True)
class _Site:
    """Where a node hangs in the tree.

    Attributes:
        around: the nodes from its statement down to its parent; none for a statement.
        parent, field, index: the node is this field of its parent, or an item of that list.
        label: what stands before the node where a mutant is named.
    """

    node: ast.AST
    around: tuple[ast.AST, ...]
    parent: ast.AST
    field: str
    index: int | None = None
    label: str = ""

    def exchanged(self, new: ast.AST, tree: ast.AST) -> tuple[str, str, str]:
        """The code that names the change, before and after, and the whole tree with `new` put in."""
        named = next((n for n in self.around if len(_line(n)) <= WIDTH), None)
        before = _line(named or self.node)
        self._put(new)
        after, mutated = _line(named or new), ast.unparse(tree)
        self._put(self.node)
        return self.label + before, self.label + after, mutated

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _line(node: ast.AST) -> str:
    """A node's code on one line; of an `if` or a loop the line that begins it."""
    return ast.unparse(node).strip().partition("\n")[0]


def _sites(tree: ast.AST, lines: set[int], path: str = "") -> Iterator[tuple[str, _Site]]:
    """What may change in each function that a student fills, with the function's name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            sites = list(_filled(node, lines))
            defaults = _defaults(node.args) if sites else ()
            yield from ((path + node.name, site) for site in (*defaults, *sites))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _sites(node, lines, f"{path}{node.name}.")


def _filled(tree: ast.AST, lines: set[int]) -> Iterator[_Site]:
    """The sites in those statements of a block that stand in the lines that a student fills."""
    for field, block in ast.iter_fields(tree):
        for index, node in enumerate(block if isinstance(block, list) else ()):
            if not isinstance(node, ast.stmt) or isinstance(node, KEPT):
                continue
            if node.lineno in lines:
                yield from _within(_Site(node, (), tree, field, index))
            else:
                yield from _filled(node, lines)


def _within(site: _Site) -> Iterator[_Site]:
    """A site and those of its parts, annotations aside."""
    if isinstance(site.node, KEPT):
        return
    yield site
    for field, value in ast.iter_fields(site.node):
        for index, part in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(part, ast.AST) and field != "annotation":
                around = () if isinstance(part, ast.stmt) else (*site.around, site.node)
                yield from _within(_Site(part, around, site.node, field, index))


def _defaults(args: ast.arguments) -> Iterator[_Site]:
    """The default arguments of a function."""
    named = [*args.posonlyargs, *args.args][::-1]
    for i, (arg, default) in enumerate(zip(named, args.defaults[::-1], strict=False), start=1):
        yield _Site(default, (), args, "defaults", len(args.defaults) - i, f"{arg.arg}=")
    for i, (arg, value) in enumerate(zip(args.kwonlyargs, args.kw_defaults, strict=True)):
        if value is not None:
            yield _Site(value, (), args, "kw_defaults", i, f"{arg.arg}=")


def _lines_of_solutions(source: str) -> set[int]:
    """The numbers of the lines between the markers."""
    lines, filled = set(), False
    for number, line in enumerate(source.splitlines(), start=1):
        if (marker := line.strip()).endswith(f" {SOLUTION}"):
            filled = marker == f"### BEGIN {SOLUTION}"
        elif filled:
            lines.add(number)
    return lines


def _counted(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """Mutants that read the same, told apart by their place."""
    seen: Counter[str] = Counter()
    for mutant in mutants:
        seen[str(mutant)] += 1
        yield replace(mutant, place=seen[str(mutant)])
