"""Options of the launcher's that stand after PROGRAM, where they are the program's own; pure."""

from collections.abc import Iterator, Sequence

import click

from mcjax_launch.cli.optional_values import fits

# What hardly any program has for itself: the size of the job, its devices and its hosts.
_NAMES = frozenset(
    {"num_processes", "cpu_devices", "gpus_per_process", "slices", "cpu_transfers", "bind_cores"}
    | {"tpu_chips_per_process"}
    | {"hosts", "procs_per_host", "num_hosts", "host_rank", "no_hook", "verify_spmd"}
    | {"start_timeout", "stall_timeout", "no_prefix"}
)


def misplaced(arguments: Sequence[str], options: Sequence[click.Parameter]) -> list[str]:
    """The options among a program's arguments that look like the launcher's, with their values.

    Args:
        arguments: of the program.
        options: the launcher's.

    """
    known = [option for option in options if isinstance(option, click.Option)]
    ours = {name: option for option in known if option.name in _NAMES for name in option.opts}
    return list(_found(arguments, ours))


def _found(arguments: Sequence[str], ours: dict[str, click.Option]) -> Iterator[str]:
    following = [*arguments[1:], ""]
    for word, after in zip(arguments, following, strict=True):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        value = value if equals else after
        short = next((name for name in ("-n", "-d") if word.startswith(name)), "")
        if short and word[2:].isdigit():
            yield word
        elif (option := ours.get(name)) is None:
            continue
        elif option.is_flag:
            yield word
        elif value and fits(option, value):
            yield word if equals else f"{word} {after}"
