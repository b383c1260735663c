"""--emit in place of a run."""

from __future__ import annotations

from mcjax_launch.features.emit import emit
from mcjax_launch.request.command_line import CommandLine


def act(line: CommandLine) -> int:
    """Print a batch script or manifest, and return the exit status."""
    line.approve(is_elsewhere=True)
    line.print(emit(line.options, line.list_set()))
    return 0
