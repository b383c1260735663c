"""One-line messages for errors in a command line, with advice for other launchers' options."""

import re
from collections.abc import Collection, Mapping, Sequence

import click

from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.origins import find_origin
from mcjax_launch.cli.words import divide_words, explain_swallowed_program
from mcjax_launch.options import features as declared
from mcjax_launch.options.option import PROJECT_FILE
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.wire.exit_status import USAGE

# --- options of other launchers ---

# Advice, and the options that get it: without leading hyphens, and with `-` for `_`. Features have
# further ones.
_ADVISED = {
    # the size
    "-n N sets the ranks of the whole job, --procs-per-host K those of each of --hosts": (
        "nproc-per-node nprocs"
    ),
    "use -n N": "ntasks world-size",
    "name the hosts with --hosts FILE|LIST and start one launcher; --procs-per-host K sets the "
    "ranks on each": "N nodes nnodes",
    "use --procs-per-host K, with --hosts; on one machine -n N": (
        "npernode ppn perhost ntasks-per-node tasks-per-node"
    ),
    # the hosts
    "use --hosts FILE|LIST": "H host hostfile machinefile f nodefile nodelist w",
    "use --host-rank I with --num-hosts N; --hosts needs neither": "node-rank",
    "leave it out: -n may exceed the cores, but not slots=K": "oversubscribe",
    # the coordinator
    "leave it out: the coordinator's address is chosen for you; --coordinator HOST:PORT sets it": (
        "standalone master-addr master-port rdzv-backend rdzv-endpoint rdzv-id rdzv-conf"
    ),
    # the ranks
    "use -C DIR": "wdir wd D workdir cwd",
    "leave it out: each rank gets its own number": "rank",
    "use -d K: each rank gets K CPU devices": "cpu cpus device-count devices",
    "use -x JAX_PLATFORMS=NAME; -d K sets it to cpu": "platform",
    "use -x NAME=VALUE": "e genv export",
    "use --bind-cores on": "bind-to map-by cpu-bind",
    "use --bind-cores on: each rank gets its share of its host's cores": "c",
    "use --gpus-per-process K": "gpus gpus-per-task gpus-per-node G",
    "leave it out: PROGRAM may be any command": "no-python",
    # the output
    "use --version": "V",
    "leave it out: each line shows its rank; --no-prefix turns that off": "tag-output label l",
    "use --timestamps": "timestamp-output",
    "use --log-dir DIR": "output-filename output o redirects tee error",
    # the rest
    "use --timeout D": "t timelimit time-limit time",
    "leave it out: it is not needed here": "allow-run-as-root mca unbuffered",
    "leave it out: the first failure ends the job": "kill-on-bad-exit",
    "use -h, or --help": "help",
    "use --max-restarts N": "restart restarts retries requeue",
}
_ADVICE = {
    name: advice
    for advised in (_ADVISED, *declared.list_all("ADVISED"))
    for advice, names in advised.items()
    for name in names.split()
}


def find_advice(name: str, words: Sequence[str], ours: Collection[str]) -> tuple[str, str] | None:
    """Find an option of another launcher in a command line; return it, and advice on its use here.

    Args:
        name: the unknown option that click reports; "" if there is none.
        words: words before PROGRAM: click splits a word such as `-hostfile` into `-h -o ...`.
        ours: names of this launcher's options.

    Returns:
        None if no such option is found.

    """
    long = [word for word in words if re.match("-[a-z][a-z]", word)]
    for word in [name] if name.startswith("--") else [*long, name]:
        option = word.partition("=")[0]
        key = option.lstrip("-").replace("_", "-")
        if key in _ADVICE and (len(key) > 1) <= (len(option) > 2):
            return option, _ADVICE[key].format(option)
        if f"-{option}" in ours and len(option) > 2:
            return option, f"did you mean -{option}?"
    return None


# --- in the launcher's own format ---

