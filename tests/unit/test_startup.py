"""From agents that have greeted to a plan: what is asked in which order, and what goes wrong."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Clock, Connection

from mcjax_launch.errors import HostsFailed, LaunchError
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan
from mcjax_launch.launcher import startup
from mcjax_launch.launcher.startup import Startup
from mcjax_launch.transport.pool import Failure
from mcjax_launch.wire.compression import expand
from mcjax_launch.wire.messages import (
    VERSION,
    Bind,
    Compressed,
    CoordinatorTried,
    Greeting,
    HostFacts,
    Lacks,
    Loading,
    Prepare,
    Refused,
    StageEntry,
    Stop,
    Tpu,
    TryCoordinator,
)

HELLO = Greeting(VERSION)
ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate("abcdef", 1)}


class Start:
    """A startup on these hosts, and what came of it."""

    def __init__(self, patch: pytest.MonkeyPatch, *names: str, **more: object) -> None:
        self.clock = Clock(patch, startup)
        self.links = [Connection(name) for name in names]
        hosts = [link.host for link in self.links]
        job = Job(program=("x",), num_processes=len(names), python="p", chdir="/", **more)  # type: ignore[arg-type]
        self.plans: list[Plan] = []
        self.errors: list[LaunchError] = []
        self.is_settled = False
        self.notes: list[str] = []
        console = SimpleNamespace(note=self.notes.append, say=self.notes.append)
        self.startup = Startup(job, hosts, 0, self, self, console)  # type: ignore[arg-type]

    def on_hosts_ready(self, plan: Plan) -> None:
        self.plans.append(plan)

    def on_start_failure(self, error: LaunchError) -> None:
        self.errors.append(error)

    def says(self, number: int, message: object) -> None:
        acts: dict[type, Any] = {
            Greeting: self.startup.on_greeting,
            HostFacts: self.startup.on_host_facts,
            CoordinatorTried: self.startup.on_coordinator_tried,
            Refused: self.startup.on_refusal,
            Lacks: self.startup.on_lacks,
            Loading: lambda link, loading: self.startup.on_loading(link),
        }
        acts[type(message)](self.links[number], message)

    def greet(self) -> None:
        for number in range(len(self.links)):
            self.says(number, HELLO)

    def answer(self, *numbers: int) -> None:
        for number in numbers:
            name = self.links[number].host.name
            self.says(number, facts(name, port=0 if number else 4000))

    def reach(self, number: int, *addresses: str) -> None:
        """An agent has reached the coordinator at these addresses, and at no other."""
        own = ADDRESSES[self.links[number].host.name]
        tried = self.links[number].sent[-1]
        assert isinstance(tried, TryCoordinator)
        errors = {address: "timed out" for address in tried.addresses if address not in addresses}
        self.says(number, CoordinatorTried(dict.fromkeys(addresses, own), errors))

    def fail(self, name: str, reason: str = "no route to host") -> None:
        self.startup.record_failure(Failure(Host(name=name, slots=1), reason))

    def after(self, seconds: float) -> list[str]:
        """What has gone wrong when so many more seconds have gone by."""
        self.clock.now += seconds
        self.startup.expire(self.clock.now)
        return self.said

    @property
    def asked(self) -> list[Prepare]:
        """What each agent has been asked first."""
        assert all(isinstance(link.sent[0], Prepare) for link in self.links)
        return [link.sent[0] for link in self.links]  # type: ignore[misc]

    @property
    def said(self) -> list[str]:
        return [str(error) for error in self.errors]


def facts(name: str, port: int = 0) -> HostFacts:
    return HostFacts(
        "p", "/", port=port, addresses=(ADDRESSES.get(name, "127.0.0.1"),), machine=name
    )


Make = Callable[..., Start]


@pytest.fixture
def start_on(monkeypatch: pytest.MonkeyPatch) -> Make:
    return partial(Start, monkeypatch)


# --- TPUs ---


def tpu_answers(start: Start, workers: dict[int, int]) -> None:
    """Each of these links says which worker of a slice of three its host is."""
    start.greet()
    for number, worker in workers.items():
        name = start.links[number].host.name
        port = 8476 if number == 0 or worker == 0 else 0
        start.says(number, facts(name, port).copy_with(tpu=Tpu(4, "v4", worker, 3)))


def test_ranks_follow_tpu_workers(start_on: Make) -> None:
    start = start_on("a", "b", "c")
    tpu_answers(start, {0: 2, 1: 0, 2: 1})
    assert start.notes == ["the ranks follow the numbers of the TPU workers: hosts b, c, a"]
    assert TryCoordinator(("10.0.0.2",), 8476, 0.0) in start.links[0].sent
    for number in (0, 2):
        start.reach(number, ADDRESSES["b"])
    [plan] = start.plans
    assert [rank.host.name for rank in plan.ranks] == ["b", "c", "a"]
    assert plan.coordinator == "10.0.0.2:8476"


@pytest.mark.parametrize(
    ("port", "said"),
    [(8476, "port 8476, at"), (8482, "port 8482 (8476: in use there), at"), (4000, "port 4000 (8476 and 8482: in use there), at")],
)  # fmt: skip
def test_coordinator_port_avoids_those_a_tpu_network_blocks(
    start_on: Make, port: int, said: str
) -> None:
    start = start_on("a", "b")
    start.greet()
    for number, name in enumerate("ab"):
        start.says(
            number, facts(name, 0 if number else port).copy_with(tpu=Tpu(4, "v4", number, 2))
        )
    start.reach(1)
    [error] = start.said
    assert f"host b cannot reach the coordinator on host a, {said} 10.0.0.1: timed out; " in error
    assert error.endswith(", or set another address")


def test_a_coordinator_of_the_users_keeps_the_order(start_on: Make) -> None:
    start = start_on("a", "b", "c", coordinator="head:4000")
    tpu_answers(start, {0: 2, 1: 0, 2: 1})
    assert start.notes == []
    assert TryCoordinator(("head",), 8476) in start.links[1].sent


def test_a_part_of_a_slice_is_noted(start_on: Make) -> None:
    start = start_on("a", "b")
    tpu_answers(start, {0: 0, 1: 1})
    [note] = start.notes
    assert note.startswith("2 of the slice's 3 workers have ranks")


# --- the order of questions ---


def test_single_machine_needs_no_connection_test(start_on: Make) -> None:
    start = start_on(LOCAL)
    start.greet()
    [question] = start.asked
    assert (question.coordinator, question.listen, question.describe) == (Bind("", 0), False, False)
    assert start.plans == []
    start.answer(0)
    [plan] = start.plans
    assert plan.coordinator == "127.0.0.1:4000"
    assert [rank.process_id for rank in plan.ranks] == [0]
    assert len(start.links[0].sent) == 1


def test_several_hosts_try_the_coordinator_before_there_is_a_plan(start_on: Make) -> None:
    start = start_on("a", "b", "c")
    start.greet()
    first, *others = start.asked
    assert (first.coordinator, first.listen) == (Bind("", 0), True)
    for other in others:
        assert (other.coordinator, other.listen, other.describe) == (None, False, True)
    start.answer(2, 0)
    assert [len(link.sent) for link in start.links] == [1, 1, 1]
    start.answer(1)
    assert len(start.links[0].sent) == 1
    for link in start.links[1:]:
        assert link.sent[1:] == [TryCoordinator(("10.0.0.1",), 4000)]
    start.reach(2, "10.0.0.1")
    assert start.plans == []
    start.reach(1, "10.0.0.1")
    [plan] = start.plans
    assert plan.coordinator == "10.0.0.1:4000"
    assert [rank.host.name for rank in plan.ranks] == ["a", "b", "c"]
    assert start.errors == []


def test_preparing_agent_may_be_silent(start_on: Make) -> None:
    start = start_on("a", "b")
    start.greet()
    assert [link.patience_s for link in start.links] == [20, 20]
    start.answer(0)
    assert [link.patience_s for link in start.links] == [0, 20]


def test_agent_is_asked_while_it_loads(start_on: Make) -> None:
    """So that a round trip is saved."""
    start = start_on("a", "b")
    start.says(1, Loading(has_code=True))
    assert [len(link.sent) for link in start.links] == [0, 1]
    start.greet()
    assert [len(link.sent) for link in start.links] == [1, 1]
    start.answer(0, 1)
    assert start.links[1].sent[1:] == [TryCoordinator(("10.0.0.1",), 4000)]


@pytest.mark.parametrize("keeps", [False, True])
def test_files_come_before_the_question(
    start_on: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keeps: bool
) -> None:
    (tmp_path / "data").write_text("of a file")
    monkeypatch.chdir(tmp_path)
    start = start_on("a", sync=("data",), no_host_cache=not keeps)
    start.greet()
    [link] = start.links
    # First only what they are, and then what the host lacks.
    names, question = link.sent
    assert isinstance(names, Compressed)
    [entry] = expand(names).entries  # type: ignore[attr-defined]
    assert (entry.path, entry.size) == ("data", 9)
    assert len(entry.checksum) == (40 if keeps else 0)
    start.says(0, Lacks((0, 1, -1)))
    *_, file, content, question = link.sent
    assert isinstance(file, StageEntry) and (file.path, file.kind) == ("data", "file")
    assert repr(content) == "Raw(, 0, 9 bytes)"
    assert isinstance(question, Prepare)
    assert link.is_awaited


# --- what goes wrong ---


def test_unreachable_coordinator_names_the_host(start_on: Make) -> None:
    start = start_on("a", "b", "c")
    start.greet()
    start.answer(0, 1, 2)
    start.reach(1, "10.0.0.1")
    start.reach(2)
    [error] = start.said
    assert error.startswith("host c cannot reach the coordinator on host a, port 4000, at 10.0.0.1")
    assert start.plans == []


@pytest.mark.parametrize(
    ("names", "where"), [((LOCAL,), ""), (("a",), "host a: "), ((LOCAL, "b"), "host localhost: ")]
)
def test_missing_program_is_refused(start_on: Make, names: tuple[str, ...], where: str) -> None:
    start = start_on(*names)
    start.greet()
    start.says(0, Refused("x: not found in PATH", 127))
    assert (start.said, start.errors[0].status) == ([f"{where}x: not found in PATH"], 127)
    assert start.plans == []


def test_another_version_is_asked_nothing(start_on: Make) -> None:
    start = start_on("a", "b")
    start.says(0, Greeting(VERSION + 1))
    [error] = start.errors
    assert str(error).startswith("host a: its agent has protocol version ")
    assert error.status == 125
    assert start.links[0].sent == []


def test_simultaneous_failures_are_reported_together(start_on: Make) -> None:
    start = start_on("a", "b", "c")
    start.greet()
    start.fail("c")
    assert start.startup.deadline == start.clock.now + 0.5
    assert start.after(0.3) == []
    start.fail("b", "permission denied")
    assert start.after(0.1) == []
    assert start.after(0.2) == ["host c: no route to host; 1 more: b"]
    assert start.errors[0].status == 255
    assert start.startup.deadline is None
    assert len(start.after(10)) == 1


def test_check_waits_for_every_host_before_it_names_those_that_fail(start_on: Make) -> None:
    start = start_on("a", "b", "c", "d", awaits_failures=True)
    start.fail("d")
    for number in range(3):
        start.says(number, HELLO)
    start.says(1, Refused("/p has no jax", 2))
    start.answer(0)
    assert start.after(100) == []
    start.answer(2)
    [error] = start.errors
    assert isinstance(error, HostsFailed)
    assert error.reasons == {"d": "no route to host", "b": "/p has no jax"}
    assert str(error) == "host d: no route to host; 1 more: b"


def test_no_time_is_spent_if_no_more_can_fail(start_on: Make) -> None:
    start = start_on("a", "b")
    start.fail("b")
    start.is_settled = True
    assert start.after(0) == ["host b: no route to host"]


def test_many_failures_are_not_all_named(start_on: Make) -> None:
    names = [f"n{number}" for number in range(12)]
    start = start_on(*names)
    for name in names:
        start.fail(name)
    some = ", ".join(names[1:9])
    assert start.after(1) == [f"host n0: no route to host; 11 more: {some}, ..."]


def test_no_rank_is_started_after_a_failure(start_on: Make) -> None:
    start = start_on("a", "b")
    start.greet()
    start.fail("b")
    start.answer(0, 1)
    assert [len(link.sent) for link in start.links] == [1, 1]


def test_late_agent_is_stopped(start_on: Make) -> None:
    start = start_on("a", "b")
    start.says(0, HELLO)
    start.startup.stop()
    start.says(1, HELLO)
    assert start.links[1].sent == [Stop(signal.SIGKILL, 0)]
    start.answer(0, 1)
    assert len(start.links[0].sent) == 1 and start.plans == []


def test_no_plan_is_made_after_a_stop(start_on: Make) -> None:
    start = start_on("a", "b")
    start.greet()
    start.answer(0, 1)
    start.startup.stop()
    start.reach(1, "10.0.0.1")
    assert start.plans == [] and start.errors == []


def test_many_hosts_test_the_coordinator_in_turn(
    start_on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "_TRY_AT_ONCE", 1)
    monkeypatch.setattr(startup, "_ALL_TRY_S", 0.0015)
    start = start_on(*ADDRESSES)
    start.greet()
    start.answer(*range(6))
    tries = [link.sent[-1] for link in start.links[1:]]
    after_s = [tried.after_s for tried in tries if isinstance(tried, TryCoordinator)]
    assert after_s == [0.0, 0.0, 0.001, 0.0015, 0.0015]
