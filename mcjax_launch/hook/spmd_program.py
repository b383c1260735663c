"""Compiled programs that span processes, as the hook identifies and compares them."""

from __future__ import annotations

import math

from ..wire import source_lines
from ..wire.hook_messages import Program
from ..wire.value import Value
from . import user_lines

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# --- whether a program's processes communicate ---

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
    """Return whether a compiled program makes processes communicate.

    Args:
        text: the compiled program, as HLO text.
        places: process number of each of its devices, in the order in which its groups number them.

    """
    import re

    for operation in set(re.findall(_EXCHANGING, text)):
        if _TO_HOST in operation:
            continue
        groups = find_groups(operation, len(places))
        processes = ({places[place] for place in g if place < len(places)} for g in groups)
        # An unknown notation may stand for any processes.
        if not groups or any(len(group) > 1 for group in processes):
            return True
    return False


def find_groups(operation: str, count: int) -> list[Sequence[int]]:
    """Return the groups of devices that communicate in an operation; [] if they are not known.

    Args:
        operation: the operation, as HLO text; a pair of source and target is a group.
        count: number of the program's devices.

    """
    import re

    pairs, listed = re.search(_PAIRS, operation), re.search(_GROUPS, operation)
    if pairs is not None:
        return _parse_listed_groups(pairs[1])
    return _parse_groups(listed[1], count) if listed is not None else []


def _parse_groups(text: str, count: int) -> list[Sequence[int]]:
    """Parse groups of device numbers, written in any of HLO's notations."""
    if text == "{}":
        return [range(count)]
    if text.startswith("{{"):
        return _parse_listed_groups(text)
    if text.startswith("mesh"):
        return _parse_mesh_groups(text)
    shape, _, rest = text.partition("<=")  # [2,4]<=[4,2]T(1,0)
    sizes, _, order = (_parse_numbers(part) for part in rest.partition("T"))
    return _cut(sizes, order or range(len(sizes)), _parse_numbers(shape)[-1])


def _parse_listed_groups(text: str) -> list[Sequence[int]]:
    """Parse groups of device numbers written as {{0,1},{2,3}}."""
    import re

    return [_parse_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]


def _parse_mesh_groups(text: str) -> list[Sequence[int]]:
    """Parse groups of device numbers written along mesh axes; [] for parts of axes.

    Notations: mesh['a'=2,'b'=4] {'b'}, or mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}.
    """
    import re

    axes, _, along = text.partition("]")
    numbering, _, along = along.partition("{")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    inner = re.findall(r"'([^']*)'", along)
    if not sizes.keys() >= set(inner) or ":" in along:  # parts of axes
        return []
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda axis: names[axis] in inner)
    groups = _cut(list(sizes.values()), order, math.prod(sizes[name] for name in inner))
    if "device_ids" not in numbering:
        return groups
    shape, turned = (_parse_numbers(part) for part in numbering.split("T"))
    [devices] = _cut(shape, turned, math.prod(shape))
    return [[devices[place] for place in group] for group in groups]


def _cut(sizes: Sequence[int], order: Sequence[int], size: int) -> list[Sequence[int]]:
    """Return devices, numbered along axes in this order, as groups of `size`."""
    import numpy as np  # as every program with jax

    devices = np.arange(math.prod(sizes)).reshape(sizes).transpose(order)
    return list(devices.reshape(-1, size).tolist())


def _parse_numbers(text: str) -> list[int]:
    import re

    return [int(number) for number in re.findall(r"\d+", text)]


# --- the identity of a program, apart from names ---

# Ends of the names of calls whose configuration is an address or a number valid in this process.
_OWN_CONFIGURATION = ("callback", "CustomSPMDPartitioning")
_CONFIGURATIONS = ("backend_config", "mhlo.backend_config")
# A transfer to the host's memory names a handler of this process.
_TRANSFERS = ("stablehlo.send", "stablehlo.recv")
_HANDLER = "mhlo.frontend_attributes"
# The name of a result, which does not affect the computation.
_RESULT_NAME = "jax.result_info"
# Prefixes of the names of calls that communicate with other processes by themselves: MPI, NCCL.
_TALKING = ("mpi_", "nccl", "nvshmem")
# A kernel for TPUs that copies between chips says so.
_KERNEL, _KERNEL_TALKS = "tpu_custom_call", "has_communication"
# A longer constant is shown by its first values and a hash.
_MOST_ELEMENTS = 32
_MOST_TEXT = 1 << 24
_SHOWN_PLACE = r'"([^"]+\.py)":(\d+):'
_PLACE = r'(?<=loc\(")(/[^"]+)(?=":\d)'


class Fingerprint(Value):
    """Fingerprint of a program, to compare it between processes.

    Args:
        digest: hash of the program without names, source positions and callbacks' addresses.
        talks: True if the program has calls that communicate without the compiler's knowledge.

    """

    digest: str
    talks: bool


