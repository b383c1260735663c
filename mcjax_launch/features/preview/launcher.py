"""The launcher's part in --preview: it chooses the ranks that run, and prints what they report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.preview.messages import (
    Alone,
    Calls,
    Checkpoint,
    PreviewedProgram,
    Wanted,
)
from mcjax_launch.features.preview.options import PreviewOptions, parse_memory
from mcjax_launch.features.preview.report import (
    Chip,
    RankReport,
    find_misfits,
    find_rematerialized,
    format_report,
    make_record,
)
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.codec import to_json
from mcjax_launch.wire.hook_messages import Failed
from mcjax_launch.wire.messages import Exited, FromHook

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToAgent, ToLauncher

_MOST_RANKS = 64


# --- the ranks that run ---


def compute_sizes(options: Options, hosts: Sequence[Host]) -> tuple[int, ...]:
    """Return the number of ranks on each host; without named hosts each rank has its own."""
    count = options.num_processes or sum(host.slots for host in hosts)
    if [host.name for host in hosts] != [LOCAL]:
        return tuple(count_ranks_by_host(count, hosts).values())
    each = options.procs_per_host or 1
    return tuple(min(each, count - first) for first in range(0, count, each))


def choose_ranks(job: Job, sizes: tuple[int, ...]) -> Job:
    """Return the job in which only the ranks of --preview run.

    Args:
        job: the whole job, with all its ranks on this machine.
        sizes: number of ranks on each host of the whole job.

    Raises:
        LaunchError: there are too many ranks or only one, or too few chips for the whole job.

    """
    own = PreviewOptions.of(job)
    ranks = job.expand_ranks("--preview", own.preview)
    if sum(sizes) == 1:
        raise LaunchError("--preview: a job of one rank needs none; add -n N")
    if len(ranks) > _MOST_RANKS:
        raise LaunchError(
            f"--preview: {len(ranks)} ranks, and at most {_MOST_RANKS} run; name some, such as "
            "--preview 0,17"
        )
    devices = job.cpu_devices or 1
    if own.on is not None and parse_memory(own.on) is None:
        _check_chips(own.on, sum(sizes), devices)
    job = job.copy_with(
        alone=tuple(sorted(ranks)),
        host_sizes=sizes,
        cpu_devices=devices,
        survives=len(ranks) > 1,
    )
    return declared.change(job, compile_once="off", preload=(), mtls="off")


def _check_chips(slice_: str, ranks: int, devices: int) -> None:
    name, _, shape = slice_.partition(":")
    there_are = math.prod(map(int, shape.split("x")))
    if name in ("v2", "v3"):
        there_are *= 2  # a chip is two devices
    if there_are < ranks * devices:
        raise LaunchError(
            f"--on {slice_}: {format_count(there_are, 'chip')}, and the job has "
            f"{ranks} ranks of {format_count(devices, 'device')}"
        )


# --- what they report ---


class PreviewReport(LauncherPart):
    """Part that reports what the programs of ranks need."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        on = PreviewOptions.of(launcher.job).on or ""
        self._chip = Chip(on, parse_memory(on) or 0)
        self._ranks = {rank: RankReport(rank) for rank in launcher.job.alone}
        self._left = set(launcher.job.alone)

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Order the agent to start the ranks a few at a time."""
        return (Alone(),)

    def get_variable(self, rank: Rank) -> str:
        """Return what is asked of a rank."""
        job = self.launcher.job
        steps = PreviewOptions.of(job).preview_steps or 0
        topology = "" if self._chip.memory else self._chip.on
        return to_json(Wanted(job.host_sizes, steps, topology))

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Record what a rank reports."""
        match message:
            case FromHook(rank=rank, message=PreviewedProgram() as program):
                self._ranks[rank].programs.append(program)
            case FromHook(rank=rank, message=Calls() as calls):
                self._ranks[rank].counts = calls.counts
            case FromHook(rank=rank, message=Checkpoint() as checkpoint):
                self._ranks[rank].checkpoints.append(checkpoint)

    def on_from_hook(self, message: FromHook, _: float) -> None:
        """Record the exception that has ended a rank."""
        if isinstance(failed := message.message, Failed):
            self._ranks[message.rank].error = failed.exception

    def on_exited(self, message: Exited, _: float) -> None:
        """Judge at the end of the last rank whether all programs fit, if no rank has failed."""
        state, report = self.launcher.state, self._ranks[message.rank]
        report.has_failed = state.ranks[message.rank].failed
        report.rematerialized = find_rematerialized(state.tails.get_tails(message.rank)[1])
        self._left.discard(message.rank)
        has_failed = any(run.failed for run in state.ranks.values())
        if self._left or has_failed or self.launcher.policy.ending:
            return
        if misfits := find_misfits(self._ranks.values(), self._chip):
            first, *others = misfits
            self.launcher.stop(StopReason(first, exit_status.FAILED, tuple(others)))

    def on_summary(self, summary: Summary) -> None:
        """Print the report."""
        job = self.launcher.job
        ranks = [rank for rank in self._ranks.values() if rank.rank not in self._left]
        lines = list(format_report(ranks, job.num_processes, job.cpu_devices or 1, self._chip))
        self.launcher.console.say("\n".join(lines))
        self.launcher.state.preview = make_record(ranks, lines, self._chip)


PART = PreviewReport
