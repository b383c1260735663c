"""What a program is, apart from its names: as the programs of ranks are compared, and as text."""

from __future__ import annotations

from ..wire.value import Value
from . import user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
