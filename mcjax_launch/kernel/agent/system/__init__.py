"""What the agent asks of the operating system: spawn, signal, wait, look. No decisions.

There are two ways to supervise, and nothing above this package asks which it is: Linux's, and what
every Unix has (macOS), with psutil's help. `unix.py` says what both do.
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
