"""Comparison of the programs that ranks record, and the end of a --verify-spmd job that differs."""

import math
import zlib
from array import array
from binascii import a2b_base64
from collections import defaultdict
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.view import Fact
from mcjax_launch.features.recorder.messages import (
    AskTime,
    Entries,
    HostTime,
    NotRecording,
    Recorded,
    RecordedProgram,
    RecordedSequence,
)
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.ranks import format_ranks
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.sequences import MeshSequence, ProgramSequences
from mcjax_launch.runs.stop_reasons import diverged
from mcjax_launch.wire.messages import Exited, FromHook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToLauncher

# A rank that has left the job records nothing more, but its last programs arrive within this time.
_LAST_S = 2.5
# Seconds to wait for what shows the kind of a difference; less if the job ends then.
_WAIT_S, _WAIT_BEFORE_END_S = 1.2, 0.5
# Seconds between two events with counts, and between two writes of what --jobs reads.
_EVENTS_S = 9.0
# Seconds after which a host is asked for its time again, because clocks drift.
_CLOCK_S = 30.0


class _Clock:
    """Clock of a host, compared with the launcher's.

    Attributes:
        ahead_s: seconds by which it is ahead; None if unknown.
        uncertain_s: by how much that may be wrong.
        asked_at: when the host was last asked.

    """

    ahead_s: float | None = None
    uncertain_s = math.inf
    asked_at = -math.inf

    def set(self, told: HostTime, now: float) -> None:
        """Record an answer, unless it is much less certain than the last one."""
        uncertain_s = (now - told.at) / 2
        if uncertain_s <= 2 * self.uncertain_s:
            self.ahead_s = told.now - (told.at + now) / 2
            self.uncertain_s = uncertain_s


