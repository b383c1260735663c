"""Rank that runs alone: programs that span processes are compiled, and their outputs are zeros."""

from __future__ import annotations

import sys

from ....hook import user_lines, wrapping
from ....hook.part import RankPart
from ....wire.codec import from_json, from_values
from ..messages import Calls, Wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType
    from typing import Any

    from ....hook.agent_link import AgentLink
    from .chips import Chips
    from .compiled import UnrunProgram

# Functions of JAX that are compiled anew for each shape: one that moves an array to other devices,
# and the libraries behind such as `x + y`.
_MOVE = "jit__identity_fn"
_LIBRARY = tuple(
    f"/jax/_src/{name}"
    for name in ("numpy/", "lax/", "nn/", "scipy/", "dispatch.py", "array.py", "random.py")
)


class Preview(RankPart):
    """Part that takes the place of the job's other ranks."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        self._has_joined = False
        self._wanted = from_values(Wanted, from_json(self.asked))
        self._chips: Chips | None = None
        self._known: dict[int, UnrunProgram] = {}  # by the id of JAX's executable
        self._calls: list[int] = []  # of each program that is reported
        # Number of the latest program of each name that a call of the user's has compiled.
        self._latest: dict[tuple[str, CodeType, int], int] = {}

    def patch(self, module: Any) -> None:
        """Replace functions of a module by some that do without the other ranks."""
        if module.__name__.startswith("orbax"):
            from . import checkpoints

            checkpoints.patch(module, self.link)
        else:
            from . import exchange

            exchange.patch_helpers(module, sys.modules["jax"])

    def join(self, real: Callable[..., Any], filled: Mapping[str, Any]) -> Any:
        """Call JAX's initialize() with a coordination service that has one member."""
        from . import exchange

        return exchange.join(real, filled, self.environ)

    def on_join(self, *, is_alone: bool) -> None:
        """Run no program that spans processes from now on."""
        if self._has_joined:
            return
        import atexit

        from jax._src.interpreters import pxla

        if self._wanted.topology:
            from .chips import Chips

            self._chips = Chips(self._wanted.topology)
        self._has_joined = True
        self._patch_construction(pxla.ExecuteReplicated)
        wrapping.intercept_launches(self._launch)
        atexit.register(self._report_calls)

    # --- compiling ---

    def describe(
        self, backend: Any, computation: Any, devices: Any, options: Any
    ) -> UnrunProgram | None:
        """Return a program that is about to be compiled if it spans processes; else None."""
        own = backend.process_index()
        if not self._has_joined or all(device.process_index == own for device in devices.flat):
            return None
        from .compiled import UnrunProgram

        return UnrunProgram(computation, list(devices.flat), options, self._chips is not None)

    def on_compiled(self, program: UnrunProgram | None, executable: Any) -> None:
        """Record what an executable has been compiled from."""
        self._known.pop(id(executable), None)  # it has the place of one that is gone
        if program is not None:
            program.executable = executable
            self._known[id(executable)] = program

    def _patch_construction(self, execution: Any) -> None:
        """Report each program when JAX knows its shardings; let only Python launch it."""
        real = execution.__init__

        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            real(this, *args, **kwargs)
            program = self._known.get(id(this.xla_executable))
            if program is not None:
                this.has_unordered_effects = True  # JAX's C++ code launches no such program
                if program.number < 0:
                    self._report(program, this)

        execution.__init__ = construct

    def _report(self, program: UnrunProgram, execution: Any) -> None:
        from .compiled import describe

        program.number = len(self._calls)
        self._calls.append(0)
        program.shardings = tuple(execution.in_handler.in_shardings)
        program.out_shardings = tuple(execution.out_handler.out_shardings)
        program.where, program.before = user_lines.find_current_line(), self._find_before(program)
        compile_ = self._chips.describe if self._chips else describe
        self.link.send(compile_(program, self._wanted.sizes))

    def _find_before(self, program: UnrunProgram) -> int:
        """Return the number of the program that the same call has compiled before, or -1."""
        frame, inner = user_lines.find_current_frame(), sys._getframe()
        if frame is None or program.name == _MOVE:
            return -1
        while inner is not frame and inner.f_back is not None:
            if any(part in inner.f_code.co_filename for part in _LIBRARY):
                return -1
            inner = inner.f_back
        call = program.name, frame.f_code, frame.f_lasti
        before, self._latest[call] = self._latest.get(call, -1), program.number
        return before

    # --- launches ---

    def _launch(self, real: Callable[..., Any], execution: Any, args: tuple[Any, ...]) -> Any:
        program = self._known.get(id(execution.xla_executable))
        if program is None:
            return real(execution, *args)
        from . import zeros

        calls = self._calls[program.number]
        if self._wanted.steps and calls >= self._wanted.steps:
            raise SystemExit(0)
        out = zeros.launch(execution, args, program.donated)
        self._calls[program.number] = calls + 1
        if calls & (calls + 1) == 0:  # 1, 2, 4, ...: in a long run seldom
            self._report_calls()
        return out

    def _report_calls(self) -> None:
        self.link.send(Calls(tuple(self._calls)))


PART = Preview
