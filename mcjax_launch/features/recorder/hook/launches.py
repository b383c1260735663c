"""Observation of all launches of programs in which processes exchange data.

JAX calls its *post hook* after each call of a jitted function that needed no Python, also by C
code; `jax_debug_nans` uses it. All other launches pass `ExecuteReplicated.__call__`. So each
launch is seen once.

Which program a call without Python has run follows from its first output: JAX gives it the very
sharding that it was told at the first run. A copy is put in its place, which is the program's own.
"""

from __future__ import annotations

import copy
import os
import sys
import threading

from ....hook import user_lines, wrapping
from ....wire.source_lines import PYTHON, find_owner
from ..messages import COUNT, LAST
from .programs import ProgramTexts, SpanningProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ....hook.agent_link import AgentLink
    from .sequences import Mesh, Sequence, SequenceFile
    from .values import ComparedProgram, Values

    PostHook = Callable[[Any, Any, Any, Any], object]

# Python's files in which a thread waits for what other threads do for it.
_WAITS_FOR_WORK = (
    *("/concurrent/futures/_base.py", "/concurrent/futures/thread.py", "/multiprocessing/pool.py"),
    *("/asyncio/base_events.py", "/socketserver.py"),
)


class _Launched:
    """Program in which processes exchange data.

    Attributes:
        identity: its entry in sequences.
        sequence: the sequence of its mesh.
        shardings: shardings of first outputs, and the copy of each that is this program's own.
        compared: what is compared of its arrays; None if nothing is.

    """

    __slots__ = ("compared", "identity", "mesh", "sequence", "shardings")

    def __init__(self, identity: int, mesh: Mesh, sequence: Sequence) -> None:
        self.identity = identity
        self.mesh = mesh
        self.sequence = sequence
        self.shardings: dict[Any, Any] = {}
        self.compared: ComparedProgram | None = None


