"""The arguments by which PROGRAM gets its coordinates, by its source on this machine."""

import os
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mcjax_launch.job.job import Job
from mcjax_launch.request.program import read_source

if TYPE_CHECKING:
    from mcjax_launch.request.program_arguments import Arguments

import ast

from mcjax_launch.request.program_arguments import iterate_coordinates
from mcjax_launch.request.program_source import (
    CONVERSIONS,
    ArgumentParser,
    SourceNames,
    Unsupported,
    list_parameters,
)

# Words in programs that read their command line, and pass arguments to initialize().
_READS_ARGUMENTS = re.compile(rb"argv|argparse|click|absl|typer|tyro|fire|hydra|omegaconf")
_PASSES_ARGUMENTS = re.compile(rb"initialize(?!\s*\(\s*\))")
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([^#;\n]+))", re.M)
_MOST_MODULES = 50


def complete_program(job: Job) -> tuple[str, ...]:
    """Return PROGRAM and its arguments with missing coordinates.

    It is () if there is nothing to fill in, or if the source does not show it.
    """
    names, given, path = _split_program(job)
    found = _find_arguments(read_source(path) if path else b"")
    words = found.complete(given) if found is not None else ()
    return (*names, *words) if words else ()


def suggest_program(job: Job) -> tuple[str, ...]:
    """Return PROGRAM and its arguments with missing coordinates, as a hint shows them.

    It reads the program's own modules too, so it takes longer than `complete_program`.
    """
    names, given, path = _split_program(job)
    source = read_source(path) if path else b""
    found = _find_arguments(source)
    words = found.suggest(given) if found is not None else _guess_arguments(path, source, given)
    return (*names, *words) if words else ()


def _split_program(job: Job) -> tuple[Sequence[str], Sequence[str], str]:
    """Return the words that name PROGRAM, its arguments, and the path of its source."""
    count = _count_name_words(job)
    return job.program[:count], job.program[count:], _find_source(job, count)


def _find_arguments(source: bytes) -> "Arguments | None":
    """Return the arguments that a source passes to initialize(); None if it does not show them."""
    if not _joins(source) or not _READS_ARGUMENTS.search(source):
        return None
    from mcjax_launch.request.program_arguments import find_arguments

    return find_arguments(source)


def find_program_name(job: Job) -> str:
    """Return the name of PROGRAM's file or module."""
    return os.path.basename(job.program[max(0, _count_name_words(job) - 1)])


def reads_coordinates(job: Job) -> bool:
    """Return whether PROGRAM's source seems to read arguments and to call initialize()."""
    path = _find_source(job, _count_name_words(job))
    source = read_source(path) if path else b""
    return b"initialize" in source and _READS_ARGUMENTS.search(source) is not None


def _guess_arguments(path: str, source: bytes, given: Sequence[str]) -> tuple[str, ...]:
    """Return the given arguments with those that seem to reach initialize(); () if unknown."""
    sources = [*_read_own_modules(path, source), source]
    if not any(map(_joins, sources)) or not any(map(_READS_ARGUMENTS.search, sources)):
        return ()

    there = {word.partition("=")[0] for word in given}
    guessed = guess_arguments(sources)
    missing = [words for words in guessed if words[0].partition("=")[0] not in there]
    return (*chain.from_iterable(missing), *given) if missing else ()


def _joins(source: bytes) -> bool:
    """Return whether a text seems to pass arguments to `jax.distributed.initialize()`."""
    return b"distributed" in source and _PASSES_ARGUMENTS.search(source) is not None


def _read_own_modules(path: str, source: bytes) -> list[bytes]:
    """Return the source of modules that a program imports from its own folder, imported first."""
    found: dict[str, bytes] = {}
    folder, left = os.path.dirname(path), [source]
    while left:
        for package, modules in _IMPORT.findall(left.pop()):
            for name in (package or modules).split(b","):
                module = os.fsdecode(name.split()[0]).lstrip(".") if name.split() else ""
                file = os.path.join(folder, f"{module.replace('.', os.sep)}.py")
                if file not in found and len(found) < _MOST_MODULES and os.path.isfile(file):
                    found[file] = read_source(file)
                    left.append(found[file])
    return [text for file, text in found.items() if file != path]


def _count_name_words(job: Job) -> int:
    """Return the number of words that name PROGRAM: 2 in `python train.py`, 0 if not Python."""
    if job.is_python:
        return 1
    name, *rest = job.program
    is_file = bool(rest) and rest[0].endswith(".py")
    return 2 if is_file and os.path.basename(name).startswith("python") else 0


def _find_source(job: Job, name_words: int) -> str:
    """Return the path of PROGRAM's file; "" if it is no Python file, or is not found here."""
    if not name_words:
        return ""
    if job.module:
        from mcjax_launch.machine.python_program import NoSource, find_source

        try:
            words = (job.python, "-m", *job.program)
            return find_source(words, job.chdir, {**os.environ, **dict(job.env)})[0]
        except NoSource:
            return ""
    path = os.path.join(job.chdir, job.program[name_words - 1])
    return path if os.path.isfile(path) else ""  # a pipe can be read once


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
        """Return a function's parameters without a default, except parameter `name`."""
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
