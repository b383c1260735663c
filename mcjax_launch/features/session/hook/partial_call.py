"""Refusal of programs that need the other ranks, in a call that only some ranks make.

Such a program would wait for ranks that never run it: for 45 s on CPU devices, else for ever.
"""

from __future__ import annotations

import contextlib
import sys

from ....hook import wrapping
from ....hook.spmd_program import exchanges
from ....hook.wrapping import wrap_like

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any


class PartialCalls:
    """Refuser of programs that need other ranks.

    Args:
        rank: this rank.
        names: names of the values that cells define, for messages.

    """

    def __init__(self, rank: int, names: Mapping[str, object]) -> None:
        self._rank = rank
        self._names = names
        self._only: Any = None  # JAX's setting of a thread: the ranks that make its call, or None

    @contextlib.contextmanager
    def among(self, ranks: Collection[int] | None) -> Iterator[None]:
        """Refuse programs that need others than these ranks, in this thread; None for all."""
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        if ranks is None or bridge is None or not self._watch():
            yield
            return
        devices = contextlib.nullcontext() if bridge._backends else _refuse_devices(bridge, ranks)
        self._only.set_local(tuple(ranks))
        try:
            with devices:
                yield
        finally:
            self._only.set_local(None)

    def _watch(self) -> bool:
        """Have JAX show its programs here before it runs them; return whether it can."""
        if self._only is not None:
            return True
        try:
            from jax._src.config import config_ext

            only = _make_setting(config_ext.Config)

            def around(real: Any, execution: Any, args: Any) -> Any:
                if only.value is not None:
                    self._check(execution, args, only.value)
                return real(execution, *args)

            wrapping.intercept_launches(around)
        except (ImportError, AttributeError, TypeError):  # an unknown version of JAX
            return False
        self._only = only
        return True

    def _check(self, execution: Any, args: Sequence[Any], ranks: Collection[int]) -> None:
        """Refuse a program that other ranks must run too.

        Raises:
            RuntimeError: the program is such a program.

        """
        try:
            made = getattr(execution.out_handler, "out_shardings", None) or ()
            shardings = [*made, *(getattr(arg, "sharding", None) for arg in args)]
            places = _find_places(shardings)
            is_refused = not {*ranks, self._rank}.issuperset(places) and _needs_all_processes(
                execution, args, places
            )
        except Exception:  # an unknown version of JAX
            return
        if is_refused:
            raise RuntimeError(self._explain(str(execution.name), args, places, ranks))

    def _explain(
        self, program: str, args: Sequence[Any], places: Sequence[int], ranks: Collection[int]
    ) -> str:
        named = [
            name
            for name, value in self._names.items()
            if not name.startswith("_") and any(value is arg for arg in args)
        ]
        what = " and ".join(named) or program
        spans = "span" if len(named) > 1 else "spans"
        instead = f", or use {named[0]}.addressable_data(0)" if named else ""
        return (
            f"{what} {spans} {_format(places)}, and this runs in {_format(ranks)} alone: run it in "
            f"{_format(places)}{instead}"
        )


def _make_setting(make: Any) -> Any:
    """Return a setting of JAX's.

    With a new value of a setting that is part of the key, JAX looks a program up in Python, where
    it has been traced and compiled, instead of running it from C++.
    """
    try:
        return make("mcjax_call", None, include_in_jit_key=True)
    except TypeError:  # jax before 0.8
        return make(None, include_in_jit_key=True)


def _find_places(shardings: Sequence[Any]) -> list[int]:
    """Return the process of each device of a program, in its order, by an array of the program."""
    for sharding in shardings:
        devices = getattr(sharding, "_device_assignment", None) or getattr(
            sharding, "device_set", ()
        )
        if devices:
            return [int(device.process_index) for device in devices]
    return []


@contextlib.contextmanager
def _refuse_devices(bridge: Any, ranks: Collection[int]) -> Iterator[None]:
    """Refuse a first use of devices, for which JAX waits until all ranks have come."""
    real = bridge.backends

    def backends() -> Any:
        raise RuntimeError(
            f"the first use of devices needs all ranks, and only {_format(ranks)} would come: "
            "run jax.devices() in all ranks first"
        )

    bridge.backends = wrap_like(real, backends)
    try:
        yield
    finally:
        bridge.backends = real


def _format(ranks: Collection[int]) -> str:
    """Return ranks in words, such as `rank 0` or `ranks 0-3`."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    is_range = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"ranks {f'{numbers[0]}-{numbers[-1]}' if is_range else ','.join(map(str, numbers))}"


# --- whether all processes must run a program ---


def _needs_all_processes(execution: Any, args: Sequence[Any], places: Sequence[int]) -> bool:
    """Return whether all processes must run a program: it communicates, or has shared arrays.

    Args:
        execution: JAX's object that runs the program.
        args: the arguments of this run.
        places: process number of each of the program's devices.

    """
    kept = getattr(execution, "kept_var_idx", range(len(args)))
    used = [arg for number, arg in enumerate(args) if number in kept]
    return not _are_whole_on_each_process(execution, used) or _exchanges(
        execution.xla_executable, places
    )


def _exchanges(executable: Any, places: Sequence[int]) -> bool:
    try:
        modules = [module.to_string() for module in executable.hlo_modules()]
    except Exception:  # a platform that does not show what it has compiled
        return True
    return any(exchanges(module, places) for module in modules)


def _are_whole_on_each_process(execution: Any, args: Sequence[Any]) -> bool:
    """Return whether each process holds every argument and every result completely."""
    handler = getattr(execution, "out_handler", None)
    results = getattr(handler, "out_shardings", None)
    avals = getattr(handler, "out_avals", None)
    if results is None or avals is None or len(results) != len(avals):
        return False
    given = ((getattr(arg, "sharding", None), getattr(arg, "shape", ())) for arg in args)
    made = ((sharding, aval.shape) for sharding, aval in zip(results, avals))
    return all(_is_whole_on_each_process(*array) for array in (*made, *given))


def _is_whole_on_each_process(sharding: Any, shape: tuple[int, ...]) -> bool:
    """Return whether the devices of each process together hold all of an array."""
    if sharding is None or sharding.is_fully_replicated:
        return True
    parts = _group_parts_by_process(sharding, shape)
    everything = set().union(*parts.values())
    return all(part == everything for part in parts.values())


def _group_parts_by_process(sharding: Any, shape: tuple[int, ...]) -> dict[int, set[str]]:
    """Return the parts of an array that the devices of each process hold."""
    parts: dict[int, set[str]] = {}
    for device, part in sharding.devices_indices_map(shape).items():
        parts.setdefault(device.process_index, set()).add(repr(part))
    return parts
