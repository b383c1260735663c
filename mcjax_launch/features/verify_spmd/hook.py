"""Gate before the first run of a program that spans processes: the launcher opens it."""

from __future__ import annotations

import threading
import zlib

from ...hook.part import ProgramGate
from ...wire import hook_environ
from ...wire.hook_messages import GateOpens, HookReply, ProgramCompiled, ShowProgram
from ...wire.line import AgentLine

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from ...hook.agent_link import AgentLink
    from ...hook.part import ShownText
    from ...wire.hook_messages import Program

# --- checksums of arguments ---

# Bytes of a program's arguments: at 3 GB/s they take 20 ms, only at its first run.
_MOST_BYTES = 1 << 26
# A longer argument is covered at both ends; on accelerators, where it would be copied, not at all.
_MOST_OF_ONE = 1 << 22
_MOST_ARGUMENTS = 1024


def compute_checksums(given: Callable[[], Iterable[tuple[Any, Any]]]) -> tuple[str, ...]:
    """Return a checksum for each argument; "" if processes may differ in it, or it is too long.

    Args:
        given: returns the arguments, each with its sharding in the program.

    """
    try:
        arguments = given()
    except Exception:  # an unknown version of JAX
        return ()
    left, found = _MOST_BYTES, []
    for number, (value, sharding) in enumerate(arguments):
        text = ""
        if left > 0 and number < _MOST_ARGUMENTS:
            try:
                text, used = _compute_checksum(value, sharding)
                left -= used
            except Exception:  # an unknown type is not compared
                text = ""
        found.append(text)
    return tuple(found) if any(found) else ()


def _compute_checksum(value: Any, sharding: Any) -> tuple[str, int]:
    """Return an argument's checksum and the number of bytes it covers."""
    value = getattr(value, "_base_array", value)  # a PRNG key's numbers
    own = getattr(value, "sharding", None)
    if own is not None and len({device.process_index for device in own.device_set}) > 1:
        sharding = own
    if sharding is None or not _is_same(sharding, getattr(value, "shape", ())):
        return "", 0
    shards = {repr(shard.index): shard.data for shard in getattr(value, "addressable_shards", ())}
    parts = [data for _, data in sorted(shards.items())] or [value]
    size = sum(getattr(data, "nbytes", 0) for data in parts)
    is_far = own is not None and any(device.platform != "cpu" for device in own.device_set)
    if size > _MOST_OF_ONE and is_far:
        return "", 0
    sum_, length = 0, 0
    for data in parts:
        for piece in _iterate_pieces(data):
            sum_, length = zlib.crc32(piece, sum_), length + len(piece)
    return f"{sum_:08x}", length


def _is_same(sharding: Any, shape: tuple[int, ...]) -> bool:
    """Return whether every process has the same parts of an array."""
    if sharding.is_fully_replicated:
        return True
    from ...hook.spmd_program import group_parts_by_process

    return len(set(map(frozenset, group_parts_by_process(sharding, shape).values()))) == 1


def _iterate_pieces(data: Any) -> Iterator[memoryview]:
    """Yield the bytes of an array; of a long array its beginning and its end."""
    if not hasattr(data, "__array__"):  # a number of Python's
        yield memoryview(repr(data).encode())
        return
    whole = memoryview(data.__array__().reshape(-1).view("uint8"))
    if len(whole) <= _MOST_OF_ONE:
        yield whole
    else:
        yield whole[: _MOST_OF_ONE // 2]
        yield whole[-_MOST_OF_ONE // 2 :]


# --- the gate ---
# Each thread that reaches it has its own connection to the agent, and waits there for its answer
# without any other thread or lock.

# The launcher answers much sooner; if it cannot, the program goes on after this time.
_LONGEST_S = 150
_CONNECT_S = 1


class Gate(ProgramGate):
    """Part that holds this process's threads, but not its forks', until their programs may run."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        self._of_thread = threading.local()
        self._listener: _Listener | None = None

    def on_compilation_start(self, program: Program, keep: Callable[[], ShownText]) -> None:
        """Announce a program to be compiled, because the compilation may wait for other ranks."""
        if not self.link.is_of_this_process:
            return
        if self._listener is None:
            try:
                self._listener = _Listener(self._connect())
            except OSError:
                return
        self._listener.on_compilation_start(program, keep())

    def on_compilation_end(self, program: Program) -> None:
        """Forget the program's text, which is no longer needed."""
        if self._listener is not None:
            self._listener.on_compilation_end(program)

    def hold(
        self, program: Program, show: ShownText, given: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> bool:
        """Announce a program, and wait until it may run.

        An exception of the program's own, such as from a signal handler, ends the wait; the next
        call for this program continues it.

        Args:
            program: description of the program.
            show: function that yields the program's text, for use if the text is wanted.
            given: function that returns the arguments of the run, each with its sharding.

        Returns:
            whether the program has been announced; False if the agent is gone.

        """
        if not self.link.is_of_this_process:
            return False
        line: _GateLine | None = getattr(self._of_thread, "line", None)
        if line is None:
            try:
                line = self._of_thread.line = self._connect()
            except OSError:
                return False
        fingerprint = program.fingerprint
        if fingerprint not in line.announced:
            program = program.copy_with(copies=compute_checksums(given))
            line.announced.add(fingerprint)
            line.send(program)
        while fingerprint not in line.opened:
            reply = line.receive(HookReply, _LONGEST_S)
            if reply is None:
                break
            if isinstance(reply, GateOpens):
                line.opened.add(reply.fingerprint)
            elif isinstance(reply, ShowProgram) and reply.fingerprint == fingerprint:
                for part in show():
                    line.send(part)
        line.opened.discard(fingerprint)
        line.announced.discard(fingerprint)
        return True

    def _connect(self) -> _GateLine:
        process_id = self.environ.get("JAX_PROCESS_ID", "")
        return _GateLine(self.environ[hook_environ.SOCKET], process_id)


class _GateLine(AgentLine):
    """Connection of a thread to the agent, with the programs that were announced and released."""

    def __init__(self, path: str, process_id: str) -> None:
        super().__init__(path, process_id, _CONNECT_S)
        self.announced: set[str] = set()
        self.opened: set[str] = set()


class _Listener:
    """Thread that sends the code of programs being compiled: the compiling thread may be stuck.

    Args:
        line: a connection to the agent for this thread only.

    """

    def __init__(self, line: _GateLine) -> None:
        self._line = line
        self._sends = threading.Lock()
        self._texts: dict[str, ShownText] = {}
        threading.Thread(target=self._answer, name="mcjax-verify-spmd", daemon=True).start()

    def on_compilation_start(self, program: Program, show: ShownText) -> None:
        self._texts[program.fingerprint] = show
        with self._sends:
            self._line.send(program)

    def on_compilation_end(self, program: Program) -> None:
        self._texts.pop(program.fingerprint, None)
        with self._sends:
            self._line.send(ProgramCompiled(program.fingerprint))

    def _answer(self) -> None:
        while (reply := self._line.receive(HookReply)) is not None:
            show = self._texts.get(reply.fingerprint)
            if isinstance(reply, ShowProgram) and show is not None:
                for part in show():
                    with self._sends:
                        self._line.send(part)


PART = Gate
