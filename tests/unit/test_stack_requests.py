"""Requests for stacks: when they are over, and what comes of them."""

import pytest
from fakes import Clock, Connection

from mcjax_launch.features.explain.snapshots import format_stacks
from mcjax_launch.journal.facts import Stack
from mcjax_launch.launcher import stack_requests
from mcjax_launch.launcher.stack_requests import StackRequests
from mcjax_launch.wire.messages import RequestStacks, Stacks, StacksComplete

DUMP = 'Current thread 0x1 (most recent call first):\n  File "/home/me/train.py", line {} in step\n'


class StackSource:
    """A request for the stacks of three hosts, each with one rank."""

    def __init__(self, clock: Clock) -> None:
        self.links = [Connection(name) for name in "abc"]
        for link in self.links:
            link.greeted = True
        self.came: list[list[str]] = []
        self.requests = StackRequests()
        self.clock = clock
        self.request()

    def request(self, *, all_threads: bool = False) -> None:
        self.requests.request(self.links, self.take, all_threads=all_threads)  # type: ignore[arg-type]

    def take(self, stacks: list[Stack]) -> None:
        self.came.append(format_stacks(stacks) if stacks else [])

    def answer(self, *ranks: int) -> None:
        for rank in ranks:
            link = self.links[rank]
            self.requests.record_stacks(link, Stacks(rank, 70 + rank, DUMP.format(rank)))  # type: ignore[arg-type]
            self.requests.record_stacks(link, StacksComplete())  # type: ignore[arg-type]

    def expire(self) -> list[list[str]]:
        self.requests.expire(self.clock.now)
        return self.came


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> StackSource:
    return StackSource(Clock(monkeypatch, stack_requests))


def test_it_is_over_when_all_have_answered(asked: StackSource) -> None:
    assert [link.sent for link in asked.links] == [[RequestStacks(False)]] * 3
    asked.answer(2, 0)
    assert asked.expire() == []
    asked.answer(1)
    [lines] = asked.expire()
    assert lines[0] == "stacks of 3 ranks, innermost call first:"
    assert [line for line in lines if line.startswith("rank ")] == [
        f"rank {rank} on {name} (pid {70 + rank}):" for rank, name in ((0, "a"), (1, "b"), (2, "c"))
    ]
    assert asked.requests.deadline is None
    assert len(asked.expire()) == 1


def test_it_is_over_in_time_although_an_agent_has_not_answered(asked: StackSource) -> None:
    assert asked.requests.deadline == asked.clock.now + 4
    asked.answer(0, 1)
    asked.clock.now += 3.9
    assert asked.expire() == []
    asked.clock.now += 0.1
    [lines] = asked.expire()
    assert lines[0] == "stacks of 2 ranks, innermost call first:"
    assert asked.requests.deadline is None


def test_agent_that_ends_is_not_waited_for(asked: StackSource) -> None:
    asked.answer(0, 2)
    asked.links[1].ended = True
    [lines] = asked.expire()
    assert lines[0] == "stacks of 2 ranks, innermost call first:"


def test_asked_twice_is_asked_once(asked: StackSource) -> None:
    deadline = asked.requests.deadline
    asked.clock.now += 1
    asked.request()
    assert [link.sent for link in asked.links] == [[RequestStacks(False)]] * 3
    assert asked.requests.deadline == deadline
    asked.answer(0, 1, 2)
    assert len(asked.expire()) == 1
    assert asked.requests.deadline is None


def test_others_who_ask_share_the_answers(asked: StackSource) -> None:
    asked.answer(0)
    came: list[int] = []
    asked.requests.request(asked.links, lambda stacks: came.append(len(stacks)))  # type: ignore[arg-type]
    assert [link.sent for link in asked.links] == [[RequestStacks(False)]] * 3
    asked.answer(1, 2)
    assert len(asked.expire()) == 1
    assert came == [3]


def test_another_request_comes_after_the_first(asked: StackSource) -> None:
    asked.request(all_threads=True)
    assert [link.sent for link in asked.links] == [[RequestStacks(False)]] * 3
    asked.answer(0, 1, 2)
    assert len(asked.expire()) == 1
    assert [link.sent for link in asked.links] == [[RequestStacks(False), RequestStacks(True)]] * 3
    asked.answer(0, 1, 2)
    assert len(asked.expire()) == 2
    assert asked.requests.deadline is None


def test_later_request_begins_anew(asked: StackSource) -> None:
    asked.answer(0, 1, 2)
    asked.expire()
    asked.links[0].ended = True
    asked.request(all_threads=True)
    assert [len(link.sent) for link in asked.links] == [1, 2, 2]
    assert asked.links[1].sent[1] == RequestStacks(True)
    asked.answer(1, 2)
    assert asked.expire()[1][0] == "stacks of 2 ranks, innermost call first:"
