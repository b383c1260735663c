"""First code that runs on another host: makes the streamed sources importable, runs the agent.

Its own source is sent before the other sources, so it imports none of them at first.
"""

from __future__ import annotations

import _frozen_importlib_external as importing
import _imp
import marshal
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

# Header of a file of bytecode behind the magic number: it is not compared with its source.
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)


class StreamedFinder:
    """Import finder and loader for modules whose sources the launcher has sent.

    Args:
        sources: text of each module, by its name.
        codes: bytecode of this Python's version, for those modules of which the launcher has it.

    """

    def __init__(self, sources: dict[str, str], codes: dict[str, bytes]) -> None:
        self.sources = sources
        self._codes = codes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.sources:
            return None
        package = any(other.startswith(name + ".") for other in self.sources)
        origin = "<mcjax-launch>/" + name
        return ModuleSpec(name, self, origin=origin, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        exec(self._make_code(module.__name__, str(spec.origin)), module.__dict__)

    def _make_code(self, name: str, origin: str) -> CodeType:
        if name not in self._codes:
            return compile(self.sources[name], origin, "exec", dont_inherit=True)
        code: CodeType = marshal.loads(self._codes.pop(name))
        _imp._fix_co_filename(code, origin)  # type: ignore[attr-defined]
        return code


def derive_module_name(path: str) -> str:
    """Return the dotted module name of a file, given by its path below the package."""
    stem = path[: -len(".py")].replace("/", ".")
    return "mcjax_launch." + (stem[: -len(".__init__")] if stem.endswith("__init__") else stem)


def name_bytecode_file(path: str, tag: str) -> str:
    """Return the path at which Python looks for the bytecode of a file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name[: -len('.py')]}.{tag}.pyc"


def assemble(
    files: dict[str, str], version: tuple[bytes, str], codes: dict[str, bytes], unkept: bytes
) -> None:
    """Run the agent from sources.

    Args:
        files: text of each file of the package, by its path.
        version: magic number of the bytecode, and the tag in the names of its files.
        codes: bytecode of the files of which the launcher has it.
        unkept: all of that as the launcher has sent it, for the host to keep; b"" to keep nothing.

    """
    magic, tag = version
    known = codes if magic == importing.MAGIC_NUMBER else {}
    streamed = StreamedFinder(
        {"mcjax_launch": "", **{derive_module_name(path): files[path] for path in files}},
        {derive_module_name(path): known[path] for path in known},
    )
    sys.meta_path.insert(0, streamed)
    from mcjax_launch.agent.main import main

    written = {path: text.encode() for path, text in files.items()}
    for path, code in codes.items():  # for the ranks' Python, which may be another than this
        written[name_bytecode_file(path, tag)] = magic + _UNCHECKED + code
    main(written, unkept)
