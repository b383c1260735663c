"""The text of a program, for a person who wants to know in what two of them differ."""

from __future__ import annotations

from . import user_lines
from .fingerprint import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# A longer constant is shown by its first values and a hash.
_MOST_ELEMENTS = 32
_MOST_TEXT = 1 << 24
_PLACE = r'(?<=loc\(")(/[^"]+)(?=":\d)'


def program_text(computation: Any, devices: Sequence[int]) -> str:
    """StableHLO with the places of its operations, as comparable as its fingerprint.

    Args:
        computation: the program.
        devices: the ids of the devices that it runs on.

    """
    import re

    with computation.context:
        copy, _ = canonical(computation)
        _sum_up_constants(copy)
        text = copy.get_asm(enable_debug_info=True, large_elements_limit=_MOST_ELEMENTS)
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
