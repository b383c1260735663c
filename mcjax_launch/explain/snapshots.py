"""Parser of ranks' stacks: formats them, and describes each rank's position; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.programs import RanProgram, format_title
from mcjax_launch.journal.rank_run import BUSY, RankRun, Stage
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wire.value import Value

# --- stacks ---

K = TypeVar("K")

_SOURCE = "    "  # the agent puts the user's own lines after their frames
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\S+) in (?P<name>.*)')
# More calls in a row inside one library than this are shown as the first and a count.
_FOLDED = 3


class Frame(Value):
    """A call in a stack; `name` is the function's, `source` the text of the line if known."""

    file: str
    line: str
    name: str
    source: str = ""

    @property
    def library(self) -> str:
        """The name of the file's package; "python" for the standard library, "" for user code."""
        return source_lines.find_owner(self.file)

    def __str__(self) -> str:
        file = source_lines.shorten_path(self.file)
        return f"{file}:{self.line} in {self.name}" + (f": {self.source}" if self.source else "")


def parse_threads(text: str) -> list[tuple[Frame, ...]]:
    """Parse a dump into the stacks of its threads, the current (usually the main) thread first."""
    stacks: list[list[Frame]] = []
    current = 0
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ", "Stack ")):
            current = len(stacks) if line.startswith("Current") else current
            stacks.append([])
        elif stacks and (match := _FRAME.match(line)):
            # Our own frames are no concern of the user's.
            if source_lines.find_owner(match["file"]) != source_lines.OURS:
                stacks[-1].append(Frame(**match.groupdict()))
        elif stacks and stacks[-1] and line.startswith(_SOURCE):
            stacks[-1][-1] = stacks[-1][-1].copy_with(source=line.strip())
    if stacks:
        stacks.insert(0, stacks.pop(current))
    return [tuple(stack) for stack in stacks]


def format_stacks(stacks: Sequence[Stack]) -> list[str]:
    """Format stacks as lines: equal stacks once, those of most ranks first.

    The stacks of other threads follow those of main threads.
    """
    several = len({stack.host for stack in stacks}) > 1
    ranks = {stack.rank for stack in stacks if not stack.importing}
    whose = format_count(len(ranks), "rank") if ranks else "the imports"
    lines = [f"stacks of {whose}, innermost call first:"]
    mains: dict[tuple[tuple[Frame, ...], str, bool, bool], list[Stack]] = {}
    others: dict[tuple[Frame, ...], list[Stack]] = {}
    for stack in sorted(stacks, key=lambda stack: (stack.rank, stack.pid)):
        current, *more = parse_threads(stack.text) or [()]
        key = current, stack.state, stack.helper, stack.importing
        mains.setdefault(key, []).append(stack)
        for thread in more:
            others.setdefault(thread, []).append(stack)
    for (current, state, helper, _), same in _sort_by_size(mains):
        name = ("helpers of " if helper else "") + _describe_processes(same, several)
        lines.append(f"{name}:" if not state else f"{name}: no Python stack: {state}")
        lines += _format_calls(current) if not state else ()
    for thread, same in _sort_by_size(others):
        lines.append(f"another thread of {_describe_processes(same, several)}:")
        lines += _format_calls(thread)
    return lines


def _sort_by_size(groups: dict[K, list[Stack]]) -> list[tuple[K, list[Stack]]]:
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0].rank))


def _describe_processes(stacks: Sequence[Stack], several_hosts: bool) -> str:
    name = format_ranks(stack.rank for stack in stacks)
    if stacks[0].importing:
        name = "the importing process" if len(stacks) == 1 else "the importing processes"
    if len(stacks) == 1:
        where = f" on {stacks[0].host}" if several_hosts else ""
        return f"{name}{where} (pid {stacks[0].pid})"
    hosts = sorted({stack.host for stack in stacks})
    return f"{name} on {', '.join(hosts)}" if several_hosts and len(hosts) <= 4 else name


def _format_calls(stack: Sequence[Frame]) -> Iterator[str]:
    """Yield lines for a stack: user calls marked with ">", long series in one library folded."""
    for library, frames in groupby(stack, lambda frame: frame.library):
        first, *more = frames
        if not library:
            yield from (f"  > {call}" for call in (first, *more))
        elif len(more) < _FOLDED:
            yield from (f"    {call}" for call in (first, *more))
        else:
            yield f"    {first}"
            yield f"    ({len(more)} more calls in {library})"
    if not stack:
        yield "    (no Python code)"
    if awaited := _find_awaited_at_end(stack):
        yield f"    (the program has ended, and Python waits for {awaited})"


