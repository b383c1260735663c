"""The pseudo-terminal of a debugger."""

import os
import select
import signal
from types import SimpleNamespace

import pytest

from mcjax_launch.features.debugging import agent
from mcjax_launch.machine.loop import Loop


def test_text_written_after_an_interrupt_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel discards it where the key itself comes, some time later."""
    with_loop = Loop()
    terminal = agent._Terminal(SimpleNamespace(pid=1), with_loop)  # type: ignore[arg-type]
    signalled = []

    def answer(group: int, signum: int) -> None:
        signalled.append(signum)
        os.write(terminal.theirs, b"KeyboardInterrupt\n")

    system = SimpleNamespace(get_process_group=lambda pid: os.getpgrp() + 1, signal_group=answer)
    monkeypatch.setattr(agent, "system", system)
    for _ in range(300):
        terminal.write(b"abc\x03")
        seen = b""
        while b"KeyboardInterrupt" not in seen:
            assert select.select([terminal.ours], [], [], 5)[0], seen
            seen += terminal.read(1000)
    assert signalled == [signal.SIGINT] * 300
    terminal.close()
    with_loop.close()
