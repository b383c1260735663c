"""Debuggers in ranks, at a terminal and without one."""

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pytest
from jobs import Jobs, eventually
from remote import FAKE_SSH
from terminal import PROMPT, Terminal

from mcjax_launch.features.debugging.messages import JOB_ENDS

# Every rank says that it runs; those in sys.argv[1] stop, and then all say that they end.
PROGRAM = """\
import os, sys, time
rank = int(os.environ["JAX_PROCESS_ID"])
print("ready", rank)
if str(rank) in sys.argv[1]:
    value = 40 + rank
    breakpoint()
    value += 1
    print("value", value)
print("end", rank)
"""
# The others do not end by themselves.
WITH_OTHERS = (
    PROGRAM
    + """\
if str(rank) not in sys.argv[1]:
    time.sleep(1000)
"""
)
START = Callable[..., Terminal]


@pytest.fixture
def start(at_terminal: START, tmp_path: Path) -> START:
    """Starts a program in a terminal."""

    def start(options: str, text: str, *args: object) -> Terminal:
        program = tmp_path / "debugged.py"
        program.write_text(text)
        return at_terminal(*shlex.split(options), program, *args)

    return start


def test_stopped_rank_continues(start: START) -> None:
    terminal = start("-n 2", PROGRAM, "1")
    terminal.until("mcjax-launch: rank 1 stopped at ")
    assert terminal.until("\r\n").endswith("debugged.py:6")
    terminal.step_past_breakpoint()
    assert "value += 1" in terminal.until(PROMPT)
    terminal.type("value\r")
    assert "41\r\n" in terminal.until(PROMPT)
    terminal.type("n\r")
    assert 'print("value", value)' in terminal.until(PROMPT)
    terminal.type("value\r")
    assert "42\r\n" in terminal.until(PROMPT)
    terminal.type("c\r")
    assert terminal.finish() == 0
    assert "[1] value 42\r\n" in terminal.shown
    assert terminal.shown.count("rank 1 stopped") == 1
    assert terminal.is_as_it_was


IN_STEPS = """\
import os, sys, time
rank = int(os.environ["JAX_PROCESS_ID"])
print("begins", end="", flush=True)
breakpoint()
print(" and ends", end=sys.argv[1])
print("one\\ntwo")
sys.stderr.write("three")
def show():
    print("from a function")
    print("and more")
show()
print("end")
"""


def without_moves(shown: str) -> str:
    """Without the sequences that move the cursor."""
    return re.sub("\x1b[^a-zA-Z]*[a-zA-Z]|\r(?!\n)", "", shown)


