"""What the checks ran on; it stands above their table."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_check.limited import ask
from gpu_check.machine import Machine
from gpu_check.probes import ROOT, Driver, Jax

_GIT_S = 10.0


@dataclass(frozen=True)
class About:
    """What the checks ran on.

    Attributes:
        devices: so many of each kind, in words.
        driver: its version; "" where that is not known.
        memory_mib: of each card that the driver lists.
        python: the version of the ranks'.
        commit: of the launcher; "" outside of a repository.

    """

    date: str
    rehearsal: bool
    devices: str
    driver: str
    memory_mib: list[int]
    jax: str
    jaxlib: str
    plugins: Mapping[str, str]
    python: str
    mcjax_launch: str
    commit: str
    cores: int

    @classmethod
    def of(cls, machine: Machine, launcher: str, driver: Driver, jax: Jax) -> About:
        """Of a machine, with the launcher's version."""
        return cls(
            date=str(datetime.date.today()),
            rehearsal=machine.rehearsal,
            devices=_devices(machine, jax),
            driver=driver.version,
            memory_mib=[card.memory_mib for card in driver.cards],
            jax=jax.jax,
            jaxlib=jax.jaxlib,
            plugins=jax.plugins,
            python=jax.python,
            mcjax_launch=launcher,
            commit=_commit(),
            cores=os.cpu_count() or 0,
        )

    @property
    def headline(self) -> str:
        """All that in a line."""
        versions = {"jax": self.jax, "jaxlib": self.jaxlib, **self.plugins, "Python": self.python}
        words = [
            self.date,
            self.devices,
            f"driver {self.driver}" if self.driver else "",
            *(f"{name} {version}" for name, version in versions.items()),
            f"mcjax-launch {self.mcjax_launch}",
            f"commit {self.commit}" if self.commit else "",
        ]
        return ", ".join(filter(None, words))


def _devices(machine: Machine, jax: Jax) -> str:
    if machine.rehearsal:
        return f"a rehearsal on CPU devices ({machine.count} in place of GPUs)"
    kinds = {kind: jax.kinds.count(kind) for kind in jax.kinds}
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    answer = ask(git, _GIT_S)
    return answer.out.strip() if answer.status == 0 else ""