# --- positions in the job ---

# Libraries whose calls wait in JAX, which is in C++ then.
_JAX = ("jax", "jaxlib", "orbax", "flax", "optax", "equinox", "chex", "haiku")
_ITSELF = ("jax", "jaxlib")
# JAX waits on locks: "futex_do_wait" or the like, or the system call's number (x86-64, Arm).
_LOCKS = ("syscall 202", "syscall 98")
# Sleeps, by the kernel's function or the system calls (x86-64, Arm). A thread that sleeps and yet
# uses a processor polls, as NCCL does with usleep(1).
_SLEEPS = ("nanosleep", "syscall 230", "syscall 35", "syscall 115", "syscall 101")
# JAX's own functions between the user's call and the call that waits.
_INNER_CALLS = ("wrapper", "cache_miss", "reraise_with_filtered_traceback")
# Files of code that waits for a person, maybe for ever.
_FOR_SOMEBODY = ("/pdb.py", "/bdb.py")
# Files of code that may wait for clients, in words: a server, unless ranks wait for it in a
# collective.
_MAY_SERVE = {
    "/asyncio/base_events.py": "asyncio's loop",
    "/socketserver.py": "a server's loop",
    "/grpc/_server.py": "a server's loop",
}
# Python's functions that run after the program's last line, and what each waits for.
_AT_END = {
    "_shutdown": "its threads",
    "_python_exit": "its threads",
    "_exit_function": "its child processes",
}
# What runs the program of a session's ranks.
_RUNPY = ("<frozen runpy>", "/runpy.py")
# Functions that Python makes of expressions.
_INLINE = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}
# At most this many other threads are named.
_MOST_THREADS = 2
_DEBUGGERS = ("debugpy", "IPython", "ipdb")
# JAX's functions that trace and lower a program, before the hook sees its compilation.
_COMPILING = re.compile(r"trace_to_jaxpr|lower_jaxpr|lower_\w{0,40}computation|pjit_jaxpr|compile")
# Names that the hook gives to a wait at a barrier, or for a key (hook/initialize.py).
_BARRIER = re.compile(r"wait_at_barrier\((.*)\)")
_KEY = re.compile(r"(blocking_key_value_get\w*)\(.*\)")
# JAX's function in which one process compiles for all, and the others wait for it.
_SHARES = "_compile_and_share_module"
# A compilation that has used no processor for this long waits for something.
_IDLE_S = scale_time(10.0)
#: Words before a barrier's name in a position.
BARRIER = "at the barrier "
#: Words before the program in the position of a rank that waits for another's compilation.
IN_COMPILATION = "waiting in the compilation of "
# JAX's functions that wait for other processes without a program.
_NO_PROGRAM = re.compile(r"barrier|key_value|initialize|shutdown")
_CALLED = re.compile(r"\b(\w+)\(")


