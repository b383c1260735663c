"""One-line messages for errors in a command line, with advice for other launchers' options."""

import os
import re
from collections.abc import Collection, Sequence

import click
from click.core import ParameterSource

from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.words import divided
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import replacement

# --- options of other launchers ---

_RANKS = "-n N sets the ranks of the whole job, --procs-per-host K those of each of --hosts"
_PER_HOST = "use --procs-per-host K, with --hosts; on one machine -n N"
_HOSTS = "use --hosts FILE|LIST"
_HOST_COUNT = (
    "name the hosts with --hosts FILE|LIST and start one launcher; --procs-per-host K sets the "
    "ranks on each"
)
_COORDINATOR = (
    "leave it out: the coordinator's address is chosen for you; --coordinator HOST:PORT sets it"
)
_LOGS = "use --log-dir DIR"
_CORES = "use --bind-cores on"
_GPUS = "use --gpus-per-process K"
_DIRECTORY = "use -C DIR"
_NEEDLESS = "leave it out: it is not needed here"
_DEVICES = "use -d K: each rank gets K CPU devices"
_SBATCH = (
    "it is sbatch's: give it to sbatch or salloc; --emit slurm --engine-option {option}=VALUE puts "
    "it into a batch script"
)

# By the option's name without leading hyphens, and with `-` for `_`.
_ADVICE = {
    # the size
    "nproc-per-node": _RANKS,
    "nprocs": _RANKS,
    "ntasks": "use -n N",
    "world-size": "use -n N",
    "N": _HOST_COUNT,
    "nodes": _HOST_COUNT,
    "nnodes": _HOST_COUNT,
    "npernode": _PER_HOST,
    "ppn": _PER_HOST,
    "perhost": _PER_HOST,
    "ntasks-per-node": _PER_HOST,
    "tasks-per-node": _PER_HOST,
    # the hosts
    "H": _HOSTS,
    "host": _HOSTS,
    "hostfile": _HOSTS,
    "machinefile": _HOSTS,
    "f": _HOSTS,
    "nodefile": _HOSTS,
    "nodelist": _HOSTS,
    "w": _HOSTS,
    "node-rank": "use --host-rank I with --num-hosts N; --hosts needs neither",
    "oversubscribe": "leave it out: -n may exceed the cores, but not slots=K",
    # the coordinator
    "standalone": _COORDINATOR,
    "master-addr": _COORDINATOR,
    "master-port": _COORDINATOR,
    "rdzv-backend": _COORDINATOR,
    "rdzv-endpoint": _COORDINATOR,
    "rdzv-id": _COORDINATOR,
    "rdzv-conf": _COORDINATOR,
    # the ranks
    "wdir": _DIRECTORY,
    "wd": _DIRECTORY,
    "D": _DIRECTORY,
    "workdir": _DIRECTORY,
    "cwd": _DIRECTORY,
    "rank": "leave it out: each rank gets its own number",
    "cpu": _DEVICES,
    "cpus": _DEVICES,
    "device-count": _DEVICES,
    "devices": _DEVICES,
    "platform": "use -x JAX_PLATFORMS=NAME; -d K sets it to cpu",
    "e": "use -x NAME=VALUE",
    "genv": "use -x NAME=VALUE",
    "export": "use -x NAME=VALUE",
    "bind-to": _CORES,
    "map-by": _CORES,
    "cpu-bind": _CORES,
    "cpus-per-task": f"{_SBATCH}; --bind-cores on gives each rank its share of a host's cores",
    "c": "use --bind-cores on: each rank gets its share of its host's cores",
    "gpus": _GPUS,
    "gpus-per-task": _GPUS,
    "gpus-per-node": _GPUS,
    "G": _GPUS,
    "no-python": "leave it out: PROGRAM may be any command",
    # the output
    "V": "use --version",
    "tag-output": "leave it out: each line shows its rank; --no-prefix turns that off",
    "label": "leave it out: each line shows its rank; --no-prefix turns that off",
    "l": "leave it out: each line shows its rank; --no-prefix turns that off",
    "timestamp-output": "use --timestamps",
    "output-filename": _LOGS,
    "output": _LOGS,
    "o": _LOGS,
    "redirects": _LOGS,
    "tee": _LOGS,
    "unbuffered": _NEEDLESS,
    # the rest
    "t": "use --timeout D",
    "timelimit": "use --timeout D",
    "time-limit": "use --timeout D",
    "allow-run-as-root": _NEEDLESS,
    "mca": _NEEDLESS,
    "kill-on-bad-exit": "leave it out: the first failure ends the job",
    "help": "use -h, or --help",
    # sbatch's, which are not srun's alone
    "time": "use --timeout D",
    "job-name": "use --name NAME, with --emit slurm",
    "J": "use --name NAME, with --emit slurm",
    "error": _LOGS,
    "requeue": "use --max-restarts N",
    "input": "use --stdin RANKS < FILE",
    "i": "use --stdin RANKS < FILE",
    "A": _SBATCH.format(option="--account"),
    "p": _SBATCH.format(option="--partition"),
    "exclusive": _SBATCH.replace("=VALUE", ""),
    **dict.fromkeys(
        (
            *("account", "partition", "qos", "gres", "gpus-per-socket", "constraint"),
            *("mem", "mem-per-cpu", "mem-per-gpu", "licenses", "reservation", "exclude", "array"),
            *("dependency", "mail-type", "mail-user", "comment", "begin", "deadline", "nice"),
            *("switches", "clusters", "hint", "signal", "threads-per-core", "cpus-per-gpu"),
        ),
        _SBATCH,
    ),
}


