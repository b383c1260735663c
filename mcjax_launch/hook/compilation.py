"""Reports of compilations in a rank."""

from __future__ import annotations

from ..wire.hook_messages import Compiled, Compiling
from . import user_lines
from .part import ProgramSource
from .spmd_program import find_program_name
from .wrapping import wrap_like

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from .agent_link import AgentLink
    from .part import Parts


class Compilation:
    """Patches of JAX's compiler that report to the agent."""

    def __init__(self, link: AgentLink, parts: Parts) -> None:
        self._link = link
        self._parts = parts

    def patch_compiler(self, compiler: Any) -> None:
        """Wrap JAX's compiler, to report each compilation."""
        real = getattr(compiler, "compile_or_get_cached", None)
        if real is None:
            return

        def compile_or_get_cached(
            backend: Any, computation: Any, devices: Any, *args: Any, **kwargs: Any
        ) -> Any:
            recorder = self._parts.recorder
            program = recorder and recorder.describe(backend, computation, devices, *args)
            begun = self._report_begin(backend, computation, getattr(program, "identity", 0))
            try:
                executable = real(backend, computation, devices, *args, **kwargs)
            finally:
                if begun:
                    self._link.send(Compiled())
            if recorder is not None:
                recorder.on_compiled(program, executable)
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

    def _report_begin(self, backend: Any, computation: Any, identity: int) -> bool:
        """Report that a compilation begins; return True when that has been sent."""
        try:
            name, where = find_program_name(computation), user_lines.find_current_line()
            self._link.send(Compiling(name, where, str(backend.platform), identity))
        except Exception:  # an unknown version of JAX
            return False
        return True
