"""A plan as a shell script, for --dry-run; pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_

from mcjax_launch.job import gpus
from mcjax_launch.job.facts import Facts
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, Rank, make_plan
from mcjax_launch.protocol import hook_environ, rank_environ
from mcjax_launch.protocol.address import LOOPBACK, TPU_PORTS, join_address, split_address
from mcjax_launch.protocol.messages import Tpu, VisibleGpus
from mcjax_launch.protocol.value import Value
from mcjax_launch.ranks import counted, these_ranks

# What only a start would settle.
_JOB_ID = "00000000"
_PORT = "PORT"
_USUAL_TPU = "v5e"
_STAGE = "STAGE"


class Here(Value):
    """What a script needs of this machine.

    Args:
        environ: what ranks on this machine inherit.
        port: a free one, for the coordinator of a job of this machine alone.
        hook: the folder of the hook.
        gpus: that ranks on this machine would see.

    """

    environ: Mapping[str, str]
    port: int
    hook: str
    gpus: VisibleGpus = VisibleGpus()


def dry_run(job: Job, hosts: Sequence[Host], here: Here) -> str:
    """What would run, as far as it is known before any host has been reached.

    Args:
        job: what the user asked for.
        hosts: those that would get ranks.
        here: what the script needs of this machine.

    """
    alone = len(hosts) == 1
    address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
    address = address or (LOOPBACK if alone else hosts[0].name)
    ranks, chips = job.processes_here, job.tpu_chips_per_process
    facts = {
        host: Facts(
            gpus=_gpus(job, host, here),
            platforms=here.environ.get("JAX_PLATFORMS", "") if host.is_local else "",
            tpu=Tpu(ranks * chips, _USUAL_TPU) if chips else None,
            tpu_ports=tuple(range(TPU_PORTS[0], TPU_PORTS[0] + ranks)) if chips else (),
            python=host.python or "",
            cwd=_folder(job, host),
        )
        for host in hosts
    }
    is_here = alone and hosts[0].is_local
    coordinator = join_address(address, port or (here.port if is_here else _PORT))
    plan = make_plan(job, hosts, facts, job_id=_JOB_ID, coordinator=coordinator)
    script = describe(plan, here, job.sync, job.stdin)
    title, rest = script.split("\n", 1)
    comments = [*_left_out(job, alone), *(f"# {line}" for line in _about_gpus(job, plan))]
    return "\n".join([title, *comments, rest])


def _left_out(job: Job, alone: bool) -> Iterator[str]:
    """Comments on what a launcher does and the script does not."""
    if job.relay and not alone:
        yield "# without a launcher the ranks connect to this address themselves"
    if job.bind_cores == "on":
        yield "# without a launcher the ranks share all cores: --bind-cores on is left out"


def _gpus(job: Job, host: Host, here: Here) -> VisibleGpus:
    """Those of a host, as far as they are known; as many as are wanted where they are not."""
    if isinstance(job.gpus_per_process, int):
        return VisibleGpus(tuple(range(job.gpus_per_process * job.processes_here)))
    return here.gpus if host.is_local else VisibleGpus()


def _about_gpus(job: Job, plan: Plan) -> Iterator[str]:
    yield from plan.notes
    if isinstance(job.gpus_per_process, int):
        return
    yield from gpus.described(plan.gpus)
    yield from (share.uneven for share in plan.gpus.values() if share.uneven)
    remote = any(not host.is_local for host in plan.hosts)
    if remote and gpus.may_use_gpus(job) and len(plan.ranks) > len(plan.hosts):
        yield "GPUs: the ranks of a host share its own equally, by JAX_LOCAL_DEVICE_IDS"


def _folder(job: Job, host: Host) -> str:
    """The working directory of a host's ranks; below STAGE with --sync."""
    if not job.sync:
        return host.chdir or job.chdir
    chdir = host.chdir or (job.chdir if job.chdir_given else "")
    return os.path.join(_STAGE, chdir)


