"""Message with which a rank says what has become of its profile."""

from __future__ import annotations

from ...wire.hook_messages import HookMessage


class Profiled(HookMessage):
    """Notice that a rank's profile is written, or why it is not."""

    why_not: str = ""
