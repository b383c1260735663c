"""Lending of the user's terminal to debuggers in ranks."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Callable, Sequence
from signal import SIGCONT, SIGINT, SIGWINCH

from mcjax_launch.features.debugging.messages import (
    JOB_ENDS,
    DebuggerQuits,
    DebuggerReply,
    DebuggerResumed,
    DebuggerStopped,
    FromDebugger,
    ReplyToDebugger,
    SignalDebugger,
    TerminalGranted,
    TerminalRefused,
)
from mcjax_launch.job.plan import Rank
from mcjax_launch.journal.facts import DebuggingBegan, DebuggingEnded
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.part import DebuggerDisplay, JobLauncher, LauncherPart
from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.system import is_in_foreground
from mcjax_launch.machine.uplink import Uplink
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_ranks
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import ToLauncher
from mcjax_launch.wire.value import Value

#: Seconds for which a debugger that steps keeps the terminal.
STEP_S = 1.0


class StoppedDebugger(Value):
    """Process of a rank that has stopped in its debugger.

    Args:
        rank: the rank.
        pid: its process id on its host.
        where: the line at which it has stopped.
        reason: why, "" for a breakpoint.

    """

    rank: int
    pid: int
    where: str
    reason: str = ""

    def is_of(self, rank: int, pid: int) -> bool:
        """Return whether it is the debugger of this process of a rank."""
        return (self.rank, self.pid) == (rank, pid)


class Turns:
    """Debuggers that want the terminal, in order of arrival.

    Times (`now`, `deadline`) are seconds of any steady clock.

    Attributes:
        active: the debugger that has the terminal; it steps while there is a deadline.
        deadline: time at which a step has taken too long; None if no debugger steps.
        has_ended: True if the job ends, so that no debugger gets the terminal any more.

    """

    def __init__(self) -> None:
        self.active: StoppedDebugger | None = None
        self.deadline: float | None = None
        self.has_ended = False
        self._waiting: list[StoppedDebugger] = []

    @property
    def waiting_ranks(self) -> tuple[int, ...]:
        """Ranks whose debuggers wait for the terminal."""
        return tuple(sorted(waiting.rank for waiting in self._waiting))

    def add(self, stopped: StoppedDebugger) -> bool:
        """Add a debugger that has stopped; return whether it has the terminal."""
        if self.active is None or self.active.is_of(stopped.rank, stopped.pid):
            self.active, self.deadline = stopped, None
            return True
        self._waiting.append(stopped)
        return False

    def resume(self, rank: int, pid: int, now: float, *, steps: bool) -> bool:
        """Record that a program goes on, or has ended; return whether a turn is over.

        Args:
            rank: the rank.
            pid: id of its process.
            now: the time.
            steps: True if the program will soon stop again.

        """
        if self.active is None or not self.active.is_of(rank, pid):
            self._waiting = [each for each in self._waiting if not each.is_of(rank, pid)]
            return False
        if steps:
            self.deadline = now + STEP_S
            return False
        # A process that ends in a step may end the job: others wait for that moment.
        return self.deadline is None or not self._waiting

    def remove(self, rank: int) -> bool:
        """Remove a rank's debuggers, whose processes have ended; return whether a turn is over."""
        self._waiting = [waiting for waiting in self._waiting if waiting.rank != rank]
        return self.active is not None and self.active.rank == rank

    def begin_next(self) -> StoppedDebugger | None:
        """Begin and return the next debugger's turn; None if no debugger waits."""
        self.active = self._waiting.pop(0) if self._waiting else None
        self.deadline = None
        return self.active

    def end(self) -> list[StoppedDebugger]:
        """End all turns, because the job ends; return the debuggers that have waited."""
        waiting, self._waiting = self._waiting, []
        self.has_ended = True
        return waiting


_DEBUGPY = "-m debugpy --listen 'localhost:567{process_id}' --wait-for-client PROGRAM"
_WHAT_HELPS = f"run it at a terminal, or as {_DEBUGPY} (-x PYTHONBREAKPOINT=0 ignores breakpoints)"
_ELSEWHERE = f"a debugger on another host cannot have your terminal; start the job as {_DEBUGPY}"