def describe(plan: Plan, here: Here, sync: Sequence[str] = (), stdin: Collection[int] = ()) -> str:
    """The ranks' variables, folder and commands: what all share once, then what is each one's own.

    It can be pasted into a shell if all ranks are on this machine.

    Args:
        plan: whose ranks are shown.
        here: what the script needs of this machine; what ranks elsewhere inherit is not known.
        sync: the paths that are copied to each host.
        stdin: the ranks that take the launcher's standard input.

    """
    script = _Script(plan, here, sync, stdin)
    if all(host.is_local for host in plan.hosts):
        # A shell of its own, for its variables. Ctrl-C would not reach what runs in its background,
        # and JAX swallows a TERM.
        lines = ["(", "trap 'kill -KILL 0' INT", *script.lines(), "wait", ")"]
    else:
        lines = ["# in a shell on each host:", *script.lines()]
    hosts, ranks = counted(len(plan.hosts), "host"), counted(len(plan.ranks), "rank")
    return "\n".join([f"# job {plan.job_id}: {ranks} on {hosts}", *lines]) + "\n"


class _Script:
    def __init__(self, plan: Plan, here: Here, sync: Sequence[str], stdin: Collection[int]) -> None:
        self._plan = plan
        self._here = here
        self._sync = sync
        self._stdin = stdin
        self._is_here = all(host.is_local for host in plan.hosts)
        # Several would each read a part of it.
        self._reads_input = self._is_here and len(stdin) == 1
        self._settings = [self._set_in(rank) for rank in plan.ranks]
        common = reduce(and_, (settings.items() for settings in self._settings))
        self._common = {name: value for name, value in common if name != "JAX_PROCESS_ID"}
        self._folders = {rank.cwd for rank in plan.ranks}

    def lines(self) -> Iterator[str]:
        if self._sync:
            yield f"# {_STAGE} is the folder to which --sync copies {shlex.join(self._sync)}"
        if self._reads_input:
            yield "exec 3<&0"  # what runs in the background reads /dev/null otherwise
        elif self._stdin:
            takes = f"{these_ranks(self._stdin)} {'take' if len(self._stdin) > 1 else 'takes'}"
            yield f"# {takes} the launcher's standard input (--stdin), which this script leaves out"
        if self._is_here and (unset := self._not_inherited()):
            yield f"unset {' '.join(unset)}"
        if len(self._folders) == 1:
            # Not to leave a user's shell on another host.
            yield f"cd {self._quoted(*self._folders)}{' || exit' if self._is_here else ''}"
        yield from (f"export {_assignment(*item)}" for item in sorted(self._common.items()))
        for rank, settings in zip(self._plan.ranks, self._settings, strict=True):
            yield f"# rank {rank.process_id} on {rank.host.login}"
            own = [_assignment(*item) for item in sorted(settings.items() - self._common.items())]
            enter = "" if len(self._folders) == 1 else f"cd {self._quoted(rank.cwd)} && "
            takes = " <&3" if self._reads_input and rank.process_id in self._stdin else ""
            command = " ".join([*own, shlex.join(rank.argv)])
            yield f"{enter}{command}{takes}{' &' if self._is_here else ''}"

    def _quoted(self, folder: str) -> str:
        stage, _, below = folder.partition("/")
        if stage != _STAGE:
            return shlex.quote(folder)
        return f'"${{{_STAGE}:?}}"' + (shlex.quote(f"/{below}") if below else "")

    def _not_inherited(self) -> list[str]:
        """Variables of this machine that no rank gets."""
        [inherited, *_] = map(self._inherited, self._plan.ranks)
        return sorted(set(self._here.environ) - set(inherited) - set(self._common))

    def _inherited(self, rank: Rank) -> dict[str, str]:
        """What a rank inherits on its host, as far as that is known."""
        if not rank.host.is_local:
            return {}
        inherited = rank_environ.without_outer_job(self._here.environ)
        misleading = rank_environ.misleading(inherited) if self._plan.hook else []
        return {name: value for name, value in inherited.items() if name not in misleading}

    def _set_in(self, rank: Rank) -> dict[str, str]:
        """The variables that are set in a rank."""
        plan, inherited = self._plan, self._inherited(rank)
        common = plan.env if plan.hook else rank_environ.of_scheduler(plan.env, inherited)
        settings = rank_environ.changes(
            inherited,
            common=common,
            defaults=plan.defaults,
            own=rank.env,
            coordinator_host=rank.values["coordinator_host"],
        )
        if not plan.hook or not self._is_here:
            return settings
        whole = rank_environ.with_hook({**inherited, **settings}, self._here.hook)
        hook = {name: whole[name] for name in ("PYTHONPATH", hook_environ.FOLDER)}
        return {**settings, **hook, hook_environ.ALONE: "1"}


def _assignment(name: str, value: str) -> str:
    return f"{name}={shlex.quote(value)}"
