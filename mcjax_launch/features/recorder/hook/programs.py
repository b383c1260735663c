"""Programs that span processes: their identity, the same in all processes, and their text."""

from __future__ import annotations

import hashlib
import io
import os
import re
import zlib
from collections import deque

from ....hook.spmd_program import exchanges, find_program_name
from ....wire import source_lines
from ....wire.hook_messages import Program
from ..messages import IDENTITY_BITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Ends of the names of calls whose configuration is an address or a number valid in this process.
_OWN_CONFIGURATION = ("callback", "CustomSPMDPartitioning")
_CONFIGURATIONS = ("backend_config", "mhlo.backend_config")
# A transfer to the host's memory names a handler of this process.
_TRANSFERS = ("stablehlo.send", "stablehlo.recv")
_HANDLER, _TO_HOST = "mhlo.frontend_attributes", "is_host_transfer"
# The name of a result, which does not affect the computation.
_RESULT_NAME, _RESULT = "jax.result_info", "result"
# Prefixes of the names of calls that communicate with other processes by themselves: MPI, NCCL.
_TALKING = ("mpi_", "nccl", "nvshmem")
# A kernel for TPUs that copies between chips says so.
_KERNEL, _KERNEL_TALKS = "tpu_custom_call", "has_communication"
# Prefix of the names of programs of pmap before jax 0.8, whose later launches are not observed.
_OLD_MAPPED = "pmap_"
# What a text has of a function that runs on each device by itself, as in shard_map.
_MAPPED = ("sdy.manual_computation", "@SPMDShardToFullShape")
# A longer constant is shown by its first values and a hash.
_MOST_ELEMENTS = 32
_MOST_TEXT = 1 << 24
# The latest texts that are kept, and bytes of all together.
_MOST_KEPT, _MOST_KEPT_BYTES = 256, 1 << 25
_SHOWN_PLACE = re.compile(r'"([^"]+\.py)":(\d+):')
_PLACE = re.compile(r'(?<=loc\(")(/[^"]+)(?=":\d)')
_ARGUMENT = re.compile(r'loc\("([^"]*)"')


class SpanningProgram:
    """Program that spans processes, before it is compiled.

    Args:
        computation: its code, as JAX passes it to the compiler.
        platform: the platform of its devices.
        devices: the devices that it runs on.
        of_all: True if it runs on all devices of the job.

    Attributes:
        identity: number that stands for its code and devices, never 0.
        mesh: platform, processes and devices; None for all.

    """

    def __init__(
        self, computation: Any, platform: str, devices: Sequence[Any], *, of_all: bool
    ) -> None:
        self._places = [int(device.process_index) for device in devices]
        self._ids = [int(device.id) for device in devices]
        processes, ids = tuple(sorted(set(self._places))), tuple(sorted(self._ids))
        self.mesh = (platform, None, None) if of_all else (platform, processes, ids)
        self._name = find_program_name(computation)
        self._computation = computation
        digest, self._talks = _hash(computation, self._ids)
        self.identity = zlib.crc32(digest) & ((1 << IDENTITY_BITS) - 1) or 1
        self.names: tuple[list[str], list[str]] = [], []
        self.is_mapped = False
        self._first_line = ""

    def read_text(self) -> str:
        """Return its StableHLO with source positions, comparable between processes; "" if unknown.

        Call it once: the code is then dropped, to free its memory.
        """
        computation, self._computation = self._computation, None
        try:
            self.names = list_array_names(computation)
            text = format_program(computation, self._ids)
        except Exception:  # an unknown version of JAX
            return ""
        self.is_mapped = any(words in text for words in _MAPPED)
        places = (match.groups() for match in _SHOWN_PLACE.finditer(text))
        own = (f"{file}:{line}" for file, line in places if source_lines.is_users(file))
        self._first_line = next(own, "")
        return text

    def make_message(self, where: str) -> Program:
        """Return the message that describes this program to the launcher.

        Args:
            where: the line that runs it; if it is not the user's, as in a thread that calls nothing
                else, the line of its first operation is told.

        """
        place = where if source_lines.is_users(where) else self._first_line
        platform, processes, _ = self.mesh
        return Program(self._name, self.identity, processes, place, platform)

    def exchanges_data(self, executable: Any) -> bool:
        """Return whether its processes exchange data; False if all its launches are not observed.

        Args:
            executable: the compiled program.

        """
        if self._talks or self._name.startswith(_OLD_MAPPED):
            return self._talks
        modules = executable.hlo_modules()
        return any(exchanges(module.to_string(), self._places) for module in modules)


# --- the identity, apart from names ---


def _hash(computation: Any, devices: Sequence[int]) -> tuple[bytes, bool]:
    """Return the hash of a program without names, source positions and callbacks' addresses.

    Returns:
        the hash of that and the devices; and whether calls communicate, unknown to the compiler.

    """
    from jaxlib.mlir import passmanager

    code = io.BytesIO()
    with computation.context:
        copy, talks = make_canonical_copy(computation)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(copy)
        copy.write_bytecode(code)
    digest = hashlib.sha256(code.getbuffer())
    digest.update(repr(devices).encode())
    return digest.digest(), talks


