"""What a check is, and what it has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_check.machine import Machine


@dataclass(frozen=True)
class Seen:
    """What a check has seen.

    Attributes:
        well: all went as the docs say.

    """

    well: bool
    text: str


class NotRun(Exception):
    """A check that cannot be run here; why."""


@dataclass(frozen=True)
class Check:
    """Something that needs GPUs.

    Attributes:
        title: what has to be so, in words.
        run: tries it.
        gpus: how many it needs at least.
        why_several: what keeps it from fewer.
        real: why a rehearsal on CPU devices would show nothing; "" if it would.

    """

    title: str
    run: Callable[[Machine], Seen]
    gpus: int = 1
    why_several: str = ""
    real: str = ""

    def try_on(self, machine: Machine) -> Seen:
        """Run it.

        Raises:
            NotRun: it cannot be run here.

        """
        if machine.rehearsal and self.real:
            raise NotRun(f"in a rehearsal: {self.real}")
        if self.gpus > machine.count:
            raise NotRun(f"needs {self.gpus} GPUs: {self.why_several}")
        return self.run(machine)
