"""The imports that ranks wait for before they can be forked, in words."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_count, group_by_key

_MOST_HOSTS = 3


def describe_imports(state: RunState, now: float) -> Iterator[str]:
    """Yield the modules that hosts are importing for their ranks, and the time spent so far."""
    runs = state.ranks.values()
    imports = {run.host: run.process.awaits for run in runs if run.process.awaits is not None}
    for module, hosts in group_by_key(
        (each.module, host) for host, each in imports.items()
    ).items():
        since = min(imports[host].since for host in hosts)
        where = f" on {_format_hosts(hosts)}" if state.hosts > 1 else ""
        # On a busy machine an import may be reported after the reason to stop.
        seconds = max(0.0, now - since)
        yield f"importing {module}{where} for {seconds:.0f} s"


def _format_hosts(hosts: list[str]) -> str:
    if len(hosts) > _MOST_HOSTS:
        return format_count(len(hosts), "host")
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
