"""The picture of a hang: where each rank is, one line for each place; pure.

Nothing is inferred from it: who waits for whom is what a person sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from mcjax_launch.features.explain.snapshots import (
    Frame,
    Thread,
    find_awaited_at_end,
    find_user_call,
    format_place,
    parse_threads,
)
from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.programs import RanProgram, format_title
from mcjax_launch.journal.rank_run import RankRun, Stage
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_all_ranks, format_count, format_ranks, group_by_key
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import format_rough_duration

# At most so many places are shown, and this many in one sentence.
_MOST_LINES, _MOST_PARTS = 8, 3
# At most so many hosts are named.
_MOST_HOSTS = 3
_JAX = ("jax", "jaxlib")
# JAX's own functions between the user's call and the call that waits.
_INNER_CALLS = ("wrapper", "cache_miss", "reraise_with_filtered_traceback")
# JAX's functions that trace and lower a program, and then the innermost call of JAX does not wait.
_TRACING = re.compile(r"trace_to_jaxpr|lower_jaxpr|lower_\w{0,40}computation|pjit_jaxpr|compile")
# Debuggers, by a file of Python's or a package.
_DEBUGGERS = {"/pdb.py": "pdb", "/bdb.py": "pdb"}
_DEBUGGER_PACKAGES = ("debugpy", "IPython", "ipdb", "pudb")
# Names that the hook gives to a wait at a barrier, or for a key (hook/initialize.py).
_BARRIER = re.compile(r"wait_at_barrier\((.*)\)")
_KEY = re.compile(r"blocking_key_value_get\w*\(.*\)")
#: Words before a barrier's name in a place.
BARRIER = "at the barrier "
# What runs the program of a session's ranks.
_RUNPY = ("<frozen runpy>", "/runpy.py")
# Functions that Python makes of expressions.
_INLINE = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}
_CALLED = re.compile(r"\b(\w+)\(")
# Verbs of places, for one rank and for several.
_PLURALS = {"is": "are", "waits": "wait", "has": "have", "compiles": "compile", "shows": "show"}


class Place(Value):
    """Place of a rank, in words.

    Args:
        verb: what the rank does, of `_PLURALS`.
        where: the rest of the words.
        handled: the exception that the rank is handling, with its place; "" if there is none.
        programs: what is known of its programs over several processes; "" if nothing is.

    """

    verb: str
    where: str
    handled: str = ""
    programs: str = ""

    @property
    def waits(self) -> bool:
        """True if the rank waits in JAX."""
        return self.verb == "waits"

    @property
    def unnumbered(self) -> Place:
        """The place without what is known of its programs."""
        return self.copy_with(programs="")

    @property
    def late_position(self) -> str:
        """The place in words that follow "was"; "" if it is no place."""
        if self.verb == "compiles":
            return f"compiling {self.where}"
        handling = f", handling {self.handled}" if self.handled else ""
        return self.where + handling if self.verb in ("is", "waits") else ""

    def format(self, ranks: Sequence[int], for_whom: str = "") -> str:
        """Return words that follow the name of these ranks, such as "wait for it in step"."""
        several = len(ranks) > 1
        does = f"{_PLURALS[self.verb] if several else self.verb}{for_whom} {self.where}"
        if not self.handled:
            return does
        place = f", {self.where}" if self.verb == "is" else f" and {does}"
        return f"{'are' if several else 'is'} handling {self.handled}{place}"

    def format_programs(self) -> str:
        """Return what is known of the programs, to append to the place."""
        if not self.programs:
            return ""
        return f" ({self.programs})" if self.waits else f", {self.programs}"


# Ranks at a place, and their name in words.
_Group = tuple[Place, Sequence[int], str]


class Picture(Value):
    """Places of all ranks at one moment.

    Args:
        places: the place of each rank.
        hosts: the host of each rank, in a job on several hosts; else empty.
        since: time since which nothing has moved, in time.monotonic's seconds.

    """

    places: Mapping[int, Place]
    hosts: Mapping[int, str]
    since: float

    @property
    def key(self) -> object:
        """Equal for pictures that show the same, apart from numbers of programs."""
        return tuple((rank, place.unnumbered) for rank, place in self.places.items())

    @property
    def is_one_place(self) -> bool:
        """True if all ranks are at the same place, as in a long step."""
        return len({place.unnumbered for place in self.places.values()}) < 2

    @property
    def late(self) -> tuple[int, ...]:
        """The ranks that do not wait, if others wait; else those that are handling an exception."""
        places = self.places.items()
        late = tuple(rank for rank, place in places if not place.waits)
        late = late or tuple(rank for rank, place in places if place.handled)
        return late if len(late) < len(self.places) else ()

    def format_lines(self, now: float) -> list[str]:
        """Return one line for each place, below a line that says for how long nothing moved."""
        lines = [f"nothing has moved for {format_rough_duration(now - self.since)}:"]
        groups = self._group(self.places)
        shown, left = groups[: _MOST_LINES - 1], groups[_MOST_LINES - 1 : -1]
        shown += groups[_MOST_LINES - 1 :][-1:]
        width = max(len(name) for *_, name in shown)
        for place, ranks, name in shown:
            words = place.format(ranks).removeprefix("is ").removeprefix("are ")
            lines.append(f"  {name:<{width}} {words}{place.format_programs()}")
        if left:
            many = format_count(sum(len(ranks) for _, ranks, _ in left), "rank")
            lines.insert(-1, f"  {many} at {format_count(len(left), 'other place')}")
        return lines

    @property
    def sentence(self) -> str:
        """The places in one line, those of ranks that do not wait first."""
        groups = self._group({rank: place.unnumbered for rank, place in self.places.items()})
        if len(groups) == 1 and len(self.places) > 1:
            place, ranks, _ = groups[0]
            return f"{format_all_ranks(len(ranks))} {place.format(ranks)}"
        late, for_whom = set(self.late), " for them" if len(self.late) > 1 else " for it"
        causes = [
            f"{name} {place.format(ranks)}" for place, ranks, name in groups if late & {*ranks}
        ]
        others = [
            f"{name} {place.format(ranks, for_whom if late else '')}"
            for place, ranks, name in sorted(groups, key=lambda group: not group[0].handled)
            if not late & {*ranks}
        ]
        return "; ".join([*_shorten(causes), *_shorten(others)])

    def _group(self, places: Mapping[int, Place]) -> list[_Group]:
        """Return the ranks of each place, the place with the fewest ranks first."""
        groups = group_by_key((place, rank) for rank, place in places.items())
        by_size = sorted(groups.items(), key=lambda group: (len(group[1]), group[1][0]))
        return [(place, ranks, self._name(ranks)) for place, ranks in by_size]

    def _name(self, ranks: Sequence[int]) -> str:
        hosts = sorted({self.hosts[rank] for rank in ranks if rank in self.hosts})
        names = f" on {', '.join(hosts)}" if 0 < len(hosts) <= _MOST_HOSTS else ""
        return format_ranks(ranks) + names


def _shorten(parts: Sequence[str]) -> Sequence[str]:
    """Return the first parts of a sentence, with a count of the others."""
    more = len(parts) - _MOST_PARTS
    return [*parts[:_MOST_PARTS], *([f"others at {more} more places"] if more > 0 else [])]


def select_stacks(stacks: Iterable[Stack]) -> dict[int, Stack]:
    """Return the stack of each rank's process in the job."""
    found: dict[int, Stack] = {}
    for stack in stacks:
        if not stack.helper and (stack.rank not in found or not found[stack.rank].text):
            found[stack.rank] = stack
    return found


