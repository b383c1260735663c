"""The names in a program's source, and what they stand for; pure.

The program is not run, and the order of its statements does not count: a name stands for what it
is assigned, a parameter for the argument in the call of its function. With several assignments or
calls it is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeAlias

# What a name is assigned: an expression, the name of a click parameter, or None if unknown.
Assigned: TypeAlias = "ast.expr | str | None"


class SourceNames:
    """The names of a program: what each is assigned, in whatever order the statements are.

    Attributes:
        nodes: all nodes of the program, with an expression for each part of an unpacked value.
        parents: the node that each node is a part of.
        functions: the functions of the file, by name.
        calls: for each name, where the thing is called or passed to a call.
        assigned: what each name of a scope (a function, or None for the module) is assigned.

    """

    def __init__(self, module: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self.assigned: dict[tuple[ast.AST | None, str], list[Assigned]] = {}
        self._scopes: dict[ast.AST, ast.AST | None] = {}
        self._paths: dict[str, str] = {}  # dotted paths of imported names
        self.functions: dict[str, ast.FunctionDef] = {}
        self.calls: dict[str, list[ast.Name]] = {}
        self._returns: dict[ast.AST | None, list[ast.expr]] = {}
        self._add_nodes(module, None)
        for node in list(self.nodes):
            self._add(node)
        for node in list(self.nodes):
            match node:
                case ast.Call(ast.Name(name)) if name in self.functions:
                    self._add_call(self.functions[name], node)

    def _add_nodes(self, node: ast.AST, scope: ast.AST | None) -> None:
        for child in ast.iter_child_nodes(node):
            self.parents[child], self._scopes[child] = node, scope
            self.nodes.append(child)
            self._add_nodes(child, child if isinstance(child, ast.FunctionDef) else scope)

    def _add(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    self._paths[alias.asname or first] = alias.name if alias.asname else first
            case ast.ImportFrom(module, names, 0):
                for alias in names:
                    self._paths[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.FunctionDef(name):
                self.functions[name] = node
                if any(self.find_path(part) == "click.command()" for part in node.decorator_list):
                    for parameter in list_parameters(node):
                        self._assign(node, parameter, parameter)
            case ast.Name(name, ast.Load()) if isinstance(self.parents[node], ast.Call):
                self.calls.setdefault(name, []).append(node)
            case ast.Global(names) | ast.Nonlocal(names):
                self._forget(names, self._scopes[node])
            case ast.Return(ast.expr() as value):
                self._returns.setdefault(self._scopes[node], []).append(value)
            case ast.Assign(targets, value):
                for target in targets:
                    self._unpack(target, value)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._unpack(target, value)
            case ast.Name(name, ast.Store()) if not self._is_unpacked(node):
                self._assign(self._scopes[node], name, None)

    def _is_unpacked(self, name: ast.AST) -> bool:
        """Return whether a name gets its value by an assignment, or is a comprehension's own."""
        parent = self.parents[name]
        while isinstance(parent, (ast.Tuple, ast.List)):
            parent = self.parents[parent]
        return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.comprehension))

    def _assign(self, scope: ast.AST | None, name: str, value: Assigned) -> None:
        self.assigned.setdefault((scope, name), []).append(value)

    def _forget(self, names: Sequence[str], scope: ast.AST | None) -> None:
        """Set names to unknown in a scope and all that enclose it."""
        for name in names:
            self._assign(scope, name, None)
        if scope is not None:
            self._forget(names, self._scopes[scope])

    def _unpack(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(name):
                self._assign(self._scopes[target], name, value)
            case ast.Tuple(parts) | ast.List(parts):
                for number, part in enumerate(parts):
                    self._unpack(part, self._make_item(value, number))

    def _make_item(self, value: ast.expr, number: int) -> ast.expr:
        """Return an expression for a part of an unpacked value."""
        item = ast.Subscript(value, ast.Constant(number), ast.Load())
        self.nodes.append(item)
        self.parents[item], self._scopes[item] = self.parents[value], self._scopes[value]
        return item

    def _add_call(self, function: ast.FunctionDef, call: ast.Call) -> None:
        """Assign a call's arguments, or the defaults in their place, to a function's parameters."""
        names = list_parameters(function)
        defaults = [*function.args.defaults, *function.args.kw_defaults]
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        for number, argument in enumerate(call.args[: len(names)]):
            if isinstance(argument, ast.Starred):
                left = names[number : len(names) - len(defaults)]
                given |= {name: self._make_item(argument.value, i) for i, name in enumerate(left)}
                break
            given[names[number]] = argument
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in names}
        for name, value in given.items():
            self._assign(function, name, value)

    def resolve(self, node: ast.expr) -> ast.expr | str:
        """Return what an expression stands for, if it is a name or a call of a function.

        A name that is assigned several values, or an unknown value, stands for itself.
        """
        values: Sequence[Assigned] = ()
        match node:
            case ast.Name(name):
                scope = self._scopes[node]
                while scope is not None and (scope, name) not in self.assigned:
                    scope = self._scopes[scope]
                values = self.assigned.get((scope, name), ())
            case ast.Call(ast.Name(name), _) if name in self.functions:
                values = self._returns.get(self.functions[name], ())
        found = values[0] if len(values) == 1 else None
        if found is None or found is node:
            return node
        return found if isinstance(found, str) else self.resolve(found)

    def find_path(self, node: ast.expr | str) -> str:
        """Return the dotted path of what an expression stands for, such as "sys.argv" or "f()".

        A part that is unknown is left out of the path; "" if all of it is, or for a string.
        """
        match node if isinstance(node, str) else self.resolve(node):
            case ast.Name(name):
                return self._paths.get(name, name)
            case ast.Attribute(owner, name):
                return f"{self.find_path(owner)}.{name}"
            case ast.Call(function):
                return f"{self.find_path(function)}()"
            case ast.Subscript(owner, ast.Constant(int() as number)):
                return f"{self.find_path(owner)}[{number}]"
        return ""


def list_parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's parameters, without `*args` and `**kwargs`."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [argument.arg for argument in every]
