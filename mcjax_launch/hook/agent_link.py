"""Connection of the hook to its host's agent, and imports that are removed from sys.modules."""

from __future__ import annotations

import os
import sys

from .stack_answers import Descriptor, answer_by_signal, answer_by_thread, connect

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from ..wire.hook_messages import HookMessage


class AgentLink:
    """Connection to the agent, usable only in the process that made it, not in forks of it.

    Messages sent before the connection is made are kept until `send_held`; if there is no agent
    then, they are dropped.

    Attributes:
        is_below: True if this process is a child process of a rank; see the module `below`.

    """

    def __init__(self) -> None:
        self.is_below = False
        self._pid = 0
        self._path = ""  # of the agent's socket, until a thread answers
        self._to_agent: Descriptor | None = None
        self._held: list[HookMessage] | None = []

    def connect(self, path: str, process_id: str) -> None:
        """Connect to the agent, and send it the first message (`Hello`).

        Args:
            path: path of the agent's unix socket.
            process_id: value of JAX_PROCESS_ID with which this process was started.

        Raises:
            OSError: there is no agent, or connecting takes too long.

        """
        self._path = path
        self._pid = os.getpid()
        self._to_agent = Descriptor(connect(path))
        answer_by_signal(self._to_agent)
        self._greet(process_id)

    def send_held(self) -> None:
        """Send the messages that were kept until the connection was made."""
        held, self._held = self._held or [], None
        for message in held:
            self.send(message)

    @property
    def is_of_this_process(self) -> bool:
        """True in the process that made the connection, False in its forks."""
        return os.getpid() == self._pid

    def _greet(self, process_id: str) -> None:
        """Send `Hello` as literal JSON, because most processes need no other message or codec."""
        quoted = f'"{process_id}"'
        if not process_id.isdigit():  # set by the program, to anything
            from ..wire.codec import to_json

            quoted = to_json(process_id)
        self._send(f'["Hello",[{self._pid},{quoted}]]')

    def send(self, message: HookMessage, *, below: bool = False) -> None:
        """Send a message to the agent; drop it if the agent is gone.

        Args:
            message: the message; in a child process of a rank, only features' messages are sent.
            below: True to send any message from a child process of a rank.

        """
        if self.is_below and not (below or message.feature):
            return
        if self._held is not None and not self._pid:
            self._held.append(message)
        elif self.is_of_this_process:
            from ..wire.codec import to_json

            self._send(to_json(message))

    def _send(self, line: str) -> None:
        # The newline before it: a stack may be half written.
        if self._to_agent is not None:
            self._to_agent.write(b"\n" + line.encode("utf-8", "replace") + b"\n")

    def dump_stacks_on_crash(self) -> None:
        """Make faulthandler send all threads' stacks to the agent if this process crashes.

        Does nothing if the program has enabled faulthandler itself.
        """
        try:
            import faulthandler

            if not faulthandler.is_enabled() and self._to_agent is not None:
                faulthandler.enable(self._to_agent.fd, all_threads=True)
        except (ImportError, OSError, RuntimeError):
            pass

    def answer_by_thread(self) -> None:
        """Let a thread answer the agent's questions about stacks, from now on; start only one."""
        if self._path and self.is_of_this_process:
            answer_by_thread(self._path)
            self._path = ""

    def report_end(self) -> None:
        """Tell the agent that this process runs no Python any more, and answers no questions."""
        self._send('["PythonEnded",[]]')


def import_privately(name: str) -> Any:
    """Import and return a module; remove it and all that it imported from sys.modules.

    The program then imports its own copies.
    """
    before = set(sys.modules)
    module = __import__(name)
    for imported in set(sys.modules) - before:
        del sys.modules[imported]
    return module
