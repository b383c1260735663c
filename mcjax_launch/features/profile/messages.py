"""Message with which the launcher begins profiles on the user's request."""

from __future__ import annotations

from ...wire.messages import ToAgent

NAME = "profile"


class BeginProfile(ToAgent):
    """Order to begin a profile in each process that has joined and handles SIGPROF."""
