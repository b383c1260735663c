"""Stacks of many ranks, as lines."""

from pathlib import Path

from mcjax_launch.agent.stacks import with_source
from mcjax_launch.features.explain.snapshots import format_stacks, parse_threads
from mcjax_launch.journal.facts import Stack

SITE = "/opt/venv/lib/python3.11/site-packages"
WAITING = f"""Current thread 0x00007f01 (most recent call first):
  File "{SITE}/jax/_src/array.py", line 642 in block_until_ready
  File "{SITE}/jax/_src/api.py", line 3 in b
  File "{SITE}/jax/_src/api.py", line 4 in c
  File "{SITE}/jax/_src/api.py", line 5 in d
  File "/opt/venv/lib/python3.11/site-packages/mcjax_launch/hook/compilation.py", line 4 in call
  File "/home/me/train.py", line 88 in step
  File "{SITE}/flax/loop.py", line 7 in run
  File "/home/me/train.py", line 99 in <module>
"""
LOADING = """Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/home/me/data.py", line 9 in fetch

Current thread 0x00007f01 (most recent call first):
  File "/home/me/data.py", line 5 in load
  File "/home/me/train.py", line 87 in <module>
"""


def test_the_current_thread_comes_first() -> None:
    asked, other = parse_threads(LOADING)
    assert [frame.line for frame in asked.frames] == ["5", "87"]
    assert [frame.library for frame in other.frames] == ["python", ""]


def test_equal_stacks_are_merged_and_odd_ones_separate() -> None:
    stacks = [Stack(rank, "h", 100 + rank, WAITING) for rank in (3, 0, 2)]
    stacks.append(Stack(1, "h", 101, LOADING.replace("0x00007f02", "0x00007f99")))
    assert format_stacks(stacks) == [
        "stacks of 4 ranks, innermost call first:",
        "ranks 0,2-3:",
        "    jax/_src/array.py:642 in block_until_ready",
        "    (3 more calls in jax)",
        "  > /home/me/train.py:88 in step",
        "    flax/loop.py:7 in run",
        "  > /home/me/train.py:99 in <module>",
        "rank 1 (pid 101):",
        "  > /home/me/data.py:5 in load",
        "  > /home/me/train.py:87 in <module>",
        "another thread of rank 1 (pid 101):",
        "    threading.py:320 in wait",
        "  > /home/me/data.py:9 in fetch",
    ]


def test_hosts_are_named_where_there_are_several() -> None:
    stacks = [Stack(rank, f"gpu0{rank}", 1, WAITING) for rank in range(2)]
    stacks.append(Stack(2, "gpu02", 7, "", '"bash" is sleeping in the kernel'))
    lines = format_stacks(stacks)
    assert "ranks 0-1 on gpu00, gpu01:" in lines
    assert 'rank 2 on gpu02 (pid 7): no Python stack: "bash" is sleeping in the kernel' in lines


def test_ranks_without_python_share_a_line() -> None:
    lines = format_stacks(
        [Stack(rank, "h", rank, "", '"bash" is sleeping in the kernel') for rank in range(256)]
    )
    assert lines[1:] == ['ranks 0-255: no Python stack: "bash" is sleeping in the kernel']


def test_the_users_lines_are_shown() -> None:
    text = WAITING.replace("in step\n", "in step\n    loss = total(x)\n")
    lines = format_stacks([Stack(0, "h", 100, text)])
    assert "  > /home/me/train.py:88 in step: loss = total(x)" in lines
    assert "  > /home/me/train.py:99 in <module>" in lines


def test_helpers_are_listed_separately() -> None:
    stacks = [Stack(rank, "h", 100 + rank, WAITING) for rank in range(2)]
    stacks += [Stack(rank, "h", 200 + rank, WAITING, helper=True) for rank in range(2)]
    lines = format_stacks(stacks)
    assert "ranks 0-1:" in lines
    assert "helpers of ranks 0-1:" in lines


def test_source_lines_are_added_to_a_dump(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import time\n\n    time.sleep(3)\n")
    dump = [
        "Current thread 0x00007f01 (most recent call first):",
        f'  File "{program}", line 3 in load',
        f'  File "{program}", line 30 in load',
        f'  File "{program}", line ??? in load',
        f'  File "{SITE}/jax/_src/array.py", line 1 in b',
        '  File "<string>", line 1 in <module>',
    ]
    shown = with_source(dump)
    assert shown == [*dump[:2], "    time.sleep(3)", *dump[2:]]


def test_program_that_has_ended_and_waits_is_told() -> None:
    stack = 'Current thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 1540 in _shutdown\n'
    _, _, call, told = format_stacks([Stack(0, "h", 100, stack)])
    assert call == "    threading.py:1540 in _shutdown"
    assert told == "    (the program has ended, and Python waits for its threads)"
