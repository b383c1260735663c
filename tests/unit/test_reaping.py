"""Which of its children an agent reaps, and when."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mcjax_launch.agent import agent
from mcjax_launch.agent.part import RankStarter
from mcjax_launch.agent.system.unix import EndedChild

SERVER, ORPHAN = 7, 8


def test_import_server_is_reaped_by_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end between the look at it and the one at all children."""
    zombies: list[int] = []
    reaped: list[int] = []
    ends = iter([SERVER, ORPHAN])

    def check() -> None:
        if SERVER in zombies:
            zombies.remove(SERVER)

    def ended_child() -> EndedChild | None:
        zombies.extend(_next(ends) if not zombies else [])
        return EndedChild(zombies[0], 0) if zombies else None

    def reap(pid: int) -> tuple[float, int]:
        zombies.remove(pid)
        reaped.append(pid)
        return 0.0, 0

    monkeypatch.setattr(agent, "system", SimpleNamespace(find_ended_child=ended_child, reap=reap))
    mine = agent.Agent.__new__(agent.Agent)
    mine.pids, mine._parts = {}, {}
    mine.starter = starter = RankStarter(None)
    starter.handle_ended_children = check  # type: ignore[method-assign]
    starter.owns = lambda pid: pid == SERVER  # type: ignore[method-assign]
    mine.supervisor = SimpleNamespace(on_child_end=list, stopping=True)  # type: ignore[assignment]
    mine.reap()
    assert (reaped, zombies) == ([ORPHAN], [])


def _next(ends: Iterator[int]) -> list[int]:
    return [pid] if (pid := next(ends, None)) is not None else []
