"""The arguments by which PROGRAM gets its coordinates, by its source on this machine."""

import os
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mcjax_launch.job.job import Job
from mcjax_launch.request.program import read_source

if TYPE_CHECKING:
    from mcjax_launch.features.arguments.program_arguments import Arguments

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
    from mcjax_launch.features.arguments.program_arguments import find_arguments

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

    from mcjax_launch.features.arguments.program_arguments import guess_arguments

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
