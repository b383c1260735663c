"""A compiled program that spans processes, as the hook knows it."""

from __future__ import annotations

from functools import partial

from ..wire.hook_messages import Program
from . import replica_groups
from .fingerprint import frozen, frozen_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .fingerprint import Fingerprint

# What pmap makes of a function, in today's jax and in older ones.
_MAPPED_NAME, _MAPPED_ARGUMENT = "jit__fun", 'loc("flat_args['
_OLD_MAPPED = "pmap_"
# In a program as it was written: collectives, and arrays that are divided.
_COMMUNICATING = r'stablehlo\.(?:all_|reduce_scatter|collective_)|\[\{"|devices=\['
_MOST_SHAPES = 64
_MOST_ORDERED = 16


class SpanningProgram:
    """A compiled program that spans processes.

    Args:
        computation: its code, as JAX gave it to the compiler.
        fingerprint: of its code and its devices.
        platform: of its devices.
        devices: that it runs on.
        of_all: it runs on all devices of the job.
        where: the user's line that compiled it, later the one that ran it.

    Attributes:
        name: as JAX calls it.
        places: the process of each of its devices.

    """

    def __init__(
        self,
        computation: Any,
        fingerprint: Fingerprint,
        platform: str,
        devices: Sequence[Any],
        of_all: bool,
        where: str,
    ) -> None:
        self.name = name_of(computation)
        self.fingerprint = fingerprint.digest
        self.places = [int(device.process_index) for device in devices]
        self.where = where
        self.shapes: tuple[str, ...] = ()
        self._computation = computation
        self._platform = platform
        self._talks = fingerprint.talks
        self._ids = [int(device.id) for device in devices]
        self._devices = None if of_all else tuple(sorted(self._ids))

    def message(self, *, held: bool = False, compiling: bool = False) -> Program:
        """What the launcher is to know of it."""
        everywhere = self._devices is None
        processes = None if everywhere else tuple(sorted(set(self.places)))
        return Program(
            self.name,
            self.fingerprint,
            processes,
            self.shapes,
            self.where,
            self._devices,
            held,
            self._platform,
            compiling,
            order=() if self._ids == sorted(self._ids) else tuple(self._ids[:_MOST_ORDERED]),
        )

    def text(self) -> str:
        """Its code, for a person; empty where that cannot be shown."""
        try:
            return self.kept_text()()
        except Exception:
            return ""

    def kept_text(self) -> Callable[[], str]:
        """What gives its code, for a person, while JAX's own is the compiler's."""
        return partial(frozen_text, frozen(self._computation), self._ids)

    def forget_code(self) -> None:
        """Keep its code no longer: it runs."""
        self._computation = None

    def runs(self, args: Sequence[Any], where: str) -> None:
        """Note its first run, with these arguments, at this line of the user's."""
        self.where = where
        self.shapes = tuple(_shape(arg) for arg in args[:_MOST_SHAPES])

    def concerns_others(self, execution: Any, args: Sequence[Any]) -> bool:
        """Whether other processes have to run it too; if not, this one may do so alone.

        They have to if they exchange something, and if one has a part only of an argument or of a
        result: an array that all have made together has to be the same program's on all.

        Args:
            execution: JAX's own, which runs it.
            args: of this run.

        """
        if self._talks:
            return True
        kept = getattr(execution, "kept_var_idx", range(len(args)))
        used = [arg for number, arg in enumerate(args) if number in kept]
        if not self._is_mapped and not _are_whole(execution, used):
            return True
        return self._exchanges(execution.xla_executable)

    def given(self, execution: Any, args: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The arguments of this run that matter, each with the sharding that it has in it."""
        if self._is_mapped:
            return []
        kept = execution.kept_var_idx
        used = [arg for number, arg in enumerate(args) if number in kept]
        return list(zip(used, execution.in_handler.in_shardings))

    @property
    def _is_mapped(self) -> bool:
        """Whether pmap made it: each process then has arguments and results of its own."""
        if self.name != _MAPPED_NAME:
            return self.name.startswith(_OLD_MAPPED)
        for view in self._computation.body.operations:
            op = view.operation
            if op.name == "func.func" and op.attributes["sym_name"].value == "main":
                arguments = op.regions[0].blocks[0].arguments
                return any(str(one.location).startswith(_MAPPED_ARGUMENT) for one in arguments)
        return False

    def _exchanges(self, executable: Any) -> bool:
        try:
            modules = [module.to_string() for module in executable.hlo_modules()]
        except Exception:  # a platform that does not show what it has compiled
            import re

            code = self._computation.operation.get_asm(large_elements_limit=4)
            return re.search(_COMMUNICATING, code) is not None
        return any(replica_groups.exchanges(module, self.places) for module in modules)


def name_of(computation: Any) -> str:
    """A program's name, as JAX calls it."""
    return str(computation.operation.attributes["sym_name"]).strip('"')


def _are_whole(execution: Any, args: Sequence[Any]) -> bool:
    """Whether each process has all of the arguments, and gets all of the results."""
    handler = getattr(execution, "out_handler", None)
    results = getattr(handler, "out_shardings", None)
    avals = getattr(handler, "out_avals", None)
    if results is None or avals is None or len(results) != len(avals):
        return False
    given = ((getattr(arg, "sharding", None), getattr(arg, "shape", ())) for arg in args)
    made = ((sharding, aval.shape) for sharding, aval in zip(results, avals))
    return all(_is_whole(*one) for one in made) and all(_is_whole(*one) for one in given)


def _is_whole(sharding: Any, shape: tuple[int, ...]) -> bool:
    """Whether each process has all parts of an array, whatever its own devices have of it."""
    if sharding is None or sharding.is_fully_replicated:
        return True
    parts: dict[int, set[str]] = {}
    for device, part in sharding.devices_indices_map(shape).items():
        parts.setdefault(device.process_index, set()).add(repr(part))
    everything = set().union(*parts.values())
    return all(part == everything for part in parts.values())


def _shape(value: Any) -> str:
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "str_short"):
        return str(aval.str_short(short_dtypes=True))
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
