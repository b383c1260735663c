"""When an agent asks ranks to end."""

import signal
from types import SimpleNamespace

from mcjax_launch.agent.agent import Agent
from mcjax_launch.agent.part import RankStarter
from mcjax_launch.agent.supervisor import SignalRanks
from mcjax_launch.wire.messages import StacksComplete


def test_ranks_say_where_they_are_before_they_are_asked_to_end() -> None:
    mine, done = Agent.__new__(Agent), list[object]()

    def signalled(signum: int, spare: frozenset[int] = frozenset()) -> None:
        done.append(signum)

    mine.pids, mine._parts, mine._held, mine.starter = {}, {}, None, RankStarter(None)
    stacks = SimpleNamespace(deadline=7.0)
    mine._stacks = stacks  # type: ignore[assignment]
    mine.link = SimpleNamespace(send=done.append)  # type: ignore[assignment]
    mine._list_strays = list  # type: ignore[method-assign]
    mine._signal_each = lambda pids, signum: None  # type: ignore[method-assign]
    mine._signal_ranks = signalled  # type: ignore[method-assign]
    mine._perform([SignalRanks(signal.SIGTERM)])
    assert done == []
    stacks.deadline = None
    mine._send_stacks([])
    assert done == [StacksComplete(), signal.SIGTERM]
    mine._send_stacks([])
    mine._perform([SignalRanks(signal.SIGINT)])
    assert done[2:] == [StacksComplete(), signal.SIGINT]
