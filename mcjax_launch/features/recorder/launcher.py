"""Comparison of the programs that ranks record, and the end of a --verify-spmd job that differs."""

import math
import time
import zlib
from array import array
from binascii import a2b_base64
from collections import defaultdict
from typing import TYPE_CHECKING

from mcjax_launch.features.recorder.messages import (
    AskText,
    Digests,
    Entries,
    NotComparing,
    NotRecording,
    ProgramText,
    RankDigests,
    Recorded,
    RecordedSequence,
    ReplicatedParts,
)
from mcjax_launch.features.recorder.options import RecorderOptions
from mcjax_launch.features.recorder.replicas import HeldPart
from mcjax_launch.features.recorder.sequences import (
    MeshSequence,
    ProgramName,
    ProgramSequences,
    diverged,
    not_replicated,
)
from mcjax_launch.journal.facts import CountsDue, ProgramsCounted, ProgramsDiffer
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.hook_messages import Compiling, Leaving, Program
from mcjax_launch.wire.messages import Exited, FromHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcjax_launch.job.plan import Rank
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToLauncher

# Seconds to wait for the programs after a difference, which show what it is, and for code.
_FOLLOWING_S, _TEXT_S = 1.0, 1.0
# Seconds between two events with counts.
_EVENTS_S = 9.0