def make_picture(state: RunState, stacks: Iterable[Stack]) -> Picture:
    """Return where all ranks are.

    Args:
        state: state of the run.
        stacks: the stacks that have arrived.

    """
    found = select_stacks(stacks)
    places = {
        rank: _add_number(state, run, find_place(run, found.get(rank)))
        for rank, run in state.ranks.items()
    }
    hosts = {rank: run.host for rank, run in state.ranks.items()} if state.hosts > 1 else {}
    return Picture(places, hosts, state.activity.active_at)


def _add_number(state: RunState, run: RankRun, place: Place) -> Place:
    """Add the number of the program that a rank has begun, or how many it has run."""
    if state.sequences is None or run.stage not in (Stage.INSIDE, Stage.LEAVING):
        return place
    number, is_begun = state.sequences.find_latest(run.process_id)
    if not number:
        return place
    words = f"program {number:,}" if is_begun else f"after program {number:,}"
    return place.copy_with(programs=words)


# --- the place of one rank ---


def find_place(run: RankRun, stack: Stack | None) -> Place:
    """Return where a rank is."""
    if run.is_gone:
        how = "ended" if run.status == 0 else "failed"
        return Place("has", "been lost with its host" if run.process.lost else how)
    return find_last_place(run, stack)


def find_last_place(run: RankRun, stack: Stack | None) -> Place:
    """Return where a rank is, or was, with the exception that it is handling."""
    main, others = _select_threads(stack)
    handled = next((thread.handled for thread in (main, *others) if thread.handled), "")
    return _find_place(run, stack, main, others).copy_with(handled=handled)


