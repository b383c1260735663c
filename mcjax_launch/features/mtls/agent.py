"""Files of the job's certificate on a host, which only the user can read."""

from __future__ import annotations

import os

from ...agent.part import AgentPart
from ...machine.system import NEW_FILE
from ...wire import exit_status, messages
from .messages import Certificate

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.frames import Raw


class CertificateFiles(AgentPart):
    """Part that keeps two files in the job's private folder, which is removed at the end."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._folder = os.path.join(agent.folder, "mtls")

    def on_message(self, message: Message | Raw) -> None:
        """Write the files."""
        assert isinstance(message, Certificate)
        try:
            os.mkdir(self._folder, 0o700)
            for name, text in (("certificate", message.text), ("key", message.key)):
                fd = os.open(os.path.join(self._folder, f"{name}.pem"), NEW_FILE, 0o600)
                with open(fd, "w", encoding="ascii") as file:
                    file.write(text)
        except OSError as error:
            why = f"the certificate, in {os.path.dirname(self.agent.folder)} (TMPDIR): "
            refused = messages.Refused(f"{why}{error.strerror}", exit_status.HOST_LOST)
            self.agent.link.send(refused)
            return
        self.variable = f"{'on' if message.required else 'auto'}:{self._folder}"


PART = CertificateFiles
