"""No process of a rank's outlives its agent, even if nobody is left who could end it."""

from __future__ import annotations

import os
import sys

from ..wire.system import LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .agent_link import AgentLink

    Prctl = Callable[..., int]

_PR_SET_PDEATHSIG = 1


def die_with_agent(link: AgentLink) -> None:
    """Have the kernel kill this process when its agent ends, if it is the rank's own.

    The guardian does that too, and more; but both may be killed at the same time.
    """
    if not LINUX or link.agent() != os.getppid():
        return  # some process that the rank has started
    import ctypes  # which jax needs as well

    die_with_parent(link.agent(), ctypes.CDLL(None).prctl)


def die_with_parent(parent: int, prctl: Prctl) -> None:
    """Have the kernel kill this process when its parent ends, or now if it has ended."""
    import _signal  # without signal's own imports

    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), _signal.SIGKILL)


def unseen(name: str) -> Any:
    """A module; it, and what it takes, is not left for the program to find."""
    before = set(sys.modules)
    module = __import__(name)
    for one in set(sys.modules) - before:
        del sys.modules[one]
    return module
