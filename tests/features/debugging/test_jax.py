"""Debuggers in ranks of a JAX job, at a terminal."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import PROMPT, Terminal

JAX_PROMPT = re.compile(r"\(jdb \d\) ")
TRAINING = """\
import sys
import jax, jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
weight, stops = 0.0, sys.argv[1]
for step in range(3):
    if step == 1 and str(jax.process_index()) in stops:
        breakpoint()
    total = process_allgather(jnp.float32(jax.process_index())).sum()
    weight += float(total)
print("weight", weight)
"""
IN_A_PROGRAM = """\
import jax

jax.distributed.initialize()

@jax.jit
def double(x):
    y = 2 * x
    jax.debug.breakpoint()
    return y

print("doubled", double(3.0))
"""


Start = Callable[..., Terminal]


@pytest.fixture
def start(at_terminal: Start, tmp_path: Path) -> Start:
    """Starts a program in a terminal, in which these ranks stop."""

    def start(text: str, *options: object, stops: str = "") -> Terminal:
        program = tmp_path / "train.py"
        program.write_text(text)
        return at_terminal(*options, "-d", 1, program, stops)

    return start


def test_debugger_works_in_a_training_loop(start: Start) -> None:
    """Also in steps over a collective, in which the others take part."""
    terminal = start(TRAINING, "-n", 3, stops="1")
    terminal.until("mcjax-launch: rank 1 stopped at ")
    terminal.until("JAX's own limits still count: ")
    terminal.answer(PROMPT, "p step, weight")
    terminal.until("(1, 3.0)")
    terminal.step_past_breakpoint()
    terminal.answer(PROMPT, "n")
    terminal.answer("weight += float(total)", "p total")
    terminal.until("3.0")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    for rank in range(3):
        assert f"[{rank}] weight 9.0\r\n" in terminal.shown
    assert terminal.is_as_it_was


def test_several_ranks_can_stop_at_jax_breakpoints(start: Start) -> None:
    terminal = start(IN_A_PROGRAM, "-n", 2)
    for _ in range(2):
        terminal.answer(JAX_PROMPT, "p y")
        terminal.until("Array(6., dtype=float32)")
        terminal.answer(JAX_PROMPT, "c")
    assert terminal.finish() == 0
    for rank in range(2):
        assert f"[{rank}] doubled 6.0\r\n" in terminal.shown


def test_exception_opens_a_post_mortem_before_the_job_ends(start: Start) -> None:
    """The others wait in a collective; nothing is ended before the user has looked at it."""
    text = TRAINING.replace("breakpoint()", "raise ValueError(step)")
    terminal = start(text, "-n", 2, "--pdb", stops="0")
    terminal.until("mcjax-launch: rank 0 failed at ")
    assert "(ValueError: 1)" in terminal.until(PROMPT)
    terminal.type("p weight\r")
    terminal.until("1.0")
    terminal.answer(PROMPT, "q")
    assert terminal.finish() == 1
    assert "mcjax-launch: rank 0 failed: ValueError: 1\r\n" in terminal.shown
    assert "rank 1 failed" not in terminal.shown
