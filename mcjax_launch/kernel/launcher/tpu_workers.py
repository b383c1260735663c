"""TPU slices' workers among the hosts of a job: their order, and whether all are there; pure."""

from collections.abc import Iterable, Mapping, Sequence

from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.wire.messages import HostFacts, Tpu
from mcjax_launch.ranks import counted

# So many hosts are named.
_MOST_NAMED = 8


def in_order(hosts: Sequence[Host], answers: Mapping[Host, HostFacts]) -> list[Host]:
    """The hosts in the order of their numbers as workers, where all of them know these."""
    places = {host: _place(answers[host].tpu) for host in hosts}
    numbers = [place for place in places.values() if place is not None]
    if len(set(numbers)) < len(hosts):
        return list(hosts)
    return sorted(hosts, key=lambda host: places[host] or (0, 0))


def _place(tpu: Tpu | None) -> tuple[int, int] | None:
    return None if tpu is None or tpu.worker is None else (tpu.slice_number, tpu.worker)


def order_note(hosts: Sequence[Host]) -> str:
    """What is said where the hosts are in another order than the user gave them."""
    names = [host.name for host in hosts[:_MOST_NAMED]]
    more = ", ..." if len(hosts) > _MOST_NAMED else ""
    return f"the ranks follow the numbers of the TPU workers: hosts {', '.join(names)}{more}"


def part_note(of_hosts: Iterable[Tpu | None]) -> str:
    """What is said of a job on a part of a slice; "" where none is known to be missing."""
    by_slice: dict[int, list[Tpu]] = {}
    for tpu in of_hosts:
        if tpu is not None:
            by_slice.setdefault(tpu.slice_number, []).append(tpu)
    for tpus in by_slice.values():
        workers = max(tpu.workers for tpu in tpus)
        if len(tpus) < workers:
            has = "has" if len(tpus) == 1 else "have"
            return (
                f"{len(tpus)} of the slice's {counted(workers, 'worker')} {has} ranks: on TPUs JAX "
                "waits for all of them; add the others to --hosts (or -d K for CPU devices)"
            )
    return ""
