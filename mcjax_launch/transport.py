"""How to reach a host: an argv whose stdin and stdout speak with an agent; starting that."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mcjax_launch.agent.streams import widen

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PIPE_SIZE = 1 << 20
# -I -S: quick, and nothing of the user's environment reaches the agent's own Python.
_LOCAL = """
import sys
sys.path[:0] = [{root!r}]
from mcjax_launch.agent.main import main
main({hook!r})
"""


def local_argv() -> list[str]:
    """The agent on this machine, from the installed files."""
    code = _LOCAL.format(root=os.path.dirname(_PACKAGE), hook=os.path.join(_PACKAGE, "rank"))
    return [sys.executable, "-I", "-S", "-c", code]


@dataclass(frozen=True)
class Pipes:
    """A started agent: our ends of its three pipes, and the process to wait for."""

    pid: int
    to_agent: int
    from_agent: int
    errors: int


def start(argv: Sequence[str]) -> Pipes:
    """Start a transport.

    It gets a session of its own: a terminal's interrupt is for the launcher, which passes it on.
    """
    agent_in, to_agent = os.pipe()
    from_agent, agent_out = os.pipe()
    errors, agent_err = os.pipe()
    widen(from_agent, _PIPE_SIZE)
    actions = [
        (os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((agent_in, agent_out, agent_err))
    ]
    pid = os.posix_spawnp(
        argv[0],
        list(argv),
        os.environ,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=[signal.SIGPIPE],
    )
    for fd in (agent_in, agent_out, agent_err):
        os.close(fd)
    for fd in (to_agent, from_agent, errors):
        os.set_blocking(fd, False)
    return Pipes(pid, to_agent, from_agent, errors)
