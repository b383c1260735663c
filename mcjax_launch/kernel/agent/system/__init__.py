"""Operating system's services for the agent: spawn, signal, wait, examine. No decisions.

There are two ways to supervise: Linux's own, and what every Unix has (macOS), with psutil's help.
Code above this package does not know which is in use. `unix.py` describes what both do.
"""

from __future__ import annotations

from ...wire.system import LINUX

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from .unix import Unix


def _chosen() -> Unix:
    if LINUX:
        from .linux import Linux

        return Linux()
    from .portable import Portable

    return Portable()


system = _chosen()
