"""Fake the agent that a feature's part on a host works for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mcjax_launch.machine.loop import Loop


def agent(folder: Path, loop: Loop, uplink: Any, **more: object) -> Any:
    """As much of an agent as a part uses; `more` goes beside that."""
    link = SimpleNamespace(uplink=uplink, send=lambda message: None)
    path = str(folder / "coord")
    return SimpleNamespace(folder=str(folder), loop=loop, link=link, coordinator_path=path, **more)
