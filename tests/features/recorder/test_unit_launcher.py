"""What the launcher makes of recorded programs: differences, counts, and clocks of hosts."""

import signal
import zlib
from array import array
from binascii import b2a_base64
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Connection
from records import journal_of, run_of, say

from mcjax_launch.features.recorder.launcher import SequenceComparison
from mcjax_launch.features.recorder.messages import (
    AskText,
    Entries,
    NotRecording,
    ProgramText,
    Recorded,
    RecordedSequence,
)
from mcjax_launch.journal.facts import CountsDue, ProgramsDiffer
from mcjax_launch.journal.stop_reasons import interrupted
from mcjax_launch.wire.hook_messages import Leaving, Program
from mcjax_launch.wire.messages import FromHook

KEY = 7
NOW = 100.0


class Job:
    """Launcher of ranks that record programs over one mesh, as much of it as the part uses."""

    def __init__(self, ranks: int, hosts: int = 1, *, verify_spmd: bool = False) -> None:
        self.state = run_of(ranks, joins=True)
        self.details: list[str] = []
        self.facts: list[object] = []
        self.stops: list[Any] = []
        self.events: list[object] = []
        self.links = [Connection() for _ in range(hosts)]
        self.launcher: Any = SimpleNamespace(
            state=self.state,
            job=SimpleNamespace(verify_spmd=verify_spmd, is_looked_at=True, num_hosts=1),
            links=self.links,
            console=SimpleNamespace(show_detail=self.details.append),
            events=SimpleNamespace(is_read=True),
            journal=journal_of(self.state),
            parts=SimpleNamespace(load_explanations=lambda: None),
            policy=SimpleNamespace(on_limit=lambda stop: stop),
            perform=self.stop,
        )
        self.launcher.journal.add_to_attempt(self)
        self.part = SequenceComparison(self.launcher)
        for rank in range(ranks):
            self.says(rank, RecordedSequence(KEY, "cpu", None, None))
        for name in "fu":
            program = Program(f"jit_{name}", ord(name), None, "t.py:1")
            self.part.on_from_hook(FromHook(0, program), NOW)

    def on_programs_differ(self, fact: ProgramsDiffer, at: float) -> None:
        self.facts.append(fact)

    def on_counts_due(self, fact: CountsDue, at: float) -> None:
        self.events.append(fact)

    def stop(self, stop: Any) -> None:
        self.stops.append(stop)
        self.state.on_stop_reason(stop, NOW)

    def link(self, number: int) -> Any:
        return self.links[number]

    def says(self, rank: int, message: Any, now: float = NOW) -> None:
        self.part.on_message(self.link(0), FromHook(rank, message), now)

    def ran(self, rank: int, programs: str, now: float = NOW, link: int = 0, **how: Any) -> None:
        """Report that a rank has run these programs, a letter each, after those before."""
        mesh = self.state.sequences and self.state.sequences.meshes.get((0, KEY))
        first = mesh.by_rank[rank].count + 1 if mesh and rank in mesh.members else 1
        packed = zlib.compress(array("I", map(ord, programs)).tobytes())
        text = b2a_base64(packed, newline=False).decode()
        message = Recorded((Entries(rank, 0, KEY, first, text, **how),))
        self.part.on_message(self.link(link), message, now)

    def wait(self, seconds: float) -> None:
        """Let time pass in which nothing comes."""
        until = NOW + seconds
        while (at := self.part.deadline) is not None and at <= until:
            self.part.expire(at)


def test_difference_is_a_fact_or_the_end_of_the_job() -> None:
    for verify_spmd in (False, True):
        job = Job(3, verify_spmd=verify_spmd)
        for rank, programs in enumerate(("fufu", "fufu", "fuff")):
            job.ran(rank, programs)
        assert (job.facts, job.stops) == ([], [])  # more may show of which kind it is
        job.wait(3)
        assert job.facts == ([] if verify_spmd else [ProgramsDiffer()])
        assert [stop.status for stop in job.stops] == [1] * verify_spmd
        job.ran(0, "fu", NOW + 4)
        assert len(job.facts) + len(job.stops) == 1


def test_ending_job_is_not_compared() -> None:
    job = Job(2)
    job.state.on_stop_reason(interrupted(signal.SIGINT), NOW)
    job.ran(0, "fuf")
    job.ran(1, "fuu")
    job.wait(5)
    assert (job.facts, job.part.deadline) == ([], None)


@pytest.mark.parametrize(
    "message", [NotRecording("no room"), RecordedSequence(KEY, "cpu", None, None, False)]
)
def test_mesh_of_a_rank_that_records_nothing_is_not_compared(message: Any) -> None:
    job = Job(3)
    job.ran(0, "fuf")
    job.ran(1, "fuf")
    job.says(2, message)
    job.ran(2, "fuu")
    job.wait(5)
    assert job.facts == []
    assert job.details[-1].startswith("programs over ranks 0-2 are not compared: rank 2 ")


def test_order_says_nothing_if_threads_launch_at_the_same_time() -> None:
    job = Job(2)
    job.ran(0, "fuf")
    job.ran(1, "fuu", has_order=False)
    job.wait(5)
    assert job.facts == []


def test_rank_that_leaves_has_told_all_its_programs() -> None:
    job = Job(2)
    job.ran(0, "fuf")
    job.ran(1, "fu")
    say(job.state, 1, Leaving(), NOW)
    job.part.on_from_hook(FromHook(1, Leaving()), NOW)
    assert job.facts == []
    job.wait(1)
    assert job.facts == [ProgramsDiffer()]


def test_code_of_programs_that_differ_is_asked_for() -> None:
    """Which may come when the job ends already."""
    job = Job(2, verify_spmd=True)
    job.ran(0, "fu")
    job.ran(1, "gu")
    asked = [message for message in job.links[0].sent if isinstance(message, AskText)]
    assert asked == [AskText(0, ord("f")), AskText(1, ord("g"))]
    job.wait(1.5)
    [stop] = job.stops
    assert not any("they differ at" in line for line in stop.details)
    for rank, name in enumerate("fg"):
        line = f"%0 = stablehlo.{'add' if rank else 'multiply'} : tensor<f32>"
        text = b2a_base64(zlib.compress(line.encode()), newline=False).decode()
        job.part.on_message(job.link(0), ProgramText(rank, ord(name), text), NOW + 2)
    assert job.state.stop is not None
    assert "they differ at: rank 0: stablehlo.multiply · rank 1: stablehlo.add" in (
        job.state.stop.details
    )


def test_counts_of_programs_are_reported_now_and_then() -> None:
    job = Job(2)
    job.ran(0, "fu")
    for seconds in range(20):
        job.ran(0, "fu", NOW + seconds)
    assert len(job.events) == 3
    job.launcher.events.is_read = False
    job.ran(0, "f", NOW + 80)
    assert len(job.events) == 3