class Debugging(LauncherPart, DebuggerDisplay):
    """Part that lends the user's terminal to the debuggers of ranks, one at a time."""

    is_for_ranks_alone = True
    # Once per process, not again in later attempts or in later jobs of a test session.
    _has_said_limits = False

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        launcher.debuggers = self
        self._console = launcher.console
        self._state = launcher.state
        self._turns = Turns()
        self._terminal: UserTerminal | None = None
        self._awaits_foreground = False  # the debugger whose turn it is
        self._links: dict[int, AgentConnection] = {}  # by rank that has stopped
        self._cut: dict[int, bool] = {}  # by rank: whether more of its output is to come
        self._passed: set[str] = (
            set()
        )  # places of breakpoints that ranks without a terminal have passed

    def get_variable(self, rank: Rank) -> str:
        """Return the value that makes the rank open a debugger at an uncaught exception (--pdb)."""
        return "debugger" if rank.process_id in declared.get(self.launcher.job, "pdb") else ""

    # --- messages of debuggers ---

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a debugger's message."""
        if isinstance(message, FromDebugger):
            self._links[message.rank] = link
            self._cut[message.rank] = message.cut
            self._on_debugger(message, now)

    def _on_debugger(self, said: FromDebugger, now: float) -> None:
        match said.message:
            case DebuggerStopped(where, reason):
                self._on_stop(StoppedDebugger(said.rank, said.pid, where, reason), now)
            case DebuggerResumed(steps):
                if self._turns.resume(said.rank, said.pid, now, steps=steps):
                    self._begin_next_turn()
            case DebuggerQuits(where) if not self._turns.has_ended:
                quits = f"the debugger of {self._format_rank(said.rank)} was quit at {where}"
                status = exit_status.compute_signal_status(SIGINT)
                self.launcher.stop(StopReason(f"stopped: {quits}", status))

    def _on_stop(self, stopped: StoppedDebugger, now: float) -> None:
        """Give a debugger that has stopped the terminal, or refuse it, or let it wait."""
        if why := self.launcher.front.no_terminal:
            self._pass_breakpoint(stopped, why)
        elif self._turns.has_ended:
            self._reply(stopped, TerminalRefused(JOB_ENDS))
        elif why := self._explain_refusal(stopped):
            said = f"no terminal for the debugger at {stopped.where}: {why}"
            self._reply(stopped, TerminalRefused(said))
        else:
            before = self._turns.active
            if self._turns.add(stopped):
                self._grant(stopped, again=before is not None)
            else:
                self._say(f"{self._describe_stop(stopped)} too: it waits for its turn")

    def _begin_next_turn(self) -> None:
        if (following := self._turns.begin_next()) is not None:
            self._grant(following)
        else:
            self._reclaim()

    def _pass_breakpoint(self, stopped: StoppedDebugger, why: str) -> None:
        """Let a rank go on that can never have a terminal; say so once for each breakpoint."""
        reason = f"breakpoint at {stopped.where} passed: {why}; start it as {_DEBUGPY}"
        if stopped.where not in self._passed:
            self._passed.add(stopped.where)
            self._console.say(reason)
        self._reply(stopped, TerminalRefused(reason, passes=True))

    def _explain_refusal(self, stopped: StoppedDebugger) -> str:
        if not self._links[stopped.rank].host.is_local:
            return _ELSEWHERE
        if self._terminal is not None:
            return ""
        if self.launcher.job.reads_input:
            return f"--stdin reads what you type; {_WHAT_HELPS}"
        why = self.launcher.front.explain_no_terminal()
        return f"{why}; {_WHAT_HELPS}" if why else ""

    def on_agent_loss(self, link: AgentConnection, now: float) -> None:
        """Remove the debuggers of an agent that is gone, with its ranks."""
        for rank, its_link in self._links.items():
            if its_link is link and self._turns.remove(rank):
                self._begin_next_turn()

    # --- the user ---

    def interrupt(self) -> bool:
        """Pass a Ctrl-C to the rank whose debugger has the terminal; return False if none has."""
        return self._pass_signal(SIGINT)

    def _pass_signal(self, signum: int) -> bool:
        active = self._turns.active
        if active is None or self._terminal is None or not self._terminal.is_lent:
            return False
        self._links[active.rank].send(SignalDebugger(active.pid, signum))
        return True

    def on_signal(self, signum: int) -> None:
        """Pass on a new size; lend the terminal once a job has come to the foreground."""
        active = self._turns.active
        if signum == SIGWINCH:
            self._pass_signal(SIGWINCH)
        elif signum == SIGCONT and self._awaits_foreground and active is not None:
            self._grant(active)

    def show(self, lines: Sequence[str]) -> bool:
        """Show lines to a user who debugs; return False if no debugger has the terminal."""
        if self._terminal is None or not self._terminal.is_lent:
            return False
        self._terminal.write(b"\n" + self._format(lines))  # below a prompt
        return True

    def _format(self, lines: Sequence[str]) -> bytes:
        return "".join(map(self._console.format_own_line, lines)).encode("utf-8", "replace")

    # --- the terminal ---

    def _grant(self, stopped: StoppedDebugger, *, again: bool = False) -> None:
        """Give a debugger the terminal at standard input; `again`: it had it before a step.

        A job in the background gets it with the user's `fg`.
        """
        self.launcher.journal.append(DebuggingBegan())
        self._awaits_foreground = is_in_foreground(0) is False
        if self._awaits_foreground:
            where = self._describe_stop(stopped)
            self._console.say(f"{where}: bring this job to the foreground (fg)")
            return
        if self._terminal is None:
            self._terminal = UserTerminal(self.launcher.front.loop)
        self._console.hold()
        self._terminal.lend()
        self._answer(self._terminal, stopped, again=again)

    def _answer(self, terminal: UserTerminal, stopped: StoppedDebugger, *, again: bool) -> None:
        """Send a debugger the grant of the terminal, and show the rank's kept output.

        Show the user which debugger has the terminal, unless the debugger had it before.
        """
        terminal.write(self._console.pop_aside(stopped.rank, cut=self._cut[stopped.rank]))
        if not again:
            lines = [self._describe_stop(stopped)]
            if others := self._turns.waiting_ranks:
                wait = "wait for their" if len(others) > 1 else "waits for its"
                lines.append(f"{format_ranks(others)} {wait} turn")
            terminal.write(self._format([*lines, *self._explain_limits()]))
        granted = TerminalGranted(terminal.path, os.environ.get("TERM", "dumb"))
        terminal.call_when_written(lambda: self._reply(stopped, granted))

    def _explain_limits(self) -> list[str]:
        """Say once which of JAX's limits still count, if other ranks may wait for this rank."""
        platforms = {run.compilations.platform for run in self._state.ranks.values()}
        if self._has_said_limits or self._state.initialize_calls < 2:
            return []
        Debugging._has_said_limits = True
        first = "30 s in its first collective, or " if platforms <= {"", "cpu"} else ""
        return [
            "JAX's own limits still count: a rank that waits for this one fails after "
            f"{first}300 s in a barrier"
        ]

    def _reclaim(self) -> None:
        if self._terminal is not None:
            self._terminal.reclaim()
        self._console.release()
        self.launcher.journal.append(DebuggingEnded())

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
            self._begin_next_turn()

    def on_stop(self, now: float) -> None:
        """End all debugging, because the ranks are ended."""
        for stopped in self._turns.end():
            self._reply(stopped, TerminalRefused(JOB_ENDS))
        if self._turns.active is not None:
            self._begin_next_turn()

    def close(self, now: float) -> None:
        """Restore the terminal for good."""
        self.on_stop(now)
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


