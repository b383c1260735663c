"""Transfer of functions' return values and exceptions to the client that called them."""

from __future__ import annotations

from mcjax_launch.launcher.part import LauncherPart
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import frames
from mcjax_launch.wire.messages import ToLauncher

# With more unwritten bytes than this the agents send nothing more.
_MOST_QUEUED = 1 << 20


class ReturnedFrames(LauncherPart):
    """Writer of result frames to the client; agents pause while the client does not read."""

    def on_message(
        self, link: AgentConnection, message: ToLauncher | frames.Raw, now: float
    ) -> None:
        """Pass on a rank's report of a result, or a piece of a result."""
        values = self.launcher.events.values
        if isinstance(message, frames.Raw):
            values.write((frames.encode_raw(message.feature, message.number, message.payload),))
        else:
            values.write((frames.encode_message(message),))
        if values.queued > _MOST_QUEUED:
            link.pause()
            values.on_room = self._resume

    def _resume(self) -> None:
        for link in self.launcher.links:
            link.resume()


PART = ReturnedFrames
