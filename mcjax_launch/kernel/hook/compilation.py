"""What a rank compiles, and its first runs of programs that span processes."""

from __future__ import annotations

import _thread
from functools import partial

from ..wire.hook_messages import Blind, Compiled, Compiling, ProgramText
from . import user_lines
from .spmd_program import SpanningProgram, fingerprint, name_of
from .wrapping import in_place_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from ..wire.hook_messages import Program
    from .agent_link import AgentLink
    from .part import Parts, RankPart

    T = TypeVar("T")


def _obtained(part: RankPart, obtain: Callable[..., Any], *program: Any) -> Any:
    return part.obtain(obtain, program)


# JAX compares nothing between processes: two that run different programs over one mesh may hang, or
# return wrong numbers. So every compilation is reported, with its line, and each program that spans
# processes when it runs for the first time, with a fingerprint. From then on JAX runs it without
# Python, unseen by the hook.

# Of a program's text, in one message; and of other programs that a rank has compiled.
_MOST_PART = 1 << 18
_MOST_OTHERS = 256


class Compilation:
    """Patches JAX's compiler and its execution of what is compiled, and reports both."""

    def __init__(self, link: AgentLink, parts: Parts) -> None:
        self._link = link
        self._parts = parts
        # By fingerprint: held by the first thread that comes to a program, until that may run.
        self._entrances: dict[str, Any] = {}
        # By the id of an executable: what is to be reported when that first runs.
        self._waiting: dict[int, SpanningProgram] = {}
        self._reported: set[str] = set()
        self._sees_runs = False
        self._is_blind = False

    # --- compiling ---

    def patch_compiler(self, compiler: Any) -> None:
        """See what JAX compiles."""
        real = getattr(compiler, "compile_or_get_cached", None)
        if real is None:
            self._report_blind("it has no compile_or_get_cached")
            return

        def compile_or_get_cached(
            backend: Any, computation: Any, devices: Any, *args: Any, **kwargs: Any
        ) -> Any:
            where = self._try(user_lines.place) or ""
            begun = self._try(self._report_begin, backend, computation, where)
            program = self._try(self._spanning, backend, computation, devices, where)
            parts = self._try(self._announce_compilation, program) or ()
            try:
                executable = real(backend, computation, devices, *args, **kwargs)
            finally:
                if begun:
                    self._link.send(Compiled())
                for part, message in parts:
                    part.compiled(message)
            self._keep(program, executable)
            return executable

        compiler.compile_or_get_cached = in_place_of(real, compile_or_get_cached)
        self._patch_backend(compiler)
        try:  # JAX's tracebacks are without JAX's frames, and without this one
            from jax._src import traceback_util

            for ours in (Compilation.__init__, type(self._parts).asked):  # this file, and part.py
                traceback_util.register_exclusion(ours.__code__.co_filename)
        except (ImportError, AttributeError):
            pass

    def _patch_backend(self, compiler: Any) -> None:
        """Let parts obtain what JAX's own cache has not; another JAX than we know compiles it."""
        real = getattr(compiler, "backend_compile_and_load", None)
        if real is None:
            return

        def backend_compile_and_load(*program: Any, **more: Any) -> Any:
            obtain = real
            for part in self._parts.asked() if not more else ():
                obtain = partial(_obtained, part, obtain)
            return obtain(*program, **more)

        compiler.backend_compile_and_load = in_place_of(real, backend_compile_and_load)

    def _report_begin(self, backend: Any, computation: Any, where: str) -> bool:
        """Report that a compilation begins."""
        self._link.send(Compiling(name_of(computation), where, str(backend.platform)))
        return True

    def _spanning(
        self, backend: Any, computation: Any, devices: Any, where: str
    ) -> SpanningProgram | None:
        """The program, if it spans processes, this one among them."""
        devices = list(devices.flat)
        processes = {int(device.process_index) for device in devices}
        # One on the devices of others does nothing here.
        if len(processes) < 2 or backend.process_index() not in processes:
            return None
        of_all = len(devices) == backend.device_count()
        known = fingerprint(computation, devices)
        platform = str(backend.platform)
        return SpanningProgram(computation, known, platform, devices, of_all, where)

    def _announce_compilation(
        self, program: SpanningProgram | None
    ) -> list[tuple[RankPart, Program]]:
        """Tell parts what is compiled; those, and what they were told."""
        if program is None or not (parts := self._parts.asked()):
            return []
        message = program.message(compiling=True)
        for part in parts:
            part.compiles(message, partial(self._kept_text, program))
        return [(part, message) for part in parts]

    def _keep(self, program: SpanningProgram | None, executable: Any) -> None:
        """Remember what has been compiled until it runs, or report it where runs are not seen."""
        self._waiting.pop(id(executable), None)
        if program is None or program.fingerprint in self._reported:
            return
        if self._sees_runs:
            self._waiting[id(executable)] = program
        else:
            self._reported.add(program.fingerprint)
            self._link.send(program.message())

    # --- running ---

    def patch_execution(self, pxla: Any) -> None:
        """See what JAX runs through Python."""
        execution = getattr(pxla, "ExecuteReplicated", None)
        if execution is None:
            return
        real = execution.__call__

        # Bound here and not reached by `self` there: this is in the way of programs.
        waiting, compilation = self._waiting, self

        def call(self: Any, *args: Any) -> Any:
            if waiting:
                compilation._runs(self, args)
            return real(self, *args)

        execution.__call__ = in_place_of(real, call)
        self._sees_runs = True

    def _runs(self, execution: Any, args: Sequence[Any]) -> None:
        """Announce an executable that runs for the first time."""
        number = id(execution.xla_executable)
        program = self._waiting.get(number)
        if program is None:
            return
        if self._try(self._concerns_others, program, execution, args):
            self._announce(
                program, execution, args
            )  # outside of any `try`: what is raised there is the program's
        self._waiting.pop(number, None)
        program.forget_code()

    def _concerns_others(
        self, program: SpanningProgram, execution: Any, args: Sequence[Any]
    ) -> bool:
        if not program.concerns_others(execution, args):
            return False
        program.runs(args, user_lines.place())
        return True

    def _announce(self, program: SpanningProgram, execution: Any, args: Sequence[Any]) -> None:
        """Say that a program is about to run for the first time; come back when it may."""
        fingerprint = program.fingerprint
        if fingerprint in self._reported:
            return
        with self._entrances.setdefault(fingerprint, _thread.allocate_lock()):
            if fingerprint in self._reported:  # another thread has come with it meanwhile
                return
            message = program.message(held=True)
            show = partial(self._show, program, program.text)
            given = partial(program.given, execution, args)
            held = any(part.hold(message, show, given) for part in self._parts.asked())
            if not held:
                self._link.send(program.message())
            self._reported.add(fingerprint)
        self._entrances.pop(fingerprint, None)

    def _kept_text(self, program: SpanningProgram) -> Callable[[], Iterator[ProgramText]]:
        return partial(self._show, program, program.kept_text())

    def _show(self, program: SpanningProgram, text_of: Callable[[], str]) -> Iterator[ProgramText]:
        """The text of a program, in parts."""
        text, fingerprint = text_of(), program.fingerprint
        for at in range(0, len(text), _MOST_PART):
            yield ProgramText(fingerprint, text[at : at + _MOST_PART], last=False)
        others = {other.fingerprint for other in list(self._waiting.values())} - {fingerprint}
        yield ProgramText(fingerprint, "", last=True, compiled=tuple(sorted(others))[:_MOST_OTHERS])

    def _try(self, look: Callable[..., T], *args: Any) -> T | None:
        """What comes of a look into JAX; the program goes on with another JAX than we know."""
        try:
            return look(*args)
        except Exception as error:
            self._report_blind(repr(error))
            return None

    # --- reports ---

    def _report_blind(self, reason: str) -> None:
        """Report once that the programs of this jax version cannot be compared."""
        if not self._is_blind:
            self._is_blind = True
            self._link.send(Blind(reason))
