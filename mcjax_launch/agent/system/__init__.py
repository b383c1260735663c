"""Operating system's services for the agent: spawn, signal, wait, examine. No decisions.

There are two implementations: `linux.py`, and `portable.py` for other Unix systems (macOS), with
psutil. Code outside this package does not know which is in use. `unix.py` has their base class.
"""

from __future__ import annotations

from ...machine.system import LINUX

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from .unix import Unix


def _choose_system() -> Unix:
    if LINUX:
        from .linux import Linux

        return Linux()
    from .portable import Portable

    return Portable()


system = _choose_system()