class Launches:
    """Observer of all launches in this process.

    Args:
        file: the file of the sequences.
        link: the link to the agent.
        compares_values: True to compare the arrays that several processes hold.

    Raises:
        ImportError, AttributeError: this JAX lacks an internal name.

    """

    def __init__(
        self, file: SequenceFile, link: AgentLink, *, compares_values: bool = False
    ) -> None:
        import jax
        from jax._src import api
        from jax._src.array import ArrayImpl
        from jax._src.interpreters import pxla
        from jax.errors import JaxRuntimeError

        self._file = file
        self._link = link
        self._texts = ProgramTexts(file.path)
        self._array, self._list_leaves = ArrayImpl, jax.tree_util.tree_leaves
        self._failed_launch: type[Exception] = JaxRuntimeError
        self._values: Values | None = None
        if compares_values:
            from .values import Values

            self._values = Values(link, self._list_leaves)
        # By the id of an executable: the program, if it spans processes.
        self._programs: dict[int, SpanningProgram] = {}
        # By identity; None if the processes exchange no data.
        self._known: dict[int, _Launched | None] = {}
        # By the id of a sharding that is a program's own, which is kept.
        self._by_sharding: dict[int, _Launched] = {}
        self._broken = False
        on_hit = self._make_on_hit()
        self._intercept_launches()
        self._patch_fast_path(pxla)
        _chain_post_hooks(api, on_hit)
        os.register_at_fork(after_in_child=self._forget)  # a fork shares the rings

    def begin_anew(self) -> None:
        """Begin new sequences: this process has joined another time."""
        self._file.begin_anew()
        for launched in self._known.values():
            if launched is not None:
                launched.sequence = self._file.get_sequence(launched.mesh)
                if launched.compared is not None:
                    launched.compared.begin_anew()

    def _forget(self) -> None:
        self._programs.clear()
        self._by_sharding.clear()
        self._broken = True
        if self._values is not None:
            self._values.running.clear()

    # --- compiling ---

    def describe(self, backend: Any, computation: Any, devices: Any) -> SpanningProgram | None:
        """Return a program that is about to be compiled if it spans processes; else None."""
        if self._broken:
            return None
        devices = list(devices.flat)
        processes = {int(device.process_index) for device in devices}
        # A program on other processes' devices does nothing here.
        if len(processes) < 2 or backend.process_index() not in processes:
            return None
        try:
            of_all = len(devices) == backend.device_count()
            program = SpanningProgram(computation, str(backend.platform), devices, of_all=of_all)
            self._texts.keep(program.identity, program.read_text())
            return program
        except Exception as error:
            self._give_up(error)
            return None

    def on_compiled(self, program: SpanningProgram | None, executable: Any) -> None:
        """Record what an executable has been compiled from."""
        self._programs.pop(id(executable), None)  # it has the place of one that is gone
        if program is not None:
            self._programs[id(executable)] = program

    # --- launches by JAX's Python code ---

    def _intercept_launches(self) -> None:
        # Local names, because every launch by Python passes here: `self` would be slower.
        programs, launch = self._programs, self._launch

        def around(real: Any, execution: Any, args: Any) -> Any:
            program = programs.get(id(execution.xla_executable))
            if program is None:
                return real(execution, *args)
            return launch(program, real, execution, args)

        wrapping.intercept_launches(around)

    def _launch(self, program: SpanningProgram, real: Any, execution: Any, args: Any) -> Any:
        """Launch a program that spans processes, and record it if these exchange data."""
        launched = self._find_launched(program, execution)
        if launched is None:
            return real(execution, *args)
        compared, sequence = launched.compared, launched.sequence
        if compared is not None:
            compared.before_launch(sequence, execution, args)
        sequence.begin(launched.identity)
        try:
            out = real(execution, *args)
        except FloatingPointError:  # jax_debug_nans has found it in the results
            self._record(launched)
            raise
        except self._failed_launch:  # other processes may have launched it, too
            raise
        except Exception:  # nothing was launched
            sequence.take_back()
            raise
        self._record(launched)
        if compared is not None:
            compared.after_launch(sequence, out)
        return out

    def _find_launched(self, program: SpanningProgram, execution: Any) -> _Launched | None:
        """Return what is recorded of a program; None if its processes exchange no data."""
        identity = program.identity
        if identity not in self._known:
            try:
                self._known[identity] = self._examine(program, execution)
            except Exception as error:
                self._known[identity] = None
                self._give_up(error)
        return self._known[identity]

    def _examine(self, program: SpanningProgram, execution: Any) -> _Launched | None:
        if not program.exchanges_data(execution.xla_executable):
            return None
        message = program.make_message(user_lines.find_current_line())
        mesh = program.mesh
        launched = _Launched(program.identity, mesh, self._file.get_sequence(mesh))
        if self._values is not None:
            from .values import ComparedProgram

            launched.compared = ComparedProgram(self._values, program)
        self._link.send(message)
        return launched

    def _record(self, launched: _Launched) -> None:
        sequence = launched.sequence
        if threading.get_ident() != sequence.thread:
            _change_thread(sequence)
        sequence.record(launched.identity)

    # --- launches by JAX's C++ code ---

    def _patch_fast_path(self, pxla: Any) -> None:
        real = pxla.MeshExecutableFastpathData
        executable, shardings = map(real._fields.index, ("xla_executable", "out_shardings"))
        programs, known = self._programs, self._known

        def make(*fields: Any) -> Any:
            out = list(fields[shardings])
            if out:
                program = programs.get(id(fields[executable]))
                launched = None if program is None else known.get(program.identity)
                out[0] = self._mark(out[0], launched)
            return real(*fields[:shardings], out, *fields[shardings + 1 :])

        pxla.MeshExecutableFastpathData = make

    def _mark(self, sharding: Any, launched: _Launched | None) -> Any:
        """Return an equal sharding that is a program's own; for other programs, nobody's."""
        if self._broken or (launched is None and id(sharding) not in self._by_sharding):
            return sharding
        own = None if launched is None else launched.shardings.get(sharding)
        if own is None:
            own = copy.copy(sharding)
            if own is sharding:
                self._give_up(TypeError(f"copies of {type(sharding)} are no other objects"))
            elif launched is not None:
                launched.shardings[sharding] = own
                self._by_sharding[id(own)] = launched
        return own

    def _make_on_hit(self) -> PostHook:
        """Return the function that JAX calls after a launch: with the function, and the outputs.

        It takes part in every step of the program, so all that it needs is local to it.
        """
        array, find, find_in = self._array, self._by_sharding.get, self._find_in
        get_ident, change_thread = threading.get_ident, _change_thread
        values = self._values

        def on_hit(_function: Any, args: Any, kwargs: Any, out: Any) -> None:
            launched = find(id(out.sharding)) if out.__class__ is array else find_in(out)
            if launched is not None:
                sequence = launched.sequence
                if get_ident() != sequence.thread:
                    change_thread(sequence)
                head = sequence.head
                count = head[COUNT]
                sequence.ring[count & LAST] = launched.identity
                head[COUNT] = count + 1
                if (compared := launched.compared) is not None:
                    compared.left -= 1
                    if not compared.left:
                        compared.compare(sequence, args, kwargs, out)
                    elif values is not None and values.running:
                        values.collect()

        return on_hit

    def _find_in(self, out: Any) -> _Launched | None:
        """Return what is recorded of the program with these outputs; None if nothing is."""
        first = out
        try:
            while first.__class__ in (tuple, list):
                first = first[0]
            if first.__class__ is not self._array:
                first = self._list_leaves(out)[0]
            return self._by_sharding.get(id(first.sharding))
        except Exception:  # no outputs
            return None

    def _give_up(self, error: Exception) -> None:
        """Record nothing any more, because entries are missing."""
        self._forget()
        self._file.close(repr(error))


