"""Rank that runs alone: programs that span processes are compiled, and their outputs are zeros."""

from __future__ import annotations

import sys

from ....hook.part import RankPart
from ....wire.codec import from_json, from_values
from ..messages import Wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .compiled import Code
    from .programs import Programs


class Preview(RankPart):
    """Part that takes the place of the job's other ranks."""

    _programs: Programs | None = None

    @property
    def _wanted(self) -> Wanted:
        return from_values(Wanted, from_json(self.asked))

    def join(self, real: Callable[..., Any], filled: Mapping[str, Any]) -> Any:
        """Call JAX's initialize() with a coordination service that has one member."""
        from .service import join

        return join(real, filled, self.environ, self._wanted.devices)

    def on_join(self, *, is_alone: bool) -> None:
        """Run no program that spans processes from now on."""
        if self._programs is None:
            from .programs import Programs

            try:
                self._programs = Programs(self.link, self._wanted)
            except (ImportError, AttributeError) as error:
                version = sys.modules["jax"].__version__
                raise SystemExit(f"--preview: jax {version} is not supported: {error}") from None

    def describe(self, backend: Any, computation: Any, devices: Any, options: Any) -> Code | None:
        """Return a program that is about to be compiled if it spans processes; else None."""
        if self._programs is None:
            return None
        return self._programs.describe(backend, computation, devices, options)

    def on_compiled(self, program: Code | None, executable: Any) -> None:
        """Record what an executable has been compiled from."""
        if self._programs is not None:
            self._programs.on_compiled(program, executable)

    def patch(self, module: Any) -> None:
        """Replace functions of a module by some that do without the other ranks."""
        if module.__name__.startswith("orbax"):
            from . import checkpoints

            checkpoints.patch(module, self.link)
        else:
            from . import helpers

            helpers.patch(module, sys.modules["jax"])


PART = Preview
