"""Lending of the user's terminal to debuggers in ranks."""

import os
from collections.abc import Sequence
from signal import SIGCONT, SIGWINCH

from mcjax_launch.features.debugging.messages import (
    NAME,
    DebuggerMessage,
    DebuggerQuits,
    DebuggerReply,
    DebuggerResumed,
    DebuggerStopped,
    DebuggerSwitches,
    FromDebugger,
    ReplyToDebugger,
    TerminalGranted,
    TerminalRefused,
    TerminalSize,
)
from mcjax_launch.features.debugging.queue import (
    DebugQueue,
    Effects,
    Grant,
    HasToWait,
    Reclaim,
    Refuse,
    StillSteps,
    StoppedDebugger,
)
from mcjax_launch.features.debugging.user_terminal import UserTerminal, is_in_background
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.launcher.part import DebuggerDisplay, JobLauncher, LauncherPart
from mcjax_launch.ranks import format_ranks
from mcjax_launch.runs.stop_reasons import quit_debugger
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire.address import LOOPBACK, join_address
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import Credit, ToLauncher

_WHAT_HELPS = (
    "run it at a terminal, or with --debugpy PORT (-x PYTHONBREAKPOINT=0 ignores breakpoints)"
)
_NO_TERMINAL = "a detached job has no terminal; start it with --debugpy PORT, or without --detach"
# Most ranks to list that wait for an IDE.
_MOST_PORTS = 8
# Keys that the terminal would turn into signals: print all stacks (SIGQUIT), suspend (SIGTSTP).
_STACKS_KEY, _SUSPEND_KEY = b"\x1c", b"\x1a"


def format_ide_wait(plan: Plan, port: int) -> str:
    """Return a line that says where the ranks wait for debuggers of IDEs.

    Args:
        plan: the job's plan, with the ranks.
        port: the port of rank 0; rank N has port + N.

    """
    elsewhere = len(plan.hosts) > 1 or not plan.hosts[0].is_local
    places = [
        f"rank {rank.process_id}{f' on {rank.host.name}' if elsewhere else ''} at "
        f"{join_address(LOOPBACK, port + rank.process_id)}"
        for rank in plan.ranks[:_MOST_PORTS]
    ]
    more = "" if len(plan.ranks) <= _MOST_PORTS else ", and so on"
    return f"waiting for a debugger to attach: {', '.join(places)}{more}"


