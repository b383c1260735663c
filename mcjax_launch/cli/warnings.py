"""Warnings about likely mistakes in a command line; pure."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.words import fits, may_be_left_out
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import is_python
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.request.program import read_source
from mcjax_launch.request.variables import find_matching, is_pattern
from mcjax_launch.wire import exit_status, hook_environ, timers

if TYPE_CHECKING:
    from mcjax_launch.journal.attempt import JobOutcome

_PREFIX = "MCJAX_"
# Variables that are not options': those of ranks, which may start a launcher, and of our tests.
_OTHERS = frozenset(
    {
        "MCJAX_JOB_ID",
        "MCJAX_RESTART",
        "MCJAX_ENGINE_RESTART",
        "MCJAX_DEBUG",
        "MCJAX_PORTABLE",
        hook_environ.SWITCH,
        timers.SCALE,
    }
)
_OTHER_FAMILIES = ("MCJAX_HOOK_", "MCJAX_LOCAL_")
# Options that hardly any program has itself: the size of the job, its devices and its hosts.
_NOT_PROGRAMS = frozenset(
    {"num_processes", "cpu_devices", "gpus_per_process", "slices", "cpu_transfers", "bind_cores"}
    | {"tpu_chips_per_process"}
    | {"hosts", "procs_per_host", "num_hosts", "host_rank", "no_hook", "verify_spmd"}
    | {"start_timeout", "stall_timeout", "no_prefix"}
)
# A program has no options of its own if it has none of these words.
_PARSES_OPTIONS = ("parse", "click", "absl", "getopt", "fire", "typer")
# A program reads no arguments for certain if it has none of these words and no other imports.
_READS_ARGUMENTS = ("arg", "getopt", "optparse")
_READ_NONE = frozenset(
    {
        *("jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "tqdm", "matplotlib", "pandas", "PIL"),
        *("chex", "einops", "equinox", "flax", "grain", "haiku", "optax", "orbax", "jaxtyping"),
    }
)
# Words for which other launchers have commands, and what does the same here.
_COMMANDS = {
    "run": "leave it out",
    "launch": "leave it out",
    "start": "leave it out",
    "help": "use -h",
    "version": "use --version",
}
# All options.
_OPTIONS = frozenset(Options.declared)


def find_warnings(
    options: Options, context: click.Context, environ: Mapping[str, str], *, is_elsewhere: bool
) -> Iterator[str]:
    """Yield a line on each likely mistake.

    Args:
        options: options of the command line.
        context: click's context.
        environ: variables of this process.
        is_elsewhere: True if the job runs on a machine that is not known here.

    """
    yield from _find_unknown_variables(environ, context)
    word = options.program[0] if options.program and not options.module else ""
    advice = [each[word] for each in (_COMMANDS, *declared.list_all("COMMANDS")) if word in each]
    if advice:  # a feature's is the better one
        yield f"{word} is taken for PROGRAM, as mcjax-launch has no commands: {advice[-1]}"
    yield from _find_options_after_program(options, context, _select_suspects(options))
    if not is_elsewhere:
        yield from _find_unmatched_patterns(options.env, environ)
    values = (text.partition("=")[2] for text in options.env)
    texts = [*options.program, *options.wrap, *values]
    yield from declared.collect("warn", options)
    for word, near in placeholders.find_misspelt(texts):
        yield f"{{{word}}} is not a placeholder; did you mean {{{near}}}?"
    for word in placeholders.find_expressions(texts):
        yield f"{{{word}}} is not a placeholder, and stays unchanged: only names are filled in"


def _find_unmatched_patterns(texts: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line on each -x pattern that passes nothing on."""
    for text in texts:
        if is_pattern(text) and not any(find_matching(text, environ)):
            if text.startswith(_PREFIX):
                yield f"-x {text}: variables of {_PREFIX} are never passed on"
            else:
                yield f"-x {text}: no variable that is set here matches, so none is passed on"


