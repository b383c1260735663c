"""Orders for the agents: what to prepare, and what to start; pure."""

from collections.abc import Iterable, Sequence

from mcjax_launch.job.devices import may_use_gpus
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import WITHOUT_JAX, Job
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.kernel.wire import messages
from mcjax_launch.kernel.wire.address import split_address
from mcjax_launch.kernel.wire.rank_environ import RANK_RESTART
from mcjax_launch.options.wrappers import commands


def what_to_prepare(
    job: Job, host: Host, ranks: Sequence[int], *, first: bool, several: bool
) -> messages.Prepare:
    """What an agent must look up and reserve before anything is started.

    Args:
        ranks: those that will run there.
        first: it is the coordinator's host.
        several: the job has other hosts.

    """
    coordinator: messages.Bind | None = None
    if first:
        address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
        # Other hosts may reach this one by an address that is not its own (NAT).
        elsewhere = several or job.num_hosts > 1
        coordinator = messages.Bind("" if elsewhere else address, port)
    if job.host_rank:
        coordinator = None
    return messages.Prepare(
        remote=not host.is_local,
        command=None if job.is_python else job.program[0],
        program=job.program[0] if job.is_python and not job.module else None,
        missing="" if host.is_local and not job.sync else job.program_hint,
        pythons=_pythons(job, host) if job.is_python else (),
        without_jax=_without_jax(job, host),
        env=dict(job.env),
        chdir=host.chdir or job.chdir,
        chdir_given=bool(host.chdir) or job.chdir_given,
        coordinator=coordinator,
        listen=several and first,
        describe=several,
        towards=_other_launchers_coordinator(job),
        transfer_ports=len(ranks) if job.cpu_transfers else 0,
        gpus=may_use_gpus(job) and (len(ranks) > 1 or job.gpus_per_process is not None),
        tpus=(job.is_python and not job.uses_cpu) or job.tpu_chips_per_process is not None,
        tpu_ports=len(ranks) if job.tpu_chips_per_process is not None else 0,
        any_order=several and job.coordinator is None,
        bind_cores=job.bind_cores,
        ranks=len(ranks),
        wrappers=commands(job.wrappers, ranks),
        jax=job.mtls != "off" and job.expects_hooks,
    )


def _is_given(job: Job, host: Host) -> bool:
    """Whether the user has named the Python of the ranks there."""
    return bool(host.python) or job.python_given


def _pythons(job: Job, host: Host) -> tuple[str, ...]:
    """Those to choose from, the best first."""
    python = host.python or job.python
    return (python,) if host.is_local or _is_given(job, host) else (python, "python3", "python")


def _without_jax(job: Job, host: Host) -> str:
    """What to say of a Python that has no jax; empty if it has."""
    if _is_given(job, host) or not host.is_local:
        return WITHOUT_JAX
    return job.python_without_jax


def _other_launchers_coordinator(job: Job) -> str | None:
    if job.coordinator is None or job.num_hosts == 1:
        return None
    return split_address(job.coordinator)[0]


def start_order(
    plan: Plan, ranks: Iterable[Rank], job: Job, sample_every_s: float, *, again: bool = False
) -> messages.Start:
    """What an agent needs to start its ranks.

    Args:
        ranks: on its host.
        sample_every_s: how often it reports what they use, in seconds; 0: never.
        again: an earlier agent has started them before.

    """
    orders = tuple(map(_rank_order, ranks))
    return messages.Start(
        ranks=orders,
        env=dict(plan.env),
        defaults=dict(plan.defaults),
        hook=plan.hook,
        coordinator_host=split_address(plan.coordinator)[0],
        private=job.coordinator is None and len(plan.hosts) == 1,
        sample_every_s=sample_every_s,
        grace_s=job.grace_s("failure"),
        term_grace_s=job.grace_s("TERM"),
        on_failure=job.on_rank_failure.partition(":")[0],
        again=again,
        stays=job.keeps_agents,
    )


def start_again(rank: Rank) -> messages.StartAgain:
    """What an agent needs to start a rank again."""
    return messages.StartAgain(_rank_order(rank))


def in_life(rank: Rank, life: int) -> Rank:
    """A rank as it is started again.

    Args:
        rank: as it was started first.
        life: how many times it has been started before.

    """
    return rank.replaced(env={**rank.env, RANK_RESTART: str(life)})


def _rank_order(rank: Rank) -> messages.RankOrder:
    return messages.RankOrder(
        rank.process_id,
        rank.argv,
        dict(rank.env),
        rank.cwd,
        rank.settings,
        rank.wrapper_words,
    )
