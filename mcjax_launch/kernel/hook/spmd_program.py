"""A compiled program that spans processes, as the hook knows and compares it."""

from __future__ import annotations

from functools import partial

from ..wire.hook_messages import Program
from ..wire.value import Value
from . import user_lines

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

# --- whether its processes exchange anything ---

_GROUPS = (
    r", replica_groups=(\{\}|\{\{[\d,{} ]*\}\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?"
    r"|mesh\[[^\[\]]*\](?:, device_ids=\(\[[\d,]+\]T\([\d,]+\)\))? \{[^{}]*\})(?=,|\s|$)"
)
_EXCHANGING = (
    r" (?:all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-permute"
    r"|collective-broadcast|send|recv)(?:-start)?\(.*"
)
_PAIRS = r", source_target_pairs=\{(\{[\d,{} ]*\})\}"
_TO_HOST = "is_host_transfer=true"


def exchanges(text: str, places: Sequence[int]) -> bool:
    """Whether a program makes processes exchange anything.

    Args:
        text: of the compiled program.
        places: the process of each of its devices, by which its groups count.

    """
    import re

    for operation in set(re.findall(_EXCHANGING, text)):
        if _TO_HOST in operation:
            continue
        pairs, listed = re.search(_PAIRS, operation), re.search(_GROUPS, operation)
        groups: list[Sequence[int]] = []
        if pairs is not None:
            groups = _listed(pairs[1])
        elif listed is not None:
            groups = _groups(listed[1], len(places))
        # One that is written in a way that we do not know may exchange with anybody.
        if not groups or any(len(_at(group, places)) > 1 for group in groups):
            return True
    return False


def _at(group: Sequence[int], places: Sequence[int]) -> set[int]:
    """The processes of a group."""
    return {places[place] for place in group if place < len(places)}


def _groups(text: str, count: int) -> list[Sequence[int]]:
    """The groups of devices in one of the ways to write them."""
    if text == "{}":
        return [range(count)]
    if text.startswith("{{"):
        return _listed(text)
    if text.startswith("mesh"):
        return _along_axes(text)
    shape, _, rest = text.partition("<=")  # [2,4]<=[4,2]T(1,0)
    sizes, _, order = (_numbers(part) for part in rest.partition("T"))
    return _cut(sizes, order or range(len(sizes)), _numbers(shape)[-1])


def _listed(text: str) -> list[Sequence[int]]:
    """As {{0,1},{2,3}}."""
    import re

    return [_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]


def _along_axes(text: str) -> list[Sequence[int]]:
    """As mesh['a'=2,'b'=4] {'b'}, or mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}."""
    import re

    axes, _, along = text.partition("]")
    numbering, _, along = along.partition("{")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    inner = re.findall(r"'([^']*)'", along)
    if not sizes.keys() >= set(inner) or ":" in along:  # parts of axes
        return []
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda axis: names[axis] in inner)
    size = 1
    for name in inner:
        size *= sizes[name]
    groups = _cut(list(sizes.values()), order, size)
    if "device_ids" not in numbering:
        return groups
    shape, _, turned = numbering.partition("T")
    [devices] = _cut(_numbers(shape), _numbers(turned), 0)
    return [[devices[place] for place in group] for group in groups]


def _cut(sizes: Sequence[int], order: Iterable[int], size: int) -> list[Sequence[int]]:
    """Groups of so many devices, 0 for all, as they follow each other along axes in this order."""
    steps: dict[int, int] = {}
    step = 1
    for axis in reversed(range(len(sizes))):
        steps[axis], step = step, step * sizes[axis]
    devices = [0]
    for axis in order:
        devices = [first + at * steps[axis] for first in devices for at in range(sizes[axis])]
    size = size or len(devices)
    return [devices[at : at + size] for at in range(0, len(devices), size)]


def _numbers(text: str) -> list[int]:
    import re

    return [int(number) for number in re.findall(r"\d+", text)]


# --- what a program is, apart from its names ---

# Ends of the names of calls whose configuration is an address or a number of this process alone.
_OWN_CONFIGURATION = ("callback", "CustomSPMDPartitioning")
_CONFIGURATIONS = ("backend_config", "mhlo.backend_config")
# A transfer to the host's memory names a handler of this process.
_TRANSFERS = ("stablehlo.send", "stablehlo.recv")
_HANDLER = "mhlo.frontend_attributes"
# What a result is called, which does not matter to what is computed.
_RESULT_NAME = "jax.result_info"
# Beginnings of the names of calls that talk to other processes by themselves: MPI's, NCCL's.
_TALKING = ("mpi_", "nccl", "nvshmem")
# A kernel for TPUs that copies between chips says so.
_KERNEL, _KERNEL_TALKS = "tpu_custom_call", "has_communication"
# A longer constant is shown by its first values and a hash.
_MOST_ELEMENTS = 32
_MOST_TEXT = 1 << 24
_PLACE = r'(?<=loc\(")(/[^"]+)(?=":\d)'


class Fingerprint(Value):
    """Of a program.

    Args:
        digest: one and the same on all processes: without names, places in the source, callbacks'
            addresses.
        talks: it calls what talks to other processes by itself, unseen by the compiler.

    """

    digest: str
    talks: bool


def fingerprint(computation: Any, devices: Sequence[Any]) -> Fingerprint:
    """The fingerprint of a program on these devices."""
    import hashlib
    import io

    from jaxlib.mlir import passmanager

    code = io.BytesIO()
    with computation.context:
        copy, talks = canonical(computation)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(copy)
        copy.write_bytecode(code)
    digest = hashlib.sha256(code.getbuffer())
    digest.update(repr([device.id for device in devices]).encode())
    return Fingerprint(digest.hexdigest()[:16], talks)