class SequenceComparison(LauncherPart):
    """Part that collects the ranks' programs in the state, and reports their differences."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._state = launcher.state
        self._sequences = ProgramSequences(ends_job=RecorderOptions.of(launcher.job).verify_spmd)
        self._state.sequences = self._sequences
        self._meshes: dict[int, RecordedSequence] = {}  # by key
        self._unseen: dict[int, str] = {}  # why a rank's programs are not known
        self._said: set[str] = set()
        self._told = 0  # differences
        self._asked: dict[int, float] = {}  # when the code of a program was asked for
        # Programs of one name, and the first rank that ran each.
        self._alike: defaultdict[ProgramName, dict[int, int]] = defaultdict(dict)
        self._stop: StopReason | None = None
        self._has_told_values = False
        self._look_at = math.inf
        self._event_at = -math.inf  # of the latest counts
        for rank, run in self._state.ranks.items():
            if run.compilations.under_way and run.compilations.latest is not None:
                self._note_compilation(rank, run.compilations.latest, time.monotonic())
        if (
            RecorderOptions.of(launcher.job).verify_spmd
            and launcher.job.num_hosts > 1
            and not launcher.restart
        ):
            mine = format_ranks(self._state.ranks)
            launcher.console.note(f"--verify-spmd compares only {mine}, which this launcher starts")

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to look for differences again."""
        return self._look_at if math.isfinite(self._look_at) else None

    def get_variable(self, rank: "Rank") -> str:
        """Have ranks report digests of what they hold in common, with --verify-spmd."""
        return "values" if RecorderOptions.of(self.launcher.job).verify_spmd else ""

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Record what ranks have run, and compare it."""
        match message:
            case FromHook(rank=rank, message=NotRecording(reason)):
                self._unseen[rank] = f"rank {rank} does not record programs: {reason}"
                self.launcher.console.show_detail(self._unseen[rank])
            case FromHook(rank=rank, message=RecordedSequence() as sequence):
                self._meshes[sequence.key] = sequence
                if not sequence.is_recorded:
                    self._unseen[rank] = f"rank {rank} runs programs over too many meshes"
            case FromHook(rank=rank, message=ReplicatedParts() as held):
                self._record_parts(rank, held)
            case FromHook(rank=rank, message=NotComparing(identity, reason)):
                title = self._sequences.names[identity].title
                line = f"rank {rank} does not compare values of {title}: {reason}"
                self.launcher.console.show_detail(line)
            case RankDigests(rank, process, digests):
                self._add_digests(rank, process, digests)
            case ProgramText(_, identity, text):
                self._sequences.texts[identity] = _decompress(text).decode("utf-8", "replace")
            case Recorded(sequences):
                for entries in sequences:
                    self._record(entries, now)
                self._report_counts(now)
        self._look(now)

    def on_exited(self, exited: Exited, at: float) -> None:
        """Look again when a rank has ended."""
        self._look(at)

    def on_from_hook(self, told: FromHook, at: float) -> None:
        """Record a program's name, and ask for its code if another has the name; look at an end."""
        match told.message:
            case Leaving():
                self._look(at)
            case Compiling():
                self._note_compilation(told.rank, told.message, at)
            case Program(name, identity, where=where):
                named = ProgramName(format_title(name), where)
                self._sequences.names.record(identity, named)
                self._ask_alike(named, told.rank, identity, at)

    def _note_compilation(self, rank: int, compiling: Compiling, now: float) -> None:
        if compiling.identity:
            name = ProgramName(format_title(compiling.name), compiling.where)
            self._ask_alike(name, rank, compiling.identity, now)

    def expire(self, now: float) -> None:
        """Look for differences, if it is time."""
        if now >= self._look_at:
            self._look(now)

    def _record(self, entries: Entries, now: float) -> None:
        described = self._meshes.get(entries.key)
        if described is None:
            return
        meshes, place = self._sequences.meshes, (entries.process, entries.key)
        mesh = meshes.get(place)
        if mesh is None:
            run = self._state.ranks[entries.rank]
            members = self._state.find_members(run, described.platform, described.processes)
            mesh = meshes[place] = MeshSequence(members.intersection(self._state.ranks))
        mesh.has_order = mesh.has_order and entries.has_order
        programs = _unpack(entries.programs)
        mesh.add(entries.rank, entries.first, programs, entries.begun, now)
        total = self._sequences.count(entries.rank)
        self.launcher.journal.append(ProgramsCounted(entries.rank, total))

    # --- values ---

    def _record_parts(self, rank: int, held: ReplicatedParts) -> None:
        values = self._sequences.values
        parts = [HeldPart(part.index, part.name, part.part) for part in held.parts]
        place, how = (rank, held.identity, parts), held.of_arguments
        values.describe(*place, of_arguments=how, is_mapped=held.is_mapped)
        values.processors[rank] = held.processor
        kinds = set(values.processors.values())
        if len(kinds) > 1:
            self._say("values are compared only between ranks with equal processors")

    def _add_digests(self, rank: int, process: int, digests: Digests) -> None:
        try:
            words = array("I", a2b_base64(digests.values))
        except ValueError:  # a program has sent nonsense
            return
        mesh, program = (process, digests.key), (digests.number, digests.identity)
        how = digests.of_arguments
        self._sequences.values.add(mesh, rank, program, words, of_arguments=how)

    # --- differences ---

    def _look(self, now: float) -> None:
        """Compare all sequences, and report differences."""
        state = self._state
        if self._stop is not None and state.stop is self._stop:
            self._end_job()  # what arrives late may say more
        self._look_at = math.inf
        if state.ending or state.has_outlived_failure:
            return
        ended = [rank for rank, run in state.ranks.items() if _has_ended(run)]
        meshes = self._sequences.meshes.values()
        for mesh in meshes:
            why = [words for rank, words in self._unseen.items() if rank in mesh.members]
            mesh.unseen = mesh.unseen or "; ".join(why[:1])
        is_over = not state.running
        self._look_at = self._sequences.compare(ended, now, 0.0 if is_over else _FOLLOWING_S)
        self._compare_values(now)
        self._say_unseen()
        if self._has_told_values:
            return
        for mesh in meshes:
            self._ask_texts(mesh.apart, now)
        found = self._sequences.differences
        if len(found) == self._told:
            return
        late = max(self._ask_texts(each.other_code, now) for each in found[self._told :])
        if late > now and not is_over:
            self._look_at = min(self._look_at, late)
            return
        self._told = len(found)
        if RecorderOptions.of(self.launcher.job).verify_spmd:
            self._end_job()
        else:
            self.launcher.parts.load_explanations()  # which read it
            self.launcher.journal.append(ProgramsDiffer())

    def _compare_values(self, now: float) -> None:
        """Compare the values that ranks have reported; end the job at a difference."""
        sequences, ranks = self._sequences, self._state.ranks
        gone = [rank for rank, run in ranks.items() if run.is_gone or run.membership.leaving_at]
        sequences.values.compare(sequences.meshes, gone, now)
        found = sequences.values.difference
        if found is not None and not self._has_told_values:
            self._has_told_values = True
            from mcjax_launch.features.recorder.differences import advise_on_values, describe_values

            lines = [describe_values(sequences, found), advise_on_values(found)]
            self.launcher.perform(self.launcher.policy.on_limit(not_replicated(lines)))

    def _end_job(self) -> None:
        """End the job for its differences, or add what has become known to the reason."""
        from mcjax_launch.features.recorder.differences import describe_differences

        stop = diverged(describe_differences(self._sequences))
        if self._stop is None:
            self.launcher.perform(self.launcher.policy.on_limit(stop))
        elif stop != self._stop:
            self.launcher.journal.append(stop)
        if self._state.stop is stop:
            self._stop = stop

    def _ask_texts(self, programs: "Mapping[int, tuple[int, ...]]", now: float) -> float:
        """Ask ranks for the code of programs; return until when to wait for it.

        Args:
            programs: the ranks of each program, by its identity.
            now: current time, in time.monotonic's seconds.

        """
        until = now
        for identity, ranks in programs.items():
            if not identity or identity in self._sequences.texts:
                continue
            if identity not in self._asked:
                self._asked[identity] = now
                for link in self.launcher.links:
                    link.send(AskText(ranks[0], identity))
            until = max(until, self._asked[identity] + _TEXT_S)
        return until

    def _ask_alike(self, name: ProgramName, rank: int, identity: int, now: float) -> None:
        """Ask for the code of programs of one name that two ranks run: it may differ.

        If their ranks end soon, it is too late to ask when the difference is known.
        """
        alike = self._alike[name]
        if identity not in alike:
            alike[identity] = rank
            if len(set(alike.values())) > 1:
                self._ask_texts({each: (first,) for each, first in alike.items()}, now)

    def _say_unseen(self) -> None:
        """Say with -v which programs are not compared."""
        for mesh in self._sequences.meshes.values():
            if mesh.unseen and mesh.difference is None:
                ranks = format_ranks(mesh.members)
                self._say(f"programs over {ranks} are not compared: {mesh.unseen}")
        if self._sequences.values.dropped:
            self._say(
                "not all values are compared: some ranks report those of more than 250 programs "
                "before others report any"
            )

    def _say(self, line: str) -> None:
        """Show a line with -v, once."""
        if line not in self._said:
            self._said.add(line)
            self.launcher.console.show_detail(line)

    # --- counts ---

    def _report_counts(self, now: float) -> None:
        """Report how many programs ranks have run, for --events, if it is time."""
        if self.launcher.events.is_read and now >= self._event_at + _EVENTS_S:
            self._event_at = now
            self.launcher.journal.append(CountsDue())


def _has_ended(run: RankRun) -> bool:
    """Return whether a rank has ended well, or left the job: then all its programs are known."""
    if run.failure is not None or run.status not in (None, 0):
        return False
    return run.status == 0 or run.membership.leaving_at is not None


def _unpack(text: str) -> "array[int]":
    """Return the identities in a report."""
    programs = array("I")
    programs.frombytes(_decompress(text))
    return programs


def _decompress(text: str) -> bytes:
    """Return what an agent has compressed; nothing if it is malformed."""
    try:
        return zlib.decompress(a2b_base64(text))
    except (ValueError, zlib.error):
        return b""


PART = SequenceComparison
