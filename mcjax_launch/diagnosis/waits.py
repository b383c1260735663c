"""Who waits for whom in a job whose ranks stand still, by their hooks' reports and stacks; pure.

A rank waits for others in initialize(), in JAX's exit barrier, or where its main thread is blocked
by JAX: in a collective or a barrier. Those that are anywhere else have not come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto

from mcjax_launch.diagnosis.initialize_calls import wrong_call
from mcjax_launch.diagnosis.joining import kept_apart
from mcjax_launch.diagnosis.stacks import Frame, Stack, threads
from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.runs import waits
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.spmd import Program, titled
from mcjax_launch.runs.state import RunState

# Libraries whose calls wait in JAX, which is in C++ then.
_JAX = ("jax", "jaxlib", "orbax", "flax", "optax", "equinox", "chex", "haiku")
# JAX waits on locks: "futex_do_wait" or the like, or the system call's number (x86-64, Arm).
_LOCKS = ("futex", "syscall 202", "syscall 98")
# Who sleeps in the kernel, by its function or the system calls (x86-64, Arm), and yet uses a
# processor, polls, as NCCL does with usleep(1).
_SLEEPS = ("nanosleep", "syscall 230", "syscall 35", "syscall 115", "syscall 101")
# JAX's own ways from the user's call to the one that waits.
_INNER_CALLS = ("wrapper", "cache_miss", "reraise_with_filtered_traceback")
# What waits for a person or for clients, and may do so for ever.
_FOR_SOMEBODY = ("/pdb.py", "/bdb.py", "/asyncio/base_events.py", "/socketserver.py")
_DEBUGGERS = ("debugpy", "IPython", "ipdb")
# JAX's functions that make a program, before its hook sees that it is compiled.
_COMPILING = re.compile(r"trace_to_jaxpr|lower_jaxpr|lower_\w{0,40}computation|pjit_jaxpr|compile")
# What waits for other processes in JAX without a program.
_NO_PROGRAM = re.compile(r"barrier|key_value|initialize|shutdown")
# What waits for a thread or a file of the user's own.
_WAITS = re.compile(
    r"^with |\b(?:acquire|get|join|wait|result|select|poll|recv|read|accept|put|sleep)\("
)
_RUN_PROGRAMS = ("jax", "jaxlib", source_lines.USER)
# So many kinds of places are shown.
_MOST_GROUPS = 2


class Place(Enum):
    """Where a rank is."""

    OUTSIDE = auto()  # it takes no part any more
    ABSENT = auto()  # it has not called initialize()
    JOINING = auto()  # in initialize()
    COMPILING = auto()
    LEAVING = auto()  # in JAX's exit barrier
    INSIDE = auto()  # in the middle of its program


class Wait(Value):
    """Some ranks wait for others.

    Args:
        waiting: where ranks wait, in words, and which do.
        since: when the first of them began to, in time.monotonic's seconds.
        absent: the ranks that have not come, and where these are, in words.
        late: the same ranks; none where all of them wait for one another.

    """

    waiting: tuple[tuple[str, tuple[int, ...]], ...]
    since: float
    absent: str
    late: tuple[int, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The same for two waits at the same places."""
        return tuple(where for where, _ in self.waiting)

    def line(self, now: float) -> str:
        """The wait in one line."""
        groups = [f"{these_ranks(ranks)} {where}" for where, ranks in self.waiting[:_MOST_GROUPS]]
        if others := [rank for _, ranks in self.waiting[_MOST_GROUPS:] for rank in ranks]:
            groups.append(f"{these_ranks(others)} elsewhere")
        for_long = lasting(now - self.since)
        if len(groups) > 1:
            return f"{_listed(groups)} have waited {for_long} for {self.absent}"
        where, ranks = self.waiting[0]
        return f"{these_ranks(ranks)} {have(ranks)} waited {for_long} {where} for {self.absent}"