class RankSnapshot:
    """A rank at one moment: the stage that it has reached, and its stack.

    Args:
        run: facts on the rank.
        stack: stack of the rank's process in the job; None if no stack has arrived.

    Attributes:
        reached: the stage of the rank.
        frames: the calls of the thread described (as a rule the main thread), innermost first.
        main: snapshot by the main thread, if `frames` are another thread's; else None.
        switches: line with that other thread's count of context switches; "" if unknown.

    """

    main: RankSnapshot | None = None
    switches = ""

    def __init__(self, run: RankRun, stack: Stack | None = None) -> None:
        self.run = run
        self.stack = stack
        self.reached = run.reached
        found = parse_threads(stack.text) if stack is not None else []
        self.frames: tuple[Frame, ...] = found[0] if found else ()
        others = stack.others if stack is not None else ""
        self.threads = parse_threads(others)
        known = [line for line in others.splitlines() if line.startswith(source_lines.SWITCHES)]
        self._switches = known if len(known) == len(self.threads) else [""] * len(self.threads)

    @cached_property
    def _user_call(self) -> int | None:
        """Index of the innermost call of the user's own code; None if there is none."""
        return _find_user_call(self.frames)

    @cached_property
    def program(self) -> RanProgram | None:
        """Program of several processes that the rank runs at its current line; None if none.

        It ran there first, or the line calls a function of its name.
        """
        if self._user_call is None:
            return None
        frame, ran = self.frames[self._user_call], self.run.compilations.ran
        at_line = (program for where, program in ran.items() if _is_at(frame, where))
        called = set(_CALLED.findall(frame.source))
        named = (each for each in ran.values() if each.name.removeprefix("jit_") in called)
        return next(at_line, None) or next(named, None)

    @property
    def is_blocked_by_jax(self) -> bool:
        """True if the thread is blocked inside JAX; valid only for a thread that stands still."""
        if self.stack is None or not self.frames:
            return False
        if self.frames[0].library in _JAX:
            return True
        if self.frames[0].library != source_lines.USER:
            return False
        blocked = self.stack.blocked
        if "futex" in blocked or blocked in _LOCKS:
            # JAX's C++ is called from the user's line without Python; so are locks and queues.
            return self.program is not None or not source_lines.is_own_wait(self.frames[0].source)
        # On accelerators it may spin, or sleep for a microsecond again and again.
        spins = self.run.compilations.on_accelerator
        return (spins or not blocked) and self.program is not None

    @property
    def is_surely_in_jax(self) -> bool:
        """True if the innermost call is in JAX, or the line has run a program across processes.

        Any other call into C from the user's code may wait for something else.
        """
        return bool(self.frames) and (self.frames[0].library in _JAX or self.program is not None)

    @property
    def waits_for_a_thread(self) -> bool:
        """True if the innermost call is a Python wait that may be for another thread."""
        if not self.frames:
            return False
        innermost = self.frames[0]
        return source_lines.waits_for_a_thread(innermost.file, innermost.source)

    @cached_property
    def in_thread(self) -> RankSnapshot | None:
        """Snapshot by another thread, in JAX, that the main thread may wait for; None if none.

        Among several such threads, a thread that surely waits for other ranks is preferred.
        """
        if not self.waits_for_a_thread:
            return None
        found = []
        for thread, switches in zip(self.threads, self._switches, strict=True):
            if thread[0].library in _JAX:
                seen = RankSnapshot(self.run)
                seen.stack, seen.frames, seen.main = self.stack, thread, self
                seen.switches = switches
                found.append(seen)
        return min(found, key=lambda seen: not seen.awaits_ranks, default=None)

    @property
    def awaits_ranks(self) -> bool:
        """True if the thread waits for other ranks, at a barrier or for a key."""
        called = self.frames[0].name if self.frames else ""
        return (_BARRIER.fullmatch(called) or _KEY.fullmatch(called)) is not None

    @property
    def awaits_all_ranks(self) -> bool:
        """True if the thread waits at a barrier of all processes, which needs no collective."""
        barrier = _BARRIER.fullmatch(self.frames[0].name) if self.frames else None
        return barrier is not None and not barrier[1].endswith("...")

    @property
    def is_over(self) -> bool:
        """True if the rank has left the JAX job and only C++ code still runs in its process."""
        shown = self.stack is not None and bool(self.stack.text)
        return self.reached.stage is Stage.LEFT and shown and not self.frames

    @property
    def sleeps(self) -> bool:
        """True if the main thread is in a sleep system call, such as nanosleep()."""
        return self.stack is not None and any(name in self.stack.blocked for name in _SLEEPS)

    @property
    def compiles(self) -> bool:
        """True if the rank traces, lowers or compiles a program."""
        traces = (f.library == "jax" and _COMPILING.search(f.name) for f in self.frames)
        return self.run.compilations.under_way > 0 or any(traces)

    @property
    def waits_for_somebody(self) -> bool:
        """True if the rank waits for a person at a debugger."""
        return any(
            frame.file.endswith(_FOR_SOMEBODY) or frame.library in _DEBUGGERS
            for frame in self.frames
        )

    @cached_property
    def may_serve(self) -> str:
        """Words for a server's loop that the rank is in, such as "asyncio's loop"; "" if none."""
        loops = _MAY_SERVE.items()
        return next((w for f in self.frames for end, w in loops if f.file.endswith(end)), "")

    # --- whether it can go on by itself ---

    def _split_at_user_call(self) -> tuple[tuple[Frame, ...], Frame] | None:
        """Return JAX's calls in the user's innermost call, and that; None if others are there."""
        if self.stack is None or self._user_call is None:
            return None
        inner = self.frames[: self._user_call]
        if any(frame.library not in _ITSELF or _NO_PROGRAM.search(frame.name) for frame in inner):
            return None
        return inner, self.frames[self._user_call]

    def find_certain_collective(self, everybody: frozenset[int]) -> frozenset[int]:
        """Return the ranks of the collective in which the main thread surely waits.

        Empty if it may wait for something else.

        Args:
            everybody: all ranks of the job.

        """
        if (found := self._split_at_user_call()) is None:
            return frozenset()
        inner, users = found
        if any(frame.file.endswith(source_lines.JAX_COLLECTIVES) for frame in inner):
            return everybody
        known = self.program is not None and (inner or source_lines.is_one_call(users.source))
        return self.program.ranks if self.program is not None and known else frozenset()

    @property
    def is_in_some_program(self) -> bool:
        """True if the main thread waits in JAX for results, or at the line of a program.

        The line may have several calls, but none that may wait for a thread or the like.
        """
        if (found := self._split_at_user_call()) is None:
            return False
        inner, users = found
        is_at_program = self.program is not None and not source_lines.is_own_wait(users.source)
        return bool(inner) or is_at_program or ".block_until_ready(" in users.source

    @property
    def is_in_exit_barrier(self) -> bool:
        """True if the innermost call is JAX's shutdown(), not a handler that runs before it."""
        if self.reached.stage is not Stage.LEAVING or not self.frames:
            return False
        innermost = self.frames[0]
        return innermost.name == "shutdown" and innermost.file.endswith("/jax/_src/distributed.py")

    @property
    def is_in_users_code(self) -> bool:
        """True if the user's own code is on the stack."""
        return self._user_call is not None

    @property
    def may_act(self) -> bool:
        """True if another thread is in user or JAX code, or the dump of threads is incomplete."""
        text = self.stack.text if self.stack is not None else ""
        if source_lines.ALL_THREADS not in text:
            return True
        active = (*_JAX, source_lines.USER)
        return any(
            frame.library in active for thread in parse_threads(text)[1:] for frame in thread
        )

    # --- in words ---

    @property
    def blocked_at(self) -> str:
        """Place in JAX where the rank waits, in words; only valid if there are `frames`.

        For a thread without user code, the main thread's position follows.
        """
        if self.main is None or self._user_call is not None:
            return self._inside_jax
        return f"{self._inside_jax} in a thread that the main thread waits for {self.main.position}"

    @property
    def _inside_jax(self) -> str:
        called = self.frames[0].name
        barrier = _BARRIER.fullmatch(called)
        if barrier is None and _KEY.fullmatch(called) is None:
            return self._called_at
        place = f"{BARRIER}{barrier[1]}" if barrier is not None else f"in {called}"
        return place + (f" {self._called_at}" if self._user_call else "")

    @property
    def shared_compilation(self) -> str:
        """Words for a rank that waits in a compilation for another rank; "" if it does not."""
        spent = self.run.compilations
        shares = any(frame.name == _SHARES for frame in self.frames)
        if not spent.under_way or spent.latest is None:
            return ""
        if not shares and spent.compute_idle_s() < _IDLE_S:
            return ""
        how = " (jax_share_binary_between_hosts is on)" if shares else ""
        at = f" at {spent.latest.where}" if spent.latest.where else ""
        if spent.awaits >= 0:
            return f"{IN_COMPILATION}{format_title(spent.latest.name)}{at} by rank {spent.awaits}"
        return (
            f"{IN_COMPILATION}{format_title(spent.latest.name)}{at} for another rank's program{how}"
        )

    @property
    def _called_at(self) -> str:
        """Words for the user's line that called JAX, with the called function or program."""
        if self._user_call is None:
            return f"in {self.frames[0].name} at {self._format_line(self.frames[0])}"
        line = self._format_line(self.frames[self._user_call])
        calls = (frame.name for frame in reversed(self.frames[: self._user_call]))
        call = next(filter(_is_telling, calls), None)
        if call is not None:
            return f"in {call}() at {line}"
        return f"in {self.program.title} at {line}" if self.program is not None else f"at {line}"

    @property
    def position_with_threads(self) -> str:
        """`position`, with other threads' positions if the main thread waits for a thread."""
        found = ((thread, _find_user_call(thread)) for thread in self.threads)
        own = [thread[at] for thread, at in found if at is not None]
        places = [f"{frame.name} at {self._format_line(frame)}" for frame in own[:_MOST_THREADS]]
        if not places or not self.waits_for_a_thread:
            return self.position
        return f"{self.position}; another of its threads is in {' and one in '.join(places)}"

    @property
    def position(self) -> str:
        """Position of the rank: the user's innermost function and line, in words; "" if unknown."""
        if not self.frames:
            return ""
        if all(frame.file.endswith(_RUNPY) for frame in self.frames):  # our own frames are hidden
            return "waiting for a call of the session"
        at = self._user_call or 0
        frame = self.frames[at]
        line = self._format_line(frame)
        if awaited := _find_awaited_at_end(self.frames):
            return f"at its end, where Python waits for {awaited}, in {frame.name} at {line}"
        names = (call.name for call in self.frames[at:])
        name = next((name for name in names if name not in _INLINE), frame.name)
        place = format_place(name, line)
        if self.may_serve and frame.library == source_lines.USER:
            place = f"in {self.may_serve}, {place}"
        return place

    def _format_line(self, frame: Frame) -> str:
        """Return `file:line` of a call: the path that the hook reports, else the file name."""
        spent = self.run.compilations
        lines = [*spent.ran, *([spent.latest.where] if spent.latest is not None else [])]
        files = {where.rpartition(":")[0] for where in lines}
        file = next(
            (name for name in files if name and f"/{frame.file}".endswith(f"/{name}")), None
        )
        return f"{file or frame.file.rpartition('/')[2]}:{frame.line}"


