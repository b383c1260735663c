"""Start of the ranks on all hosts, by a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.console.log_files import remove_leftovers
from mcjax_launch.console.prefix import find_common_folder, make_labels
from mcjax_launch.job import devices
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, Rank, describe_cores
from mcjax_launch.journal.facts import Planned
from mcjax_launch.journal.rank_run import DevicesAsked
from mcjax_launch.launcher.agent_orders import make_start_order
from mcjax_launch.launcher.time_limits import compute_usage_period_s
from mcjax_launch.ranks import format_count
from mcjax_launch.wire import messages

if TYPE_CHECKING:
    from mcjax_launch.launcher.part import JobLauncher, LauncherPart
    from mcjax_launch.transport.connection import AgentConnection


def order_ranks(launcher: JobLauncher, plan: Plan, *, waits: bool) -> None:
    """Send every agent the orders for its ranks; if `waits`, they start after a Release."""
    parts = launcher.parts.load_used()
    on_host = plan.group_by_host()
    for link in launcher.links:
        _send_orders(launcher, link, plan, on_host[link.host], parts, waits=waits)


def start_ranks(launcher: JobLauncher, plan: Plan, *, is_ordered: bool) -> None:
    """Start the ranks on all hosts, and print what they get.

    Args:
        launcher: the launcher.
        plan: the plan.
        is_ordered: True if `order_ranks` has sent the orders, and the ranks wait.

    """
    _record_plan(launcher, plan)
    if not is_ordered:
        order_ranks(launcher, plan, waits=False)
    for link in launcher.links:
        if is_ordered:
            link.send(messages.Release())
        link.open_window()
    for part in launcher.parts.load_used():
        part.on_begin(plan, time.monotonic())
    show = launcher.console.show_detail
    ranks = format_count(len(plan.ranks), "rank")
    show(f"job {plan.job_id}: {ranks}, JAX_COORDINATOR_ADDRESS={plan.coordinator}")
    _report_devices(launcher, plan)
    for host in launcher.startup.portable:
        show(f"{host.name}: portable mode, without the features that need Linux")


def _record_plan(launcher: JobLauncher, plan: Plan) -> None:
    """Record the plan in the state, and name its ranks on the console and in log files."""
    job, state = launcher.job, launcher.state
    state.expects_hooks = job.expects_hooks
    state.suggest = lambda: " ".join(job.suggest_program())
    labels = make_labels(plan, job.log_dir)
    is_first = launcher.restart == 0
    if is_first:
        remove_leftovers(labels, job.num_processes)
    launcher.console.add_ranks(labels, append=not is_first)
    places = {rank.process_id: rank.host.name for rank in plan.ranks}
    folder = find_common_folder(labels)
    launcher.journal.append(Planned(plan.job_id, plan.coordinator, places, folder))
    asked = _find_requested_devices(job)
    for label in labels:
        state.ranks[label.process_id].share.log_folder = label.folder
    for rank in plan.ranks:
        share = state.ranks[rank.process_id].share
        share.asked, share.cores = asked, rank.bound_to
        share.gpus, share.shared_gpus = rank.gpus, plan.gpus[rank.host].shared


def _send_orders(
    launcher: JobLauncher,
    link: AgentConnection,
    plan: Plan,
    ranks: Sequence[Rank],
    parts: Sequence[LauncherPart],
    *,
    waits: bool,
) -> None:
    line = launcher.console.status_line
    is_watched = line is not None and line.is_live
    is_read = launcher.events.is_read
    every_s = compute_usage_period_s(launcher.job, watched=is_watched, events=is_read)
    for order in [order for part in parts for order in part.make_orders(ranks, plan)]:
        link.send(order)
    completed = map(launcher.parts.add_variables, ranks)
    link.send(make_start_order(plan, completed, launcher.job, every_s, waits=waits))


def _report_devices(launcher: JobLauncher, plan: Plan) -> None:
    """Print the devices and cores that the ranks get."""
    console = launcher.console
    for line in devices.describe_gpus(plan.gpus):
        console.show_detail(line)
    if line := describe_cores(plan.ranks, launcher.job.bind_cores):
        console.show_detail(line)
    for line in plan.notes:
        console.note(line)


def _find_requested_devices(job: Job) -> DevicesAsked | None:
    if job.cpu_devices is not None:
        return DevicesAsked(f"-d {job.cpu_devices}", job.cpu_devices, "CPU device")
    if isinstance(each := job.gpus_per_process, int):
        return DevicesAsked(f"--gpus-per-process {each}", each, "GPU")
    return None