class _Look:
    """The ranks as they are seen at one moment; see `wait_of`."""

    def __init__(
        self,
        state: RunState,
        stacks: Iterable[Stack],
        still: Mapping[int, float],
        computing: Collection[int],
        polling: Collection[int],
    ) -> None:
        self.state = state
        self.runs = state.ranks
        self.stacks = _by_rank(stacks)
        self.places = {rank: place(run) for rank, run in self.runs.items()}
        self.computing = computing
        self.blocked = {
            rank: since
            for rank, since in still.items()
            if self.places[rank] is Place.INSIDE
            and rank not in computing
            and (
                is_blocked_by_jax(self.stacks.get(rank), self.runs[rank])
                or (rank in polling and _sleeps(self.stacks.get(rank)))
            )
        }

    def wait(self) -> Wait | None:
        since_of, awaited = self._waiting()
        others = [rank for rank in self.runs if rank not in since_of and awaited(rank)]
        absent = [rank for rank in others if not self._may_be_well(rank)]
        if len(absent) < len(others) and (not absent or any(map(self._compiles, others))):
            return None
        waiting = _grouped((rank, self._where(rank)) for rank in since_of)
        words = self._absent(absent) if absent else self._nobody_absent(waiting)
        if not since_of or not words:
            return None
        return Wait(waiting, min(since_of.values()), words, tuple(absent))

    def _may_be_well(self, rank: int) -> bool:
        """Whether a rank that has not come may be about to, or may take its time."""
        if rank in self.computing or self._compiles(rank):
            return True
        stack = self.stacks.get(rank)
        inside = self.places[rank] is Place.INSIDE
        arrives = inside and is_blocked_by_jax(stack, self.runs[rank])
        return arrives or _waits_for_somebody(stack)

    def _compiles(self, rank: int) -> bool:
        frames = _frames(self.stacks.get(rank))
        traces = any(frame.library == "jax" and _COMPILING.search(frame.name) for frame in frames)
        return self.places[rank] is Place.COMPILING or traces

    def _waiting(self) -> tuple[dict[int, float], Callable[[int], bool]]:
        """Since when each rank that waits does so, and whether these wait for a rank."""
        if self.blocked:
            taking_part = self._taking_part()
            return self.blocked, lambda rank: rank in taking_part and not self._has_left(rank)
        joining, leaving = self._at(Place.JOINING), self._at(Place.LEAVING)
        if joining:
            return joining, lambda rank: self.runs[rank].membership.joining_at is None
        return leaving, lambda rank: self.places[rank] in (Place.INSIDE, Place.COMPILING)

    def _at(self, where: Place) -> dict[int, float]:
        return {
            rank: _entered(self.runs[rank], where) or 0.0
            for rank, here in self.places.items()
            if here is where
        }

    def _has_left(self, rank: int) -> bool:
        """Whether a rank is gone for good, and has been reported for that."""
        run = self.runs[rank]
        return run.membership.left or (run.status or 0) != 0

    def _taking_part(self) -> Collection[int]:
        """The ranks of the programs in which others are blocked, where all of these are known."""
        programs = [
            program_at(self.runs[rank], _frames(self.stacks.get(rank))) for rank in self.blocked
        ]
        known = [program.ranks for program in programs if program is not None]
        return frozenset().union(*known) if len(known) == len(programs) else self.runs

    def _where(self, rank: int) -> str:
        """Where a rank waits."""
        run = self.runs[rank]
        call = run.membership.call
        if self.places[rank] is Place.JOINING:
            return "in initialize()" + (f" at {call.where}" if call and call.where else "")
        if self.places[rank] is Place.LEAVING:
            return "in JAX's exit barrier"
        return _where_blocked(run, _frames(self.stacks.get(rank)))

    # --- those that have not come ---

    def _absent(self, absent: Sequence[int]) -> str:
        groups = [
            f"{self._named(ranks)}, which {doing.format(_are(ranks), have(ranks))}"
            for doing, ranks in _grouped((rank, self._doing(rank)) for rank in absent)
        ]
        omitted = len(groups) - _MOST_GROUPS
        rest = [f"others in {omitted} more places"] if omitted > 0 else []
        return _listed([*groups[:_MOST_GROUPS], *rest])

    def _named(self, ranks: Sequence[int]) -> str:
        """Ranks, with their host if the job has several."""
        hosts = {self.runs[rank].host for rank in ranks}
        several = self.state.hosts > 1 and len(hosts) == 1
        return these_ranks(ranks) + (f" on {hosts.pop()}" if several else "")

    def _doing(self, rank: int) -> str:
        """What a rank does that has not come; `{0}` is "is" or "are", `{1}` "has" or "have"."""
        run, stack = self.runs[rank], self.stacks.get(rank)
        here = self.places[rank]
        if run.status == 0:
            return "exited with 0"
        if here is Place.LEAVING:
            return "{1} finished, and waits in JAX's exit barrier"
        standing = _literal(standing_at(run, stack))
        if here is Place.ABSENT:
            return "{1} not called it" + (f" and {{0}} {standing}" if standing else "")
        if not standing:
            return f"shows no Python stack: {_literal(stack.state)}" if stack else "{0} elsewhere"
        latest = run.compilations.latest
        last = f"last compiled {titled(latest.name)} at {latest.where}" if latest else ""
        return "{0} " + standing + (f" ({_literal(last)})" if last else "")

    def _nobody_absent(self, waiting: Sequence[tuple[str, tuple[int, ...]]]) -> str:
        """For whom ranks wait where all of them do; "" where that is as it should be."""
        if len(self.runs) < self.state.num_processes:
            return "those of other launchers"
        if any(self.places[rank] is Place.JOINING for _, ranks in waiting for rank in ranks):
            blame = wrong_call(self.state) or kept_apart(self.state)
            calls = (self.runs[rank].membership.call for _, ranks in waiting for rank in ranks)
            address = next(call.coordinator_address for call in calls if call is not None)
            return f"one another: {blame or f'can they all reach {address}?'}"
        on_cpu = all(run.compilations.platform in ("", "cpu") for run in self.runs.values())
        apart = len(waiting) > 1 and not self.computing
        return "one another" if self.blocked and apart and on_cpu else ""


