"""What may be a mistake in a command line, but is none for certain; pure."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import click

from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.options import fits, may_be_left_out
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import is_python
from mcjax_launch.kernel.wire import timers
from mcjax_launch.options.options import Options

_PREFIX = "MCJAX_"
# Not options: what ranks get, one of which may start a launcher, and what is for our tests.
_OTHERS = frozenset(
    {
        "MCJAX_JOB_ID",
        "MCJAX_RESTART",
        "MCJAX_ENGINE_RESTART",
        "MCJAX_DEBUG",
        "MCJAX_PORTABLE",
        timers.SCALE,
    }
)
_OTHER_FAMILIES = ("MCJAX_HOOK_", "MCJAX_LOCAL_")
# Options that hardly any program has for itself: the size of the job, its devices and its hosts.
_NOT_PROGRAMS = frozenset(
    {"num_processes", "cpu_devices", "gpus_per_process", "slices", "cpu_transfers", "bind_cores"}
    | {"tpu_chips_per_process"}
    | {"hosts", "procs_per_host", "num_hosts", "host_rank", "no_hook", "verify_spmd"}
    | {"start_timeout", "stall_timeout", "no_prefix"}
)
_INTERPRETERS = ("python", "sh", "bash", "dash", "zsh", "fish")
# All of them; of their short names those that most programs use for themselves are no sign.
_OPTIONS = frozenset(Options.declared)


def warnings(options: Options, context: click.Context, environ: Mapping[str, str]) -> Iterator[str]:
    """A line on each thing that looks like a mistake.

    Args:
        options: of the command line.
        context: click's.
        environ: of this process.

    """
    yield from _unknown_variables(environ, context)
    if options.num_processes is None and options.program:
        yield from _options_after_program(options, context)
    values = (text.partition("=")[2] for text in options.env)
    texts = [*options.program, *options.wrap, *values]
    if options.stdin is None and _reads_stdin(options.program):
        yield (
            f"{' '.join(options.program)} reads its standard input, which is empty in ranks; "
            "--stdin 0 hands this one to rank 0, --stdin all to each"
        )
    for word, near in placeholders.misspelt(texts):
        yield f"{{{word}}} is not a placeholder; did you mean {{{near}}}?"
    for word in placeholders.calculated(texts):
        yield f"{{{word}}} is not a placeholder and stays as it is: only names are filled in"


def _reads_stdin(program: Sequence[str]) -> bool:
    """Whether it is an interpreter without a script, as far as its name says."""
    name, *arguments = map(os.path.basename, program or [""])
    return arguments in ([], ["-"]) and name.rstrip(".0123456789") in _INTERPRETERS


def _unknown_variables(environ: Iterable[str], context: click.Context) -> Iterator[str]:
    """Variables that look like those of options and are none."""
    ours = [name for name in environ if name.startswith(_PREFIX)]
    if not ours:
        return
    known = {f"{_PREFIX}{str(option.name).upper()}" for option in context.command.params}
    for name in sorted(ours):
        if name not in known | _OTHERS and not name.startswith(_OTHER_FAMILIES):
            yield f"{name} is not the variable of an option{_near(name, known)}"


def _near(name: str, known: Collection[str]) -> str:
    import difflib

    words = [other.removeprefix(_PREFIX) for other in known]
    near = difflib.get_close_matches(name.removeprefix(_PREFIX), words, 1)
    return f"; did you mean {_PREFIX}{near[0]}?" if near else " and has no effect"


def misplaced(options: Options, context: click.Context) -> Iterator[str]:
    """A line on options of ours behind PROGRAM, which has refused its arguments, or so it seems.

    Args:
        options: of the command line.
        context: click's.

    """
    warned = options.num_processes is None and any(_options_after_program(options, context))
    lines = _options_after_program(options, context, _OPTIONS) if not warned else ()
    yield from (f"hint: {line}" for line in lines)


def _options_after_program(
    options: Options, context: click.Context, among: Collection[str] = _NOT_PROGRAMS
) -> Iterator[str]:
    """Options of ours among the arguments of a Python program, with no `--` before it."""
    name, *arguments = options.program
    is_python_command = os.path.basename(name).startswith("python")
    words = context.meta.get(WORDS, ())
    if not arguments or not (is_python_command or is_python(options.program, options.module)):
        return
    if words[: -len(options.program)][-1:] == ("--",):
        return
    found = " ".join(_misplaced(arguments, context.command.params, among))
    if found:
        program = f"-m {name}" if options.module else name
        yield (
            f"{found}: passed on to {name}; options of mcjax-launch go before PROGRAM: "
            f"mcjax-launch {found} {program} ..."
        )


def _misplaced(
    arguments: Sequence[str], options: Sequence[click.Parameter], among: Collection[str]
) -> Iterator[str]:
    """The options among a program's arguments that look like the launcher's, with their values."""
    known = [option for option in options if isinstance(option, click.Option)]
    ours = {name: option for option in known if option.name in among for name in option.opts}
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        value = value if equals else after
        if word[:2] in ("-n", "-d") and word[2:].isdigit():
            yield word
        elif (option := ours.get(name)) is None:
            continue
        elif option.is_flag or (may_be_left_out(option) and not (value and fits(option, value))):
            yield word
        elif value and fits(option, value):
            yield word if equals else f"{word} {after}"
