"""Meanings of signals, in the launcher and in the agents."""

from __future__ import annotations

import signal

#: Signals that end the job.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Signals that are forwarded to every rank, and have no other effect.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
#: Signals that are reset to the default action in ranks, even if the parent process ignores them.
RESET_IN_RANKS = (
    signal.SIGINT,
    signal.SIGTERM,
    *FORWARDED,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


def get_signal_name(signum: int) -> str:
    """Return a signal's name, such as SIGTERM, or `signal 40` if it has none."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