def _find_awaited_at_end(frames: Sequence[Frame]) -> str:
    """Return what a program waits for whose last line has been executed; "" if it has not been."""
    if not frames or frames[-1].library != source_lines.PYTHON:
        return ""
    return _AT_END.get(frames[-1].name, "")


def format_place(name: str, line: str) -> str:
    """Return a place as `in function at file:line`, or `at file:line` for a module."""
    return f"at {line}" if name == "<module>" else f"in {name} at {line}"


def _is_telling(call: str) -> bool:
    waits = call.startswith(("wait_at_barrier", "blocking_key_value_get"))
    return call not in _INNER_CALLS and call[:1] != "_" and not waits


def _find_user_call(frames: Iterable[Frame]) -> int | None:
    """Return the index of the innermost call of the user's own code; None if there is none."""
    own = (at for at, frame in enumerate(frames) if frame.library == source_lines.USER)
    return next(own, None)


def _is_at(frame: Frame, where: str) -> bool:
    file, _, line = where.rpartition(":")
    return frame.line == line and f"/{frame.file}".endswith(f"/{file}")


def find_crash_frame(run: RankRun) -> Frame | None:
    """Return the innermost call of the user's code in a crashed rank; None if unknown."""
    stacks, at_limit = run.process.stack, False
    if not stacks:
        from mcjax_launch.explain.jax_messages.crashes import find_stacks

        stacks, at_limit = find_stacks(run.stderr)
    threads = parse_threads(stacks) or [()]
    frames = threads[-1 if at_limit else 0]  # at a limit the main thread is the last
    at = _find_user_call(frames)
    return frames[at] if at is not None else None


def make_snapshots(state: RunState, stacks: Iterable[Stack]) -> dict[int, RankSnapshot]:
    """Return snapshots by rank, for all ranks whose stacks have arrived.

    Stacks of helper processes, which take no part in the job, are ignored.
    """
    found: dict[int, Stack] = {}
    for stack in stacks:
        if not stack.helper and (stack.rank not in found or not found[stack.rank].text):
            found[stack.rank] = stack
    return {rank: RankSnapshot(state.ranks[rank], stack) for rank, stack in found.items()}


def find_waiting_ranks(state: RunState, stacks: Sequence[Stack]) -> dict[int, str]:
    """Return where ranks wait for others in JAX; each wait may be about to end."""
    return {
        rank: str(seen.reached) if seen.reached.waits_for_others else seen.blocked_at
        for rank, seen in make_snapshots(state, stacks).items()
        if _waits(seen)
    }


def _waits(seen: RankSnapshot) -> bool:
    if seen.reached.waits_for_others:
        return True
    run = seen.run
    computes = (run.usage.share or 0.0) > BUSY and not run.compilations.on_accelerator
    return seen.is_blocked_by_jax and not computes and not run.compilations.under_way
