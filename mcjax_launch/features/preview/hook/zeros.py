"""Programs that are not run: their outputs are zeros, which need no memory."""

from __future__ import annotations

import math
import mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def launch(execution: Any, args: Sequence[Any], donated: Sequence[bool]) -> list[Any]:
    """Return a program's outputs, and delete the arguments that it takes over.

    Args:
        execution: the program, as JAX's ExecuteReplicated.
        args: the arguments of the call.
        donated: for each parameter of the program, True if the program takes it over.

    """
    kept = [arg for number, arg in enumerate(args) if number in execution.kept_var_idx]
    for check in (getattr(arg, "_check_if_deleted", None) for arg in kept):
        if check is not None:
            check()  # raises JAX's error for an array that was donated before
    made = execution.out_handler
    out = [
        handle(make_zeros(aval, sharding))
        for handle, aval, sharding in zip(made.handlers, made.out_avals, made.out_shardings)
    ]
    tokens = len(execution.ordered_effects)  # come first
    for arg, is_donated in zip(kept, donated[tokens:]):
        if is_donated and hasattr(arg, "delete"):
            arg.delete()
    if execution.mut is not None:  # new values of references, which keep those that they have
        out = [each for each, number in zip(out, execution.mut.out_mut) if number is None]
    return out


# Memory that is never written, so that the kernel has none of it; the largest is the last.
_regions: list[Any] = []


def make_zeros(aval: Any, sharding: Any) -> list[Any]:
    """Return the parts of an array on this process's devices, all of which share their memory.

    Args:
        aval: shape and type of the whole array.
        sharding: its sharding.

    """
    import jax
    import numpy as np
    from jax._src import core
    from jax._src.sharding_impls import physical_sharding

    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):  # keys of random numbers
        aval, sharding = core.physical_aval(aval), physical_sharding(aval, sharding)
    shape, dtype = sharding.shard_shape(aval.shape), np.dtype(aval.dtype)
    size = math.prod(shape) * dtype.itemsize
    if not _regions or _regions[-1].size < size:
        region = mmap.mmap(-1, max(2 * size, mmap.PAGESIZE), prot=mmap.PROT_READ)
        _regions.append(np.frombuffer(region, np.uint8))
    part = _regions[-1][:size].view(dtype).reshape(shape)
    places = (
        jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
        for device in sharding._addressable_device_assignment
    )
    return [jax.device_put(part, place) for place in places]