def test_preloaded_module_stops_once_and_then_each_rank(start: START, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("imported = 1\nbreakpoint()\n")
    terminal = start(f"-n 2 -C {tmp_path} --preload mine", PROGRAM, "0,1")
    assert "mine.py:2" in terminal.until("(Pdb 0) ")
    terminal.type("c\r")
    for _ in range(2):
        shown = terminal.until(PROMPT)
        terminal.type("('rank', rank)\r")
        rank = rank_in(terminal)
        assert f"mcjax-launch: rank {rank} stopped" in shown
        terminal.type("c\r")
    assert terminal.finish() == 0
    assert "[0] value 41\r\n" in terminal.shown and "[1] value 42\r\n" in terminal.shown


def rank_in(terminal: Terminal) -> str:
    """The rank that answers, and its prompt, which another rank's stop may have drawn before."""
    answer = re.compile(r"\('rank', (\d)\)\r\n")
    terminal.until(answer)
    terminal.until(PROMPT)
    rank: str = answer.findall(terminal.shown)[-1]
    return rank


@pytest.mark.parametrize("buffered", [False, True])
def test_output_of_a_step_is_shown_before_the_next_prompt(start: START, buffered: bool) -> None:
    terminal = start("-n 1 -x PYTHONUNBUFFERED=" + ("" if buffered else "1"), IN_STEPS, "\n")
    assert "[0] begins\r\n" in terminal.until("rank 0 stopped")
    terminal.step_past_breakpoint()
    terminal.until(PROMPT)
    for typed, shown in [
        ("n", "[0]  and ends\r\n> "),
        ("n", "[0] one\r\n[0] two\r\n> "),
        ("n", "[0] three\r\n> "),
        ("n", "> "),
        ("!print('here')", "here\r\n"),
        ("s", "--Call--\r\n> "),
        ("n", "> "),
        ("r", "[0] from a function\r\n[0] and more\r\n--Return--\r\n> "),
        ("n", "> "),
    ]:
        terminal.type(f"{typed}\r")
        after = without_moves(terminal.until(PROMPT))
        assert after.startswith(f"{typed}\r\n{shown}"), after
    terminal.type("c\r")
    assert terminal.finish() == 0
    assert terminal.shown.count("[0] one\r\n") == 1
    assert terminal.shown.rstrip().endswith("[0] end")
    assert terminal.is_as_it_was


def assert_lines(terminal: Terminal, rank: int, count: int, width: int = 50) -> None:
    """All lines are there, each whole; what is shown of a failure is its place alone."""
    shown = terminal.shown
    lines = re.findall(rf"\[{rank}\] line (\d+) x{{{width}}}\r\n", shown)
    for wanted, line in zip_longest(range(count), map(int, lines)):
        if line != wanted:
            at = shown.find(f"[{rank}] line {(wanted or 0) - 1} ")
            raise AssertionError(f"line {wanted}: {shown[at : at + 400]!r}")


def test_step_continues_despite_much_output(start: START) -> None:
    """More than the launcher keeps: the step goes on all the same."""
    text = "breakpoint()\nfor i in range(4_000): print('line', i, 'x' * 700)\nprint('end')\n"
    terminal = start("-n 1", text)
    terminal.answer(PROMPT, "unt 3")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    assert_lines(terminal, rank=0, count=4_000, width=700)


def test_a_step_prints_more_than_a_slow_terminal_takes(start: START, tmp_path: Path) -> None:
    """Then the prompt comes before the last lines, and each of them is whole all the same."""
    there = tmp_path / "there"
    text = f"""
import fcntl
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
breakpoint()
for i in range(33_000): print("line", i, "x" * 50)
open({str(there)!r}, "w")
print("end")
"""
    terminal = start("-n 1", text)
    terminal.answer(PROMPT, "unt 7")
    eventually(there.exists)  # nothing of the terminal has been read
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    assert_lines(terminal, rank=0, count=33_000)


def test_prompt_offers_editing_history_and_completion(start: START) -> None:
    """Lines are edited, history comes back, names are completed, and more than one line is read."""
    terminal = start("-n 1", PROGRAM, "0")
    terminal.until(PROMPT)
    terminal.type("valueX\x7f + 1\r")
    assert "\r\n41\r\n" in terminal.until(PROMPT)
    terminal.type("\x1b[A\r")  # arrow up: the line before
    assert "\r\n41\r\n" in terminal.until(PROMPT)
    terminal.type("p val\t\r")
    assert "\r\n40\r\n" in terminal.until(PROMPT)
    terminal.type("!value = 7; print(value * 2)\r")
    assert "\r\n14\r\n" in terminal.until(PROMPT)
    terminal.type("interact\r")
    terminal.answer(">>> ", "def double(x):")
    terminal.answer("... ", "    return x * 2")
    terminal.answer("... ", "")
    terminal.answer(">>> ", "double(value)")
    assert "\r\n14\r\n" in terminal.until(">>> ")
    terminal.type("\x04")
    terminal.answer(PROMPT, "import os; tuple(os.get_terminal_size())")
    assert "(120, 30)" in terminal.until(PROMPT)
    terminal.type("c\r")
    assert terminal.finish() == 0
    assert "[0] value 8\r\n" in terminal.shown


def test_debugger_knows_the_terminals_size(start: START) -> None:
    terminal = start("-n 1", PROGRAM, "0")
    note = "told = []; import signal; signal.signal(signal.SIGWINCH, lambda *_: told.append(1))"
    terminal.answer(PROMPT, note)
    # A prompt may be there before readline() waits, and then a signal has to wait for a key.
    sizes = "iter(os.get_terminal_size, 0)"
    waits = f"print('waits'), next(size for size in {sizes} if size.columns == 132 and told)"
    terminal.answer(PROMPT, waits)
    terminal.until("waits\r\n")
    terminal.resize(40, 132)
    os.kill(terminal.pid, signal.SIGWINCH)  # as the kernel does where the terminal is a window
    terminal.until("columns=132, lines=40")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0


def test_interrupt_goes_to_the_rank_at_the_prompt_and_later_to_the_job(start: START) -> None:
    text = PROGRAM + "time.sleep(1000)\n"
    terminal = start("-n 2", text, "0")
    terminal.answer(PROMPT, "print('spins') or [None for _ in iter(int, 1)]")
    terminal.until("spins\r\n")
    terminal.type("\x03")
    terminal.until("KeyboardInterrupt")
    terminal.answer(PROMPT, "c")
    terminal.until("[0] end 0\r\n")
    terminal.type("\x03")
    assert terminal.finish() == 130
    assert "stopped by SIGINT" in terminal.shown
    assert terminal.is_as_it_was


def confirm(terminal: Terminal) -> None:
    """Answer the question that pdb asks from Python 3.14 on."""
    if sys.version_info >= (3, 14):
        terminal.answer("Quit anyway? [y/n] ", "y")


@pytest.mark.parametrize("keys", ["q\r", "\x04", "exit\r"])
def test_leaving_the_debugger_ends_the_job(start: START, keys: str) -> None:
    terminal = start("-n 3", WITH_OTHERS, "1")
    terminal.until(PROMPT)
    terminal.type(keys)
    confirm(terminal)
    assert terminal.finish() == 130
    assert "(Pdb 1) " in terminal.shown
    *_, end = PROMPT.split(terminal.shown, maxsplit=1)
    assert "mcjax-launch: stopped: the debugger of rank 1 was quit at " in end
    assert "all 3 ranks: ended by SIGTERM" in end
    assert "Traceback" not in terminal.shown and "BdbQuit" not in terminal.shown
    assert terminal.is_as_it_was


def until_all_wait(terminal: Terminal) -> None:
    """Wait until a rank of three has its prompt, and both others wait: in any order."""
    waits = " too: it waits for its turn\r\n"
    for wanted in (PROMPT, re.compile(f"(?s){waits}.*{waits}")):
        begin = terminal._seen
        terminal.until(wanted)
        terminal._seen = begin


def test_ranks_that_wait_for_their_turn_end_without_a_traceback(start: START) -> None:
    terminal = start("-n 3", PROGRAM, "012")
    until_all_wait(terminal)
    terminal.type("q\r")
    confirm(terminal)
    assert terminal.finish() == 130
    assert "Traceback" not in terminal.shown
    assert "no terminal for a debugger" not in terminal.shown
    assert "all 3 ranks: ended by SIGTERM" in terminal.shown


def test_stopped_ranks_take_their_turns(start: START) -> None:
    terminal = start("-n 3", PROGRAM, "012")
    order = [terminal.until(" stopped at ")[-1]]
    until_all_wait(terminal)
    terminal.type("c\r")
    for others in ("rank {} waits for its turn\r\n", ""):
        terminal.until("mcjax-launch: rank ")
        order.append(terminal.until(" stopped at ")[0])
        if others:
            [last] = {"0", "1", "2"} - set(order)
            terminal.until(others.format(last))
        terminal.answer(PROMPT, "rank, value")
        terminal.until(f"({order[-1]}, {40 + int(order[-1])})")
        terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    for rank in "012":
        assert f"[{rank}] value {41 + int(rank)}\r\n" in terminal.shown


def test_long_step_lets_other_ranks_use_the_terminal(start: START, tmp_path: Path) -> None:
    """As one does that needs them: here rank 0 waits for what rank 1 does after its breakpoint."""
    text = f"""
import os, time
rank, there = int(os.environ["JAX_PROCESS_ID"]), {str(tmp_path / "there")!r}
while rank == 1 and not os.path.exists(there): time.sleep(0.01)
breakpoint()
def meet():
    open(there + str(rank + 2), "w").close()
    while not os.path.exists(there + str(3 - rank)): time.sleep(0.01)
meet()
print("met", rank)
"""
    terminal = start("-n 2", text)
    terminal.until("rank 0 stopped at ")
    (tmp_path / "there").touch()
    terminal.until("rank 1 stopped at ")
    terminal.until(" too: ")
    terminal.type("until 9\r")
    terminal.until("-> meet()")
    terminal.answer(PROMPT, "n")
    terminal.until("mcjax-launch: rank 1 stopped at ")
    terminal.answer(PROMPT, "c")
    terminal.until("mcjax-launch: rank 0 stopped at ")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    assert "[0] met 0\r\n" in terminal.shown


def test_output_of_other_ranks_waits_for_the_prompt(start: START, tmp_path: Path) -> None:
    """Without bound in time, but not in memory."""
    text = f"""
import os, time
rank, there = int(os.environ["JAX_PROCESS_ID"]), {str(tmp_path / "there")!r}
if rank == 0:
    breakpoint()
    print("on")
else:
    while not os.path.exists(there): time.sleep(0.01)
    for i in range(4_000): print("line", i, "x" * 700)
"""
    terminal = start("-n 2", text)
    terminal.until(PROMPT)
    (tmp_path / "there").touch()
    for _ in range(3):
        terminal.type("import time; time.sleep(0.3)\r")
        assert "line" not in terminal.until(PROMPT)
    terminal.type("c\r")
    assert terminal.finish() == 0
    assert "[0] on\r\n" in terminal.shown
    assert_lines(terminal, rank=1, count=4_000, width=700)


def test_limits_are_suspended_at_the_prompt(start: START) -> None:
    terminal = start("-n 2 --timeout 5 --stall-timeout 1", PROGRAM, "0")
    terminal.answer(PROMPT, "import time; time.sleep(6)")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0


def test_limits_count_again_after_the_debugger(start: START) -> None:
    terminal = start("-n 2 --stall-timeout 2", PROGRAM + "time.sleep(1000)\n", "0")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 124
    assert "--stall-timeout: no rank has " in terminal.shown


def test_an_exception_opens_a_debugger(start: START) -> None:
    text = """
import os, time
def fail():
    batch = [1, 2]
    raise ValueError("bad batch")
if os.environ["JAX_PROCESS_ID"] == "1":
    fail()
time.sleep(1000)
"""
    terminal = start("-n 2 --pdb", text)
    terminal.until("mcjax-launch: rank 1 failed at ")
    assert "debugged.py:5 (ValueError: bad batch)" in terminal.until(PROMPT)
    terminal.type("p batch\r")
    assert "[1, 2]" in terminal.until(PROMPT)
    terminal.type("q\r")
    assert terminal.finish() == 1
    assert "mcjax-launch: rank 1 failed: ValueError: bad batch\r\n" in terminal.shown
    assert "[1] ValueError: bad batch\r\n" in terminal.shown
    assert terminal.is_as_it_was


def test_leaving_one_of_several_post_mortems_ends_the_job(start: START) -> None:
    """The user looks at one and leaves: the job ends, and no other rank gets the terminal."""
    terminal = start("-n 3 --pdb", "raise ValueError('bad batch')\n")
    first = terminal.until(" failed at ")[-1]
    until_all_wait(terminal)
    begin = len(terminal.shown)
    terminal.type("q\r")
    assert terminal.finish() == 1
    end = terminal.shown[begin:]
    assert re.search(rf"(?:rank {first}|\d ranks) failed: ValueError: bad batch\r\n", end)
    assert " failed at " not in end
    assert terminal.is_as_it_was


def test_exception_in_an_unselected_rank_opens_no_debugger(start: START) -> None:
    terminal = start("-n 2 --pdb 0", "import os\nassert os.environ['JAX_PROCESS_ID'] != '1'\n")
    assert terminal.finish() == 1
    assert not PROMPT.search(terminal.shown)


def test_own_post_mortem_of_the_program_works(start: START) -> None:
    text = """
import pdb
try:
    bad = 0
    1 / bad
except ZeroDivisionError as error:
    pdb.post_mortem(error.__traceback__)
print("goes on")
"""
    terminal = start("-n 1", text)
    terminal.until("debugged.py:5\r\n")
    terminal.answer(PROMPT, "p bad")
    terminal.until("\r\n0\r\n")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    assert "[0] goes on\r\n" in terminal.shown


def test_ignored_breakpoints_open_no_prompt(start: START) -> None:
    terminal = start("-n 2 -x PYTHONBREAKPOINT=0", PROGRAM, "01")
    assert terminal.finish() == 0
    assert not PROMPT.search(terminal.shown)


def test_breakpoint_in_a_child_process_opens_a_prompt(start: START, tmp_path: Path) -> None:
    (tmp_path / "below.py").write_text("x = 5\nbreakpoint()\nprint('x', x)\n")
    # Not by subprocess.run, which kills what it has started 0.25 s after an interrupt.
    text = f"""import contextlib, subprocess, sys
below = subprocess.Popen([sys.executable, {str(tmp_path / "below.py")!r}])
while below.poll() is None:
    with contextlib.suppress(KeyboardInterrupt):
        below.wait()
"""
    terminal = start("-n 1", text)
    terminal.until("below.py:2\r\n")
    terminal.type("")
    terminal.answer(PROMPT, "print('spins') or [None for _ in iter(int, 1)]")
    terminal.until("spins\r\n")
    terminal.type("\x03")
    terminal.until("KeyboardInterrupt")
    terminal.answer(PROMPT, "c")
    assert terminal.finish() == 0
    assert terminal.is_as_it_was


# --- ends ---


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_launcher_can_be_ended_at_the_prompt(start: START, signum: int) -> None:
    terminal = start("-n 2", PROGRAM, "01")
    terminal.until(" too: ")
    assert not terminal.is_as_it_was
    os.kill(terminal.pid, signum)
    assert terminal.finish() == (-signum if signum == signal.SIGKILL else 128 + signum)
    eventually(lambda: terminal.is_as_it_was)


AS_IT_ENDS = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
rank = int(os.environ["JAX_PROCESS_ID"])
print("ready", rank)
while not (os.path.exists(sys.argv[1]) if rank else told): time.sleep(0.01)
if rank: raise ValueError("bad batch")
breakpoint()
"""


@pytest.mark.parametrize("reason", ["failure", "TERM"])
def test_stop_of_a_rank_does_not_delay_the_end_of_the_job(
    start: START, tmp_path: Path, reason: str
) -> None:
    """Nobody can look at it any more, and it does not hold up the end."""
    terminal = start("-n 2 --grace 1000", AS_IT_ENDS, tmp_path / "there")
    terminal.until("ready")
    terminal.until("ready")
    if reason == "TERM":
        os.kill(terminal.pid, signal.SIGTERM)
        assert "SIGTERM sent to the rank" in terminal.until(f"[0] {JOB_ENDS}\r\n")
    (tmp_path / "there").touch()
    assert terminal.finish() == (143 if reason == "TERM" else 1)
    assert "stopped at" not in terminal.shown and not PROMPT.search(terminal.shown)
    if reason == "failure":
        assert "mcjax-launch: rank 1 failed: ValueError: bad batch\r\n" in terminal.shown
    assert terminal.is_as_it_was


# --- elsewhere ---


def test_debugger_on_another_host_is_refused_with_a_hint(start: START) -> None:
    terminal = start(f"--hosts a,b --via {shlex.quote(FAKE_SSH)}", PROGRAM, "1")
    assert terminal.finish() == 1
    assert "a debugger on another host cannot have your terminal; start the job as -m debugpy" in (
        terminal.shown
    )
    assert "BdbQuit" not in terminal.shown
    assert terminal.is_as_it_was


# --- without a terminal ---


@pytest.mark.parametrize("way", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_debugger_without_a_terminal_fails_with_a_hint(
    jobs: Jobs, tmp_path: Path, way: str
) -> None:
    (tmp_path / "a.py").write_text(
        f"import os\nif os.environ['JAX_PROCESS_ID'] == '1':\n    {way}\n"
    )
    ended = jobs.run("-n", 2, "a.py", cwd=tmp_path)
    assert ended.status == 1
    assert ended.report.startswith(
        "rank 1 failed: RuntimeError: no terminal for the debugger at a.py:3: stdin of "
        "mcjax-launch is not one; run it at a terminal, or as -m debugpy --listen "
    )
    assert f"at {tmp_path}/a.py:3 in <module>: {way}" in ended.report
    assert "BdbQuit" not in ended.stderr


def test_pdb_without_a_terminal_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    ended = jobs.run("--pdb", "a.py", cwd=tmp_path)
    assert ended.status == 2
    assert ended.stderr == (
        "mcjax-launch: --pdb needs a terminal: stdin of mcjax-launch is not one\n"
    )