def make_canonical_copy(computation: Any) -> tuple[Any, bool]:
    """Return a copy without what differs between processes, and whether its calls communicate.

    Call it, and use the copy, within `computation.context`.
    """
    from jaxlib.mlir import ir

    copy = computation.operation.clone().operation
    copy.attributes["sym_name"] = ir.StringAttr.get("program")
    names = {"main": "main"}  # others are f1, f2, ... in order of appearance
    talks = False

    def rename(name: str) -> str:
        return names.setdefault(name, f"f{len(names)}")

    def refer(to: Any) -> Any:
        if isinstance(to, ir.ArrayAttr):
            return ir.ArrayAttr.get([refer(each) for each in to])
        return ir.FlatSymbolRefAttr.get(rename(to.value))

    def visit(op: Any) -> Any:
        nonlocal talks
        name, attributes = op.name, op.attributes
        if name == "func.func":
            attributes["sym_name"] = ir.StringAttr.get(rename(attributes["sym_name"].value))
            if "res_attrs" in attributes:
                attributes["res_attrs"] = _without_names(attributes["res_attrs"])
        elif name == "func.call":
            attributes["callee"] = refer(attributes["callee"])
        elif name in _TRANSFERS:
            to_host = _TO_HOST in attributes and bool(attributes[_TO_HOST].value)
            if _HANDLER in attributes and to_host:
                del attributes[_HANDLER]
        elif "call_target_name" in attributes:
            talks = _talks(attributes) or talks
            if attributes["call_target_name"].value.endswith(_OWN_CONFIGURATION):
                for configuration in _CONFIGURATIONS:
                    if configuration in attributes:
                        attributes[configuration] = ir.StringAttr.get("")
            if "called_computations" in attributes:
                attributes["called_computations"] = refer(attributes["called_computations"])
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    return copy, talks


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


# --- the text, and names of arguments and results ---


def format_program(computation: Any, devices: Sequence[int]) -> str:
    """Return a program's StableHLO with source positions, comparable between processes.

    Args:
        computation: the program.
        devices: the ids of the devices that it runs on.

    """
    with computation.context:
        copy, _ = make_canonical_copy(computation)
        _sum_up_constants(copy)
        text: str = copy.get_asm(enable_debug_info=True, large_elements_limit=_MOST_ELEMENTS)
    files: dict[str, str] = {}

    def replace_path(match: Any) -> str:
        name = match[1]
        if name not in files:
            files[name] = source_lines.format_path(name)
        return files[name]

    text = _PLACE.sub(replace_path, text[:_MOST_TEXT])
    return f"// on the devices {', '.join(map(str, devices))}\n{text}"


def _sum_up_constants(module: Any) -> None:
    """Add an attribute with first values and a hash to constants too long to be shown."""
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


def list_array_names(computation: Any) -> tuple[list[str], list[str]]:
    """Return the paths of a program's arguments and results, such as `params['w']` and `['w']`."""
    with computation.context:
        [main] = (op for op in computation.body.operations if _is_main(op))
        arguments = [
            found[1] if (found := _ARGUMENT.match(str(argument.location))) else ""
            for argument in main.regions[0].blocks[0].arguments
            if "token" not in str(argument.type)
        ]
        results = []
        has_names = "res_attrs" in main.attributes  # which are no dictionary
        for result in main.attributes["res_attrs"] if has_names else ():
            name = result[_RESULT_NAME].value if _RESULT_NAME in result else ""
            # Newer versions of JAX begin each name with a word.
            results.append(name[len(_RESULT) :] if name.startswith(_RESULT) else name)
    return arguments, results


def _is_main(op: Any) -> bool:
    return "sym_name" in op.attributes and bool(op.attributes["sym_name"].value == "main")


# --- texts that the agent reads ---


class ProgramTexts:
    """Files with the latest programs of this process.

    Args:
        begin: path of each file without the dot and the program's identity at its end.

    """

    def __init__(self, begin: str) -> None:
        self._begin = begin
        self._kept: deque[tuple[str, int]] = deque()  # paths and lengths

    def keep(self, identity: int, text: str) -> None:
        """Keep the text of a program, if it can be written; remove the oldest texts."""
        path = f"{self._begin}.{identity}"
        if any(kept == path for kept, _ in self._kept):
            return
        try:
            packed = zlib.compress(text.encode(), 1)
            with open(path, "wb") as file:
                file.write(packed)
        except OSError:
            return
        self._kept.append((path, len(packed)))
        while (
            len(self._kept) > _MOST_KEPT or sum(size for _, size in self._kept) > _MOST_KEPT_BYTES
        ):
            oldest, _ = self._kept.popleft()
            try:
                os.unlink(oldest)
            except OSError:
                pass