PART = Debugging

# --- the user's terminal, lent to a debugger in a rank, which opens it by its name ---

_INPUT = 0
# Waits for the launcher, and restores the terminal's settings if it has ended without a word. The
# signals may be for a whole process group or session.
_KEEPS = "trap '' INT TERM HUP QUIT TSTP TTOU TTIN USR1 USR2; read word || {{ stty {} <&1; echo; }}"


class UserTerminal:
    """Terminal at standard input.

    Args:
        loop: event loop that reports room on the screen.

    Attributes:
        path: its path.

    """

    def __init__(self, loop: Loop) -> None:
        self.path = os.ttyname(_INPUT)
        # Opened again: other processes share descriptor 0.
        self._screen = os.open(self.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._output = Uplink(self._screen, loop, self._on_written)
        self._when_written: Callable[[], object] | None = None
        self._settings = termios.tcgetattr(self._screen)
        self._keeper: _Keeper | None = None  # while it is lent

    @property
    def is_lent(self) -> bool:
        """True while a debugger has the terminal."""
        return self._keeper is not None

    def lend(self) -> None:
        """Keep the settings, because a debugger may change them from now on."""
        if self._keeper is not None:
            return
        self._settings = termios.tcgetattr(self._screen)
        self._keeper = _Keeper(self._screen)
        # A Ctrl-Z would suspend the launcher, and the rank would read on, beside the shell.
        settings = termios.tcgetattr(self._screen)
        settings[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._screen, termios.TCSANOW, settings)

    def reclaim(self) -> None:
        """End the lending, and restore the settings."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._restore()
            keeper.end()

    def _restore(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(self._screen, termios.TCSANOW, self._settings)

    def write(self, text: bytes) -> None:
        """Show whole lines beside what a debugger shows, now or as soon as there is room."""
        if text:
            self._output.send(text)

    def call_when_written(self, call: Callable[[], object]) -> None:
        """Call a function once all lines are on the screen, which may be slow."""
        self._when_written = call
        if self._output.empty:
            self._on_written()

    def _on_written(self) -> None:
        call, self._when_written = self._when_written, None
        if call is not None:
            call()

    def close(self) -> None:
        """Restore and close the terminal: no rank is left that could change its settings."""
        self.reclaim()
        self._restore()
        self._output.drop()
        os.close(self._screen)


class _Keeper:
    """Process that restores a terminal's settings, as they are now, if the launcher is killed."""

    def __init__(self, terminal: int) -> None:
        import subprocess  # few runs have a debugger

        stty = subprocess.run(["stty", "-g"], stdin=terminal, capture_output=True, text=True)
        self._process = subprocess.Popen(
            ["sh", "-c", _KEEPS.format(stty.stdout.strip())],
            stdin=subprocess.PIPE,
            stdout=terminal,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the process, because the settings have been restored."""
        self._process.communicate(b"restored\n")
