"""Which signals mean what, in the launcher and in the agents."""

from __future__ import annotations

import signal

#: End the job.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Go to every rank, and mean nothing else.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
#: With --profile: begin a profile now.
PROFILE = signal.SIGPROF
#: What a rank starts with the default action for, whatever those who started it ignore.
RESET_IN_RANKS = (
    signal.SIGINT,
    signal.SIGTERM,
    *FORWARDED,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


def signal_name(signum: int) -> str:
    """SIGTERM, or `signal 40` for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
