"""How the ranks of a host share its GPUs; pure.

JAX gives each process all GPUs of its host, unless JAX_LOCAL_DEVICE_IDS says which are its own.
CUDA_VISIBLE_DEVICES stays as it is, since NCCL wants to see the others' GPUs for NVLink.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.wire import hook_environ
from mcjax_launch.kernel.wire.messages import VisibleGpus
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import counted

_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class GpuShares(Value):
    """What the ranks of a host get.

    Args:
        of_ranks: the GPUs of each, as JAX_LOCAL_DEVICE_IDS; empty where nothing is assigned.
        mig: the MIG device of each, instead of that; empty where there are none.
        words: what was decided, and where the GPUs were counted; "" where there are none.
        uneven: what to say to a user whose ranks do use GPUs, where they cannot be shared out.

    """

    of_ranks: tuple[tuple[int, ...], ...] = ()
    mig: tuple[str, ...] = ()
    words: str = ""
    uneven: str = ""

    def settings(self, local: int, *, hook: bool) -> dict[str, str]:
        """The variables of the `local`th rank there."""
        if not self.of_ranks:
            return {}
        ids = ",".join(map(str, self.of_ranks[local]))
        settings = {_OF_JAX: ids}
        if hook:
            settings[hook_environ.GPUS] = ids
        if self.mig:
            settings["CUDA_VISIBLE_DEVICES"] = self.mig[local]
        return settings


def described(shares: Mapping[Host, GpuShares]) -> list[str]:
    """What was decided for all hosts, in lines."""
    by_words: dict[str, list[str]] = {}
    for host, share in shares.items():
        if share.words:
            by_words.setdefault(share.words, []).append(host.name)
    everywhere = len(by_words) == 1 and all(share.words for share in shares.values())
    return [
        f"GPUs: {words}" + ("" if everywhere else f", on {', '.join(hosts)}")
        for words, hosts in by_words.items()
    ]


def may_use_gpus(job: Job) -> bool:
    """Whether the GPUs of a host matter to its ranks."""
    return not job.uses_cpu and job.gpus_per_process != "all"


def share_out(job: Job, ranks: int, found: VisibleGpus) -> GpuShares:
    """Share the GPUs of a host among its ranks.

    Args:
        job: says how.
        ranks: that run there.
        found: what they would see.

    Raises:
        LaunchError: there are fewer than the user wants, or he has assigned them himself as well.

    """
    if not may_use_gpus(job):
        return GpuShares()
    each = job.gpus_per_process
    if own := _assigned_by_user(dict(job.env)):
        if each is not None:
            raise LaunchError(f"--gpus-per-process cannot be combined with -x {own}")
        return GpuShares(words=f"as -x {own} says") if found.count else GpuShares()
    if each is None:
        return _equally(ranks, found)
    assert each != "all"
    if found.mig and each > 1:
        raise LaunchError(
            f"--gpus-per-process {each}: CUDA gives a process one MIG device; "
            "use --gpus-per-process 1"
        )
    if each * ranks > found.count:
        where = f" ({found.counted})" if found.counted else ""
        raise LaunchError(
            f"needs {counted(each * ranks, 'GPU')} for {counted(ranks, 'rank')}, "
            f"sees {found.count}{where}; lower -n or --gpus-per-process"
        )
    return _assigned(ranks, each, found)


def _assigned_by_user(env: Mapping[str, str]) -> str:
    """The variable by which the user gives each rank its own GPUs; "" if there is none."""
    if _OF_JAX in env:
        return _OF_JAX
    return next((name for name in _VISIBLE if "{" in env.get(name, "")), "")


def _equally(ranks: int, found: VisibleGpus) -> GpuShares:
    if not found.count:
        return GpuShares(words=f"none ({found.counted})" if found.counted else "")
    if ranks == 1:
        return GpuShares()
    if found.mig and ranks <= found.count:
        return _assigned(ranks, 1, found)
    if found.count % ranks:
        words = f"all {found.count} for each rank ({found.counted})"
        return GpuShares(words=words, uneven=_uneven(ranks, found))
    return _assigned(ranks, found.count // ranks, found)


def _assigned(ranks: int, each: int, found: VisibleGpus) -> GpuShares:
    words = f"{each} for each rank, of {_counted(found)}"
    if found.mig:
        return GpuShares(((0,),) * ranks, found.mig[:ranks], words)
    shares = (found.ids[local * each : (local + 1) * each] for local in range(ranks))
    return GpuShares(tuple(map(tuple, shares)), words=words)


def _counted(found: VisibleGpus) -> str:
    kind = "MIG device" if found.mig else "GPU"
    return f"{counted(found.count, kind)} ({found.counted})"


def _uneven(ranks: int, found: VisibleGpus) -> str:
    count = found.count
    divisors = [number for number in range(1, count + 1) if count % number == 0]
    fewer = [str(number) for number in divisors if number < ranks][-1:]
    more = [str(number) for number in divisors if number > ranks][:1]
    kind = "MIG device" if found.mig else "GPU"
    each = f"each uses {'it' if count == 1 else f'all {count}'}"
    if found.mig:
        each = "none of them has one of its own"
    return (
        f"{ranks} ranks cannot share {counted(count, kind)} equally, and {each}: start "
        f"{' or '.join(fewer + more)} there, or choose with --gpus-per-process K|all"
    )
