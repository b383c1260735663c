"""Signals to the launcher, from the user, a scheduler or the system."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from mcjax_launch import features
from mcjax_launch.wire import messages
from mcjax_launch.wire.signals import ENDING, FORWARDED

if TYPE_CHECKING:
    from mcjax_launch.launcher.part import JobLauncher


class UserSignals:
    """Receiver of the launcher's signals.

    Args:
        launcher: the launcher.

    """

    def __init__(self, launcher: JobLauncher) -> None:
        self._launcher = launcher

    def read(self, _: int) -> None:
        """Handle all signals that have arrived."""
        for signum in self._launcher.front.read_signals():
            self._handle(signal.Signals(signum))

    def _handle(self, signum: signal.Signals) -> None:
        launcher = self._launcher
        if signum in ENDING:
            self._interrupt(signum)
        elif signum in FORWARDED:
            launcher.pool.send_all(messages.Forward(signum))
        elif signum == signal.SIGQUIT and launcher.state.ranks:
            launcher.request_stacks()
        elif signum == signal.SIGTSTP:
            launcher.console.remove_rows()
            os.kill(os.getpid(), signal.SIGSTOP)
        elif signum == signal.SIGCHLD:
            launcher.pool.reap()
        else:
            self._inform_parts(signum)

    def _interrupt(self, signum: signal.Signals) -> None:
        """End the job for a signal from the user or a scheduler."""
        launcher = self._launcher
        launcher.perform(
            launcher.policy.on_interrupt(
                signum,
                time.monotonic(),
                nothing_left=launcher.pool.nothing_left,
                caught=launcher.state.jax_catches_sigterm,
            )
        )

    def _inform_parts(self, signum: signal.Signals) -> None:
        launcher = self._launcher
        if (feature := features.SIGNALS.get(signum.name)) is not None:
            launcher.parts.load(feature)
        for part in launcher.parts:
            part.on_signal(signum)
        if signum == signal.SIGCONT:
            launcher.state.record_resume(time.monotonic())
            launcher.console.redraw_rows()
        elif signum == signal.SIGWINCH:
            launcher.console.redraw_status()
