"""The launcher's own signals, as events."""

import signal

from mcjax_launch.protocol.loop import Signals
from mcjax_launch.protocol.signals import ENDING, FORWARDED, PROFILE


def watched() -> Signals:
    """All of them, turned into events; SIGHUP only if it is not ignored already (nohup)."""
    wanted = [*ENDING, *FORWARDED, signal.SIGQUIT, signal.SIGCONT, signal.SIGCHLD]
    wanted += [signal.SIGWINCH, PROFILE]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        wanted.remove(signal.SIGHUP)
    return Signals(wanted)
