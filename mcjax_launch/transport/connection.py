"""Launcher's connection to an agent: sends frames, and checks received frames by the protocol."""

import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from mcjax_launch import features
from mcjax_launch.job.hosts import Host
from mcjax_launch.machine.loop import READ, Loop
from mcjax_launch.machine.system import widen
from mcjax_launch.machine.uplink import Uplink
from mcjax_launch.ranks import format_ranks
from mcjax_launch.transport.mangling import describe_mangling
from mcjax_launch.transport.pipes import Pipes
from mcjax_launch.wire import frames, messages
from mcjax_launch.wire.codec import Malformed, Message
from mcjax_launch.wire.frames import Data, Raw
from mcjax_launch.wire.messages import (
    Credit,
    Exited,
    HostFacts,
    Question,
    ToLauncher,
)

# --- which messages an agent may send, and when ---

# Allowed at any time: an agent reports a bug whenever it occurs.
_ALWAYS = (messages.Ping, messages.InternalError)
_OUTPUT = (frames.STDOUT, frames.STDERR)


class ProtocolState:
    """State of the protocol with an agent, to check whether each received frame is legal."""

    def __init__(self) -> None:
        self._decoder = frames.Decoder(messages.ToLauncher, frames.LONGEST_FROM_AGENT)
        self._greeted = self._said_bye = False
        self._asked: list[Question] = []
        self._ranks: frozenset[int] = frozenset()
        self._exited: set[int] = set()

    def record_sent_message(self, message: Message) -> None:
        """Record a message that the launcher sends, because it changes which answers are legal."""
        if isinstance(message, messages.Start):
            self._ranks = frozenset(order.process_id for order in message.ranks)
        elif isinstance(message, Question):
            self._asked.append(message)

    def decode_frames(self, data: bytes | memoryview) -> Iterator[Message | Data | Raw]:
        """Yield the frames that `data` completes.

        Raises:
            Malformed: the bytes are not a frame, or the agent may not send it now.

        """
        for frame in self._decoder.feed(data):
            self.check(frame)
            yield frame

    def check(self, frame: Message | Data | Raw) -> None:
        """Check that the agent may send this frame now.

        Raises:
            Malformed: the frame is illegal in this state, or about ranks of another host.

        """
        name = type(frame).__name__
        if isinstance(frame, _ALWAYS):
            return
        if self._said_bye or self._greeted == isinstance(frame, messages.Greeting):
            raise Malformed(f"{name} at the wrong time")
        if isinstance(frame, Data) and frame.stream not in _OUTPUT:
            raise Malformed(f"{name}, which agents do not send")
        if isinstance(frame, Raw) and not features.exists(frame.feature):
            raise Malformed(f"{name} of {frame.feature!r}, which is no feature")
        self._greeted = True
        self._said_bye = isinstance(frame, messages.Bye)
        if others := set(_get_frame_ranks(frame)) - self._ranks:
            raise Malformed(f"{name} of {format_ranks(sorted(others)[:1])}, which is not there")
        if isinstance(frame, Exited):
            if frame.rank in self._exited:
                raise Malformed(f"{name} of rank {frame.rank} again")
            self._exited.add(frame.rank)
        if isinstance(frame, ToLauncher) and frame.answers is not None:
            self._check_answer(frame, frame.answers)

    def _check_answer(self, frame: ToLauncher, question: type[Question]) -> None:
        name = type(frame).__name__
        asked = next((asked for asked in self._asked if isinstance(asked, question)), None)
        if asked is None:
            raise Malformed(f"{name}, which was not requested")
        self._asked.remove(asked)
        if isinstance(frame, HostFacts) and isinstance(asked, messages.Prepare):
            ports = len(frame.transfer_ports)
            if ports != asked.transfer_ports:
                raise Malformed(f"{name} with {ports} ports for transfers")


def _get_frame_ranks(frame: Message | Data | Raw) -> Iterable[int]:
    """Return the ranks whose output or state a frame reports; () if none."""
    match frame:
        case Data():
            return (frame.rank,)
        case ToLauncher():
            return frame.about
    return ()


# --- frames in and out, never blocking ---

_MOST_ERRORS = 8192
_TRACEBACK = b"Traceback (most recent call last):"
_PIPE_HOLDS = 1 << 16  # by default; a user's pipes have a limit on their total size
_MOST_READ = 1 << 18
# What the loader says; see `bootstrap.SAYS`.
_LOADING = re.compile(rb"mcjax-launch-payload:(True|False)\r?\n")
# Beginning or parts of the names of the agent's files.
_STREAMED = b"<mcjax-launch>/"
_INSTALLED = tuple(
    b"/mcjax_launch/%s/" % folder for folder in (b"agent", b"features", b"machine", b"wire")
)


