"""--detach, --attach, --jobs, --stop and --wait in place of a run."""

from __future__ import annotations

from mcjax_launch.cli import own_lines
from mcjax_launch.cli.command_line import CommandLine
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.options import ID, find_action


def act(line: CommandLine) -> int:
    """Do what a command line asks for; return the exit status."""
    if name := find_action(line.typed):
        from mcjax_launch.features.detached import commands

        line.check_once()
        return commands.act(name, line.typed, line.given, own_lines.say)
    from mcjax_launch.features.detached.start import start

    if "status" in line.given:  # a variable may set it for many command lines
        raise LaunchError("--detach cannot be combined with --status: there is no terminal for it")
    line.approve(warns=False)  # the detached launcher prints warnings
    return start(ID, line.options, line.words)
