"""Debuggers in JAX ranks on real hosts: what is lost or killed while somebody is at a prompt."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import Jobs, eventually
from remote import Lab, needs_lab
from terminal import PROMPT, Terminal

pytestmark = [needs_lab, pytest.mark.jax]
# Rank 2 stops in its second step; the others wait for it in a collective.
TRAINING = """\
import os
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
rank, weight = jax.process_index(), 0.0
for step in range(3):
    if rank == 2 and step == 1:
        breakpoint()
    weight += float(process_allgather(float(rank)).sum())
print("weight", weight)
"""


@pytest.fixture
def at_prompt(jobs: Jobs, lab: Lab, tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    """A terminal in which rank 2, on jh3, has stopped."""
    terminals: list[Terminal] = []

    def begin() -> Terminal:
        program = tmp_path / "train.py"
        program.write_text(TRAINING)
        terminal = lab.at_terminal(jobs, "jh1,jh2,jh3", "-d", 1, program)
        terminals.append(terminal)
        terminal.until("mcjax-launch: rank 2 on jh3 stopped at ")
        terminal.answer(PROMPT, "p step, weight")
        terminal.until("(1, 3.0)")
        terminal.until(PROMPT)
        assert not terminal.is_as_it_was
        return terminal

    yield begin
    for terminal in terminals:
        terminal.close()


def test_step_runs_while_other_hosts_take_part(at_prompt: Callable[[], Terminal], lab: Lab) -> None:
    terminal = at_prompt()
    terminal.type("n\r")
    terminal.until(PROMPT)
    terminal.type("c\r")
    assert terminal.finish() == 0
    for rank in range(3):
        assert f"[{rank} jh{rank + 1}] weight 9.0\r\n" in terminal.shown
    assert terminal.is_as_it_was
    lab.check_clean()


@pytest.mark.parametrize("host", ["jh3", "jh2"])
def test_losing_a_host_at_the_prompt_ends_the_job(
    at_prompt: Callable[[], Terminal], lab: Lab, host: str
) -> None:
    """That of the prompt, or another."""
    terminal = at_prompt()
    lab.do("cut", host)
    began = time.monotonic()
    try:
        assert terminal.finish() == 255
        assert time.monotonic() - began < 25
        assert terminal.is_as_it_was
        eventually(lambda: not any("train.py" in line for line in lab.processes(host)), 20)
    finally:
        lab.do("restore", host)
    assert f"mcjax-launch: host {host}: " in terminal.shown
    assert f"1 lost with host {host}" in terminal.shown
    lab.check_clean(limit=40)