_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def in_one_line(error: click.ClickException) -> str:
    """Return an error of click as one line `--option: problem`, without a full stop."""
    words: list[str] = []
    rest: list[str] = []
    ours: set[str] = set()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        params = error.ctx.command.params
        words, rest = divide_words(error.ctx.meta.get(WORDS, ()), params)
        ours = {name for param in params for name in param.opts}
    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if (known := find_advice(name, words, ours)) is not None:
        return f"{known[0]}: no such option; {known[1]}"
    if isinstance(error, click.NoSuchOption):
        if removed := find_replacement(name):
            return f"{name} {removed}"
        hint = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        before = words[: words.index(name)] if name in words else []
        is_named = any(word.endswith(".py") for word in rest)
        if not is_named and before and before[-1].endswith(".py"):  # the option is PROGRAM's own
            hint = f"; {explain_swallowed_program(before, params)}"
        return f"{name}: no such option{hint}"
    message = " ".join(error.format_message().split())
    if isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{_format_name(error.param, error.ctx)}: {error.message}"
    elif isinstance(error, click.BadOptionUsage):
        # "Option '-n' requires an argument."
        quoted = f"Option {error.option_name!r} "
        message = f"{error.option_name}: {error.message.removeprefix(quoted)}"
        if "requires an argument" in message:
            message = f"{error.option_name}: {_format_missing_value(error.option_name)}"
    return message.removesuffix(".")


def _format_missing_value(name: str) -> str:
    """Return the error text for an option without its value, given a name of the option."""
    option = next(option for option in Options.declared.values() if name in option.names)
    listed_by = option.kind.listed_by if option.kind else ""
    where = f"; {listed_by} lists the {option.metavar.lower()}s" if listed_by else ""
    return f"needs a value: {name} {option.metavar}{where}"


def with_origins(message: str, context: click.Context, status: int) -> str:
    """Add to an error the variable or the file that has set each option in it.

    A project's options are named in any error of usage: its words may be about what they lead to.

    Args:
        message: the error; it may begin with an option and its value, as in `-n 8: ...`.
        context: click's context.
        status: exit status of the error.

    """
    project = []
    for option in context.command.params:
        origin = find_origin(option, context)
        if origin is not None:
            told = _with_origin(message, option.opts, origin)
            if told == message and origin == PROJECT_FILE:
                project.append(max(option.opts, key=len))
            message = told
    if project and status == USAGE and PROJECT_FILE not in message:
        return f"{message} ({PROJECT_FILE} sets {', '.join(project)})"
    return message


def _with_origin(message: str, names: Collection[str], origin: str) -> str:
    """Return an error with `(from ORIGIN)` behind the first mention of an option; or unchanged.

    At the beginning of the error, the option's value comes first.
    """
    for mention in _OPTION.finditer(message):
        if mention[0] in names:
            is_head = mention.start() == 0 and ": " in message
            end = message.index(": ") if is_head else mention.end()
            return f"{message[:end]} (from {origin}){message[end:]}"
    return message


def as_typed(message: str, context: click.Context) -> str:
    """Name each option in an error as the command line does, such as `--num-processes` for `-n`."""
    for parameter in context.command.params:
        typed = _find_typed_name(parameter, context)
        if typed and (others := [name for name in parameter.opts if name != typed]):
            message = _replace_options(message, dict.fromkeys(others, typed))
    return message


def _replace_options(message: str, names: Mapping[str, str]) -> str:
    return _OPTION.sub(lambda found: names.get(found[0], found[0]), message)


def _find_typed_name(parameter: click.Parameter, context: click.Context | None) -> str:
    """Return the name by which the command line sets an option; "" if it does not, or by two."""
    if context is None or len(parameter.opts) < 2:
        return ""
    words, _ = divide_words(context.meta.get(WORDS, ()), context.command.params)
    typed = {
        name
        for word in words
        for name in parameter.opts
        if word == name
        or word.startswith(f"{name}=")
        or (len(name) == 2 and word[:2] == name and word[2:])
    }
    return typed.pop() if len(typed) == 1 else ""


def _format_name(parameter: click.Parameter, context: click.Context | None) -> str:
    """Return an option's long name, followed by " (from VARIABLE)" if a variable set it."""
    name = _find_typed_name(parameter, context) or max(parameter.opts, key=len)
    origin = find_origin(parameter, context) if context is not None else None
    return name if origin is None else f"{name} (from {origin})"
