"""Checks of options for --detach, and for --attach, --jobs, --stop and --wait."""

from __future__ import annotations

import os
from collections.abc import Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options

# Of what is done with detached jobs: the options that make a difference.
_ACTIONS = {
    "attach": frozenset({"quiet"}),
    "jobs": frozenset({"json"}),
    "stop": frozenset(),
    "wait": frozenset({"timeout"}),
}
# Options of --detach that people may give to --attach, where they come too late.
_OUTPUT = frozenset({"show", "collapse", "timestamps", "no_prefix", "verbose"})


def find_action(options: Options) -> str:
    """Return the given option out of "attach", "jobs", "stop" and "wait"; "" for none."""
    chosen = {
        "attach": options.attach is not None,
        "jobs": options.jobs,
        "stop": options.stop is not None,
        "wait": options.wait is not None,
    }
    return next((name for name, is_chosen in chosen.items() if is_chosen), "")


def check_action(options: Options, given: Set[str]) -> str:
    """Refuse options without effect on the given one of --attach, --jobs, --stop and --wait.

    Args:
        options: all options.
        given: names of the options on the command line.

    Returns:
        a line on options of how output looks, with which a job is shown all the same; "" for none.

    Raises:
        LaunchError: there is such an option, or a PROGRAM.

    """
    name = find_action(options)
    if options.program:
        raise LaunchError(f"--{name} runs no PROGRAM: leave out {options.program[0]}, or --{name}")
    late = sorted(given & _OUTPUT) if name == "attach" else []
    for other in sorted(given - _ACTIONS[name] - {name, "program", *late}):
        raise LaunchError(f"--{name} cannot be combined with --{other.replace('_', '-')}")
    words = " and ".join(f"--{other.replace('_', '-')}" for other in late)
    return f"--attach shows what the job has written: give {words} to --detach" if late else ""


def check_detach(options: Options, given: Set[str]) -> None:
    """Refuse options that a detached job cannot have.

    Args:
        options: all options, including --detach.
        given: names of the options on the command line.

    Raises:
        LaunchError: there is such an option.

    """
    if "status" in given:
        raise LaunchError("--detach cannot be combined with --status: give it to --attach")
    if (options.stdin or options.hosts == "-") and os.isatty(0):
        option = "--stdin" if options.stdin else "--hosts -"
        raise LaunchError(f"--detach leaves the terminal, which {option} reads: use < FILE")
