"""--profile: merges the traces of all ranks into one, shown by Perfetto with a track per rank."""

import contextlib
import gzip
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import own_paths
from mcjax_launch.ranks import format_ranks, group_by_key

# File that each rank writes next to its trace, after it.
_BEGAN = "began.json"
_MERGED = "trace.json.gz"
# Merged traces of the second profile and so on.
_LATER = re.compile(r"trace-\d+\.json\.gz")
# Most track numbers within a rank's trace (701 is the host, 1 and more are devices).
_MOST_PIDS = 1000
_XPLANE = ".xplane.pb"
# Collectives: XLA's names on CPU, and NCCL's kernels. Asynchronous ones have a start and a done.
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute"
    r"|collective-broadcast)(-start|-done)?(\.\d+)*$|nccl\w*Kernel"
)
# Most shares to list, and the smallest difference of shares that means something.
_MOST_SHARES, _APART = 8, 0.05

Event = dict[str, Any]


def prepare(folder: str) -> None:
    """Create the folder; remove an earlier job's start times, and merged traces but the first.

    Raises:
        LaunchError: the folder cannot be written.

    """
    try:
        own_paths.make_folder(folder)
        for name in os.listdir(folder):
            if name.isdigit():
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    own_paths.remove_file(os.path.join(folder, name, _BEGAN))
            elif _LATER.fullmatch(name):
                own_paths.remove_file(os.path.join(folder, name))
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise LaunchError(f"--profile {folder}: {error.strerror}") from None


class _Trace(NamedTuple):
    """Trace of a rank: when it began, its file, and its length; times in seconds."""

    began: float
    path: str
    seconds: float


def merge(folder: str, ranks: Sequence[int], here: bool) -> Iterator[str]:
    """Merge the traces of these ranks; yield lines that report the result.

    Args:
        folder: the folder of --profile, with a folder for each rank.
        ranks: the ranks of this launcher.
        here: True if all of them ran on this machine.

    """
    times: list[dict[int, _Trace]] = []
    why: dict[str, list[int]] = {}
    cut_short: dict[str, list[int]] = {}
    elsewhere = "" if here else "other hosts keep theirs in a folder of the same name"
    for rank in ranks:
        try:
            with open(os.path.join(folder, str(rank), _BEGAN)) as file:
                said = json.load(file)
        except (OSError, ValueError):
            why.setdefault(elsewhere, []).append(rank)
            continue
        if isinstance(said[-1], str):
            (cut_short if said[1:] else why).setdefault(said.pop(), []).append(rank)
        times += [{} for _ in said[len(times) :]]
        for traces, (at, path, seconds) in zip(times, said, strict=False):
            traces[rank] = _Trace(at, os.path.join(folder, str(rank), path), seconds)
    for number, traces in enumerate(times, 1):
        path = os.path.join(folder, _MERGED if number == 1 else f"trace-{number}.json.gz")
        try:
            shares = _write(path, traces)
            _gather(folder, traces)
        except (OSError, EOFError, ValueError) as error:
            yield f"--profile: cannot write {path}: {error}"
            return
        yield f"profile of {format_ranks(traces)}: {path} (open it at ui.perfetto.dev)"
        if line := describe_collectives(shares):
            yield line
    for reason, parts in cut_short.items():
        yield f"the profile of {format_ranks(parts)} is incomplete: {reason}"
    for reason, missing in why.items():
        yield f"no profile of {format_ranks(missing)} in {folder}{reason and f'; {reason}'}"


def _write(path: str, traces: Mapping[int, _Trace]) -> dict[int, float]:
    """Write the merged trace; return the share of time that each rank spent in collectives."""
    first = min(trace.began for trace in traces.values())
    shares: dict[int, float] = {}
    part = os.fdopen(own_paths.open_file(f"{path}.part", os.O_TRUNC), "wb")
    with part, gzip.open(part, "wt", compresslevel=6) as merged:
        merged.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        comma = ""
        for rank, trace in sorted(traces.items()):
            with gzip.open(trace.path) as file:
                events = json.load(file)["traceEvents"]
            shares[rank] = _compute_busy_us(events) / 1e6 / max(trace.seconds, 1e-3)
            for event in adapt_events(rank, events, (trace.began - first) * 1e6):
                merged.write(comma + json.dumps(event, separators=(",", ":")))
                comma = ",\n"
        merged.write("\n]}\n")
    os.replace(f"{path}.part", path)
    return shares


def _gather(folder: str, traces: Mapping[int, _Trace]) -> None:
    """Move the files that XProf reads into one folder, as XProf expects of a job's hosts."""
    when = os.path.basename(os.path.dirname(traces[min(traces)].path))
    run = os.path.join(folder, "plugins", "profile", when)
    for rank, trace in traces.items():
        own = os.path.dirname(trace.path)
        for name in os.listdir(own):
            if name.endswith(_XPLANE):
                own_paths.make_folder(run)
                os.replace(os.path.join(own, name), os.path.join(run, f"rank{rank}{_XPLANE}"))


def _compute_busy_us(events: Iterable[Event]) -> float:
    """Return the microseconds in which at least one collective was under way."""
    spans = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X" and _COLLECTIVE.match(event["name"])
    )
    total, until = 0.0, -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def describe_collectives(shares: Mapping[int, float]) -> str:
    """Return a line with each rank's share of time in collectives, and the rank that waits least.

    Args:
        shares: share of time, from 0 to 1, by rank.

    Returns:
        the line; "" if there are no collectives, or only one rank.

    """
    if len(shares) < 2 or not any(shares.values()):
        return ""
    least, most = min(shares, key=lambda rank: shares[rank]), max(shares.values())
    groups = group_by_key((round(100 * share), rank) for rank, share in shares.items())
    parts = [f"{format_ranks(ranks)} {percent} %" for percent, ranks in groups.items()]
    if len(parts) > _MOST_SHARES:
        lowest, highest = min(groups), max(groups)
        parts = [f"{format_ranks(groups[at])} {at} %" for at in (lowest, highest)]
        parts.insert(1, "others between")
    waits = f"; rank {least} waits least" if most - shares[least] >= _APART else ""
    return f"in collectives: {', '.join(parts)} of the time{waits}"


def adapt_events(rank: int, events: Iterable[Event], later_us: float) -> Iterator[Event]:
    """Yield the events of a rank, changed to fit into the merged trace.

    Args:
        rank: number of the rank, put into process ids and names.
        events: as the rank has written them; times are microseconds since its trace began.
        later_us: microseconds from the start of the first rank's trace to this rank's.

    """
    for event in events:
        if "pid" not in event:  # the empty event at the end
            continue
        pid = rank * _MOST_PIDS + int(event["pid"]) % _MOST_PIDS
        moved = {**event, "pid": pid}
        if "ts" in event:
            moved["ts"] = event["ts"] + later_us
        if event.get("name") == "process_name":
            moved["args"] = {"name": f"rank {rank} {event['args']['name']}"}
        elif event.get("name") == "process_sort_index":
            moved["args"] = {"sort_index": pid}
        yield moved