def _change_thread(sequence: Sequence) -> None:
    """Record that another thread than before launches a program of a sequence.

    If the thread before does not wait for this one, both launch programs at the same time.
    """
    before, sequence.thread = sequence.thread, threading.get_ident()
    if not _has_handed_over(sys._current_frames().get(before)):
        sequence.give_up_order()


def _has_handed_over(frame: FrameType | None) -> bool:
    """Return whether a thread has ended, has nothing to do, or waits for the end of other work."""
    while frame is not None:
        file = frame.f_code.co_filename
        if find_owner(file) != PYTHON:
            return False
        if file.endswith(_WAITS_FOR_WORK) or frame.f_code.co_name == "join":
            return True
        frame = frame.f_back
    return True


# --- JAX's post hook ---


def _chain_post_hooks(api: Any, own: PostHook) -> None:
    """Make JAX call a function after each launch, and keep a function that is already called."""
    if hasattr(api, "_post_hook_state"):
        api._post_hook_state = _ChainedState(api._post_hook_state, own)
        return
    from jax._src.lib import jax_jit  # before jax 0.7

    api.jax_jit = _ChainedModule(jax_jit, own)


def _chain(own: PostHook, other: PostHook | None) -> PostHook:
    if other is None:
        return own

    def call_both(*launch: Any) -> None:
        own(*launch)
        other(*launch)

    return call_both


class _ChainedState:
    """JAX's state of its post hook, in which no hook replaces ours."""

    def __init__(self, real: Any, own: PostHook) -> None:
        self._real = real
        self._own = own
        self.set_global(real.get_global())
        local = real.get_local()
        if callable(local):
            self.set_local(local)

    def set_global(self, hook: PostHook | None) -> None:
        """Set the hook of all threads."""
        self._real.set_global(_chain(self._own, hook))

    def set_local(self, hook: PostHook | None) -> None:
        """Set the hook of this thread."""
        self._real.set_local(_chain(self._own, hook))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _ChainedModule:
    """JAX's module `jax_jit` with the hook as an attribute of states (before jax 0.7)."""

    def __init__(self, real: Any, own: PostHook) -> None:
        self._real = real
        self._own = own
        state = self.global_state()
        state.post_hook = real.global_state().post_hook

    def global_state(self) -> _ChainedAttribute:
        """Return the state of all threads."""
        return _ChainedAttribute(self._real.global_state(), self._own, self._own)

    def thread_local_state(self) -> _ChainedAttribute:
        """Return the state of this thread, which precedes that of all threads if it is set."""
        return _ChainedAttribute(self._real.thread_local_state(), self._own, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _ChainedAttribute:
    """Object whose attribute `post_hook` JAX sets and calls."""

    def __init__(self, state: Any, own: PostHook, unset: PostHook | None) -> None:
        vars(self).update(_state=state, _own=own, _unset=unset)

    def __setattr__(self, name: str, hook: PostHook | None) -> None:
        setattr(self._state, name, self._unset if hook is None else _chain(self._own, hook))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)