def wait_of(
    state: RunState,
    stacks: Iterable[Stack],
    still: Mapping[int, float],
    computing: Collection[int] = (),
    polling: Collection[int] = (),
) -> Wait | None:
    """Who waits for whom; None if that cannot be said, or all may be well.

    Args:
        state: of the run.
        stacks: of the ranks, now.
        still: by rank, since when its main thread has stood still; the others have moved.
        computing: the ranks whose processors are busy although their main threads stand still.
        polling: those on accelerators whose main threads are busy themselves.

    """
    return _Look(state, stacks, still, computing, polling).wait()


def last_wait(state: RunState, stacks: Iterable[Stack]) -> waits.Wait | None:
    """Who waited for whom when a limit was reached, for the record; None if that cannot be said.

    Args:
        state: of the run, which is to end.
        stacks: of the ranks, then.

    """
    if state.idle_since is None or state.stop_at is None:
        return None
    still = {
        run.process_id: max(run.membership.joined_at, state.idle_since)
        for run in state.running
        if run.membership.joined_at is not None
    }
    wait = wait_of(state, stacks, still)
    if wait is None or not wait.late:
        return None
    waiting = (rank for _, ranks in wait.waiting for rank in ranks)
    arrived = sorted(
        ((rank, still.get(rank, wait.since)) for rank in waiting), key=lambda one: one[1]
    )
    # "in jit(step) at train.py:3", where all wait at one place.
    place, _, where = (
        wait.waiting[0][0].rpartition("at ") if len(wait.waiting) == 1 else ("", "", "")
    )
    place = place.removeprefix("in ").rstrip()
    return waits.Wait(place, where, tuple(arrived), wait.late, state.stop_at)


def lasting(seconds: float) -> str:
    """A time for a person: `40 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


def place(run: RankRun) -> Place:
    """Where a rank is, by its hook's reports alone."""
    membership = run.membership
    if run.status is not None or membership.left:
        return Place.OUTSIDE
    if run.compilations.under_way > 0:
        return Place.COMPILING
    if membership.joining_at is None:
        return Place.ABSENT
    if membership.is_joining:
        return Place.JOINING
    return Place.LEAVING if membership.leaving_at is not None else Place.INSIDE


def waiting_since(state: RunState) -> float | None:
    """When the first rank began to wait in initialize() or in JAX's exit barrier, if one does."""
    began = (_entered(run, place(run)) for run in state.ranks.values())
    return min((at for at in began if at is not None), default=None)


def _entered(run: RankRun, where: Place) -> float | None:
    if where is Place.JOINING:
        return run.membership.joining_at
    return run.membership.leaving_at if where is Place.LEAVING else None


# --- stacks ---


def is_blocked_by_jax(stack: Stack | None, run: RankRun) -> bool:
    """Whether a main thread that stands still does so in JAX."""
    frames = _frames(stack)
    if stack is None or not frames:
        return False
    if frames[0].library in _JAX:
        return True
    if frames[0].library != source_lines.USER:
        return False
    if "futex" in stack.blocked or stack.blocked in _LOCKS:
        return True  # JAX's C++ is called from the user's line without Python
    # On accelerators it may spin, or sleep for a microsecond again and again.
    spins = run.compilations.platform not in ("", "cpu")
    return (spins or not stack.blocked) and program_at(run, frames) is not None


def _sleeps(stack: Stack | None) -> bool:
    """Whether a main thread sleeps in the kernel for some time."""
    return stack is not None and any(place in stack.blocked for place in _SLEEPS)


class InProgram(Value):
    """A rank is in a program, or held at one: where, in words; and which it is in, if known."""

    where: str
    program: Program | None


def in_programs(state: RunState, stacks: Iterable[Stack]) -> dict[int, InProgram | None]:
    """Where ranks are, if in programs or held at one, or where they wait for the results of some.

    None stands for a rank that is anywhere else, in a barrier for instance, where it may wait for
    something else. A rank whose stack has not come is left out.
    """
    found = _by_rank(stacks).items()
    return {rank: _in_program(state.ranks[rank], stack) for rank, stack in found}


