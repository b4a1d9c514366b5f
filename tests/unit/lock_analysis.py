"""Which attributes a class uses while it holds its locks, and which without them: a static check, as ``@GuardedBy``.

``x`` is an attribute of ``self``, or a global variable; ``.x`` is an attribute of another object; ``yield`` is one.

A private method may rely on the lock of its callers. Lambdas run where they are written, nested functions later. A
container of an attribute is one that a lock guards, too, if it is changed by a local name (``idle.pop()``).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEFERRING = {"start_thread", "run_with_timeout", "start_call", "Thread", "Timer"}  # they call their arguments later
_CHANGES = {"add", "append", "clear", "discard", "extend", "pop", "popitem", "popleft", "remove", "setdefault"}
_FACTORIES = {"lock", "reentrant_lock", "condition", "Lock", "RLock", "Condition"}
_UNSHARED = {"__init__", "__setstate__", "_init_transient", "after_fork"}  # no other thread has the object yet


class Use(NamedTuple):
    """Where an attribute is used without its lock."""

    method: str
    attribute: str
    lock: str
    number: int  # of the use in its method


@dataclass
class LockOwner:
    """A class with locks, or a module with global locks."""

    name: str
    locks: dict[str, str] = field(default_factory=dict)  # by attribute: the lock itself, or the lock of a condition
    conditions: dict[str, str] = field(default_factory=dict)  # those of the locks that have to be held for their use
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    held_at: dict[tuple[str, str], list[frozenset[str]]] = field(default_factory=lambda: defaultdict(list))
    references: set[str] = field(default_factory=set)  # methods that are passed on

    def uses_without(self, guarded: dict[str, str]) -> list[Use]:
        """Return the uses of guarded attributes for which no lock is held, in methods that rely on no caller."""
        guarded = {**guarded, **self.conditions}
        missing: dict[str, list[Use]] = defaultdict(list)
        callers: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
        for (method, attribute), uses in self.held_at.items():
            for held in () if method in _UNSHARED else uses:
                lock = guarded.get(attribute)
                if lock is not None and lock not in held:
                    missing[method].append(Use(method, attribute, lock, len(missing[method])))
                if attribute in self.methods:
                    callers[attribute].append((method, held))
        found: set[Use] = set()
        pending = [(method, use) for method, uses in missing.items() for use in uses]
        done = set(pending)
        while pending:
            method, use = pending.pop()
            if self._is_entry_point(method, callers):
                found.add(use)
                continue
            for caller, held in callers[method]:
                if use.lock not in held and (caller, use) not in done:
                    done.add((caller, use))
                    pending.append((caller, use))
        return sorted(found)

    def _is_entry_point(self, method: str, callers: dict[str, list[tuple[str, frozenset[str]]]]) -> bool:
        is_private = method.startswith("_") and not method.startswith("__")
        return not is_private or method in self.references or not callers[method]


def lock_owners(path: Path) -> Iterator[LockOwner]:
    """Return the classes of a module that have locks, and the module if it has some."""
    source = path.read_text("utf-8")
    if not any(f"{factory}(" in source for factory in _FACTORIES) and "Condition" not in source:
        return
    tree = ast.parse(source)
    scopes: list[ast.Module | ast.ClassDef] = [tree]
    scopes += [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    for scope in scopes:
        owner = LockOwner(scope.name if isinstance(scope, ast.ClassDef) else "")
        _find_locks(owner, scope)
        if owner.locks:
            owner.methods = {each.name: each for each in scope.body if isinstance(each, ast.FunctionDef)}
            for method in owner.methods.values():
                _Visitor(owner, method.name).visit_body(method.body)
            yield owner


def _find_locks(owner: LockOwner, scope: ast.Module | ast.ClassDef) -> None:
    nodes = scope.body if isinstance(scope, ast.Module) else ast.walk(scope)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _name(node.value.func) in _FACTORIES:
            name = _own_name(owner, node.targets[0])
            if name is not None:
                shared = [_own_name(owner, each) for each in node.value.args]
                owner.locks[name] = shared[0] if shared and shared[0] is not None else name
                if _name(node.value.func) in ("condition", "Condition"):
                    owner.conditions[name] = owner.locks[name]
        elif isinstance(node, ast.With) and _name(node.items[0].context_expr) == "condition":
            # The condition of another object.
            name = ast.unparse(node.items[0].context_expr)
            owner.locks[name] = name
        elif isinstance(node, ast.FunctionDef) and _is_condition_property(node):
            owner.locks[node.name] = node.name
    if "_lock" in owner.locks:
        owner.locks["_locked"] = "_lock"  # a context manager that holds it


def _is_condition_property(node: ast.FunctionDef) -> bool:
    is_property = any(_name(each) == "property" for each in node.decorator_list)
    return is_property and node.returns is not None and _name(node.returns) == "Condition"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _own_name(owner: LockOwner, node: ast.expr) -> str | None:
    """Return the name of an attribute of ``self``, or of a global variable."""
    if isinstance(node, ast.Attribute):
        return node.attr if owner.name and isinstance(node.value, ast.Name) and node.value.id == "self" else None
    return node.id if not owner.name and isinstance(node, ast.Name) else None


class _Visitor(ast.NodeVisitor):
    def __init__(self, owner: LockOwner, method: str) -> None:
        self._owner = owner
        self._method = method
        self._held: frozenset[str] = frozenset()
        self._is_deferred = False
        self._aliases: dict[str, str] = {}  # local names of what attributes contain

    def visit_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit_With(self, node: ast.With) -> None:
        before = self._held
        for item in node.items:
            manager = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
            lock = self._owner.locks.get(_own_name(self._owner, manager) or ast.unparse(manager))
            if lock is None:
                self.visit(item.context_expr)
            else:
                self._held |= {lock}
        self.visit_body(node.body)
        self._held = before

    def visit_Try(self, node: ast.Try) -> None:
        """A block that ends with ``self._lock.release()`` holds the lock."""
        before = self._held
        for each in (call.func for end in node.finalbody for call in ast.walk(end) if isinstance(call, ast.Call)):
            if isinstance(each, ast.Attribute) and each.attr == "release":
                lock = self._owner.locks.get(_own_name(self._owner, each.value) or "")
                self._held |= set() if lock is None else {lock}
        self.visit_body(node.body)
        for handler in node.handlers:
            self.visit_body(handler.body)
        self.visit_body(node.orelse)
        self._held = before
        self.visit_body(node.finalbody)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A nested function runs later, without the locks that are held now."""
        before, self._held = self._held, frozenset()
        self.visit_body(node.body)
        self._held = before

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._aliases.pop(target.id, None)
                if (attribute := self._container(node.value)) is not None:
                    self._aliases[target.id] = attribute

    def _container(self, node: ast.expr) -> str | None:
        """Return the attribute of which an expression is a part, and no copy."""
        while not isinstance(node, ast.Attribute | ast.Name) or _own_name(self._owner, node) is None:
            if isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                node = node.func.value
            else:
                return None
        return _own_name(self._owner, node) if self._owner.name else None

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            alias = self._aliases.get(node.func.value.id)
            if alias is not None and node.func.attr in _CHANGES:
                self._add(alias)
        name = _own_name(self._owner, node.func)
        if name is None:
            self.visit(node.func)
        elif self._is_deferred:
            self._owner.references.add(name)
        else:
            self._add(name)
        before, self._is_deferred = self._is_deferred, self._is_deferred or _name(node.func) in _DEFERRING
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._visit_argument(each)
        self._is_deferred = before

    def _visit_argument(self, node: ast.expr) -> None:
        name = _own_name(self._owner, node)
        if name in self._owner.methods:
            self._owner.references.add(name)
        self.visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = _own_name(self._owner, node)
        if name is not None and self._owner.name:
            self._add(name)
        else:
            self._add(f".{node.attr}")
            self.visit(node.value)

    def visit_Yield(self, node: ast.Yield) -> None:
        self._add("yield")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not self._owner.name:
            self._add(node.id)

    def _add(self, name: str) -> None:
        self._owner.held_at[self._method, name].append(self._held)