def _find_unknown_variables(environ: Iterable[str], context: click.Context) -> Iterator[str]:
    """Yield a line on each `MCJAX_` variable that belongs to no option."""
    ours = [name for name in environ if name.startswith(_PREFIX)]
    if not ours:
        return
    known = {f"{_PREFIX}{str(option.name).upper()}" for option in context.command.params}
    for name in sorted(ours):
        if name not in known | _OTHERS and not name.startswith(_OTHER_FAMILIES):
            yield f"{name} is not the variable of an option{_suggest_variable(name, known)}"


def _suggest_variable(name: str, known: Collection[str]) -> str:
    import difflib

    words = [other.removeprefix(_PREFIX) for other in known]
    near = difflib.get_close_matches(name.removeprefix(_PREFIX), words, 1)
    return f"; did you mean {_PREFIX}{near[0]}?" if near else " and has no effect"


def find_misplaced_options(
    options: Options, context: click.Context, outcome: "JobOutcome"
) -> Iterator[str]:
    """Yield hints on options of mcjax-launch that the user wrote after a PROGRAM that has failed.

    Args:
        options: options of the command line.
        context: click's context.
        outcome: outcome of the failed job.

    """
    if any(_find_options_after_program(options, context, _select_suspects(options))):
        return  # it has been printed
    source = _read_program_source(options) if outcome.failed_early else ""
    has_none = bool(source) and not any(word in source for word in _PARSES_OPTIONS)
    if outcome.status == exit_status.USAGE or has_none:
        for line in _find_options_after_program(options, context, _OPTIONS):
            yield f"hint: {line}"


def _select_suspects(options: Options) -> Collection[str]:
    """Return the names of options that are surely misplaced if written after PROGRAM."""
    if _reads_no_arguments(_read_program_source(options)):
        return _OPTIONS
    alone = options.num_processes is None or len(options.program) < 2
    return _NOT_PROGRAMS if alone else ()


def _reads_no_arguments(source: str) -> bool:
    """Return whether a program surely reads no arguments: by its text and its imports."""
    if not source or any(word in source for word in _READS_ARGUMENTS):
        return False
    import ast

    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {name.partition(".")[0] for name in names}
    return packages <= _READ_NONE | sys.stdlib_module_names


def _read_program_source(options: Options) -> str:
    """Return the source of PROGRAM; "" if it is not a Python file, or cannot be read."""
    name = next((word for word in options.program[:2] if word.endswith(".py")), "")
    return read_source(os.path.join(options.chdir or "", name)).decode("utf-8", "replace")


def _find_options_after_program(
    options: Options, context: click.Context, among: Collection[str]
) -> Iterator[str]:
    """Yield a warning if options in `among` are written after a Python PROGRAM, without `--`."""
    if not options.program or not among:
        return
    name, *arguments = options.program
    is_python_command = os.path.basename(name).startswith("python")
    if not arguments or not (is_python_command or is_python(options.program, options.module)):
        return
    before = get_own_words(options, context)
    if before[-1:] == ("--",):
        return
    found = " ".join(_find_misplaced_words(arguments, context.command.params, among))
    if found:
        import shlex

        own = [word for word in before if word not in ("-m", "--module")]
        program = f"-m {name}" if options.module else name
        right = " ".join([shlex.join(own), found, program]).lstrip()
        yield (
            f"{found}: passed on to {name}; options of mcjax-launch go before PROGRAM: "
            f"mcjax-launch {right} ..."
        )


def get_own_words(options: Options, context: click.Context) -> Sequence[str]:
    """Return the words of the command line before PROGRAM."""
    words: Sequence[str] = context.meta.get(WORDS, ())
    return words[: len(words) - len(options.program)]


def _find_misplaced_words(
    arguments: Sequence[str], options: Sequence[click.Parameter], among: Collection[str]
) -> Iterator[str]:
    """Yield the words among a program's arguments that are options in `among`, with values."""
    known = [option for option in options if isinstance(option, click.Option)]
    ours = {name: option for option in known if option.name in among for name in option.opts}
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        value = value if equals else after
        if word[:2] in ours and word[:2] in ("-n", "-d") and word[2:].isdigit():
            yield word
        elif (option := ours.get(name)) is None:
            continue
        elif option.is_flag or (may_be_left_out(option) and not (value and fits(option, value))):
            yield word
        elif value and fits(option, value):
            yield word if equals else f"{word} {after}"