def advice(name: str, words: Sequence[str], ours: Collection[str]) -> tuple[str, str] | None:
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
            return option, _ADVICE[key].format(option=option)
        if f"-{option}" in ours and len(option) > 2:
            return option, f"did you mean -{option}?"
    return None


# --- in the launcher's own format ---


def in_one_line(error: click.ClickException) -> str:
    """Return an error of click as one line `--option: problem`, without a full stop."""
    words: Sequence[str] = ()
    ours: set[str] = set()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        params = error.ctx.command.params
        words, _ = divided(error.ctx.meta.get(WORDS, ()), params)
        ours = {name for param in params for name in param.opts}
    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if (known := advice(name, words, ours)) is not None:
        return f"{known[0]}: no such option; {known[1]}"
    if isinstance(error, click.NoSuchOption):
        if removed := replacement(name):
            return f"{name} {removed}"
        hint = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"{name}: no such option{hint}"
    message = " ".join(error.format_message().split())
    if isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{_name(error.param, error.ctx)}: {error.message}"
    elif isinstance(error, click.BadOptionUsage):
        # "Option '-n' requires an argument."
        quoted = f"Option {error.option_name!r} "
        message = f"{error.option_name}: {error.message.removeprefix(quoted)}"
        if "requires an argument" in message:
            message = f"{error.option_name}: {_value_missing(error.option_name)}"
    return message.removesuffix(".")


def _value_missing(name: str) -> str:
    """Return the error text for an option without its value, given a name of the option."""
    metavars = [option.metavar for option in Options.declared.values() if name in option.names]
    where = "; --jobs lists the ids" if name == "--stop" else ""
    return f"needs a value: {name} {' '.join(metavars)}{where}"


def with_variable(message: str, context: click.Context) -> str:
    """Add to an error such as `-n 8: ...` the variable that set the option, if one did.

    The message must begin with the option.
    """
    first = re.match("[^ :]*", message)
    assert first is not None
    head = message.partition(": ")[0] if ": " in message else first[0]
    for option in context.command.params:
        variable = _variable(option, context)
        if first[0] in option.opts and variable is not None:
            return f"{head} (from {variable}){message[len(head) :]}"
    return message


def _name(parameter: click.Parameter, context: click.Context | None) -> str:
    """Return an option's long name, followed by " (from VARIABLE)" if a variable set it."""
    name = max(parameter.opts, key=len)
    variable = _variable(parameter, context) if context is not None else None
    return name if variable is None else f"{name} (from {variable})"


def _variable(parameter: click.Parameter, context: click.Context) -> str | None:
    """Return the environment variable that set an option; None if no variable did."""
    if parameter.name is None:
        return None
    if context.get_parameter_source(parameter.name) is not ParameterSource.ENVIRONMENT:
        return None
    variables = parameter.envvar or f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    if isinstance(variables, str):
        return variables
    return next(variable for variable in variables if os.environ.get(variable))
