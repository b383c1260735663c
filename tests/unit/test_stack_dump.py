"""A dump of stacks has no end mark: when it is taken as complete."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.agent.native_stacks import NativeDump
from mcjax_launch.agent.stacks import OWN, StackDump, select_main_thread, waits_for_a_thread
from mcjax_launch.agent.system import system
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire.messages import Stacks

BEGAN = 100.0
STILL_S, QUIET_S, ANSWER_S, SLOWEST_S = 0.05, 0.15, 0.3, 2.0
ASKED = BEGAN + STILL_S


@pytest.fixture(autouse=True)
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them wait, in the kernel's words."""
    monkeypatch.setattr(
        system, "find_blocking_call", lambda pid: "futex_do_wait" if pid == 70 else ""
    )


def process(rank: int, *lines: str, at: float = 0.0, joined: bool = False, pid: int = 0) -> Any:
    """A process that was asked, and what it has said last when."""
    return SimpleNamespace(
        rank=rank,
        pid=pid or 70 + rank,
        joined=joined,
        importing=False,
        stacks=list(lines),
        all_stacks=False,
        last_stack_at=at,
    )


class Dumped:
    """A dump, of which `runs` are the processes that Python is asked in."""

    def __init__(self, *processes: SimpleNamespace, runs: Sequence[SimpleNamespace] = ()) -> None:
        self.stacks: list[Stacks] | None = None
        self.dump = StackDump(self._complete, NativeDump(Loop(), lambda message: None))
        self.waiting: list[SimpleNamespace] = []
        questions: list[Any] = [Question(self, each, each in runs) for each in processes]
        self.dump.begin(questions, BEGAN)
        if processes:
            assert self.dump.deadline == pytest.approx(ASKED)
            self.at(ASKED)

    def _complete(self, stacks: Iterable[Stacks]) -> None:
        assert self.stacks is None
        self.stacks = list(stacks)

    def at(self, now: float) -> "list[Stacks] | None":
        self.dump.expire(now)
        return self.stacks


class Question:
    """A question that notes what it does."""

    def __init__(self, dumped: Dumped, source: SimpleNamespace, runs: bool) -> None:
        self.dumped, self.source, self.runs = dumped, source, runs

    def ask(self) -> bool:
        return True

    def is_unanswered(self, since: float) -> bool:
        return self.runs and bool(self.source.last_stack_at < since)

    def ask_again(self, since: float) -> bool:
        return self.source in self.dumped.waiting


def test_dump_without_hooks_has_no_deadline() -> None:
    dumped = Dumped()
    assert dumped.dump.deadline == BEGAN
    assert dumped.at(BEGAN) == []
    assert dumped.dump.deadline is None


def test_dump_completes_after_a_quiet_moment() -> None:
    first, second = process(0, "a", "b", at=BEGAN + 0.1), process(1, "c", at=BEGAN + 0.3)
    dumped = Dumped(first, second)
    assert dumped.dump.deadline == pytest.approx(BEGAN + 0.3 + QUIET_S)
    assert dumped.at(BEGAN + 0.4) is None
    first.stacks.append("more")
    first.last_stack_at = BEGAN + 0.4
    assert dumped.at(BEGAN + 0.5) is None
    assert dumped.at(BEGAN + 0.4 + QUIET_S + 0.01) == [
        Stacks(0, 70, "a\nb\nmore", blocked="futex_do_wait"),
        Stacks(1, 71, "c"),
    ]
    assert dumped.dump.deadline is None
    dumped.at(BEGAN + 9)  # is complete once


def test_process_that_has_not_begun_gets_more_time() -> None:
    """What it said to an earlier question does not count."""
    dumped = Dumped(process(0, "a", at=BEGAN + 0.1), process(1, at=BEGAN - 5))
    assert dumped.at(ASKED + SLOWEST_S - 0.01) is None
    assert dumped.at(ASKED + SLOWEST_S) == [Stacks(0, 70, "a", blocked="futex_do_wait")]


def test_endless_dump_is_cut() -> None:
    dumped = Dumped(process(0, "a", at=ASKED + SLOWEST_S - 0.01))
    assert dumped.dump.deadline == ASKED + SLOWEST_S
    assert dumped.at(ASKED + SLOWEST_S) == [Stacks(0, 70, "a", blocked="futex_do_wait")]


def test_processes_beside_the_joined_process_are_helpers() -> None:
    at = BEGAN + 0.1
    dumped = Dumped(
        process(0, "a", at=at, joined=True),
        process(0, "b", at=at, pid=99),
        process(1, "c", at=at),
    )
    assert dumped.at(BEGAN + 1) == [
        Stacks(0, 70, "a", blocked="futex_do_wait"),
        Stacks(0, 99, "b", helper=True),
        Stacks(1, 71, "c"),
    ]