class Debugging(LauncherPart, DebuggerDisplay):
    """Part that lends the user's terminal to the debuggers of ranks, one at a time."""

    # Once per process, not again in later attempts or in later jobs of a test session.
    _has_said_limits = False

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        launcher.debuggers = self
        self._console = launcher.console
        self._state = launcher.state
        self._queue = DebugQueue()
        self._terminal: UserTerminal | None = None
        self._links: dict[int, AgentConnection] = {}  # by rank that has stopped
        self._cut: dict[int, bool] = {}  # by rank: whether more of its output is to come
        self._unwritten: dict[AgentConnection, int] = {}  # bytes of debuggers' output
        self._passed: set[str] = set()  # places of breakpoints that a detached job has passed

    def get_variable(self, rank: Rank) -> str:
        """Return the value that makes the rank open a debugger at an uncaught exception (--pdb)."""
        return "debugger" if rank.process_id in self.launcher.job.pdb else ""

    def on_begin(self, plan: Plan, now: float) -> None:
        """Pause the job's time limits with --debugpy, because the ranks wait for a debugger."""
        port = self.launcher.job.debugpy
        if port is not None:
            self._state.pause.begin(now)
            self._console.note(format_ide_wait(plan, port))

    # --- messages and output of debuggers ---

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a debugger's message or output."""
        if isinstance(message, Raw):
            self._show_output(link, message.payload)
        elif isinstance(message, FromDebugger):
            self._links[message.rank] = link
            self._cut[message.rank] = message.cut
            effects = self._decide_effects(message.rank, message.pid, message.message, now)
            self._perform(effects, now)

    def _decide_effects(self, rank: int, pid: int, message: DebuggerMessage, now: float) -> Effects:
        match message:
            case DebuggerStopped(where, reason):
                stopped = StoppedDebugger(rank, pid, where, reason)
                if self.launcher.front.standby is not None:
                    return [self._pass_breakpoint(stopped)]
                if not self._queue.ended and (why := self._explain_refusal()):
                    said = f"no terminal for the debugger at {where}: {why}; {_WHAT_HELPS}"
                    return [Refuse(stopped, said)]
                return self._queue.on_debugger_stop(stopped)
            case DebuggerResumed(steps):
                return self._queue.on_debugger_resume(rank, pid, now, steps=steps)
            case DebuggerSwitches(other):
                return self._queue.switch_to(other)
            case DebuggerQuits(where) if not self._queue.ended:
                self.launcher.stop(quit_debugger(self._format_rank(rank), where))
        return []

    def _pass_breakpoint(self, stopped: StoppedDebugger) -> Refuse:
        """Let a rank of a detached job go on; say so once for each breakpoint."""
        reason = f"breakpoint at {stopped.where} passed: {_NO_TERMINAL}"
        if stopped.where not in self._passed:
            self._passed.add(stopped.where)
            self._console.say(reason)
        return Refuse(stopped, reason, passes=True)

    def _explain_refusal(self) -> str:
        if self._terminal is not None:
            return ""
        if self.launcher.job.stdin:
            return "--stdin reads what you type"
        return self.launcher.front.explain_no_terminal()

    def _show_output(self, link: AgentConnection, data: bytes) -> None:
        """Show what a debugger has written."""
        if self._queue.ended:
            return
        self._unwritten[link] = self._unwritten.get(link, 0) + len(data)
        if self._terminal is not None:
            self._terminal.write(data)

    def on_agent_loss(self, link: AgentConnection, now: float) -> None:
        """Remove the debuggers of an agent that is gone, with its ranks."""
        for rank, its_link in self._links.items():
            if its_link is link:
                self._perform(self._queue.on_rank_end(rank), now)

    # --- the user's keys ---

    def _on_keys(self, keys: bytes) -> None:
        if _STACKS_KEY in keys:
            self.launcher.request_stacks()
        if _SUSPEND_KEY in keys and self._terminal is not None:
            self._terminal.suspend()
        keys = keys.replace(_STACKS_KEY, b"").replace(_SUSPEND_KEY, b"")
        active = self._queue.active
        if active is not None and keys:
            self._links[active.rank].send_bytes(NAME, active.rank, keys)

    def on_signal(self, signum: int) -> None:
        """Handle a new size of the terminal, or that the launcher runs again after a suspension."""
        if signum == SIGWINCH:
            self._send_terminal_size()
        elif signum == SIGCONT and self._terminal is not None:
            self._terminal.resume()

    def _send_terminal_size(self) -> None:
        active = self._queue.active
        if self._terminal is not None and active is not None:
            self._links[active.rank].send(TerminalSize(*self._terminal.size))

    def show(self, lines: Sequence[str]) -> bool:
        """Show lines to a user who debugs; return False if no debugger has the terminal."""
        if self._terminal is None or self._queue.active is None:
            return False
        said = "".join(map(self._console.format_own_line, lines))
        self._terminal.say(said.encode("utf-8", "replace"))
        return True

    # --- effects ---

    def _perform(self, effects: Effects, now: float) -> None:
        for effect in effects:
            match effect:
                case Grant():
                    self._grant(effect, now)
                case Refuse(stopped, reason, passes):
                    self._reply(stopped, TerminalRefused(reason, passes))
                case HasToWait(stopped):
                    self._say(
                        f"{self._describe_stop(stopped)} too: "
                        f"type `rank {stopped.rank}` to go there"
                    )
                case StillSteps(stopped):
                    name = self._format_rank(stopped.rank)
                    self._say(f"{name} is still stepping, and may need the other ranks for that")
                case Reclaim():
                    self._reclaim(now)

    def _grant(self, grant: Grant, now: float) -> None:
        self._state.pause.begin(now)
        self._lend(grant.stopped)
        self._answer(grant)

    def _lend(self, stopped: StoppedDebugger) -> None:
        """Lend the terminal at standard input."""
        if self._terminal is None:
            loop = self.launcher.front.loop
            self._terminal = UserTerminal(loop, self._on_keys, self._on_output_written)
        if is_in_background():
            self._console.say(
                f"{self._describe_stop(stopped)}: bring this job to the foreground (fg)"
            )
        self._console.hold()
        self._terminal.lend()

    def _answer(self, grant: Grant) -> None:
        """Send a debugger the grant of the terminal, and show the rank's kept output.

        Show the user which debugger has the terminal, unless the debugger had it before.
        """
        assert self._terminal is not None
        stopped, others = grant.stopped, self._queue.others
        self._terminal.say(self._console.pop_aside(stopped.rank, cut=self._cut[stopped.rank]))
        if not grant.again:
            self._say(self._describe_stop(stopped))
            if others:
                waits = "wait" if len(others) > 1 else "waits"
                go = f"type `rank {others[0]}` to go there"
                self._say(f"{format_ranks(others)} {waits} too: {go}")
            self._say_limits()
        self._send_terminal_size()
        self._reply(stopped, TerminalGranted(os.environ.get("TERM", "dumb")))

    def _say_limits(self) -> None:
        """Say once which of JAX's limits still count, if other ranks may wait for this rank."""
        platforms = {run.compilations.platform for run in self._state.ranks.values()}
        if self._has_said_limits or self._state.initialize_calls < 2:
            return
        Debugging._has_said_limits = True
        first = "30 s in its first collective, or " if platforms <= {"", "cpu"} else ""
        self._say(
            "JAX's own limits still count: a rank that waits for this one fails after "
            f"{first}300 s in a barrier"
        )

    def _reclaim(self, now: float) -> None:
        if self._terminal is not None:
            self._terminal.reclaim()
        self._console.release()
        self._state.pause.end(now)
        self._state.activity.active_at = self._state.activity.heard_at = now

    def _on_output_written(self) -> None:
        for link, count in self._unwritten.items():
            link.send(Credit(count, NAME))
        self._unwritten.clear()

    def _say(self, line: str) -> None:
        self.show([line])

    def _reply(self, stopped: StoppedDebugger, reply: DebuggerReply) -> None:
        self._links[stopped.rank].send(ReplyToDebugger(stopped.pid, reply))

    def _format_rank(self, rank: int) -> str:
        host = self._state.ranks[rank].host
        return f"rank {rank}" + (f" on {host}" if self._state.hosts > 1 else "")

    def _describe_stop(self, stopped: StoppedDebugger) -> str:
        if stopped.reason:
            return f"{self._format_rank(stopped.rank)} failed at {stopped.where} ({stopped.reason})"
        return f"{self._format_rank(stopped.rank)} stopped at {stopped.where}"

    # --- time, and the end ---

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time until which a debugger that steps keeps the terminal; None if none steps."""
        return self._queue.deadline

    def expire(self, now: float) -> None:
        """Let other debuggers have the terminal, if the deadline has come."""
        self._perform(self._queue.expire(now), now)

    def on_stop(self, now: float) -> None:
        """End all debugging, because the ranks are ended."""
        self._perform(self._queue.end(), now)

    def close(self, now: float) -> None:
        """Restore the terminal for good."""
        self.on_stop(now)
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


PART = Debugging
