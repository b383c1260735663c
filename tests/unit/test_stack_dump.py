"""A dump of stacks: when it is complete, and which threads are sent."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mcjax_launch.agent.stacks import StackDump, select_main_thread, waits_for_a_thread
from mcjax_launch.wire.messages import Stacks
from mcjax_launch.wire.source_lines import MAIN_THREAD

BEGAN = 100.0
SLOWEST_S = 2.0


def process(
    rank: int, *lines: str, joined: bool = False, pid: int = 0, has_answered: bool = True
) -> Any:
    """A process that is asked, and what it answers."""
    return SimpleNamespace(
        rank=rank,
        pid=pid or 70 + rank,
        joined=joined,
        importing=False,
        stacks=list(lines),
        has_answered=has_answered,
        ask=lambda: True,
    )


class Dumped:
    def __init__(self, *processes: SimpleNamespace, all_threads: bool = False) -> None:
        self.stacks: list[Stacks] | None = None
        self.dump = StackDump(self._complete)
        self.dump.begin(processes, BEGAN, all_threads=all_threads)  # type: ignore[arg-type]

    def _complete(self, stacks: Iterable[Stacks]) -> None:
        assert self.stacks is None
        self.stacks = list(stacks)

    def at(self, now: float) -> "list[Stacks] | None":
        self.dump.expire(now)
        return self.stacks


def test_dump_completes_when_all_have_answered() -> None:
    first, second = process(0, "a", "b"), process(1, "c", has_answered=False)
    dumped = Dumped(first, second)
    assert dumped.dump.deadline == BEGAN + SLOWEST_S
    assert dumped.at(BEGAN + 0.4) is None
    second.has_answered = True
    assert dumped.at(BEGAN + 0.4) == [
        Stacks(0, 70, "a\nb"),
        Stacks(1, 71, "c"),
    ]
    assert dumped.dump.deadline is None
    dumped.at(BEGAN + 9)  # is complete once


def test_what_ends_processes_waits_until_they_have_answered() -> None:
    first = process(0, "a", has_answered=False)
    dumped, done = Dumped(first), list[str]()
    dumped.dump.call_after(done.append, "TERM")
    assert (dumped.at(BEGAN), done) == (None, [])
    first.has_answered = True
    assert (dumped.at(BEGAN), done) == ([Stacks(0, 70, "a")], ["TERM"])
    dumped.dump.call_after(done.append, "INT")
    assert done == ["TERM", "INT"]


def test_dump_without_hooks_is_complete_at_once() -> None:
    assert Dumped().at(BEGAN) == []


def test_process_that_does_not_answer_is_left_out_in_the_end() -> None:
    dumped = Dumped(process(0, "a"), process(1, has_answered=False))
    assert dumped.at(BEGAN + SLOWEST_S - 0.01) is None
    assert dumped.at(BEGAN + SLOWEST_S) == [Stacks(0, 70, "a")]


def test_processes_beside_the_joined_process_are_helpers() -> None:
    dumped = Dumped(process(0, "a", joined=True), process(0, "b", pid=99), process(1, "c"))
    assert dumped.at(BEGAN) == [
        Stacks(0, 70, "a"),
        Stacks(0, 99, "b", helper=True),
        Stacks(1, 71, "c"),
    ]


def thread(number: int, *calls: str) -> list[str]:
    return ["", f"Thread 0x{number:x} (most recent call first):", *calls]


def test_other_threads_that_may_be_waited_for_are_sent(tmp_path: Path) -> None:
    source = tmp_path / "data.py"
    source.write_text("load()\n")
    site = "/v/lib/python3.11/site-packages"
    own = f'  File "{source}", line 1 in load'
    idle = '  File "/usr/lib/python3.11/queue.py", line 9 in get'
    at_barrier = f'  File "{site}/jaxlib/coordination_service", line 3 in wait_at_barrier'
    in_orbax = f'  File "{site}/orbax/multihost.py", line 9 in _fn'
    threads = [
        *thread(0x7F, own),
        *thread(0x8F, idle),
        *thread(0x9F, at_barrier, in_orbax),
        *thread(0xAF, in_orbax),
    ]
    waits = process(0, MAIN_THREAD, idle, *threads)
    [told] = Dumped(waits).at(BEGAN) or []
    assert told.text.splitlines() == [MAIN_THREAD, idle]
    expected = [*thread(0x7F, own, "    load()"), *thread(0x9F, at_barrier, in_orbax), ""]
    assert told.others.splitlines() == expected[1:-1]
    [told] = Dumped(process(0, MAIN_THREAD, in_orbax, *threads)).at(BEGAN) or []
    assert told.others == ""
    [told] = Dumped(waits, all_threads=True).at(BEGAN) or []
    assert told.text.count("Thread 0x") == 4
    assert told.others == ""


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
        assert waits_for_a_thread([MAIN_THREAD, *calls]) is waits


def test_main_thread_is_extracted_from_all_stacks() -> None:
    """The oldest thread is the last; the current one is the one that has crashed."""
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