def _in_program(run: RankRun, stack: Stack) -> InProgram | None:
    frames = _frames(stack)
    if not is_blocked_by_jax(stack, run) or frames[0].library not in _RUN_PROGRAMS:
        return None
    at = _users(frames)
    own = frames if at is None else frames[: at + 1]
    if any(_NO_PROGRAM.search(f"{frame.name} {frame.source}") for frame in own):
        return None
    program = program_at(run, frames)
    source = frames[0].source
    if program is None and (not source or _WAITS.search(source)):
        return None
    return InProgram(_where_blocked(run, frames), program)


def program_at(run: RankRun, frames: Sequence[Frame]) -> Program | None:
    """The program that spans processes which a rank ran at the line it is at, if it did."""
    at = _users(frames)
    if at is None:
        return None
    ran = run.compilations.ran.items()
    return next((program for where, program in ran if _is_at(frames[at], where)), None)


def places(stacks: Iterable[Stack]) -> dict[int, tuple[str, ...]]:
    """Where the main thread of each rank's process that takes part in the job stands."""
    return {rank: tuple(map(str, _frames(one))) for rank, one in _by_rank(stacks).items()}


def _by_rank(stacks: Iterable[Stack]) -> dict[int, Stack]:
    """The stack of the process that takes part in the job, of each rank."""
    found: dict[int, Stack] = {}
    for stack in stacks:
        if not stack.helper and (stack.rank not in found or not found[stack.rank].text):
            found[stack.rank] = stack
    return found


def _frames(stack: Stack | None) -> tuple[Frame, ...]:
    """The main thread's calls, innermost first."""
    found = threads(stack.text) if stack is not None else []
    return found[0] if found else ()


def _users(frames: Sequence[Frame]) -> int | None:
    """The place of the innermost call of the user's own."""
    own = (at for at, frame in enumerate(frames) if frame.library == source_lines.USER)
    return next(own, None)


def _is_at(frame: Frame, where: str) -> bool:
    file, _, line = where.rpartition(":")
    return frame.line == line and f"/{frame.file}".endswith(f"/{file}")


def _waits_for_somebody(stack: Stack | None) -> bool:
    """Whether a rank waits for a person at a debugger, or for a server's clients."""
    return any(
        frame.file.endswith(_FOR_SOMEBODY) or frame.library in _DEBUGGERS
        for frame in _frames(stack)
    )


# --- words ---


def _where_blocked(run: RankRun, frames: Sequence[Frame]) -> str:
    at = _users(frames)
    if at is None:
        return f"in {frames[0].name} at {_line(frames[0], run)}"
    line = _line(frames[at], run)
    calls = (frame.name for frame in reversed(frames[:at]))
    call = next((name for name in calls if name not in _INNER_CALLS and name[:1] != "_"), None)
    if call is not None:
        return f"in {call}() at {line}"
    program = program_at(run, frames)
    return f"in {program.title} at {line}" if program is not None else f"at {line}"


def standing_at(run: RankRun, stack: Stack | None) -> str:
    """Where a rank is that does not wait, in the user's own function; "" if that is not known."""
    frames = _frames(stack)
    if not frames:
        return ""
    frame = frames[_users(frames) or 0]
    line = _line(frame, run)
    return f"at {line}" if frame.name == "<module>" else f"in {frame.name} at {line}"


def note_places(state: RunState, stacks: Iterable[Stack]) -> None:
    """Keep where ranks are, which others do not wait for any longer: they will be ended."""
    for rank, stack in _by_rank(stacks).items():
        run = state.ranks[rank]
        run.stood = standing_at(run, stack)


def _line(frame: Frame, run: RankRun) -> str:
    """A place, its file named as the rank's hook does, or without its folder."""
    latest = run.compilations.latest
    places = [*run.compilations.ran, *([latest.where] if latest is not None else [])]
    files = {where.rpartition(":")[0] for where in places}
    file = next((file for file in files if file and f"/{frame.file}".endswith(f"/{file}")), None)
    return f"{file or frame.file.rpartition('/')[2]}:{frame.line}"


def _grouped(places: Iterable[tuple[int, str]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Ranks by where they are, the most first."""
    groups: dict[str, list[int]] = {}
    for rank, where in places:
        groups.setdefault(where, []).append(rank)
    by_size = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0]))
    return tuple((where, tuple(ranks)) for where, ranks in by_size)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _are(ranks: Sequence[int]) -> str:
    return "are" if len(ranks) > 1 else "is"


def _literal(text: str) -> str:
    """For a place in a text that is to be formatted."""
    return text.replace("{", "{{").replace("}", "}}")
