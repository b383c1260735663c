"""Folders in which the ranks of a host find each other's compiled programs."""

from __future__ import annotations

import json
import os

from ...agent.part import AgentPart
from ...machine import own_paths
from .messages import NoCache, ShareCompiled

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...wire.codec import Message
    from ...wire.frames import Raw


class CompiledFolders(AgentPart):
    """Part that makes a private folder, removed at the end, and the folder of --compile-cache."""

    def on_message(self, message: Message | Raw) -> None:
        """Make the folders; a job without the folder of --compile-cache continues."""
        assert isinstance(message, ShareCompiled)
        private, folder = os.path.join(self.agent.folder, "compiled"), message.folder
        try:
            if not os.path.isdir(private):  # an earlier run has left its programs there
                os.mkdir(private, 0o700)
        except OSError:  # the disk is full: every rank compiles for itself
            return
        if folder and (reason := own_paths.explain_distrust(folder)):
            self.agent.link.send(NoCache(reason))
            folder = ""
        self.variable = json.dumps([message.mode, private, folder, message.size])


PART = CompiledFolders
