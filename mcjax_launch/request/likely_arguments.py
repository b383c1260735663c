"""Guess of the arguments by which a program gets its coordinates, for hints alone; pure.

Unlike `program_arguments` this follows a value only as far as its name, so that options with a
default, modules of the program's own, and parsers that read types are understood too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mcjax_launch.request.argument_parsers import CONVERSIONS, ArgumentParser, Unsupported
from mcjax_launch.request.program_arguments import iterate_coordinates
from mcjax_launch.request.source_names import SourceNames, list_parameters

# Packages whose options have the names of fields or parameters, and how an option is written.
_BY_NAME = {"tyro": "--{dashed}", "typer": "--{dashed}", "fire": "--{name}", "hydra": "{name}="}


def guess_arguments(sources: Sequence[bytes]) -> list[list[str]]:
    """Return arguments that pass a program its coordinates, each as its words; [] if unknown.

    Args:
        sources: source code of the program, and of the modules that it imports.

    """
    try:
        statements = [statement for source in sources for statement in ast.parse(source).body]
        return _Guess(SourceNames(ast.Module(statements, []))).make_arguments()
    except (SyntaxError, ValueError, RecursionError):
        return []


class _Guess:
    """The options that a program declares, and the packages that read its command line."""

    def __init__(self, names: SourceNames) -> None:
        self._names = names
        self._parser = ArgumentParser()
        self._calls = [node for node in names.nodes if isinstance(node, ast.Call)]
        for call in self._calls:
            try:
                self._parser.declare(call, names.find_path(call.func))
            except Unsupported:
                continue
        imported = {
            alias.name if isinstance(node, ast.Import) else str(node.module)
            for node in names.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self._package = next((package for package in _BY_NAME if package in imported), "")

    def make_arguments(self) -> list[list[str]]:
        """Return the arguments that reach initialize(), with placeholders."""
        words: dict[str, str] = {}
        for call in self._calls:
            if self._names.find_path(call.func) == "jax.distributed.initialize":
                for node, placeholder in iterate_coordinates(self._names, call):
                    if name := self._find_name(node):
                        words.setdefault(name, placeholder)
        options = [self._write(name, placeholder) for name, placeholder in words.items()]
        return [*filter(None, options), *([place] for place in self._list_places(words))]

    def _find_name(self, node: ast.expr) -> str:
        """Return the name of the option, field or parameter that an expression stands for."""
        match self._names.resolve(node):
            case str() as name:
                return name
            case ast.Call(ast.Name(kind), [value], []) if kind in CONVERSIONS:
                return self._find_name(value)
            case ast.Call(function, [ast.Constant(str() as name), *_]):
                is_flag = self._names.find_path(function).startswith("absl.flags.DEFINE_")
                return name if is_flag else ""
            case ast.Subscript(owner, ast.Constant(str() as name)):
                return "" if self._names.find_path(owner) == "os.environ" else name
            case ast.Attribute(owner, "value") if found := self._find_name(owner):
                return found
            case ast.Attribute() as found:
                path = self._names.find_path(found)
                return path.rpartition("().")[2] if "()." in path else path.partition(".")[2]
            case ast.Name(name):
                functions = self._names.functions.values()
                return name if any(name in list_parameters(each) for each in functions) else ""
        return ""

    def _write(self, name: str, placeholder: str) -> list[str]:
        """Return an option with its value; [] if it is unknown how to write it."""
        option = self._parser.options.get(name.rpartition(".")[2])
        if option is not None:
            return [option, placeholder] if option else [placeholder]
        if not self._package or (self._package == "typer" and name in self._list_arguments(name)):
            return []
        written = _BY_NAME[self._package].format(name=name, dashed=name.replace("_", "-"))
        return [written + placeholder] if written.endswith("=") else [written, placeholder]

    def _list_places(self, words: dict[str, str]) -> list[str]:
        """Return typer's arguments without an option, in order; a NAME for what is unknown."""
        if self._package != "typer" or not words:
            return []
        arguments = self._list_arguments(next(iter(words)))
        return [words.get(name, name.upper()) for name in arguments]

    def _list_arguments(self, name: str) -> list[str]:
        """Return the parameters, beside parameter `name` of a function, that have no default."""
        for function in self._names.functions.values():
            parameters = list_parameters(function)
            if name in parameters:
                count = len(parameters) - len(function.args.defaults)
                by_option = {
                    part.arg
                    for part in function.args.args
                    if part.annotation is not None and "Option(" in ast.unparse(part.annotation)
                }
                return [each for each in parameters[:count] if each not in by_option]
        return []