class SequenceComparison(LauncherPart):
    """Part that collects the ranks' programs in the state, and reports their first difference."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._state = launcher.state
        self._sequences = self._state.sequences = ProgramSequences()
        self._known: dict[int, RecordedSequence] = {}  # by key
        self._deaf: set[int] = set()  # ranks that do not record
        self._unrecorded: dict[int, int] = {}  # rank that does not record a sequence, by its key
        self._clocks: defaultdict[AgentConnection, _Clock] = defaultdict(_Clock)
        self._told = 0  # differences
        self._look_at = math.inf
        self._event_at = -math.inf  # of the latest counts

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to look for differences again."""
        return self._look_at if math.isfinite(self._look_at) else None

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Record what ranks have run, and compare it."""
        match message:
            case FromHook(rank=rank, message=NotRecording(reason)):
                self._deaf.add(rank)
                self.launcher.console.show_detail(f"rank {rank} does not record programs: {reason}")
                for mesh in self._sequences.meshes.values():
                    self._give_up(mesh, rank)
            case FromHook(rank=rank, message=RecordedSequence() as sequence):
                self._known[sequence.key] = sequence
                if not sequence.is_recorded:
                    self._unrecorded[sequence.key] = rank
                    for (_, key), mesh in self._sequences.meshes.items():
                        if key == sequence.key:
                            self._give_up(mesh, rank)
            case FromHook(message=RecordedProgram() as program):
                named = program.identity, program.name, program.where, program.fingerprint
                self._sequences.names.record(*named)
            case HostTime() as told:
                self._clocks[link].set(told, now)
            case Recorded(sequences):
                ahead_s = self._ask_time(link, now) if self.launcher.job.is_looked_at else None
                for entries in sequences:
                    self._record(entries, ahead_s, now)
                self._look(now)
                self._report_counts(now)

    def on_rank_message(self, message: FromHook | Exited, now: float) -> None:
        """Look again when a rank has ended; with --verify-spmd end a job whose ranks diverge."""
        if self.launcher.job.verify_spmd and self._state.diverged and not self._state.ending:
            from mcjax_launch.diagnosis.spmd import describe_divergence

            stop = diverged(describe_divergence(self._state.programs))
            self.launcher.perform(self.launcher.policy.on_limit(stop))
        elif isinstance(message, Exited):
            self._look(now)

    def expire(self, now: float) -> None:
        """Look for differences, if it is time."""
        if now >= self._look_at:
            self._look(now)

    def _ask_time(self, link: "AgentConnection", now: float) -> float | None:
        """Return by how much a host's clock is ahead, None if unknown; ask now and then."""
        if len(self.launcher.links) == 1:
            return 0.0
        clock = self._clocks[link]
        if now >= clock.asked_at + _CLOCK_S:
            clock.asked_at = now
            link.send(AskTime(now))
        return clock.ahead_s

    def _record(self, entries: Entries, ahead_s: float | None, now: float) -> None:
        described = self._known.get(entries.key)
        if described is None:
            return
        meshes, place = self._sequences.meshes, (entries.process, entries.key)
        mesh = meshes.get(place)
        if mesh is None:
            run = self._state.ranks[entries.rank]
            members = self._state.find_members(run, described.platform, described.processes)
            mine = members.intersection(self._state.ranks) - self._deaf
            mesh = meshes[place] = MeshSequence(described.thread, mine)
        if not entries.has_order:
            self._give_up(mesh, entries.rank)
        elif entries.key in self._unrecorded:
            self._give_up(mesh, self._unrecorded[entries.key])
        programs = _unpack(entries.programs)
        mesh.add(entries.rank, entries.first, programs, now)
        if ahead_s is not None:
            self._record_times(mesh, entries.rank, _list_times(entries, programs, ahead_s), now)
        self._state.record_programs(entries.rank, self._sequences.count(entries.rank), now)

    def _give_up(self, mesh: MeshSequence, rank: int) -> None:
        """Compare a mesh no longer, because a rank that may be in it cannot tell the order."""
        if rank in mesh.members and mesh.is_compared:
            mesh.is_compared = False
            ranks = format_ranks(mesh.members)
            thread = f" in the thread {mesh.thread}" if mesh.thread else ""
            self.launcher.console.show_detail(
                f"the order of programs over {ranks}{thread} is no longer compared: "
                f"rank {rank} cannot tell it"
            )

    def _record_times(
        self, mesh: MeshSequence, rank: int, times: "Iterable[tuple[int, int, float]]", now: float
    ) -> None:
        """Record when a rank came to programs, and report ranks that come late."""
        arrivals = mesh.arrivals
        uncertain_s = sorted(clock.uncertain_s for clock in self._clocks.values())
        arrivals.uncertain_s = sum(uncertain_s[-2:])
        known = len(arrivals.slow)
        arrivals.add(rank, times)
        if len(arrivals.slow) > known:
            self.launcher.parts.load_explanations().on_fact(Fact.ARRIVAL, now)

    def _look(self, now: float) -> None:
        """Compare all sequences, and report a difference."""
        state = self._state
        self._look_at = math.inf
        if state.ending or not state.compares or state.has_outlived_failure:
            return
        ended = [rank for rank, run in state.ranks.items() if _has_ended(run, now)]
        wait_s = _WAIT_BEFORE_END_S if self.launcher.job.verify_spmd else _WAIT_S
        self._look_at = self._sequences.compare(ended, now, wait_s)
        count = len(self._sequences.differences)
        if count == self._told or state.diverged:
            return
        self._told = count
        if self.launcher.job.verify_spmd:
            from mcjax_launch.diagnosis.sequences import describe_differences

            lines = describe_differences(self._sequences)
            self.launcher.perform(self.launcher.policy.on_limit(diverged(lines)))
        else:
            self.launcher.parts.load_explanations().on_fact(Fact.SEQUENCE, now)

    def _report_counts(self, now: float) -> None:
        """Report how many programs ranks have run, for --events, if it is time."""
        events = self.launcher.events
        if events.is_read and now >= self._event_at + _EVENTS_S:
            self._event_at = now
            events.report("programs", ranks=self._list_counts(now))

    def _list_counts(self, now: float) -> list[dict[str, object]]:
        return [
            {"rank": rank, "count": run.programs.total, "per_s": run.programs.compute_rate(now)}
            for rank, run in self._state.ranks.items()
            if run.programs.total
        ]


def _has_ended(run: RankRun, now: float) -> bool:
    """Return whether a rank has ended well, or left the job, and all its programs are known."""
    if run.failure is not None or run.status not in (None, 0):
        return False
    left_at = run.membership.leaving_at
    return run.status == 0 or (left_at is not None and now > left_at + _LAST_S)


def _list_times(
    entries: Entries, programs: "array[int]", ahead_s: float
) -> "Iterator[tuple[int, int, float]]":
    """Yield number, identity (0 if unknown) and time of each timed program."""
    for number, at_us in zip(entries.timed, entries.times, strict=False):
        at = number - entries.first
        known = 0 <= at < len(programs)
        yield number, programs[at] if known else 0, at_us / 1e6 - ahead_s


def _unpack(text: str) -> array[int]:
    """Return the identities in a report."""
    packed = zlib.decompress(a2b_base64(text))
    programs = array("I")
    programs.frombytes(packed)
    return programs


PART = SequenceComparison
