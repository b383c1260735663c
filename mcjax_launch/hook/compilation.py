"""Reports of compilations in a rank."""

from __future__ import annotations

from ..wire.hook_messages import Compiled, Compiling
from . import user_lines
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
            backend: Any,
            computation: Any,
            devices: Any,
            options: Any,
            callbacks: Any,
            *args: Any,
            **more: Any,
        ) -> Any:
            def compile_() -> Any:
                return real(backend, computation, devices, options, callbacks, *args, **more)

            recorder, source = self._parts.find("describe"), self._parts.find("obtain")
            program = recorder and recorder.describe(backend, computation, devices, options)
            begun = self._report_begin(backend, computation, getattr(program, "identity", 0))
            try:
                if source is None:
                    executable = compile_()
                else:
                    executable = source.obtain(compile_, backend, options, callbacks)
            finally:
                if begun:
                    self._link.send(Compiled())
            if recorder is not None:
                recorder.on_compiled(program, executable)
            return executable

        compiler.compile_or_get_cached = wrap_like(real, compile_or_get_cached)
        try:  # JAX leaves its own frames out of tracebacks, and then also these
            from jax._src import traceback_util

            traceback_util.register_exclusion(Compilation.__init__.__code__.co_filename)
        except (ImportError, AttributeError):
            pass

    def _report_begin(self, backend: Any, computation: Any, identity: int) -> bool:
        """Report that a compilation begins; return True when that has been sent."""
        try:
            name, where = find_program_name(computation), user_lines.find_current_line()
            self._link.send(Compiling(name, where, str(backend.platform), identity))
        except Exception:  # an unknown version of JAX
            return False
        return True
