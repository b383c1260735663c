"""Arrays of zeros that need no memory, as the outputs of programs that are not run."""

from __future__ import annotations

import math
import mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class Zeros:
    """Maker of arrays of zeros: all share memory that is never written, so the kernel has none."""

    def __init__(self) -> None:
        self._regions: list[Any] = []  # the largest last

    def make(
        self, aval: Any, sharding: Any, add_layout: Callable[[Any], Any] = lambda place: place
    ) -> list[Any]:
        """Return the parts of an array on this process's devices.

        Args:
            aval: shape and type of the whole array.
            sharding: its sharding.
            add_layout: adds the order of the axes in memory to a part's sharding.

        """
        import jax
        import numpy as np
        from jax._src import core
        from jax._src.sharding_impls import physical_sharding

        if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):  # keys of random numbers
            aval, sharding = core.physical_aval(aval), physical_sharding(aval, sharding)
        part = self._view(sharding.shard_shape(aval.shape), np.dtype(aval.dtype))
        places = (
            jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
            for device in sharding._addressable_device_assignment
        )
        return [jax.device_put(part, add_layout(place)) for place in places]

    def _view(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import numpy as np

        size = math.prod(shape) * dtype.itemsize
        if not self._regions or self._regions[-1].size < size:
            region = mmap.mmap(-1, max(2 * size, mmap.PAGESIZE), prot=mmap.PROT_READ)
            self._regions.append(np.frombuffer(region, np.uint8))
        return self._regions[-1][:size].view(dtype).reshape(shape)

    def has(self, array: Any) -> bool:
        """Return whether an array on one device is a part that was made here."""
        at = array.unsafe_buffer_pointer()
        return any(at == region.ctypes.data for region in self._regions)


class StandIn:
    """Program whose outputs are zeros; JAX's own function for launches takes it for a real one.

    Args:
        execution: JAX's ExecuteReplicated.
        make: makes the parts of an output, from its number, type and sharding.

    """

    ordered_effects: Sequence[Any] = ()
    has_unordered_effects = has_host_callbacks = False
    pgle_profiler = None

    def __init__(self, execution: Any, make: Callable[[int, Any, Any], list[Any]]) -> None:
        self.name, self.kept_var_idx = execution.name, execution.kept_var_idx
        self.out_handler, self.mut = execution.out_handler, getattr(execution, "mut", None)
        self.xla_executable = self
        self._make = make

    def in_handler(self, args: Any) -> Any:
        """Return the arguments as they are: they need not be on all devices."""
        return args

    def execute_sharded(self, args: Any, with_tokens: bool = False) -> StandIn:
        """Return the outputs."""
        return self

    def consume_with_handlers(self, handlers: Any) -> list[Any]:
        """Return the outputs as whole arrays."""
        return [handle(parts) for handle, parts in zip(handlers, self._make_all())]

    def disassemble_into_single_device_arrays(self) -> list[Any]:
        """Return the parts of each output."""
        return self._make_all()

    def _make_all(self) -> list[list[Any]]:
        out = self.out_handler
        made = zip(out.out_avals, out.out_shardings)
        return [self._make(number, *each) for number, each in enumerate(made)]
