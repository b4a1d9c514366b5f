"""Makes small changes to a module that tests should detect: comparisons, boundaries, booleans, numbers, statements."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
ONLY_THE_FIRST = "only the first"
_REMOVABLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Return, ast.Continue, ast.Break, ast.Delete)


class Mutant(NamedTuple):
    """One changed module.

    Attributes:
        line: The line in the original file.
        what: The description of the change.
        tree: The whole changed file.
    """

    line: int
    what: str
    tree: ast.Module

    @property
    def source(self) -> str:
        """The source of the changed file."""
        return ast.unparse(self.tree) + "\n"


class _Change(NamedTuple):
    line: int
    what: str
    apply: Callable[[], None]


def changes(source: str) -> list[tuple[int, str]]:
    """Return the line and description of every possible change of a file."""
    return [(change.line, change.what) for change in _changes(ast.parse(source))]


def mutant(source: str, number: int) -> Mutant:
    """Return the file with one of its ``changes``."""
    tree = ast.parse(source)  # parsed again, because a change is made in place
    change = next(change for index, change in enumerate(_changes(tree)) if index == number)
    change.apply()
    return Mutant(change.line, change.what, ast.fix_missing_locations(tree))


def _changes(tree: ast.Module) -> Iterator[_Change]:
    """Yield the changes lazily. They are independent of each other, so apply at most one of them."""
    no_code = _no_code(tree)
    for node in ast.walk(tree):
        if id(node) not in no_code:
            yield from _of_node(node)
            yield from _of_block(node, no_code)


def _of_node(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare():
            for place, before in enumerate(node.ops):
                for after in _COMPARISONS[type(before)]:
                    name = f"{type(before).__name__} to {after.__name__}"
                    yield _Change(node.lineno, name, _setting(node.ops, place, after()))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            name = f"{type(node.op).__name__} to {type(other).__name__}"
            yield _Change(node.lineno, name, lambda: setattr(node, "op", other))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _ARITHMETIC:
            after_it = _ARITHMETIC[type(node.op)]
            name = f"{type(node.op).__name__} to {after_it.__name__}"
            yield _Change(node.lineno, name, lambda: setattr(node, "op", after_it()))
        case ast.UnaryOp(op=ast.Not()):
            twice = ast.UnaryOp(ast.Not(), node.operand)
            yield _Change(node.lineno, "not removed", lambda: setattr(node, "operand", twice))
        case ast.If() | ast.While() | ast.IfExp():
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield _Change(node.lineno, f"condition negated: {ast.unparse(node.test)}", lambda: _negate(node, negated))
        case ast.For() | ast.comprehension():
            # Tests with one topic, partition, broker or batch do not detect that the others are left out.
            name = f"{ONLY_THE_FIRST} of {ast.unparse(node.iter).splitlines()[0][:60]}"
            yield _Change(node.iter.lineno, name, _setting_iter(node, _first_of(node.iter)))
        case ast.Constant(value=bool() as truth):
            yield _Change(node.lineno, f"{truth} to {not truth}", lambda: setattr(node, "value", not truth))
        case ast.Constant(value=int() as number):
            for near in (number - 1, number + 1):
                yield _Change(node.lineno, f"{number} to {near}", _assigning(node, near))


def _of_block(node: ast.AST, no_code: set[int]) -> Iterator[_Change]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):  # for example, the body of a lambda
            continue
        for place, statement in enumerate(block):
            if isinstance(statement, _REMOVABLE) and id(statement) not in no_code and not _is_text(statement):
                text = ast.unparse(statement).splitlines()[0][:60]
                yield _Change(statement.lineno, f"removed: {text}", _setting(block, place, ast.Pass()))


def _setting(target: list[ast.AST] | list[ast.cmpop], place: int, value: ast.AST) -> Callable[[], None]:
    return lambda: cast("list[ast.AST]", target).__setitem__(place, value)


def _assigning(node: ast.Constant, value: int) -> Callable[[], None]:
    return lambda: setattr(node, "value", value)


def _setting_iter(node: ast.For | ast.comprehension, value: ast.expr) -> Callable[[], None]:
    return lambda: setattr(node, "iter", value)


def _first_of(iterable: ast.expr) -> ast.expr:
    """Return an expression for an iterable that ends after its first element."""
    call = ast.parse('__import__("itertools").islice(None, 1)', mode="eval").body
    assert isinstance(call, ast.Call)
    call.args[0] = iterable
    return call


def _negate(node: ast.If | ast.While | ast.IfExp, test: ast.expr) -> None:
    node.test = test


def _no_code(tree: ast.Module) -> set[int]:
    """Return the nodes whose changes no test can detect.

    These are annotations, imports and type variables for the type checker, ``__all__``, and the arguments of dataclass
    decorators: ``frozen`` is for the type checker, ``slots`` saves memory.
    """
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as annotation):
                roots.append(annotation)
            case ast.ClassDef():
                roots += [each for each in node.decorator_list if "dataclass" in ast.unparse(each)]
            case ast.FunctionDef(returns=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                roots.append(annotation)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                roots.append(node)
            case (
                ast.Assign(targets=[ast.Name(id="__all__")])
                | ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec")))
            ):
                roots.append(node)
    return {id(node) for root in roots for node in ast.walk(root)}


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
