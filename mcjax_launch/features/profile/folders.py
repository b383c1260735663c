"""--profile: the traces of all ranks as one, which Perfetto shows with a track for each rank."""

import contextlib
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.ranks import these_ranks

# Written by each rank next to its trace, as the last.
_BEGAN = "began.json"
_MERGED = "trace.json.gz"
# Of the second time and so on.
_LATER = re.compile(r"trace-\d+\.json\.gz")
# Of a rank's own numbers for its tracks (701 is the host, 1 and more are devices).
_MOST_PIDS = 1000

Event = dict[str, Any]


def prepare(folder: str) -> None:
    """Make the folder, and forget what an earlier job has left there.

    Raises:
        LaunchError: it cannot be written.

    """
    try:
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            if name.isdigit():
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(os.path.join(folder, name, _BEGAN))
            elif _LATER.fullmatch(name):
                os.unlink(os.path.join(folder, name))
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise LaunchError(f"--profile {folder}: {error.strerror}") from None


def merge(folder: str, ranks: Iterable[int], here: bool) -> Iterator[str]:
    """Write the traces of these ranks as one; what to say of it.

    Args:
        folder: that of --profile, with a folder for each rank.
        ranks: of this launcher.
        here: all of them were on this machine.

    """
    times: list[dict[int, tuple[float, str]]] = []
    missing = []
    for rank in ranks:
        try:
            with open(os.path.join(folder, str(rank), _BEGAN)) as file:
                said = json.load(file)
        except (OSError, ValueError):
            missing.append(rank)
            continue
        times += [{} for _ in said[len(times) :]]
        for began, (at, trace) in zip(times, said, strict=False):
            began[rank] = at, os.path.join(folder, str(rank), trace)
    for number, began in enumerate(times, 1):
        path = os.path.join(folder, _MERGED if number == 1 else f"trace-{number}.json.gz")
        try:
            _write(path, began)
        except (OSError, EOFError, ValueError) as error:
            yield f"--profile: cannot write {path}: {error}"
            return
        yield f"profile of {these_ranks(began)}: {path} (open it at ui.perfetto.dev)"
    if missing:
        why = "" if here else "; on other hosts it is in their own folder of that name"
        yield f"no profile of {these_ranks(missing)} in {folder}{why}"


def _write(path: str, began: dict[int, tuple[float, str]]) -> None:
    """One rank after the other: a trace may be large."""
    first = min(at for at, _ in began.values())
    with gzip.open(f"{path}.part", "wt", compresslevel=6) as merged:
        merged.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        comma = ""
        for rank, (at, trace) in sorted(began.items()):
            with gzip.open(trace) as file:
                events = json.load(file)["traceEvents"]
            for event in of_rank(rank, events, (at - first) * 1e6):
                merged.write(comma + json.dumps(event, separators=(",", ":")))
                comma = ",\n"
        merged.write("\n]}\n")
    os.replace(f"{path}.part", path)


def of_rank(rank: int, events: Iterable[Event], later_us: float) -> Iterator[Event]:
    """The events of a rank among those of others.

    Args:
        rank: gets process ids of its own, in order of rank, and its number in their names.
        events: as the rank has written them; times are microseconds since it began.
        later_us: so much later than the first of all it began.

    """
    for event in events:
        if "pid" not in event:  # the empty one at the end
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
