"""A rank does not outlive its agent, even if nobody is left who could end it."""

from __future__ import annotations

import os
import signal

from ...protocol.system import LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent_link import AgentLink

_PR_SET_PDEATHSIG = 1


def die_with_agent(link: AgentLink) -> None:
    """Have the kernel kill this process when its agent ends, if it is the rank's own.

    The guardian does that too, and more; but both may be killed at the same time.
    """
    if not LINUX or link.agent() != os.getppid():
        return  # some process that the rank has started
    import ctypes  # which jax needs as well

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != link.agent():  # it has ended meanwhile
        os.kill(os.getpid(), signal.SIGKILL)