def _find_place(run: RankRun, stack: Stack | None, main: Thread, others: Sequence[Thread]) -> Place:
    """Return what is known of a rank's stage, and of its threads."""
    frames, threads = main.frames, [thread.frames for thread in others]
    here = _describe_position(run, frames, threads)
    match run.stage:
        case Stage.JOINING:
            return Place("waits", str(run.reached))
        case Stage.ABSENT | Stage.IMPORTING:
            return Place("has", "not called initialize()" + (f", {here}" if here else ""))
        case Stage.LEAVING if frames and find_user_call(frames) is None:
            return Place("waits", str(run.reached))
    if not frames:
        return _explain_silence(stack)
    if run.stage is Stage.ALONE:
        return Place("is", f"alone, after initialize() failed, {here}")
    if (debugger := _find_debugger(frames)) is not None:
        return Place("is", f"in {debugger}, {here}")
    latest = run.compilations.latest
    if run.compilations.under_way and latest is not None:
        at = f" at {latest.where}" if latest.where else ""
        if run.compilations.awaits >= 0:
            awaited = f"for rank {run.compilations.awaits} to compile"
            return Place("waits", f"{awaited} {format_title(latest.name)}{at}")
        return Place("compiles", f"{format_title(latest.name)}{at}")
    for thread in (frames, *threads):
        where = _find_wait(run, thread)
        if where and not _is_callback(thread):
            if thread is not frames:
                where += f" in a thread, while it is {_describe_thread(run, frames)}"
            return Place("waits", where)
    return Place("is", here)


def _select_threads(stack: Stack | None) -> tuple[Thread, list[Thread]]:
    """Return the main thread, and the threads for which it may wait, and of callbacks."""
    main, *others = (parse_threads(stack.text) if stack is not None else None) or [Thread()]
    innermost = main.frames[:1]
    waits = any(source_lines.waits_for_a_thread(call.file, call.source) for call in innermost)
    chosen = [thread for thread in others if waits or _is_callback(thread.frames)]
    return main, chosen or (parse_threads(stack.others) if stack is not None else [])


def _explain_silence(stack: Stack | None) -> Place:
    if stack is None:
        return Place("has", "not answered")
    if stack.text:  # there is no Python code left
        return Place("is", "after Python's end")
    _, _, why = stack.state.rpartition(", and ")
    return Place("shows", f"no Python stack ({why or 'unknown why'})")


def _find_debugger(frames: Sequence[Frame]) -> str | None:
    for frame in frames:
        if frame.library in _DEBUGGER_PACKAGES:
            return frame.library
        for file, name in _DEBUGGERS.items():
            if frame.file.endswith(file):
                return name
    return None


