"""Polls of main threads on accelerators."""

from types import SimpleNamespace
from typing import Any

import pytest
from records import Clock, journal_of, run_of, say

from mcjax_launch.features.liveness import agent as asking
from mcjax_launch.features.liveness.launcher import MainThreadPolls
from mcjax_launch.features.liveness.messages import (
    MainThreadRuns,
    MainThreadsPolled,
    PollMainThreads,
)
from mcjax_launch.wire.hook_messages import Compiled, Compiling
from mcjax_launch.wire.messages import FromHook


def test_rank_that_still_waits_is_not_woken_by_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not seem to stand still, and no hang would be told of."""
    waits = {7: "futex"}
    signalled: list[int] = []
    sent: list[Any] = []
    times: list[int] = []
    system = SimpleNamespace(
        find_blocking_call=waits.__getitem__,
        handles=lambda pid, signum: True,
        signal_without_interrupting=lambda pid, signum: signalled.append(pid) is None,
    )
    monkeypatch.setattr(asking, "system", system)
    hook: Any = SimpleNamespace(pid=7, rank=0)
    agent: Any = SimpleNamespace(
        hooks=SimpleNamespace(in_job=[hook]), link=SimpleNamespace(send=sent.append)
    )
    part = asking.PART(agent)
    for answers, waits[7] in ((0, "futex"), (0, "futex"), (1, "futex"), (0, ""), (0, "")):
        if answers:
            part.on_hook_message(hook, FromHook(0, MainThreadRuns()))
        part.on_message(PollMainThreads())
        assert sent[-1] == MainThreadsPolled((0,))
        times.append(len(signalled))
    assert times == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("platform", "stall_timeout", "asked"),
    [
        ("gpu", None, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 600.0, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 16.0, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 8.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        ("cpu", 8.0, []),
    ],
)
def test_ranks_on_accelerators_are_polled_without_a_status_line(
    platform: str, stall_timeout: float | None, asked: list[float]
) -> None:
    state, sent, now = run_of(2, joins=True), list[float](), 0.0
    say(state, 1, Compiling("jit_f", "", platform), 0.0)
    say(state, 1, Compiled(), 0.0)
    clock = Clock()
    launcher: Any = SimpleNamespace(
        state=state,
        journal=journal_of(state, clock),
        job=SimpleNamespace(stall_timeout=stall_timeout),
        pool=SimpleNamespace(send_all=lambda message: sent.append(now)),
    )
    part, link = MainThreadPolls(launcher), None
    while (deadline := part.deadline) is not None and deadline <= 10.0:
        now = clock.now = deadline
        part.expire(now)
        part.on_message(link, MainThreadsPolled((0, 1)), now)  # type: ignore[arg-type]
        if now < 5.0:
            part.on_message(link, FromHook(1, MainThreadRuns()), now)  # type: ignore[arg-type]
    assert sent == asked
    if asked:
        answered = max(at for at in asked if at < 5.0)
        assert state.activity.active_at == min(at for at in asked if at > answered)
        assert state.ranks[0].main_thread.silent_since == 0.0
