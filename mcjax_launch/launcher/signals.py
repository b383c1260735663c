"""The signals that mean something to a launcher."""

import signal

from mcjax_launch.protocol.loop import Signals

#: End the job.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Go to every rank, and mean nothing else.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)


def watched() -> Signals:
    """All of them, turned into events; SIGHUP only if it is not ignored already (nohup)."""
    wanted = [*ENDING, *FORWARDED, signal.SIGQUIT, signal.SIGCHLD]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        wanted.remove(signal.SIGHUP)
    return Signals(wanted)
