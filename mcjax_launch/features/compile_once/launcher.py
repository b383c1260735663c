"""Tells hosts to share compiled programs, and counts what ranks compile and load."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.summary import duration
from mcjax_launch.features.compile_once.messages import Awaits, NoCache, Obtained, ShareCompiled
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.wire.messages import FromHook
from mcjax_launch.ranks import counted

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.wire.frames import Raw
    from mcjax_launch.kernel.wire.messages import ToAgent, ToLauncher


class Counting(LauncherPart):
    """Keeps with each rank how many programs it has compiled and loaded."""

    def orders(self, ranks: Sequence["Rank"], plan: "Plan") -> Iterable["ToAgent"]:
        """Have the ranks of a host share, unless there is nobody to share with."""
        job = self.launcher.job
        if len(ranks) < 2 and not job.compile_cache and not job.max_restarts:
            return ()
        folder, size = job.compile_cache or ("", 0)
        return (ShareCompiled(job.compile_once, folder, size),)

    def received(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Count what ranks have obtained; say where a cache cannot be used."""
        match message:
            case NoCache(reason):
                folder, _ = self.launcher.job.compile_cache or ("", 0)
                self.launcher.console.note(
                    f"host {link.host.name}: --compile-cache {folder}: {reason}; compiled programs "
                    "are kept for this job alone"
                )
            case FromHook(rank=rank, message=Obtained(is_loaded, seconds)):
                self.launcher.state.ranks[rank].compilations.obtained(is_loaded, seconds)
            case FromHook(rank=rank, message=Awaits(other)):
                self.launcher.state.ranks[rank].compilations.awaits = other

    def concluded(self, summary: "Summary", *, last: bool) -> None:
        """With -v say what was compiled and loaded, and what that saved."""
        programs = [run.compilations for run in self.launcher.state.ranks.values()]
        compiled = sum(one.compiled for one in programs)
        loaded = sum(one.loaded for one in programs)
        if not compiled + loaded:
            if any(one.latest is not None for one in programs):
                self.launcher.console.detail(
                    "--compile-once: no program was shared: this jax, its platform or the programs "
                    "do not allow it"
                )
            return
        spent = duration(sum(one.compiled_s for one in programs))
        saved = duration(sum(one.saved_s for one in programs))
        self.launcher.console.detail(
            f"--compile-once: {counted(compiled, 'program')} compiled in {spent}, "
            f"{counted(loaded, 'program')} loaded, which saved {saved} of compiling"
        )


PART = Counting
