"""The names in a program's source, and what they stand for; pure.

The program is not run, and the order of its statements does not count: a name stands for what it
is assigned, a parameter for the argument in the call of its function. With several assignments or
calls it is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeAlias

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


# Actions of argparse: for one word, and for none.
_SINGLE = ("store", "append")
_FLAGS = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
CONVERSIONS = frozenset({"int", "str", "float"})


class Unsupported(Exception):
    """Error: the program uses its command line in a way that this analysis does not support."""


class ArgumentParser:
    """An argparse.ArgumentParser, the parameters of a click command, or absl's flags.

    Attributes:
        options: for the name of each value, its option ("" for a positional).
        required: the same for the required values alone.
        values: names of all required values that are single words of the command line.
        counts: for each option as it may be written, the number of words of its value.
        aliases: for each option as it may be written, as it is in `options`.

    """

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.required: dict[str, str] = {}
        self.values: set[str] = set()
        self.counts: dict[str, int] = {}
        self.aliases: dict[str, str] = {}

    def add(self, option: str, name: str, *, required: bool, is_plain: bool) -> None:
        """Add an argument; `is_plain`: its value is one word, converted only by int() or such."""
        self.options[name] = option
        if required:
            self.required[name] = option
        if required and is_plain:
            self.values.add(name)

    def declare(self, call: ast.Call, path: str) -> None:
        """Add the argument that a call declares; `path` is the dotted path of its function.

        Raises:
            Unsupported: the program has subcommands.

        """
        name = path.rpartition(".")[2]
        if name == "add_argument":
            _add_of_argparse(self, call)
        elif path in ("click.option", "click.argument"):
            _add_of_click(self, path, call)
        elif path.startswith("absl.flags."):
            _add_of_absl(self, name, call)
        elif name in ("add_subparsers", "add_mutually_exclusive_group") or path == "click.group":
            raise Unsupported("subcommands, or arguments of which some are needed")


def _get_settings(call: ast.Call) -> dict[str, Any]:
    """Return a call's keyword arguments: constants, names as text, None for other expressions."""
    found = {}
    for word in call.keywords:
        value = word.value
        constant = value.value if isinstance(value, ast.Constant) else None
        found[word.arg or ""] = value.id if isinstance(value, ast.Name) else constant
    return found


def _get_texts(call: ast.Call) -> list[str]:
    """Return the names in a declaration of an argument, as in `add_argument("-n", "--num")`.

    Raises:
        Unsupported: the names are not constants.

    """
    names: Sequence[ast.expr | None] = call.args or [None]
    return [_get_text(name) for name in names]


def _get_text(node: ast.expr | None) -> str:
    """Return the value of a constant text; None stands for a missing argument.

    Raises:
        Unsupported: the expression is no constant text.

    """
    match node:
        case ast.Constant(str() as text):
            return text
    raise Unsupported("names that are not written out")


def _add_spellings(parser: ArgumentParser, names: Sequence[str], long: str, count: object) -> None:
    """Record how an option may be written, and the number of words of its value if it is known."""
    if long.startswith("-"):
        parser.aliases |= dict.fromkeys(names, long)
        if isinstance(count, int):
            parser.counts |= dict.fromkeys(names, count)


def _add_of_argparse(parser: ArgumentParser, call: ast.Call) -> None:
    """Add the argument of a call of add_argument()."""
    names, settings = _get_texts(call), _get_settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    name = str(settings.get("dest") or long.lstrip("-").replace("-", "_"))
    many = "nargs" in settings or "action" in settings
    is_plain = settings.get("type", "str") in CONVERSIONS and not many
    if settings.get("action", "store") in _SINGLE:
        count = settings.get("nargs", 1)
    else:
        count = 0 if settings["action"] in _FLAGS else None
    _add_spellings(parser, names, long, count)
    if long.startswith("-"):
        parser.add(long, name, required=settings.get("required") is True, is_plain=is_plain)
    else:
        may_be_left_out = settings.get("nargs") in ("?", "*") or "action" in settings
        parser.add("", name, required=not may_be_left_out, is_plain=is_plain)


def _add_of_click(parser: ArgumentParser, path: str, call: ast.Call) -> None:
    """Add the argument of a decorator, click.option or click.argument."""
    names, settings = _get_texts(call), _get_settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    own = next((name for name in names if name.isidentifier()), long.lstrip("-"))
    is_plain = settings.get("type", "str") in CONVERSIONS and settings.get("nargs", 1) == 1
    is_argument = path == "click.argument"
    is_flag = settings.get("is_flag") or settings.get("count") or "/" in long
    count = 0 if is_flag else settings.get("nargs", 1)
    _add_spellings(parser, long.split("/") if is_flag else names, long, count)
    may_be_left_out = settings.keys() & {"default", "envvar"}
    required = settings.get("required", is_argument) is True and not may_be_left_out
    option = "" if is_argument else long
    parser.add(option, own.replace("-", "_").lower(), required=required, is_plain=is_plain)


def _add_of_absl(parser: ArgumentParser, function: str, call: ast.Call) -> None:
    """Add an absl flag, or mark a flag as required."""
    if function == "mark_flag_as_required":
        (name,) = _get_texts(call)
        parser.add(f"--{name}", name, required=True, is_plain=True)
    elif function == "mark_flags_as_required":
        match call.args:
            case [ast.List(parts) | ast.Tuple(parts)]:
                for name in map(_get_text, parts):
                    parser.add(f"--{name}", name, required=True, is_plain=True)
            case _:
                raise Unsupported("flags whose names are unknown")
    elif function in ("DEFINE_string", "DEFINE_integer"):
        name = _get_text(call.args[0] if call.args else None)
        required = _get_settings(call).get("required") is True
        parser.add(f"--{name}", name, required=required, is_plain=True)
