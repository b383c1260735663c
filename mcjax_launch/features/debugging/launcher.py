"""Lending of the user's terminal to debuggers in ranks."""

import os
from collections.abc import Sequence
from signal import SIGCONT, SIGWINCH

from mcjax_launch.features.debugging.messages import (
    JOB_ENDS,
    NAME,
    DebuggerQuits,
    DebuggerReply,
    DebuggerResumed,
    DebuggerStopped,
    FromDebugger,
    ReplyToDebugger,
    TerminalGranted,
    TerminalRefused,
    TerminalSize,
)
from mcjax_launch.features.debugging.turns import StoppedDebugger, Turns
from mcjax_launch.features.debugging.user_terminal import UserTerminal, is_in_background
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.journal.facts import DebuggingBegan, DebuggingEnded
from mcjax_launch.journal.stop_reasons import quit_debugger
from mcjax_launch.launcher.part import DebuggerDisplay, JobLauncher, LauncherPart
from mcjax_launch.ranks import format_ranks
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
        self._turns = Turns()
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
            self.launcher.journal.append(DebuggingBegan())
            self._console.note(format_ide_wait(plan, port))

    # --- messages and output of debuggers ---

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a debugger's message or output."""
        if isinstance(message, Raw):
            self._show_output(link, message.payload)
        elif isinstance(message, FromDebugger):
            self._links[message.rank] = link
            self._cut[message.rank] = message.cut
            self._on_debugger(message, now)

    def _on_debugger(self, said: FromDebugger, now: float) -> None:
        match said.message:
            case DebuggerStopped(where, reason):
                self._on_stop(StoppedDebugger(said.rank, said.pid, where, reason), now)
            case DebuggerResumed(steps):
                if self._turns.resume(said.rank, said.pid, now, steps=steps):
                    self._begin_next_turn(now)
            case DebuggerQuits(where) if not self._turns.has_ended:
                self.launcher.stop(quit_debugger(self._format_rank(said.rank), where))

    def _on_stop(self, stopped: StoppedDebugger, now: float) -> None:
        """Give a debugger that has stopped the terminal, or refuse it, or let it wait."""
        if self.launcher.front.standby is not None:
            self._pass_breakpoint(stopped)
        elif self._turns.has_ended:
            self._reply(stopped, TerminalRefused(JOB_ENDS))
        elif why := self._explain_refusal():
            said = f"no terminal for the debugger at {stopped.where}: {why}; {_WHAT_HELPS}"
            self._reply(stopped, TerminalRefused(said))
        else:
            before = self._turns.active
            if self._turns.add(stopped):
                self._grant(stopped, now, again=before is not None)
            else:
                self._say(f"{self._describe_stop(stopped)} too: it waits for its turn")

    def _begin_next_turn(self, now: float) -> None:
        if (following := self._turns.begin_next()) is not None:
            self._grant(following, now)
        else:
            self._reclaim(now)

    def _pass_breakpoint(self, stopped: StoppedDebugger) -> None:
        """Let a rank of a detached job go on; say so once for each breakpoint."""
        reason = f"breakpoint at {stopped.where} passed: {_NO_TERMINAL}"
        if stopped.where not in self._passed:
            self._passed.add(stopped.where)
            self._console.say(reason)
        self._reply(stopped, TerminalRefused(reason, passes=True))

    def _explain_refusal(self) -> str:
        if self._terminal is not None:
            return ""
        if self.launcher.job.stdin:
            return "--stdin reads what you type"
        return self.launcher.front.explain_no_terminal()

    def _show_output(self, link: AgentConnection, data: bytes) -> None:
        """Show what a debugger has written."""
        if self._turns.has_ended:
            return
        self._unwritten[link] = self._unwritten.get(link, 0) + len(data)
        if self._terminal is not None:
            self._terminal.write(data)

    def on_agent_loss(self, link: AgentConnection, now: float) -> None:
        """Remove the debuggers of an agent that is gone, with its ranks."""
        for rank, its_link in self._links.items():
            if its_link is link and self._turns.remove(rank):
                self._begin_next_turn(now)

    # --- the user's keys ---

    def _on_keys(self, keys: bytes) -> None:
        if _STACKS_KEY in keys:
            self.launcher.request_stacks()
        if _SUSPEND_KEY in keys and self._terminal is not None:
            self._terminal.suspend()
        keys = keys.replace(_STACKS_KEY, b"").replace(_SUSPEND_KEY, b"")
        active = self._turns.active
        if active is not None and keys:
            self._links[active.rank].send_bytes(NAME, active.rank, keys)

    def on_signal(self, signum: int) -> None:
        """Handle a new size of the terminal, or that the launcher runs again after a suspension."""
        if signum == SIGWINCH:
            self._send_terminal_size()
        elif signum == SIGCONT and self._terminal is not None:
            self._terminal.resume()

    def _send_terminal_size(self) -> None:
        active = self._turns.active
        if self._terminal is not None and active is not None:
            self._links[active.rank].send(TerminalSize(*self._terminal.size))

    def show(self, lines: Sequence[str]) -> bool:
        """Show lines to a user who debugs; return False if no debugger has the terminal."""
        if self._terminal is None or self._turns.active is None:
            return False
        said = "".join(map(self._console.format_own_line, lines))
        self._terminal.say(said.encode("utf-8", "replace"))
        return True

    # --- the terminal ---

    def _grant(self, stopped: StoppedDebugger, now: float, *, again: bool = False) -> None:
        """Give a debugger the terminal; `again`: it had it before a step."""
        self.launcher.journal.append(DebuggingBegan())
        self._lend(stopped)
        self._answer(stopped, again=again)

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

    def _answer(self, stopped: StoppedDebugger, *, again: bool) -> None:
        """Send a debugger the grant of the terminal, and show the rank's kept output.

        Show the user which debugger has the terminal, unless the debugger had it before.
        """
        assert self._terminal is not None
        self._terminal.say(self._console.pop_aside(stopped.rank, cut=self._cut[stopped.rank]))
        if not again:
            self._say(self._describe_stop(stopped))
            if others := self._turns.waiting_ranks:
                wait = "wait for their" if len(others) > 1 else "waits for its"
                self._say(f"{format_ranks(others)} {wait} turn")
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
        self.launcher.journal.append(DebuggingEnded())

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
        return self._turns.deadline

    def expire(self, now: float) -> None:
        """Let other debuggers have the terminal, if a step takes too long."""
        if self.deadline is not None and now >= self.deadline:
            self._begin_next_turn(now)

    def on_stop(self, now: float) -> None:
        """End all debugging, because the ranks are ended."""
        for stopped in self._turns.end():
            self._reply(stopped, TerminalRefused(JOB_ENDS))
        if self._turns.active is not None:
            self._begin_next_turn(now)

    def close(self, now: float) -> None:
        """Restore the terminal for good."""
        self.on_stop(now)
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


PART = Debugging
