"""A check as lines for a person: a table of the hosts, and a line for each part; pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from mcjax_launch.check.found import Found, HostFound
from mcjax_launch.check.gpus import gpus_text
from mcjax_launch.check.judgement import chips_text, devices_text, is_off, passed
from mcjax_launch.check.names import folded
from mcjax_launch.check.step import Step, common
from mcjax_launch.protocol.value import Value
from mcjax_launch.ranks import counted
from mcjax_launch.wording import visible

_MARK = " !"
_FAILED = "FAILED"
_UNREACHED = "no answer"
_NONE = "-"
_GAP = "  "
_MOST_HOSTS_WIDTH = 24
_LEAST_HOSTS_WIDTH, _LEAST_LAST_WIDTH = 10, 20
_TITLES = ("HOST", "PYTHON", "JAX", "CORES", "FREE MEM", "CLOCK", "DEVICES")
_NAME_WIDTH, _VERDICT_WIDTH, _SECONDS_WIDTH = 12, 9, 8


class _Row(Value):
    """The cells of hosts that are alike; what differs a little is left to ranges."""

    python: str
    jax: str
    cores: str
    devices: str
    is_off: bool


def lines(found: Found, steps: Sequence[Step], width: int) -> list[str]:
    """All of it.

    Args:
        width: of the terminal.

    """
    return [*host_lines(found.hosts, width), "", *step_lines(steps, width), "", _end(found, steps)]


def host_lines(hosts: Sequence[HostFound], width: int) -> list[str]:
    """The table of the hosts, one row for all that are alike."""
    groups: dict[_Row, list[HostFound]] = {}
    rows = _rows(hosts)
    for host, row in zip(hosts, rows, strict=True):
        groups.setdefault(row, []).append(host)
    cells = [list(_TITLES), *(_cells(row, alike) for row, alike in groups.items())]
    # A column that says nothing of any host is left out.
    kept = [n for n in range(len(_TITLES)) if n < 3 or any(row[n] != _NONE for row in cells[1:])]
    return _aligned([[visible(row[n]) for n in kept] for row in cells], width)


def _rows(hosts: Sequence[HostFound]) -> list[_Row]:
    python, jax = _usual(hosts, _python), _usual(hosts, _jax)
    # A host with more ranks than others may well have more devices.
    slots = {host.ranks for host in hosts}
    devices = {n: _usual([host for host in hosts if host.ranks == n], _devices) for n in slots}
    return [
        _Row(
            python=_marked(host, _python, python),
            jax=_marked(host, _jax, jax),
            cores=_cores(host),
            devices=_marked(host, _devices, devices[host.ranks]),
            is_off=is_off(host),
        )
        for host in hosts
    ]


def _usual(hosts: Sequence[HostFound], cell: Callable[[HostFound], str]) -> str:
    """What a cell holds for most hosts of which it says anything."""
    cells = [cell(host) for host in hosts if host.surveyed is not None]
    return common([one for one in cells if one != _NONE])


def _marked(host: HostFound, cell: Callable[[HostFound], str], usual: str) -> str:
    """A cell that is not as for most hosts is marked."""
    text = cell(host)
    return text if host.surveyed is None or text == usual or not usual else f"{text}{_MARK}"


def _python(host: HostFound) -> str:
    if host.surveyed is None:
        return _UNREACHED
    return (host.python.version if host.python is not None else "") or _NONE


def _jax(host: HostFound) -> str:
    jax, jaxlib = host.version("jax"), host.version("jaxlib")
    if not jax:
        return _NONE
    return jax if jax == jaxlib else f"{jax} (jaxlib {jaxlib or 'missing'})"


def _cores(host: HostFound) -> str:
    return str(host.surveyed.cores or _NONE) if host.surveyed is not None else _NONE


def _devices(host: HostFound) -> str:
    """What JAX has there; the GPUs beside that, with their driver, where they are not the same."""
    of_jax, gpus = devices_text(host.devices), gpus_text(host)
    if chips := chips_text(host):
        return f"{of_jax} ({chips})" if of_jax else chips
    if not gpus:
        return of_jax or _NONE
    same = re.sub(r", driver .*", "", gpus) == of_jax
    return gpus if same or not of_jax else f"{of_jax} ({gpus})"


def _cells(row: _Row, hosts: Sequence[HostFound]) -> list[str]:
    free = [host.surveyed.free_kib for host in hosts if host.surveyed is not None]
    return [
        folded(host.name for host in hosts),
        row.python,
        row.jax,
        row.cores,
        _memory(free),
        _clock(hosts, off=row.is_off),
        row.devices,
    ]


def _memory(free_kib: Sequence[int]) -> str:
    if not any(free_kib):
        return _NONE
    low, high = (f"{one / (1 << 20):.1f}" for one in (min(free_kib), max(free_kib)))
    return f"{low} GiB" if low == high else f"{low}-{high} GiB"


def _clock(hosts: Sequence[HostFound], *, off: bool) -> str:
    """By how much the clock that is farthest off differs from the launcher's."""
    clocks = [host.clock for host in hosts if host.clock is not None]
    if not clocks:
        return _NONE
    most = max(clocks, key=lambda clock: clock.surely_s)
    seconds = most.ahead_s if most.surely_s else 0.0
    text = f"{seconds:+.0f} s" if abs(seconds) >= 100 else f"{seconds:+.2f} s"
    if text in ("+0.00 s", "-0.00 s"):
        text = "0.00 s"
    return f"{text}{_MARK}" if off else text