def canonical(computation: Any) -> tuple[Any, bool]:
    """A copy of a program without what each process may name as it likes, and whether it talks.

    Call it, and use the copy, within `computation.context`.
    """
    from jaxlib.mlir import ir

    copy = computation.operation.clone().operation
    copy.attributes["sym_name"] = ir.StringAttr.get("program")
    names = _Names()
    talks = False

    def look(op: Any) -> Any:
        nonlocal talks
        name, attributes = op.name, op.attributes
        if name == "func.func":
            attributes["sym_name"] = ir.StringAttr.get(names.new(attributes["sym_name"].value))
            if "res_attrs" in attributes:
                attributes["res_attrs"] = _without_names(attributes["res_attrs"])
        elif name == "func.call":
            attributes["callee"] = names.reference(attributes["callee"])
        elif name in _TRANSFERS:
            if _HANDLER in attributes and _is_to_host(attributes):
                del attributes[_HANDLER]
        elif "call_target_name" in attributes:
            talks = _talks(attributes) or talks
            _neutralize(attributes, names)
        return ir.WalkResult.ADVANCE

    copy.walk(look)
    return copy, talks


class _Names:
    """New names of a program's functions, by the order in which they are met."""

    def __init__(self) -> None:
        self._new = {"main": "main"}

    def new(self, name: str) -> str:
        """The new name of a function."""
        return self._new.setdefault(name, f"f{len(self._new)}")

    def reference(self, to: Any) -> Any:
        """A reference to a function, or an array of those, by its new name."""
        from jaxlib.mlir import ir

        if isinstance(to, ir.ArrayAttr):
            return ir.ArrayAttr.get([self.reference(one) for one in to])
        return ir.FlatSymbolRefAttr.get(self.new(to.value))


def _neutralize(attributes: Any, names: _Names) -> None:
    """Take from a call what is a process's own: an address, a number, functions' names."""
    from jaxlib.mlir import ir

    if attributes["call_target_name"].value.endswith(_OWN_CONFIGURATION):
        for configuration in _CONFIGURATIONS:
            if configuration in attributes:
                attributes[configuration] = ir.StringAttr.get("")
    if "called_computations" in attributes:
        attributes["called_computations"] = names.reference(attributes["called_computations"])


def _without_names(results: Any) -> Any:
    """The attributes of a function's results without what the results are called."""
    from jaxlib.mlir import ir

    kept = []
    for result in results:
        attributes = (result[number] for number in range(len(result)))
        kept.append(
            ir.DictAttr.get({one.name: one.attr for one in attributes if one.name != _RESULT_NAME})
        )
    return ir.ArrayAttr.get(kept)


def _talks(attributes: Any) -> bool:
    """Whether a call talks to other processes by itself."""
    target: str = attributes["call_target_name"].value
    if target == _KERNEL:
        return any(_KERNEL_TALKS in str(attributes[c]) for c in _CONFIGURATIONS if c in attributes)
    return target.startswith(_TALKING)


def _is_to_host(attributes: Any) -> bool:
    return "is_host_transfer" in attributes and bool(attributes["is_host_transfer"].value)


# --- for a person who wants to know in what two of them differ ---


def frozen(computation: Any) -> bytes:
    """A program as `frozen_text` takes it, in any thread, whatever is done to it meanwhile."""
    import io

    code = io.BytesIO()
    with computation.context:
        canonical(computation)[0].write_bytecode(code)
    return code.getvalue()


def frozen_text(code: bytes, devices: Sequence[int]) -> str:
    """StableHLO with the places of its operations, as comparable as its fingerprint.

    Args:
        code: the program, frozen.
        devices: the ids of the devices that it runs on.

    Returns:
        the text; "" where it cannot be shown.

    """
    try:
        from jax._src.interpreters import mlir
        from jaxlib.mlir import ir

        with mlir.make_ir_context():
            module = ir.Module.parse(code)
            _sum_up_constants(module.operation)
            return _text(module.operation, devices)
    except Exception:  # another JAX than we know
        return ""


def _text(program: Any, devices: Sequence[int]) -> str:
    import re

    text = program.get_asm(enable_debug_info=True, large_elements_limit=_MOST_ELEMENTS)
    files: dict[str, str] = {}

    def shown(match: Any) -> str:
        name = match[1]
        if name not in files:
            files[name] = user_lines.shown(name)
        return files[name]

    text = re.sub(_PLACE, shown, text[:_MOST_TEXT])
    return f"// on the devices {', '.join(map(str, devices))}\n{text}"


def _sum_up_constants(module: Any) -> None:
    """Give constants that are too long to be shown their first values and a hash."""
    import hashlib

    from jaxlib.mlir import ir

    def look(op: Any) -> Any:
        if op.name == "stablehlo.constant":
            value = op.attributes["value"]
            if not getattr(value, "is_splat", True) and len(value) > _MOST_ELEMENTS:
                begin = ", ".join(f"{value[place]:g}" for place in range(4))
                digest = hashlib.sha256(bytes(memoryview(value))).hexdigest()[:16]
                summary = f"{begin}, ... (sha256 {digest})"
                op.attributes["mcjax.values"] = ir.StringAttr.get(summary)
        return ir.WalkResult.ADVANCE

    try:
        module.walk(look)
    except Exception:  # of a kind that Python cannot look into
        pass


# --- the program ---

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
        return any(exchanges(module, self.places) for module in modules)


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
