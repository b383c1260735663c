"""--emit in place of a run."""

from __future__ import annotations

from mcjax_launch.cli import own_lines
from mcjax_launch.cli.running import CommandLine
from mcjax_launch.features.emit import emit


def act(line: CommandLine) -> int:
    """Print a batch script or manifest, and return the exit status."""
    line.approve(is_elsewhere=True)
    own_lines.print_text(emit(line.options, line.list_set()))
    return 0
