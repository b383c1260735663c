"""What starts a profile that the user asks for while the job runs."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent


class BeginProfile(ToAgent):
    """Begin one in the ranks that expect it."""
