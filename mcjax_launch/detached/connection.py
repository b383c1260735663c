"""Connection from a command to the launcher of a detached job."""

from __future__ import annotations

import select

from mcjax_launch.detached import address
from mcjax_launch.detached.jobs import RUNNING, DetachedJob
from mcjax_launch.detached.messages import ToDetached, ToVisitor
from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.codec import Malformed, to_json
from mcjax_launch.wire.exit_status import FAILED

_MOST_READ = 1 << 16
# What a user does with a job, by its option: words, and the client that leads to another machine.
_ACTIONS = {
    "attach": ("attach to it", "ssh -t"),
    "wait": ("wait for it", "ssh"),
    "stop": ("stop it", "ssh"),
}


class Connection:
    """Connection from a terminal to the launcher of a detached job.

    Args:
        folder: folder of the job.

    Raises:
        OSError: no launcher listens there.

    """

    def __init__(self, folder: str) -> None:
        self._socket = address.connect(folder)
        self._held = b""
        self.fd = self._socket.fileno()

    def send(self, message: ToDetached) -> None:
        """Send a message; do nothing if the launcher has ended."""
        text = to_json(message).encode() + b"\n"
        try:
            self._socket.sendall(text)
        except OSError:
            return

    def receive(self) -> list[ToVisitor] | None:
        """Wait for messages from the launcher and return them; None if it has ended."""
        try:
            data = self._socket.recv(_MOST_READ)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._held = (self._held + data).split(b"\n")
        try:
            return [ToVisitor.of(line.decode("utf-8", "replace")) for line in lines]
        except Malformed:  # of another version
            return []

    def wait_for_end(self, limit_s: float | None) -> bool:
        """Wait until the launcher closes the connection; return False if `limit_s` is over first.

        What the launcher sends meanwhile is not read.
        """
        waiting = select.poll()
        waiting.register(self.fd, 0)  # of the events only the end
        return bool(waiting.poll(None if limit_s is None else limit_s * 1000))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def open_connection(job: DetachedJob, action: str) -> Connection | None:
    """Return a connection to the launcher of a job; None if the job is over.

    Args:
        job: the detached job.
        action: what the user does with it: "attach", "wait" or "stop", which also ends a launcher
            that still waits for the reader of its events.

    Raises:
        LaunchError: the job runs on another machine, or its launcher does not answer.

    """
    if job.state != RUNNING and not (action == "stop" and job.has_launcher):
        return None
    host, pid = job.description.host, job.description.pid
    if not job.is_here:
        words, ssh = _ACTIONS[action]
        there = f"{ssh} {host} mcjax-launch --{action} {job.id}"
        raise LaunchError(f"job {job.id} runs on {host}: {words} there ({there})")
    try:
        return Connection(job.folder)
    except OSError as error:
        if job.read_again().state != RUNNING:  # it has just ended
            return None
        raise LaunchError(
            f"job {job.id}: its launcher does not answer: {error.strerror}; kill -KILL {pid} ends "
            "it and its ranks",
            FAILED,
        ) from None