def compute_fingerprint(computation: Any, devices: Sequence[Any]) -> Fingerprint:
    """Return the fingerprint of a program on these devices."""
    import hashlib
    import io

    from jaxlib.mlir import passmanager

    code = io.BytesIO()
    with computation.context:
        copy, talks = make_canonical_copy(computation)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(copy)
        copy.write_bytecode(code)
    digest = hashlib.sha256(code.getbuffer())
    digest.update(repr([device.id for device in devices]).encode())
    return Fingerprint(digest.hexdigest()[:16], talks)


def make_canonical_copy(computation: Any) -> tuple[Any, bool]:
    """Return a copy without what differs between processes, and whether its calls communicate.

    Call it, and use the copy, within `computation.context`.
    """
    from jaxlib.mlir import ir

    copy = computation.operation.clone().operation
    copy.attributes["sym_name"] = ir.StringAttr.get("program")
    names = _Names()
    talks = False

    def visit(op: Any) -> Any:
        nonlocal talks
        name, attributes = op.name, op.attributes
        if name == "func.func":
            attributes["sym_name"] = ir.StringAttr.get(
                names.make_name(attributes["sym_name"].value)
            )
            if "res_attrs" in attributes:
                attributes["res_attrs"] = _without_names(attributes["res_attrs"])
        elif name == "func.call":
            attributes["callee"] = names.make_reference(attributes["callee"])
        elif name in _TRANSFERS:
            if _HANDLER in attributes and _is_to_host(attributes):
                del attributes[_HANDLER]
        elif "call_target_name" in attributes:
            talks = _talks(attributes) or talks
            _neutralize(attributes, names)
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    return copy, talks


class _Names:
    """New names of a program's functions: f0, f1, ... in order of appearance."""

    def __init__(self) -> None:
        self._new = {"main": "main"}

    def make_name(self, name: str) -> str:
        """Return the new name of a function."""
        return self._new.setdefault(name, f"f{len(self._new)}")

    def make_reference(self, to: Any) -> Any:
        """Return a reference to a function, or an array of references, with new names."""
        from jaxlib.mlir import ir

        if isinstance(to, ir.ArrayAttr):
            return ir.ArrayAttr.get([self.make_reference(each) for each in to])
        return ir.FlatSymbolRefAttr.get(self.make_name(to.value))


def _neutralize(attributes: Any, names: _Names) -> None:
    """Remove from a call what differs between processes: addresses, numbers, function names."""
    from jaxlib.mlir import ir

    if attributes["call_target_name"].value.endswith(_OWN_CONFIGURATION):
        for configuration in _CONFIGURATIONS:
            if configuration in attributes:
                attributes[configuration] = ir.StringAttr.get("")
    if "called_computations" in attributes:
        attributes["called_computations"] = names.make_reference(attributes["called_computations"])


def _without_names(results: Any) -> Any:
    """Return the attributes of a function's results without the results' names."""
    from jaxlib.mlir import ir

    kept = []
    for result in results:
        named = (result[number] for number in range(len(result)))
        attributes = {found.name: found.attr for found in named if found.name != _RESULT_NAME}
        kept.append(ir.DictAttr.get(attributes))
    return ir.ArrayAttr.get(kept)


def _talks(attributes: Any) -> bool:
    """Return whether a call communicates with other processes without the compiler's knowledge."""
    target: str = attributes["call_target_name"].value
    if target == _KERNEL:
        return any(_KERNEL_TALKS in str(attributes[c]) for c in _CONFIGURATIONS if c in attributes)
    return target.startswith(_TALKING)


def _is_to_host(attributes: Any) -> bool:
    return "is_host_transfer" in attributes and bool(attributes["is_host_transfer"].value)


# --- text that shows the user how two programs differ ---


def format_program(computation: Any, devices: Sequence[int]) -> str:
    """Return a program's StableHLO with source positions, comparable between processes.

    Args:
        computation: the program.
        devices: the ids of the devices that it runs on.

    Returns:
        the text; "" if it cannot be shown.

    """
    try:
        with computation.context:
            copy, _ = make_canonical_copy(computation)
            _sum_up_constants(copy)
            return _format_program(copy, devices)
    except Exception:  # an unknown version of JAX
        return ""


def _format_program(program: Any, devices: Sequence[int]) -> str:
    import re

    text = program.get_asm(enable_debug_info=True, large_elements_limit=_MOST_ELEMENTS)
    files: dict[str, str] = {}

    def replace_path(match: Any) -> str:
        name = match[1]
        if name not in files:
            files[name] = source_lines.format_path(name)
        return files[name]

    text = re.sub(_PLACE, replace_path, text[:_MOST_TEXT])
    return f"// on the devices {', '.join(map(str, devices))}\n{text}"


def find_first_line(text: str) -> str:
    """Return the user's line of the first operation in a program's text; "" if there is none."""
    import re

    places = (match.groups() for match in re.finditer(_SHOWN_PLACE, text))
    return next((f"{file}:{line}" for file, line in places if source_lines.is_users(file)), "")