# --- layout ---


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Cells in columns; long names of hosts, and what is last, are broken into lines."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    widths[0] = min(widths[0], _MOST_HOSTS_WIDTH)
    between = sum(widths[1:-1]) + len(_GAP) * (len(widths) - 1)
    last = min(widths[-1], _LEAST_LAST_WIDTH)
    widths[0] = min(widths[0], max(width - between - last, _LEAST_HOSTS_WIDTH))
    widths[-1] = min(widths[-1], max(width - between - widths[0], last))
    shown = []
    for row in rows:
        broken = [_broken(cell, at) for cell, at in zip(row, widths, strict=True)]
        for number in range(max(map(len, broken))):
            parts = (cell[number] if number < len(cell) else "" for cell in broken)
            padded = (part.ljust(at) for part, at in zip(parts, widths, strict=True))
            shown.append(_GAP.join(padded).rstrip())
    return shown


def _broken(text: str, width: int) -> list[str]:
    """A cell in lines of a width; names are kept whole where they can be."""
    if len(text) <= width:
        return [text]
    pieces = text.replace(",", ", ") if " " not in text else text
    found = textwrap.wrap(pieces, width, break_on_hyphens=False)
    return [line.replace(", ", ",") if " " not in text else line for line in found]


def step_lines(steps: Sequence[Step], width: int) -> list[str]:
    """Each part of the check, with how it went and how long that took."""
    return [line for step in steps for line in _step(step, width)]


def _step(step: Step, width: int) -> Iterator[str]:
    before = f"{step.verdict:<{_VERDICT_WIDTH}}{step.name:<{_NAME_WIDTH}}"
    room = max(20, width - len(before) - _SECONDS_WIDTH)
    took = "" if step.seconds is None else f"{step.seconds:.1f} s".rjust(_SECONDS_WIDTH)
    first, *others = _wrapped(step.text, room) or [""]
    yield f"{before}{first:<{room}}{took}".rstrip()
    indent = " " * len(before)
    yield from (f"{indent}{line}" for line in others)
    for detail in step.details:
        first, *others = _wrapped(detail, width - len(indent) - 2) or [""]
        yield f"{indent}- {first}"
        yield from (f"{indent}  {line}" for line in others)


def _wrapped(text: str, width: int) -> list[str]:
    """Text in lines. A long path stays whole, so that it can be copied."""
    return textwrap.wrap(visible(text), width, break_on_hyphens=False, break_long_words=False)


def coloured(line: str) -> str:
    """A line for a terminal: what is wrong is red."""
    return f"\x1b[1;31m{_FAILED}\x1b[0m{line[len(_FAILED) :]}" if line.startswith(_FAILED) else line


def _end(found: Found, steps: Sequence[Step]) -> str:
    ranks = counted(sum(host.ranks for host in found.hosts), "rank")
    where = f"{ranks} on {counted(len(found.hosts), 'host')}"
    took = f"{found.seconds.get('all', 0.0):.1f} s"
    warned = [step.name for step in steps if step.verdict == "warning"]
    but = f", with {counted(len(warned), 'warning')} ({', '.join(warned)})" if warned else ""
    if passed(steps):
        return f"passed{but}: {where}, in {took}"
    failed = ", ".join(step.name for step in steps if step.verdict == "FAILED")
    return f"FAILED ({failed}){but}: {where}, in {took}"
