"""Messages to the user about --preload: ranks that were forked or not, and long imports."""

from collections.abc import Iterable, Sequence

from mcjax_launch.features.preload.choice import MODULES, find_obstacle
from mcjax_launch.features.preload.messages import (
    Importing,
    Preload,
    Preloaded,
    SetTooLate,
    StartedAfresh,
)
from mcjax_launch.features.preload.options import AUTO, PreloadOptions
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.journal import facts
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_ranks
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import FromHook, ToAgent, ToLauncher
from mcjax_launch.wire.timers import scale_time

# Seconds after which an import that is still under way is reported.
_LONG_S = scale_time(30.0)


class PreloadNotes(LauncherPart):
    """Part that prints notes on --preload.

    A note that holds for several hosts is printed once.
    """

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        own = PreloadOptions.of(launcher.job)
        self._is_auto = own.preload == AUTO
        self._modules = MODULES if self._is_auto else own.preload
        self._state = launcher.state
        self._note = launcher.console.note
        self._detail = launcher.console.show_detail
        self._said: set[str] = set()

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Return an order to import modules, if ranks can be forked."""
        return [] if find_obstacle(self.launcher.job) else [Preload(self._modules, self._is_auto)]

    def on_begin(self, plan: Plan, now: float) -> None:
        """Report why --preload does nothing in this job, if so."""
        if why := find_obstacle(self.launcher.job):
            self._detail(f"--preload: {why}; the ranks are started afresh")

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Report an import, forked ranks, ranks started afresh, or a variable set too late."""
        host = link.host.name
        if isinstance(message, Importing):
            self.launcher.journal.append(facts.ImportBegan(host, message.module))
            if self.deadline is None:
                self.deadline = now + _LONG_S
        elif isinstance(message, Preloaded):
            how = f"after importing {','.join(self._modules)} in {message.seconds:.2f} s"
            why = f" ({message.why})" if message.why else ""
            self._detail(f"{format_ranks(message.ranks)} forked {how}{why}")
        elif isinstance(message, StartedAfresh):
            where = host if self._state.hosts > 1 else ""
            words = describe_fresh_start(message, where, len(self._state.ranks))
            is_news = message.reason not in self._said
            self._said.add(message.reason)
            (self._note if is_news and not self._is_auto else self._detail)(words)
        elif isinstance(message, FromHook) and isinstance(message.message, SetTooLate):
            # With --quiet too: the program gets another result than it asks for.
            line = describe_late_setting(message.message)
            if line not in self._said:
                self._said.add(line)
                self.launcher.console.say(line)

    def expire(self, now: float) -> None:
        """Report imports that are still under way, if the deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        imports = declared.load("importing")
        for words in imports.describe_imports(self._state, now) if imports else ():
            self._note(f"--preload: still {words}; Ctrl-\\ shows where")


def describe_fresh_start(message: StartedAfresh, host: str, num_ranks: int) -> str:
    """Return the line on ranks that are not forked; pure.

    Args:
        message: ranks and the reason.
        host: name of the host; "" if there is only one host.
        num_ranks: number of ranks that this launcher starts.

    """
    where = f"host {host}: " if host else ""
    ranks = format_ranks(message.ranks)
    if len(message.ranks) == num_ranks:
        ranks = "the ranks"
    verb = "is" if ranks.startswith("rank ") else "are"
    return f"--preload: {where}{message.reason}; {ranks} {verb} started afresh"


def describe_late_setting(message: SetTooLate) -> str:
    """Return the line on what a program has changed after jax was imported for it; pure."""
    names = ", ".join(message.names)
    return (
        f"--preload: jax had been imported when the program changed {names}, and did not see the "
        "change: use -x NAME=VALUE, or --preload none"
    )


PART = PreloadNotes