def test_other_threads_in_user_code_are_found(tmp_path: Path) -> None:
    source = tmp_path / "data.py"
    source.write_text("load()\n")
    begin = "Thread 0x7f [loader] (most recent call first):"
    own, idle = (
        f'  File "{source}", line 1 in load',
        '  File "/usr/lib/python3.11/queue.py", line 9 in get',
    )
    asked = process(
        0, begin, own, "", begin, idle, "", "Current thread 0x1 (most recent call first):", idle
    )
    for all_stacks, others in ((True, "\n".join([begin, own, "    load()", ""])), (False, "")):
        asked.all_stacks = all_stacks
        [told] = Dumped(asked).at(ASKED + SLOWEST_S) or []
        assert told.others == others


def test_other_threads_waiting_in_jax_are_found() -> None:
    """With how often they gave a processor up: so one sees later whether they have moved."""
    site = "/v/lib/python3.11/site-packages"
    waits, idle = "Thread 0x7f (most recent call first):", "Thread 0x8f (most recent call first):"
    at_barrier = f'  File "{site}/jaxlib/coordination_service", line 3 in wait_at_barrier'
    in_orbax = f'  File "{site}/orbax/multihost.py", line 9 in _fn'
    main = "Current thread 0x1 (most recent call first):"
    asked = process(
        *(0, waits, at_barrier, in_orbax, "", idle, in_orbax, "", main, in_orbax),
        *("Switches of 0x8f 5 0", "Switches of 0x7f 3 1", "Switches of 0x1 2 2"),
    )
    asked.all_stacks = True
    told = Dumped(asked).at(ASKED + SLOWEST_S)
    assert told is not None
    assert told[0].others.splitlines() == [waits, at_barrier, in_orbax, "", "Switches of 0x7f 3 1"]


def test_further_questions_follow_the_first_answers() -> None:
    first, second = process(0, "a", at=BEGAN + 0.1), process(1, "c", at=BEGAN + 0.1)
    dumped = Dumped(first, second)
    dumped.waiting = [second]
    asked_again = BEGAN + 0.1 + QUIET_S
    assert dumped.at(asked_again) is None
    second.stacks, second.last_stack_at = ["c", "more"], asked_again + 0.2
    assert dumped.at(second.last_stack_at + QUIET_S - 0.01) is None
    assert dumped.at(second.last_stack_at + QUIET_S) == [
        Stacks(0, 70, "a", blocked="futex_do_wait"),
        Stacks(1, 71, "c\nmore"),
    ]


def test_process_that_does_not_answer_again_is_not_waited_for() -> None:
    dumped = Dumped(first := process(0, "a", at=BEGAN + 0.1))
    dumped.waiting = [first]
    assert dumped.at(BEGAN + 0.1 + QUIET_S) is None
    assert dumped.dump.deadline == ASKED + SLOWEST_S
    assert dumped.at(ASKED + SLOWEST_S) == [Stacks(0, 70, "a", blocked="futex_do_wait")]


def test_process_in_c_code_is_asked_again_soon() -> None:
    """Python was asked there, which answers only when the main thread runs it."""
    runs = process(0)
    dumped = Dumped(runs, process(1, "c", at=ASKED + 0.01), runs=[runs])
    dumped.waiting = [runs]
    assert dumped.dump.deadline == pytest.approx(ASKED + 0.01 + ANSWER_S)
    assert dumped.at(ASKED + 0.01 + ANSWER_S) is None
    runs.stacks, runs.last_stack_at = ["a"], ASKED + 0.01 + ANSWER_S
    assert dumped.at(ASKED + 0.01 + ANSWER_S + QUIET_S) == [
        Stacks(0, 70, "a", blocked="futex_do_wait"),
        Stacks(1, 71, "c"),
    ]


def test_main_thread_may_wait_for_a_thread_of_the_user(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("step(x).block_until_ready()\nwith lock:\n    pass\n")
    inside, lock = (f'  File "{source}", line {line} in f' for line in (1, 2))
    join = '  File "/usr/lib/python3.11/threading.py", line 9 in join'
    jaxs = '  File "/v/site-packages/jax/b.py", line 9 in f'
    for calls, waits in (
        ((join, inside), True),
        ((lock,), True),
        ((inside, lock), False),
        ((jaxs, join), False),
        ((), False),
    ):
        assert waits_for_a_thread(process(0, OWN, *calls)) is waits


def test_main_thread_is_extracted_from_all_stacks() -> None:
    """The oldest thread is the last; the current one is the one that was asked."""
    begin, call = "(most recent call first):", '  File "a.py", line {} in f'
    dump = [
        f"Current thread 0x2 {begin}",
        call.format(1),
        "",
        f"Thread 0x1 {begin}",
        call.format(2),
    ]
    assert select_main_thread(dump) == [f"Stack {begin}", call.format(2)]
    assert select_main_thread([*dump, "..."]) == select_main_thread([]) == []
    assert select_main_thread([OWN, call.format(3), *dump]) == select_main_thread(
        [OWN, call.format(3)]
    )
    assert select_main_thread([OWN, call.format(3)]) == [OWN, call.format(3)]
