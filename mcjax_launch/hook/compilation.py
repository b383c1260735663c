"""Reports of compilations in a rank, and of first runs of programs that span processes."""

from __future__ import annotations

import _thread

from ..wire.hook_messages import Blind, Compiled, Compiling
from . import user_lines
from .part import ProgramSource
from .spmd_program import SpanningProgram, compute_fingerprint, get_program_name
from .wrapping import wrap_like

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from ..wire.hook_messages import Program
    from .agent_link import AgentLink
    from .part import Parts

    T = TypeVar("T")


# JAX compares nothing between processes: if two run different programs over one mesh, they may hang
# or return wrong numbers. So every compilation is reported, with its line, and each program that
# spans processes is reported when it first runs, with a fingerprint. Later runs need no Python, so
# the hook does not notice them.


class Compilation:
    """Patches of JAX's compiler and program execution that report to the agent."""

    def __init__(self, link: AgentLink, parts: Parts) -> None:
        self._link = link
        self._parts = parts
        self._entrance = _thread.allocate_lock()
        # By the id of an executable: the program to report at its first run.
        self._waiting: dict[int, SpanningProgram] = {}
        self._reported: set[str] = set()
        # Programs that several processes must run, by the id of an executable; by fingerprint.
        self._shared: dict[int, Program] = {}
        self._known: dict[str, Program] = {}
        self._sees_runs = False
        self._is_blind = False

    # --- compiling ---

    def patch_compiler(self, compiler: Any) -> None:
        """Wrap JAX's compiler, to report each compilation."""
        real = getattr(compiler, "compile_or_get_cached", None)
        if real is None:
            self._report_blind("it has no compile_or_get_cached")
            return

        def compile_or_get_cached(
            backend: Any, computation: Any, devices: Any, *args: Any, **kwargs: Any
        ) -> Any:
            where = self._try(user_lines.find_current_line) or ""
            begun = self._try(self._report_begin, backend, computation, where)
            program = self._try(self._make_spanning_program, backend, computation, devices, where)
            try:
                executable = real(backend, computation, devices, *args, **kwargs)
            finally:
                if begun:
                    self._link.send(Compiled())
            self._keep(program, executable)
            return executable

        compiler.compile_or_get_cached = wrap_like(real, compile_or_get_cached)
        self._patch_backend(compiler)
        try:  # JAX leaves its own frames out of tracebacks, and then also these
            from jax._src import traceback_util

            traceback_util.register_exclusion(Compilation.__init__.__code__.co_filename)
        except (ImportError, AttributeError):
            pass

    def _patch_backend(self, compiler: Any) -> None:
        """Obtain executables that JAX's cache lacks from other ranks, if this JAX allows it."""
        real = getattr(compiler, "backend_compile_and_load", None)
        if real is None:
            return

        def backend_compile_and_load(*program: Any, **more: Any) -> Any:
            compiled = None if more else self._parts.find(ProgramSource)
            if compiled is None:
                return real(*program, **more)
            return compiled.obtain(real, program)

        compiler.backend_compile_and_load = wrap_like(real, backend_compile_and_load)

    def _report_begin(self, backend: Any, computation: Any, where: str) -> bool:
        """Report that a compilation begins; return True when that has been sent."""
        self._link.send(Compiling(get_program_name(computation), where, str(backend.platform)))
        return True

    def _make_spanning_program(
        self, backend: Any, computation: Any, devices: Any, where: str
    ) -> SpanningProgram | None:
        """Return the program if it spans processes, including this one; else None."""
        devices = list(devices.flat)
        processes = {int(device.process_index) for device in devices}
        # A program on other processes' devices does nothing here.
        if len(processes) < 2 or backend.process_index() not in processes:
            return None
        of_all = len(devices) == backend.device_count()
        known = compute_fingerprint(computation, devices)
        platform = str(backend.platform)
        return SpanningProgram(computation, known, platform, devices, of_all, where)

    def _keep(self, program: SpanningProgram | None, executable: Any) -> None:
        """Store a compiled program until its first run; report it now if runs are not observed."""
        self._waiting.pop(id(executable), None)
        self._shared.pop(id(executable), None)
        if program is None:
            return
        if program.fingerprint in self._reported:
            if program.fingerprint in self._known:  # the same code, compiled again
                self._shared[id(executable)] = self._known[program.fingerprint]
            return
        if self._sees_runs:
            self._waiting[id(executable)] = program
        else:
            self._reported.add(program.fingerprint)
            self._link.send(program.make_message())

    # --- running ---

    def patch_execution(self, pxla: Any) -> None:
        """Wrap JAX's execution of programs, to report the first run of each."""
        execution = getattr(pxla, "ExecuteReplicated", None)
        if execution is None:
            return
        real = execution.__call__

        # Local names, because every run of a program passes here: `self` would be slower.
        waiting, compilation, parts = self._waiting, self, self._parts

        def call(self: Any, *args: Any) -> Any:
            is_first = waiting and compilation._announce_first_run(self, args)
            if parts.recorder is not None and not is_first:
                compilation._record_run(self)
            return real(self, *args)

        execution.__call__ = wrap_like(real, call)
        self._sees_runs = True

    def _announce_first_run(self, execution: Any, args: Sequence[Any]) -> bool:
        """Announce the executable if this is its first run and other processes must run it too.

        Returns:
            whether it is its first run; it has been recorded then.

        """
        number = id(execution.xla_executable)
        program = self._waiting.get(number)
        if program is None:
            return False
        is_shared = self._try(self._record_shared_run, program, execution, args)
        if is_shared:
            self._shared[number] = self._known[program.fingerprint] = program.make_message()
        self._record_run(execution)
        if is_shared:
            self._announce(program)
        self._waiting.pop(number, None)
        program.forget_code()
        return True

    def _record_run(self, execution: Any) -> None:
        """Pass a run on to the recorder, if there is one."""
        if self._parts.recorder is not None:
            program = self._shared.get(id(execution.xla_executable))
            self._try(self._parts.recorder.on_run, program)

    def _record_shared_run(
        self, program: SpanningProgram, execution: Any, args: Sequence[Any]
    ) -> bool:
        if not program.concerns_others(execution, args):
            return False
        program.record_run(args, user_lines.find_current_line())
        return True

    def _announce(self, program: SpanningProgram) -> None:
        """Report that a program is about to run for the first time."""
        with self._entrance:
            if program.fingerprint not in self._reported:
                self._reported.add(program.fingerprint)
                self._link.send(program.make_message())

    def _try(self, read: Callable[..., T], *args: Any) -> T | None:
        """Call `read`, which reads JAX's internals; on an exception, report it and return None."""
        try:
            return read(*args)
        except Exception as error:
            self._report_blind(repr(error))
            return None

    # --- reports ---

    def _report_blind(self, reason: str) -> None:
        """Report once that the programs of this jax version cannot be compared."""
        if not self._is_blind:
            self._is_blind = True
            self._link.send(Blind(reason))
