"""Division of a host's GPUs, cores and TPU chips among ranks; order of TPU workers; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.ranks import format_all, format_count
from mcjax_launch.wire import hook_environ
from mcjax_launch.wire.messages import HostFacts, Tpu, VisibleGpus
from mcjax_launch.wire.value import Value

# --- GPUs ---
# JAX gives each process all GPUs of its host, unless JAX_LOCAL_DEVICE_IDS says which are its own.
# CUDA_VISIBLE_DEVICES stays as it is, since NCCL wants to see the others' GPUs for NVLink.

_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
_MEMORY, _DEFAULT_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75  # JAX's default
_VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
)
# AMD's and Intel's GPUs are not looked for.
_NAME_THEM = "name AMD's or Intel's, as in -x HIP_VISIBLE_DEVICES=0,1"


class GpuShares(Value):
    """The GPUs of each rank on a host.

    Args:
        of_ranks: the GPU ids of each rank, as in JAX_LOCAL_DEVICE_IDS; empty if none are assigned.
        mig: the MIG device of each rank, for CUDA_VISIBLE_DEVICES; empty if there are none.
        words: description of the shares, and of how the GPUs were counted; "" if there are none.
        shared: message to print if ranks use GPUs; "" if each has its own.
        memory: part of a GPU's memory for each of the ranks that share it; "" to leave it to JAX.

    """

    of_ranks: tuple[tuple[int, ...], ...] = ()
    mig: tuple[str, ...] = ()
    words: str = ""
    shared: str = ""
    memory: str = ""

    def make_settings(self, local: int, *, hook: bool) -> dict[str, str]:
        """Return the variables that give a rank its GPUs; `local` is its number on the host."""
        if not self.of_ranks:
            return {_MEMORY: self.memory} if self.memory else {}
        ids = ",".join(map(str, self.of_ranks[local]))
        settings = {_OF_JAX: ids}
        if hook:
            settings[hook_environ.GPUS] = ids
        if self.mig:
            settings["CUDA_VISIBLE_DEVICES"] = self.mig[local]
        return settings


def describe_gpus(shares: Mapping[Host, GpuShares]) -> list[str]:
    """Describe the shares of GPUs on all hosts, one line for all hosts with the same shares."""
    by_words: dict[str, list[str]] = {}
    for host, share in shares.items():
        if share.words:
            by_words.setdefault(share.words, []).append(host.name)
    everywhere = len(by_words) == 1 and all(share.words for share in shares.values())
    return [
        f"GPUs: {words}" + ("" if everywhere else f", on {', '.join(hosts)}")
        for words, hosts in by_words.items()
    ]


def needs_gpus(job: Job, ranks: int) -> bool:
    """Return whether the GPUs of a host with so many ranks have to be known, to share them out."""
    return not job.uses_cpu and (ranks > 1 or isinstance(job.gpus_per_process, int))


def share_out(job: Job, ranks: int, found: VisibleGpus) -> GpuShares:
    """Share the GPUs of a host among its ranks.

    Args:
        job: the job, with the options for sharing.
        ranks: number of ranks on the host.
        found: the GPUs that ranks would see.

    Raises:
        LaunchError: there are too few GPUs, or the user has assigned them with -x as well.

    """
    if not needs_gpus(job, ranks):
        return GpuShares()
    each = job.gpus_per_process
    if own := _find_users_variable(dict(job.env)):
        if isinstance(each, int):
            raise LaunchError(f"--gpus-per-process cannot be combined with -x {own}")
        return GpuShares(words=f"as -x {own} says") if found.count else GpuShares()
    if each == "all":
        return _share_all(ranks, found)
    if each is None:
        return _share_equally(job, ranks, found)
    if found.mig and each > 1:
        raise LaunchError(
            f"--gpus-per-process {each}: CUDA gives a process one MIG device; "
            "use --gpus-per-process 1"
        )
    if each * ranks > found.count:
        where = f" ({found.counted})" if found.counted else ""
        if not found.count:
            raise LaunchError(
                f"this host has no GPU that its ranks could use{where}; leave out "
                f"--gpus-per-process, use -d K for CPU devices, or {_NAME_THEM}"
            )
        cure = "lower -n" if found.count < ranks else "lower -n or --gpus-per-process"
        raise LaunchError(
            f"needs {format_count(each * ranks, 'GPU')} for {format_count(ranks, 'rank')}, "
            f"sees {found.count}{where}; {cure}"
        )
    return _assign_gpus(ranks, each, found)


def _find_users_variable(env: Mapping[str, str]) -> str:
    """Return the variable by which the user gives each rank its own GPUs; "" if none."""
    if _OF_JAX in env:
        return _OF_JAX
    return next((name for name in _VISIBLE if "{" in env.get(name, "")), "")


def _share_equally(job: Job, ranks: int, found: VisibleGpus) -> GpuShares:
    if not found.counted:
        return GpuShares(
            shared=f"which GPUs it has is not known, so none is assigned: {_NAME_THEM}"
        )
    if not found.count:
        return GpuShares(words=f"none ({found.counted})")
    if found.mig and ranks <= found.count:
        return _assign_gpus(ranks, 1, found)
    if found.count % ranks:
        share = _share_all(ranks, found)
        return share.copy_with(shared=_explain_uneven(job, ranks, found, share.memory))
    return _assign_gpus(ranks, found.count // ranks, found)


def _share_all(ranks: int, found: VisibleGpus) -> GpuShares:
    """Let each rank use all GPUs, with its part of their memory.

    With JAX's default for each, the second rank would find no memory left, which takes its
    allocator two minutes and thousands of lines.
    """
    if not found.count:
        return GpuShares()
    words = f"the same {found.count} for each rank ({found.counted})"
    if found.memory_set:
        return GpuShares(words=words)
    memory = f"{max(int(_DEFAULT_MEMORY * 1000) // ranks, 1) / 1000:g}"
    which = format_count(found.count, _get_kind(found))
    line = f"{ranks} ranks share {which}, each with {_MEMORY}={memory}; -x sets another"
    return GpuShares(words=words, shared=line, memory=memory)


def _assign_gpus(ranks: int, each: int, found: VisibleGpus) -> GpuShares:
    words = f"{each} for each rank, of {_format_gpu_count(found)}"
    if found.mig:
        return GpuShares(((0,),) * ranks, found.mig[:ranks], words)
    shares = (found.ids[local * each : (local + 1) * each] for local in range(ranks))
    return GpuShares(tuple(map(tuple, shares)), words=words)


def _format_gpu_count(found: VisibleGpus) -> str:
    return f"{format_count(found.count, _get_kind(found))} ({found.counted})"


def _get_kind(found: VisibleGpus) -> str:
    return "MIG device" if found.mig else "GPU"


def _explain_uneven(job: Job, ranks: int, found: VisibleGpus, memory: str) -> str:
    count = found.count
    divisors = [number for number in range(1, count + 1) if count % number == 0]
    fewer = [str(number) for number in divisors if number < ranks][-1:]
    more = [str(number) for number in divisors if number > ranks][:1]
    each = f"each uses {'it' if count == 1 else format_all(count)}"
    if found.mig:
        each = "no rank has its own"
    part = f" ({_MEMORY}={memory})" if memory else ""
    numbers = " or ".join(fewer + more)
    start = f"use -n {numbers}" if ranks == job.num_processes else f"start {numbers} there"
    if ranks > count:  # no K is small enough
        cure = f"{start}, or -d K for CPU devices, or --gpus-per-process all to share"
    else:
        cure = f"{start}, or choose with --gpus-per-process K|all"
    which = format_count(count, _get_kind(found))
    return f"{ranks} ranks cannot share {which} equally, and {each}{part}: {cure}"


# --- cores ---

_HIGHEST = 1 << 14  # more hardware threads than a kernel counts


def choose_cores(how: str, ranks: int, facts: HostFacts, gpus: GpuShares) -> list[tuple[int, ...]]:
    """Return the core numbers of each rank on a host; empty for a rank that may use all cores.

    Args:
        how: value of --bind-cores. "on" gives each rank separate cores, if there are enough;
            "auto" binds ranks with assigned GPUs to all cores next to those GPUs.
        ranks: number of ranks on the host.
        facts: facts about the host.
        gpus: shares of GPUs of these ranks.

    """
    allowed = {thread for core in facts.cores for thread in core}
    near = [_find_near_cores(rank, facts, gpus) & allowed for rank in range(ranks)]
    known = all(near)
    if how == "off" or not allowed:
        return [()] * ranks
    if how == "auto":
        matters = known and any(cores != allowed for cores in near)
        return [tuple(sorted(cores)) if matters else () for cores in near]
    return _divide_cores(facts.cores, near if known and _are_apart(near) else [allowed] * ranks)


def _find_near_cores(rank: int, facts: HostFacts, gpus: GpuShares) -> frozenset[int]:
    """Return the cores next to the GPUs of a rank; empty if unknown."""
    if not gpus.of_ranks or not facts.gpus.near:
        return frozenset()
    by_id = dict(zip(facts.gpus.ids, facts.gpus.near, strict=True))
    return frozenset(
        core for gpu in gpus.of_ranks[rank] for core in _parse_core_list(by_id.get(gpu, ""))
    )


def _parse_core_list(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as `0-15,128-143`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), min(int(last or first), _HIGHEST) + 1)


def _are_apart(near: Sequence[frozenset[int]]) -> bool:
    different = set(near)
    return sum(map(len, different)) == len(frozenset().union(*different))


def _divide_cores(
    physical: Sequence[Sequence[int]], near: Sequence[Collection[int]]
) -> list[tuple[int, ...]]:
    """Divide physical cores: return for each rank a share of the cores in `near` for that rank."""
    shares: list[tuple[int, ...]] = [()] * len(near)
    for cores in dict.fromkeys(map(frozenset, near)):
        among = [rank for rank, own in enumerate(near) if own == cores]
        there = [[thread for thread in core if thread in cores] for core in physical]
        for rank, share in zip(
            among, split([core for core in there if core], len(among)), strict=True
        ):
            shares[rank] = tuple(share)
    return shares


def split(physical: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Divide `physical` (the hardware threads of each physical core) among a number of ranks.

    Each rank gets neighbouring cores, whole physical cores if there are enough of them. With more
    ranks than hardware threads several ranks share a thread.
    """
    units = [list(core) for core in physical]
    if len(units) < ranks:
        units = [[thread] for core in physical for thread in core]
    if len(units) < ranks:
        return [units[rank * len(units) // ranks] for rank in range(ranks)]
    shares = []
    for rank in range(ranks):
        mine = units[rank * len(units) // ranks : (rank + 1) * len(units) // ranks]
        shares.append(sorted(thread for core in mine for thread in core))
    return shares


# --- TPU chips, shared out as JAX's own test runner does ---
# libtpu needs to know the grid of a process's chips, and that of a host's processes.

_Grid = tuple[int, int, int]

# Grids by the number of a host's chips, unless the model has its own.
_GRIDS: dict[int, _Grid] = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (4, 2, 1)}
_OTHER_GRIDS: dict[tuple[str, int], _Grid] = {
    ("v5p", 2): (1, 2, 1),
    ("8t", 2): (1, 2, 1),
    ("8i", 4): (4, 1, 1),
    ("v6e", 8): (2, 4, 1),
    ("v4", 8): (2, 2, 2),
    ("7x", 8): (2, 2, 2),
}
# The grid of a rank's chips, by the number of all chips and of the rank's.
_SHARES: dict[tuple[int, int], _Grid] = {
    **{(chips, 1): (1, 1, 1) for chips in _GRIDS},
    (4, 2): (1, 2, 1),
    (8, 4): (2, 2, 1),
}
_OTHER_SHARES: dict[tuple[str, int, int], _Grid] = {("8i", 4, 2): (2, 1, 1)}


def compute_tpu_bounds(model: str, chips: int, each: int) -> tuple[str, str] | None:
    """Return the grid of processes and the grid of each process's chips, such as `2,1,1`.

    None if libtpu supports no such division.

    Args:
        model: model of the chips, such as v5e.
        chips: number of chips of all ranks on the host.
        each: number of chips of each rank.

    """
    grid = _OTHER_GRIDS.get((model, chips)) or _GRIDS.get(chips)
    share = _OTHER_SHARES.get((model, chips, each)) or _SHARES.get((chips, each))
    if grid is None or (share is None and chips != each):
        return None
    mine = grid if share is None or chips == each else share
    processes = (whole // part for whole, part in zip(grid, mine, strict=True))
    return ",".join(map(str, processes)), ",".join(map(str, mine))


def make_tpu_settings(
    each: int, host: Host, local: int, ranks: int, facts: HostFacts
) -> dict[str, str]:
    """Return the variables that give a rank its own TPU chips.

    Args:
        each: number of chips of each rank.
        host: host of the rank.
        local: number of the rank on its host, from 0.
        ranks: number of ranks on the host.
        facts: facts about the host.

    Raises:
        LaunchError: the host has too few chips, or libtpu supports no such division.

    """
    needed, tpu = each * ranks, facts.tpu
    if tpu is None or needed > tpu.chips:
        raise LaunchError(
            f"host {host.name}: needs {format_count(needed, 'TPU chip')} for "
            f"{format_count(ranks, 'rank')}, has {tpu.chips if tpu is not None else 'none'} on "
            "its PCI bus; lower -n or --tpu-chips-per-process"
        )
    found = compute_tpu_bounds(tpu.model, needed, each)
    if found is None:
        raise LaunchError(
            f"--tpu-chips-per-process {each}: {needed} chips of {format_count(ranks, 'rank')} "
            "form no grid that libtpu knows: all ranks need 1, 2, 4 or 8 together, and 1, 4 or 8 "
            "each of 8"
        )
    processes, chips = found
    mine = range(local * each, (local + 1) * each)
    return {
        "CLOUD_TPU_TASK_ID": str(local),
        "TPU_VISIBLE_CHIPS": ",".join(map(str, mine)),
        "TPU_PROCESS_BOUNDS": processes,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": chips,
        "TPU_PROCESS_ADDRESSES": ",".join(f"localhost:{port}" for port in facts.tpu_ports),
        "TPU_PROCESS_PORT": str(facts.tpu_ports[local]),
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


# --- workers of TPU slices: their order, and whether all are there ---

# At most this many hosts are named.
_MOST_NAMED = 8


def sort_by_worker(hosts: Sequence[Host], answers: Mapping[Host, HostFacts]) -> list[Host]:
    """Return the hosts in the order of their TPU worker numbers.

    If a host has no number, or two hosts have the same number, the given order is kept.
    """
    places = {host: _get_worker_key(answers[host].tpu) for host in hosts}
    numbers = [place for place in places.values() if place is not None]
    if len(set(numbers)) < len(hosts):
        return list(hosts)
    return sorted(hosts, key=lambda host: places[host] or (0, 0))


def _get_worker_key(tpu: Tpu | None) -> tuple[int, int] | None:
    return None if tpu is None or tpu.worker is None else (tpu.slice_number, tpu.worker)


def format_slice_order_note(hosts: Sequence[Host]) -> str:
    """Return a note that the ranks follow the order of TPU workers, not the user's order."""
    names = [host.name for host in hosts[:_MOST_NAMED]]
    more = ", ..." if len(hosts) > _MOST_NAMED else ""
    return f"the ranks follow the numbers of the TPU workers: hosts {', '.join(names)}{more}"


def format_slice_part_note(of_hosts: Iterable[Tpu | None]) -> str:
    """Return a warning about a job on a part of a TPU slice; "" if no worker seems to be missing.

    `of_hosts` are the TPU facts of the job's hosts; None for a host without them.
    """
    by_slice: dict[int, list[Tpu]] = {}
    for tpu in of_hosts:
        if tpu is not None:
            by_slice.setdefault(tpu.slice_number, []).append(tpu)
    for tpus in by_slice.values():
        workers = max(tpu.workers for tpu in tpus)
        if len(tpus) < workers:
            has = "has" if len(tpus) == 1 else "have"
            return (
                f"{len(tpus)} of the slice's {format_count(workers, 'worker')} {has} ranks: "
                "on TPUs JAX waits for all of them; "
                "add the others to --hosts (or -d K for CPU devices)"
            )
    return ""