def _sum_up_constants(module: Any) -> None:
    """Add an attribute with first values and a hash to constants too long to be shown."""
    import hashlib

    from jaxlib.mlir import ir

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.constant":
            value = op.attributes["value"]
            if not getattr(value, "is_splat", True) and len(value) > _MOST_ELEMENTS:
                begin = ", ".join(f"{value[place]:g}" for place in range(4))
                digest = hashlib.sha256(bytes(memoryview(value))).hexdigest()[:16]
                summary = f"{begin}, ... (sha256 {digest})"
                op.attributes["mcjax.values"] = ir.StringAttr.get(summary)
        return ir.WalkResult.ADVANCE

    try:
        module.walk(visit)
    except Exception:  # a constant of a type that Python cannot read
        pass


# --- names of arguments and results ---

_ARGUMENT = r'loc\("([^"]*)"'
_RESULT = "result"  # begins the names of results, in newer versions of JAX


def list_array_names(computation: Any) -> tuple[list[str], list[str]]:
    """Return the paths of a program's arguments and results, such as `params['w']` and `['w']`."""
    import re

    with computation.context:
        [main] = (op for op in computation.body.operations if _is_main(op))
        locations = [
            str(argument.location)
            for argument in main.regions[0].blocks[0].arguments
            if "token" not in str(argument.type)
        ]
        arguments = [
            found[1] if (found := re.match(_ARGUMENT, location)) else "" for location in locations
        ]
        results = []
        has_results = "res_attrs" in main.attributes
        for result in main.attributes["res_attrs"] if has_results else ():
            name = result[_RESULT_NAME].value if _RESULT_NAME in result else ""
            results.append(name[len(_RESULT) :] if name.startswith(_RESULT) else name)
    return arguments, results


def _is_main(op: Any) -> bool:
    return "sym_name" in op.attributes and bool(op.attributes["sym_name"].value == "main")


# --- the program ---

# Prefix of the names of programs of pmap before jax 0.8, whose later launches are not observed.
_OLD_MAPPED = "pmap_"
_MOST_SHAPES = 64


class SpanningProgram:
    """Compiled program that spans processes.

    Args:
        computation: code of the program, as JAX passed it to the compiler.
        fingerprint: fingerprint of the code and devices.
        platform: the platform of its devices.
        devices: the devices that it runs on.
        of_all: True if it runs on all devices of the job.

    Attributes:
        fingerprint: hash of the code and devices.

    """

    def __init__(
        self,
        computation: Any,
        fingerprint: Fingerprint,
        platform: str,
        devices: Sequence[Any],
        of_all: bool,
    ) -> None:
        self.fingerprint = fingerprint.digest
        self._name = find_program_name(computation)
        self._places = [int(device.process_index) for device in devices]
        self._computation = computation
        self._platform = platform
        self._talks = fingerprint.talks
        self._ids = [int(device.id) for device in devices]
        self._of_all = of_all

    def make_message(self, identity: int, args: Sequence[Any], where: str) -> Program:
        """Return the message that describes this program to the launcher.

        Args:
            identity: its entry in sequences.
            args: the arguments of its first run.
            where: the user's line that runs it.

        """
        return Program(
            self._name,
            identity,
            None if self._of_all else tuple(sorted(set(self._places))),
            tuple(_format_shape(arg) for arg in args[:_MOST_SHAPES]),
            where,
            None if self._of_all else tuple(sorted(self._ids)),
            self._platform,
        )

    def forget_code(self) -> None:
        """Drop the reference to the program's code, to free its memory."""
        self._computation = None

    def format_text(self) -> str:
        """Return the program's StableHLO with source positions, comparable between processes."""
        return format_program(self._computation, self._ids)

    def list_names(self) -> tuple[list[str], list[str]]:
        """Return the paths of the program's arguments, and of its results; none if unknown."""
        try:
            return list_array_names(self._computation)
        except Exception:  # an unknown version of JAX
            return [], []

    def exchanges_data(self, executable: Any) -> bool:
        """Return whether its processes exchange data; False if all its launches are not observed.

        Args:
            executable: the compiled program.

        """
        if self._talks or self._name.startswith(_OLD_MAPPED):
            return self._talks
        modules = executable.hlo_modules()
        return any(exchanges(module.to_string(), self._places) for module in modules)


def needs_all_processes(execution: Any, args: Sequence[Any], places: Sequence[int]) -> bool:
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


def find_program_name(computation: Any) -> str:
    """Return the name of a program that is being compiled.

    It is the name that JAX gave it; or the user's call, where JAX's functions for all processes
    compile a helper that users do not know: `process_allgather` for `jit(_identity_fn)`.
    """
    called = user_lines.find_library_call(source_lines.JAX_COLLECTIVES)
    return called or str(computation.operation.attributes["sym_name"]).strip('"')


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
    parts = group_parts_by_process(sharding, shape)
    everything = set().union(*parts.values())
    return all(part == everything for part in parts.values())


def group_parts_by_process(sharding: Any, shape: tuple[int, ...]) -> dict[int, set[str]]:
    """Return the parts of an array that the devices of each process hold."""
    parts: dict[int, set[str]] = {}
    for device, part in sharding.devices_indices_map(shape).items():
        parts.setdefault(device.process_index, set()).add(repr(part))
    return parts


def _format_shape(value: Any) -> str:
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "str_short"):
        return str(aval.str_short(short_dtypes=True))
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
