"""Orders to hosts to share compiled programs, and counts of what ranks compile and load."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.features.compile_once.messages import (
    Awaits,
    CannotLimit,
    NoCache,
    Obtained,
    ShareCompiled,
)
from mcjax_launch.features.compile_once.options import CompileOptions
from mcjax_launch.journal.facts import AwaitsCompilation, ProgramObtained
from mcjax_launch.journal.words import format_duration
from mcjax_launch.launcher.part import LauncherPart
from mcjax_launch.ranks import format_count
from mcjax_launch.wire.messages import FromHook

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.launcher.launcher import Launcher
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToAgent, ToLauncher


class CompilationCounter(LauncherPart):
    """Part that counts for each rank how many programs it has compiled and loaded."""

    def __init__(self, launcher: "Launcher") -> None:
        super().__init__(launcher)
        self._unused: set[str] = set()  # hosts that do not use the folder, which has been said

    def make_orders(self, ranks: Sequence["Rank"], plan: "Plan") -> Iterable["ToAgent"]:
        """Let the ranks of a host share, unless there is nothing to share with."""
        own = CompileOptions.of(self.launcher.job)
        if len(ranks) < 2 and not own.compile_cache:
            return ()
        return (ShareCompiled(own.compile_once, own.compile_cache or "", own.compile_cache_bytes),)

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Count what ranks have obtained; report a cache that cannot be used."""
        match message:
            case NoCache(reason):
                self._report_unused(link, reason)
            case FromHook(message=CannotLimit()):
                self._report_unused(
                    link,
                    "JAX keeps to a size with the package filelock (pip install filelock, or give "
                    "no size)",
                )
            case FromHook(rank=rank, message=Obtained(is_loaded, seconds)):
                self.launcher.journal.append(ProgramObtained(rank, is_loaded, seconds))
            case FromHook(rank=rank, message=Awaits(other)):
                self.launcher.journal.append(AwaitsCompilation(rank, other))

    def _report_unused(self, link: "AgentConnection", reason: str) -> None:
        """Report once for each host that the folder of --compile-cache is not used."""
        if link.host.name in self._unused:
            return
        self._unused.add(link.host.name)
        folder = CompileOptions.of(self.launcher.job).compile_cache
        where = f"host {link.host.name}: " if len(self.launcher.pool.links) > 1 else ""
        self.launcher.console.say(
            f"{where}--compile-cache {folder} is not used: {reason}; compiled programs are "
            "kept only for this job"
        )

    def on_summary(self, summary: "Summary") -> None:
        """Report with -v what was compiled and loaded, and the time saved."""
        ranks = [run.compilations for run in self.launcher.state.ranks.values()]
        compiled, loaded = sum(rank.compiled for rank in ranks), sum(rank.loaded for rank in ranks)
        if compiled or loaded:
            spent = format_duration(sum(rank.compiled_s for rank in ranks))
            saved_s = sum(rank.saved_s for rank in ranks)
            seen = f"{format_count(compiled, 'program')} compiled"
            seen += f" in {spent}" if compiled else ""
            seen += f", {loaded} loaded"
            seen += f", which saved {format_duration(saved_s)} of compiling" if saved_s else ""
        elif any(rank.latest and not rank.under_way for rank in ranks):
            seen = "each rank has compiled its own programs"
        else:
            return
        self.launcher.console.show_detail(f"--compile-once: {seen}")


PART = CompilationCounter
