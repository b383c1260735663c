"""A rule on the imports that ranks wait for before they can be forked."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_count, group_by_key

_MOST_HOSTS = 3


def under_way(view: View) -> Iterator[Finding]:
    """Find the modules that hosts are importing for their ranks, and the time spent so far."""
    imports = {run.host: run.process.awaits for run in view.runs if run.process.awaits is not None}
    for module, hosts in group_by_key(
        (each.module, host) for host, each in imports.items()
    ).items():
        since = min(imports[host].since for host in hosts)
        where = f" on {_format_hosts(hosts)}" if view.state.hosts > 1 else ""
        # On a busy machine an import may be reported after the reason to stop.
        seconds = max(0.0, view.now - since)
        words = f"importing {module}{where} for {seconds:.0f} s"
        yield Finding(("importing", module), words)


def describe_imports(state: RunState, now: float) -> list[str]:
    """Return the words of `under_way` at a moment."""
    return [found.words for found in under_way(View(state, now))]


def _format_hosts(hosts: list[str]) -> str:
    if len(hosts) > _MOST_HOSTS:
        return format_count(len(hosts), "host")
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