def _find_wait(run: RankRun, frames: Sequence[Frame]) -> str:
    """Return where a thread waits in JAX, in words; "" if its innermost call is elsewhere."""
    if not frames or any(f.library == "jax" and _TRACING.search(f.name) for f in frames):
        return ""
    at, innermost = find_user_call(frames), frames[0]
    program = _find_program(run, frames[at]) if at is not None else None
    if innermost.library not in _JAX and not (
        at == 0 and (program is not None or ".block_until_ready(" in innermost.source)
    ):
        return ""
    called = [frame.name for frame in reversed(frames[:at])]
    line = format_line(run, frames[at or 0])
    call = next(filter(_is_telling, called), None)
    if call is None and program is not None:
        call = program.title
    where = f"in {call} at {line}" if call else format_place(frames[at or 0].name, line)
    if (barrier := _BARRIER.fullmatch(innermost.name)) is not None:
        return f"{BARRIER}{barrier[1]}" + (f" {where}" if at is not None else "")
    return f"in {innermost.name} at {line}" if _KEY.fullmatch(innermost.name) else where


def _is_telling(call: str) -> bool:
    is_wait = call.startswith(("wait_at_barrier", "blocking_key_value_get"))
    return call not in _INNER_CALLS and call[:1] not in "_<" and not is_wait


def _find_program(run: RankRun, frame: Frame) -> RanProgram | None:
    """Return the program of several processes that a line runs; None if there is none.

    It ran there first, or the line calls a function of its name.
    """
    ran = run.compilations.ran
    at_line = (program for where, program in ran.items() if _is_at(frame, where))
    called = set(_CALLED.findall(frame.source))
    named = (each for each in ran.values() if each.name.removeprefix("jit_") in called)
    return next(at_line, None) or next(named, None)


def _is_at(frame: Frame, where: str) -> bool:
    file, _, line = where.rpartition(":")
    return frame.line == line and f"/{frame.file}".endswith(f"/{file}")


def _is_callback(frames: Sequence[Frame]) -> bool:
    return any(frame.file.endswith(source_lines.CALLBACKS) for frame in frames)


def _describe_position(
    run: RankRun, frames: Sequence[Frame], threads: Iterable[Sequence[Frame]]
) -> str:
    """Return where the user's code is, with the first other thread's place; "" if unknown."""
    place = _describe_thread(run, frames)
    own = (thread for thread in threads if find_user_call(thread) is not None)
    if place and (thread := next(own, None)) is not None:
        kind = "a callback" if _is_callback(thread) else "a thread"
        return f"{place}, while {kind} of it is {_describe_thread(run, thread)}"
    return place


def _describe_thread(run: RankRun, frames: Sequence[Frame]) -> str:
    """Return the user's innermost function and line, in words; "" if there are no calls."""
    if not frames:
        return ""
    if all(frame.file.endswith(_RUNPY) for frame in frames):  # our own frames are hidden
        return "waiting for a call of the session"
    at = find_user_call(frames) or 0
    line = format_line(run, frames[at])
    if awaited := find_awaited_at_end(frames):
        return f"at its end, where Python waits for {awaited}, in {frames[at].name} at {line}"
    names = (call.name for call in frames[at:])
    return format_place(next((n for n in names if n not in _INLINE), frames[at].name), line)


def format_line(run: RankRun, frame: Frame) -> str:
    """Return `file:line` of a call: the path that the hook reports, else the file name."""
    latest = run.compilations.latest
    lines = [*run.compilations.ran, *([latest.where] if latest is not None else [])]
    files = {where.rpartition(":")[0] for where in lines}
    known = (name for name in files if name and f"/{frame.file}".endswith(f"/{name}"))
    return f"{next(known, None) or frame.file.rpartition('/')[2]}:{frame.line}"


def find_waiting_ranks(state: RunState, stacks: Iterable[Stack]) -> dict[int, str]:
    """Return where ranks wait in JAX, or for others; each wait may be about to end."""
    places = make_picture(state, stacks).places
    return {rank: place.where for rank, place in places.items() if place.waits}