# Each read is handled before the next, so all connections share a buffer.
_buffer = memoryview(bytearray(_MOST_READ))


def _is_agents(line: bytes) -> bool:
    """Return whether a line of a traceback names a file of the agent, installed or streamed.

    Other tracebacks can come from a client that is a Python program.
    """
    file = line.strip().partition(b'File "')[2].partition(b'", line ')[0]
    return file.startswith(_STREAMED) or any(folder in file for folder in _INSTALLED)


class AgentConnection:
    """Connection to a host's agent.

    Args:
        host: host of the agent.
        pipes: pipes of the started transport.
        loop: event loop that watches the pipes.
        window: limit on the bytes of ranks' output that the agent may send ahead.
        on_frame: called with this connection and each received frame, in order.
        on_end: called with this connection and a reason: "" when the agent has closed its pipe,
            else why its bytes or its frame are illegal.
        trace: called with a line of text for each frame; None to trace nothing.

    Attributes:
        began_at, heard_at: times (time.monotonic) of the start and of the latest data.
        noise, errors: last bytes before the agent's greeting, and last bytes on stderr.
        greeted: True if the agent itself has sent data, not only a login shell.
        said_bye: True if the agent has sent Bye.
        ended: True if the agent's end of the pipe is closed.
        status: exit status of the transport's process (below 0: minus a signal); None if it runs.

    """

    def __init__(
        self,
        host: Host,
        pipes: Pipes,
        loop: Loop,
        window: int,
        on_frame: Callable[["AgentConnection", Message | Data | Raw], None],
        on_end: Callable[["AgentConnection", str], None],
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.host = host
        self.began_at = self.heard_at = time.monotonic()
        self.noise = self.errors = b""
        self.greeted = False
        self.said_bye = False
        self.ended = False
        self.status: int | None = None
        self._loop = loop
        self._pipes = pipes
        self._out = Uplink(pipes.to_agent, loop)
        self._protocol = ProtocolState()
        self._on_frame = on_frame
        self._on_end = on_end
        self._trace = trace
        self._window = window
        self._consumed = 0  # bytes of output since the last credit
        if window > _PIPE_HOLDS:
            widen(pipes.from_agent, window)
        self._patient_until = 0.0
        loop.watch(pipes.from_agent, READ, lambda ready: self._read())
        loop.watch(pipes.errors, READ, lambda ready: self._read_errors())

    def pause(self) -> None:
        """Stop reading from the agent until `resume`; its frames stay in the pipe."""
        self.be_patient(math.inf)
        self._loop.forget(self._pipes.from_agent)

    def resume(self) -> None:
        """Read from the agent again, if reading was paused."""
        if self._patient_until == math.inf and not self.ended:
            self._patient_until, self.heard_at = 0.0, time.monotonic()
            self._loop.watch(self._pipes.from_agent, READ, lambda ready: self._read())

    @property
    def pid(self) -> int:
        """Process id of the transport."""
        return self._pipes.pid

    @property
    def is_over(self) -> bool:
        """True if the agent has served this run, or is gone."""
        return self.ended

    @property
    def client(self) -> str:
        """Name of the client that starts the agent on its host, such as ssh; "" if local."""
        return self._pipes.client

    def be_patient(self, seconds: float) -> None:
        """Allow the agent this many seconds of silence from now; 0 restores the usual limit."""
        self._patient_until = time.monotonic() + seconds if seconds else 0.0

    @property
    def is_awaited(self) -> bool:
        """True if `be_patient` has set a limit on the agent's silence."""
        return self._patient_until > 0

    @property
    def silent_at(self) -> float:
        """Time (time.monotonic) at which the agent counts as gone if it stays silent."""
        return max(self.heard_at + frames.SILENCE_S, self._patient_until)

    # --- to the agent ---

    def send(self, message: Message) -> None:
        """Send a message; do nothing if the agent is gone."""
        if self._trace is not None:
            self._trace(f"frame to {self.host.name}: {message!r}")
        self._protocol.record_sent_message(message)
        self._out.send(frames.encode_message(message))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no frame, namely the agent's code."""
        self._out.send(data)

    def supply(self, staged: Iterator[bytes], then: Message) -> None:
        """Send encoded frames, each only when the pipe has room, and then a message."""
        self._protocol.record_sent_message(then)
        self._out.send_later(chain(staged, [frames.encode_message(then)]))

    def open_window(self) -> None:
        """Permit the agent to send its first output, up to the size of the window."""
        self.send(Credit(self._window))

    @property
    def is_stalled(self) -> bool:
        """True if the agent has used up its credit, so that it reads no output from the ranks."""
        return self.greeted and not self.ended and self._consumed >= self._window

    def give_credit(self) -> None:
        """Permit as many bytes as were consumed, if those are a quarter of the window or more."""
        if self._consumed > 0 and self._consumed >= self._window // 4:
            self.send(Credit(self._consumed))
            self._consumed = 0

    # --- from the agent ---

    def _read(self) -> None:
        try:
            count = os.readv(self._pipes.from_agent, [_buffer])
        except BlockingIOError:
            return
        self.heard_at = time.monotonic()
        data = _buffer[:count]
        for frame in self._decode_frames(data if self.greeted else self._skip_noise(bytes(data))):
            if isinstance(frame, Data):
                self._consumed += len(frame.payload)
            if self._trace is not None:
                self._trace(f"frame from {self.host.name}: {frame!r}")
            self._on_frame(self, frame)
        if not self.greeted and (how := describe_mangling(self.noise)):
            self._on_end(self, how)
        if count == 0 and not self.ended:
            self._end()

    def _decode_frames(self, data: bytes | memoryview) -> Iterator[Message | Data | Raw]:
        """Yield the complete frames; at a malformed frame, stop and call `on_end`.

        Errors of the code that handles the frames are not caught here, because they are bugs.
        """
        try:
            yield from self._protocol.decode_frames(data)
        except Malformed as error:
            self._on_end(self, str(error))

    def _skip_noise(self, data: bytes) -> bytes:
        noise = self.noise + data
        if self.client and (found := _LOADING.search(noise)) is not None:
            noise = noise[: found.start()] + noise[found.end() :]
            loading = messages.Loading(found[1] == b"True")
            if self._trace is not None:
                self._trace(f"line from {self.host.name}: {loading!r}")
            self._on_frame(self, loading)
        before, magic, after = noise.partition(frames.MAGIC)
        self.greeted = bool(magic)
        if self.greeted:  # what was printed at the login explains no later end
            self._read_errors()
            self.errors = b""
        self.noise = before[-_MOST_ERRORS:]
        return after

    def _end(self) -> None:
        self.ended = True
        self._loop.forget(self._pipes.from_agent)
        self._read_errors()
        self._on_end(self, "")

    def _read_errors(self) -> None:
        try:
            data = os.read(self._pipes.errors, 65536)
        except BlockingIOError:
            return
        self.errors = (self.errors + data)[-_MOST_ERRORS:]
        if not data:
            self._loop.forget(self._pipes.errors)

    def get_last_lines(self) -> list[str]:
        """Return the last lines that the client or the host's shell printed, oldest first."""
        text = self.errors if self.errors.strip() else self.noise
        lines = (line.strip() for line in text.decode("utf-8", "replace").splitlines())
        return [line for line in lines if line]

    @property
    def traceback(self) -> str:
        """Traceback of a bug that ended the agent before its greeting, from stderr; "" if none."""
        _, start, rest = self.errors.rpartition(_TRACEBACK)
        ours = any(_is_agents(line) for line in rest.splitlines())
        return (start + rest).decode("utf-8", "replace") if ours else ""

    # --- the end ---

    def end_input(self) -> None:
        """Close the pipe to the agent: a transport may wait for that before it ends."""
        if self._pipes.to_agent >= 0:
            self._out.drop()
            os.close(self._pipes.to_agent)
            self._pipes = self._pipes.copy_with(to_agent=-1)

    def close(self) -> None:
        """Close all pipes; an agent that still runs notices that, and ends its ranks."""
        self._out.drop()
        for fd in (self._pipes.from_agent, self._pipes.errors, self._pipes.to_agent):
            if fd >= 0:
                self._loop.forget(fd)
                os.close(fd)
        self._pipes = self._pipes.copy_with(from_agent=-1, errors=-1, to_agent=-1)
        self.ended = True

    def kill(self, signum: int) -> None:
        """Send a signal to the transport's process group, which does not include the agent."""
        if not self.reap():
            try:
                os.killpg(self.pid, signum)
            except PermissionError:  # sudo's process; its agent ends with the connection
                pass

    def wake(self) -> None:
        """Continue a transport that was stopped (SIGSTOP); the guardian continues the agent."""
        self.kill(signal.SIGCONT)

    def reap(self) -> bool:
        """Reap the transport's process if it has ended; return whether it has."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # it has been reaped
                pid, status = self.pid, 0
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None
