"""Orders to the agents: what to prepare, and which ranks to start. Functions have no effects."""

from collections.abc import Iterable, Sequence

from mcjax_launch.job import placeholders
from mcjax_launch.job.devices import needs_gpus
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import WITHOUT_JAX, Job
from mcjax_launch.job.plan import Plan, Rank, make_shared_values, make_values
from mcjax_launch.job.program_copies import list_source_paths
from mcjax_launch.options import features as declared
from mcjax_launch.options.wrappers import list_commands
from mcjax_launch.wire import messages
from mcjax_launch.wire.address import split_address

# The placeholders that have no value before the ranks start.
_LATER = dict.fromkeys(("coordinator", "coordinator_host", "coordinator_port"), "")


def make_prepare_order(
    job: Job, host: Host, ranks: Sequence[int], *, first: bool, several: bool
) -> messages.Prepare:
    """Return the order to an agent to look up and reserve things before ranks are started.

    Args:
        job: the job.
        host: the agent's host.
        ranks: the ranks that will run there.
        first: True if the host is the coordinator's.
        several: True if the job has other hosts.

    """
    coordinator: messages.Bind | None = None
    if first:
        address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
        # Other hosts may reach this host by an address that is not its own (NAT).
        elsewhere = several or job.num_hosts > 1
        coordinator = messages.Bind("" if elsewhere else address, port)
    if job.host_rank:
        coordinator = None
    return messages.Prepare(
        remote=not host.is_local,
        command=None if job.is_python else job.program[0],
        program=job.program[0] if job.is_python and not job.module else None,
        missing="" if host.is_local and not job.sync else job.program_hint,
        pythons=_list_pythons(job, host) if job.is_python else (),
        without_jax=_get_no_jax_error(job, host),
        env=_fill_variables(job, host, ranks),
        chdir=host.chdir or job.chdir,
        chdir_given=bool(host.chdir) or job.chdir_given,
        coordinator=coordinator,
        listen=several and first,
        describe=several,
        towards=_get_other_coordinator(job),
        transfer_ports=len(ranks) if job.cpu_transfers else 0,
        gpus=needs_gpus(job, len(ranks)),
        tpus=(job.is_python and not job.uses_cpu) or job.tpu_chips_per_process is not None,
        tpu_ports=len(ranks) if job.tpu_chips_per_process is not None else 0,
        any_order=several and job.coordinator is None,
        bind_cores=job.bind_cores,
        ranks=len(ranks),
        wrappers=list_commands(job.wrappers, ranks),
        jax=job.asks_jax and job.expects_hooks,
        sources=list_source_paths(job) if several or job.record else (),
    )


def _fill_variables(job: Job, host: Host, ranks: Sequence[int]) -> dict[str, str]:
    """Return the user's variables as the first rank of a host will have them.

    What the agent asks of Python there is asked with them. A value that holds the coordinator,
    which is not chosen yet, is left out.
    """
    shared = make_shared_values(job, "0" * 8, "", "")
    values = make_values(shared, host, min(ranks, default=0), 0)
    return {
        name: placeholders.fill(value, values)
        for name, value in job.env
        if placeholders.fill(value, _LATER) == value
    }


def _is_given(job: Job, host: Host) -> bool:
    """Return whether the user has named the Python of the ranks on a host."""
    return bool(host.python) or job.python_given


def _list_pythons(job: Job, host: Host) -> tuple[str, ...]:
    """Return the Python interpreters from which the agent may choose, the best first."""
    python = host.python or job.python
    return (python,) if host.is_local or _is_given(job, host) else (python, "python3", "python")


def _get_no_jax_error(job: Job, host: Host) -> str:
    """Return the error message for a Python without jax; "" if the ranks' Python has jax."""
    if _is_given(job, host) or not host.is_local:
        return WITHOUT_JAX
    chooses = declared.find_first(job)
    return job.python_without_jax or (WITHOUT_JAX if chooses else "")


def _get_other_coordinator(job: Job) -> str | None:
    if job.coordinator is None or job.num_hosts == 1:
        return None
    return split_address(job.coordinator)[0]


def make_start_order(
    plan: Plan, ranks: Iterable[Rank], job: Job, sample_every_s: float, *, waits: bool
) -> messages.Start:
    """Return the order to an agent to start its ranks.

    Args:
        plan: the job's plan.
        ranks: the ranks on the agent's host.
        job: the job.
        sample_every_s: seconds between the agent's reports of the ranks' usage; 0 for no reports.
        waits: True if the ranks wait for a Release.

    """
    orders = tuple(map(_make_rank_order, ranks))
    return messages.Start(
        ranks=orders,
        env=dict(plan.env),
        defaults=dict(plan.defaults),
        hook=plan.hook,
        coordinator_host=split_address(plan.coordinator)[0],
        private=job.coordinator is None and len(plan.hosts) == 1,
        sample_every_s=sample_every_s,
        grace_s=job.get_grace_s("failure"),
        term_grace_s=job.get_grace_s("TERM"),
        on_failure="continue" if job.survives else "stop",
        waits=waits,
    )


def _make_rank_order(rank: Rank) -> messages.RankOrder:
    return messages.RankOrder(
        rank.process_id,
        rank.argv,
        dict(rank.env),
        rank.cwd,
        rank.settings,
        rank.wrapper_words,
    )
