"""Programs that span processes: compiled, reported to the launcher, and not run."""

from __future__ import annotations

import sys

from ....hook import user_lines, wrapping
from ..messages import Calls
from .compiled import Code, CompiledCode
from .zeros import StandIn, Zeros

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ....hook.agent_link import AgentLink
    from ..messages import Wanted
    from .chips import Chips


class Programs:
    """Observer of all compilations and launches in this process.

    Args:
        link: the link to the agent.
        wanted: what the launcher asks.

    Raises:
        ImportError, AttributeError: this JAX lacks an internal name.
        RuntimeError: there is no compiler for the chips that are asked for.

    """

    def __init__(self, link: AgentLink, wanted: Wanted) -> None:
        import atexit

        from jax._src import source_info_util, traceback_util
        from jax._src.interpreters import pxla

        file = StandIn.__init__.__code__.co_filename  # leave it out of tracebacks
        traceback_util.register_exclusion(file)
        source_info_util.register_exclusion(file)
        self._link = link
        self._wanted = wanted
        self._chips: Chips | None = None
        if wanted.topology:
            from .chips import Chips

            self._chips = Chips(wanted.topology)
        self._known: dict[int, CompiledCode] = {}  # by the id of JAX's executable
        self._all: list[CompiledCode] = []
        # The latest program of each name that a call of the user's has compiled.
        self._latest: dict[tuple[str, Any, int], Code] = {}
        self._zeros = Zeros()
        self._peak, self._peak_in = 0, 0
        self._is_over = False
        self._patch_construction(pxla.ExecuteReplicated)
        wrapping.intercept_launches(self._launch)
        atexit.register(self._report_calls)

    # --- compiling ---

    def describe(self, backend: Any, computation: Any, devices: Any, options: Any) -> Code | None:
        """Return a program that is about to be compiled if it spans processes; else None.

        Args: the first ones of JAX's `compile_or_get_cached`.
        """
        devices, own = list(devices.flat), backend.process_index()
        if all(device.process_index == own for device in devices):
            return None
        return Code(computation, devices, options, self._chips is not None)

    def on_compiled(self, code: Code | None, executable: Any) -> None:
        """Record what an executable has been compiled from."""
        self._known.pop(id(executable), None)  # it has the place of one that is gone
        if code is not None:
            self._known[id(executable)] = made = CompiledCode(code, executable, len(self._all))
            self._all.append(made)

    def _patch_construction(self, execution: Any) -> None:
        """Report each program when JAX knows its shardings; let only Python launch it."""
        real = execution.__init__

        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            real(this, *args, **kwargs)
            program = self._known.get(id(this.xla_executable))
            if program is not None:
                this.has_unordered_effects = True  # JAX's C++ code launches no such program
                if not program.is_reported:
                    program.is_reported = True
                    self._report(program, this)

        execution.__init__ = construct

    def _report(self, program: CompiledCode, execution: Any) -> None:
        where, code = user_lines.find_current_line(), program.code
        before = self._replace_latest(code)
        shardings = execution.in_handler.in_shardings, execution.out_handler.out_shardings
        changed = code.describe_change(before) if before is not None else ""
        message = program.make_message(where, self._wanted.sizes, shardings, changed)
        if self._chips is not None:
            message = self._chips.compile(code, message, self._wanted.sizes, shardings)
            program.outputs, program.temporaries = message.outputs, message.temporaries
        self._link.send(message)

    def _replace_latest(self, code: Code) -> Code | None:
        """Return the program that the same call of a user's function has compiled before."""
        frame = user_lines.find_current_frame()
        if frame is None or code.name in _OF_JAX or _is_of_library(sys._getframe(), frame):
            return None
        call = code.name, frame.f_code, frame.f_lasti
        before, self._latest[call] = self._latest.get(call), code
        return before

    # --- launches ---

    def _launch(self, real: Callable[..., Any], execution: Any, args: tuple[Any, ...]) -> Any:
        program = self._known.get(id(execution.xla_executable))
        if program is None:
            return real(execution, *args)
        self._end_if_over(program)
        kept = [arg for number, arg in enumerate(args) if number in execution.kept_var_idx]
        for check in (getattr(arg, "_check_if_deleted", None) for arg in kept):
            if check is not None:
                check()  # raises JAX's error for an array that was donated before
        program.calls += 1
        if program.calls & (program.calls - 1) == 0:  # 1, 2, 4, ...: in a long run seldom
            self._measure(program)
            self._report_calls()
        out = real(StandIn(execution, program.make_zeros(self._zeros)), *args)
        for arg in program.code.select_donated(kept):
            arg.delete()
        return out

    def _end_if_over(self, program: CompiledCode) -> None:
        """End PROGRAM if it has called one program as often as the user wants."""
        if self._is_over or program.calls >= (self._wanted.steps or program.calls + 1):
            self._is_over = True
            raise SystemExit(0)

    def _measure(self, program: CompiledCode) -> None:
        """Record the bytes of all arrays on one device, if they are more than ever before."""
        import jax

        device = jax.local_devices()[0]
        alive = sum(self._measure_on(device, array) for array in jax.live_arrays())
        peak = max(alive, program.arguments) + program.outputs + program.temporaries
        if peak > self._peak:
            self._peak, self._peak_in = peak, program.number

    def _measure_on(self, device: Any, array: Any) -> int:
        """Return the bytes of an array on a device."""
        try:
            sharding = array.sharding
            if array.is_deleted() or device not in sharding.addressable_devices:
                return 0
            if sharding.num_devices == 1 and self._zeros.has(array):  # a part of another array
                return 0
            size: int = array.dtype.itemsize
            for length in sharding.shard_shape(array.shape):
                size *= length
            return size
        except Exception:  # another thread deletes it, or it is no usual array
            return 0

    def _report_calls(self) -> None:
        counts = tuple(program.calls for program in self._all)
        self._link.send(Calls(counts, self._peak, self._peak_in))


# Parts of JAX whose own functions are compiled anew for each shape, as for `x + y`.
_OF_JAX = ("jit__identity_fn",)  # moves an array to other devices
_LIBRARY = ("numpy/", "lax/", "nn/", "scipy/", "dispatch.py", "array.py", "random.py")


def _is_of_library(inner: FrameType | None, outer: FrameType) -> bool:
    """Return whether a function of JAX's library is called between two frames of the stack."""
    while inner is not None and inner is not outer:
        _, found, below = inner.f_code.co_filename.partition("/jax/_src/")
        if found and below.startswith(_LIBRARY):
            return True
        inner = inner.f_back
    return False
