"""First code that runs on another host: makes the streamed sources importable, runs the agent.

Its own source is sent before the other sources, so it imports none of them at first.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class StreamedFinder:
    """Import finder and loader for modules whose sources the launcher has sent."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

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
        name, spec = module.__name__, module.__spec__
        assert spec is not None
        code = compile(self.sources[name], str(spec.origin), "exec", dont_inherit=True)
        exec(code, module.__dict__)


def derive_module_name(path: str) -> str:
    """Return the dotted module name of a file, given by its path below the package."""
    stem = path[: -len(".py")].replace("/", ".")
    return "mcjax_launch." + (stem[: -len(".__init__")] if stem.endswith("__init__") else stem)


def assemble(files: dict[str, str], unkept: bytes) -> None:
    """Run the agent from sources.

    Args:
        files: text of each file of the package, by its path.
        unkept: all of that as the launcher has sent it, for the host to keep; b"" to keep nothing.

    """
    sources = {derive_module_name(path): text for path, text in files.items()}
    sys.meta_path.insert(0, StreamedFinder({"mcjax_launch": "", **sources}))
    from mcjax_launch.agent.main import main

    main(files, unkept)
