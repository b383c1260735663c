"""Which imports are under way for ranks that wait for them (--preload); pure."""

from mcjax_launch.ranks import counted, grouped
from mcjax_launch.runs.rank_run import Import
from mcjax_launch.runs.state import RunState

_MOST_HOSTS = 3


def imports_under_way(state: RunState, now: float) -> list[str]:
    """Lines on what hosts import, and for how long.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.

    """
    hosts: dict[str, Import] = {}
    for run in state.ranks.values():
        if run.process.awaits is not None:
            hosts[run.host] = run.process.awaits
    modules = grouped((found.module, host) for host, found in hosts.items())
    lines = []
    for module, names in modules.items():
        # On a busy machine the word of an import comes after the reason to stop.
        seconds = max(0.0, now - min(hosts[name].since for name in names))
        where = f" on {_named(names)}" if state.hosts > 1 else ""
        lines.append(f"importing {module}{where} for {seconds:.0f} s")
    return lines


def _named(hosts: list[str]) -> str:
    if len(hosts) > _MOST_HOSTS:
        return counted(len(hosts), "host")
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
