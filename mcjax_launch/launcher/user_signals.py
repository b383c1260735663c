"""Signals to the launcher, from the user, a scheduler or the system."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from mcjax_launch.journal.facts import Resumed
from mcjax_launch.wire import messages
from mcjax_launch.wire.exit_status import ENDING, FORWARDED

if TYPE_CHECKING:
    from mcjax_launch.launcher.part import JobLauncher


def handle_signals(launcher: JobLauncher) -> None:
    """Handle all signals that have arrived."""
    for signum in map(signal.Signals, launcher.front.read_signals()):
        if signum == signal.SIGINT and launcher.debuggers.interrupt():
            continue
        if signum in ENDING:
            _interrupt(launcher, signum)
        elif signum in FORWARDED:
            for run in launcher.state.ranks.values():
                run.process.forwarded += (signum,)
            launcher.pool.send_all(messages.Forward(signum))
        elif signum == signal.SIGQUIT and launcher.state.ranks:
            launcher.request_stacks()
        elif signum == signal.SIGTSTP:
            launcher.console.remove_rows()
            launcher.front.suspend()
        elif signum == signal.SIGCHLD:
            launcher.pool.reap()
        else:
            _inform_parts(launcher, signum)


def _interrupt(launcher: JobLauncher, signum: signal.Signals) -> None:
    """End the job for a signal from the user or a scheduler."""
    nothing_left, caught = launcher.pool.nothing_left, launcher.state.jax_catches_sigterm
    now = time.monotonic()
    launcher.perform(
        launcher.policy.on_interrupt(signum, now, nothing_left=nothing_left, caught=caught)
    )


def _inform_parts(launcher: JobLauncher, signum: signal.Signals) -> None:
    for part in launcher.parts:
        part.on_signal(signum)
    if signum == signal.SIGCONT:
        launcher.journal.append(Resumed())
        launcher.console.redraw_rows()
    elif signum == signal.SIGWINCH:
        launcher.console.redraw_status()
