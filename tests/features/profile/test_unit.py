"""The traces of all ranks as one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.profile.folders import describe_collectives, merge, prepare

NAME = {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}}
ORDER = {"ph": "M", "pid": 701, "name": "process_sort_index", "args": {"sort_index": 701}}


def event_of(name: str, at_us: float, us: float) -> dict[str, object]:
    return {"ph": "X", "pid": 701, "tid": 7, "ts": at_us, "dur": us, "name": name}


def write(folder: Path, rank: int, began: float, at_us: float, *more: dict[str, object]) -> None:
    event = event_of(f"work {rank}", at_us, 2.0)
    own = folder / str(rank)
    own.mkdir()
    with gzip.open(own / "x.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [NAME, ORDER, event, *more, {}]}, file)
    (own / "began.json").write_text(json.dumps([[began, "x.trace.json.gz", 5.0]]))
    (own / "host.xplane.pb").write_text(str(rank))


def merged(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "trace.json.gz") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def test_each_rank_has_its_own_tracks_on_a_common_time_axis(tmp_path: Path) -> None:
    write(tmp_path, 0, 1000.5, 10.0)
    write(tmp_path, 2, 1000.0, 20.0)
    [said] = merge(str(tmp_path), [0, 2], here=True)
    assert said == f"profile of ranks 0,2: {tmp_path}/trace.json.gz (open it at ui.perfetto.dev)"
    events = merged(tmp_path)
    assert [event["pid"] for event in events] == [701] * 3 + [2701] * 3
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["rank 0 /host:CPU", "rank 2 /host:CPU"]
    assert [e["args"]["sort_index"] for e in events if "sort" in e["name"]] == [701, 2701]
    assert {e["name"]: e["ts"] for e in events if "ts" in e} == {
        "work 0": pytest.approx(500_010.0),
        "work 2": pytest.approx(20.0),
    }


def test_xprof_files_are_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path, 1, 0.0, 0.0)
    write(tmp_path, 2, 0.0, 0.0)
    assert len(list(merge(str(tmp_path), [1, 2], here=True))) == 1
    found = sorted((tmp_path / "plugins" / "profile").glob("*/*.xplane.pb"))
    assert [(path.name, path.read_text()) for path in found] == [
        ("rank1.xplane.pb", "1"),
        ("rank2.xplane.pb", "2"),
    ]


def test_rank_with_least_time_in_collectives_is_named(tmp_path: Path) -> None:
    write(tmp_path, 0, 0.0, 0.0, event_of("all-reduce.1", 0.0, 4e6), event_of("all", 4e6, 1e6))
    both = event_of("ncclDevKernel_AllGather_RING_LL", 0.0, 3e5), event_of("all-gather", 1e5, 4e5)
    write(tmp_path, 1, 0.0, 0.0, *both)
    write(tmp_path, 2, 0.0, 0.0, event_of("all-to-all-start", 1.0, 4e6))
    assert list(merge(str(tmp_path), [0, 1, 2], here=True))[1:] == [
        "in collectives: ranks 0,2 80 %, rank 1 10 % of the time; rank 1 waits least"
    ]
    assert describe_collectives({0: 0.5, 1: 0.51}).endswith("rank 1 51 % of the time")
    many = describe_collectives({rank: rank / 10 for rank in range(10)})
    assert "rank 0 0 %, others between, rank 9 90 % of the time; rank 0" in many
    assert describe_collectives({0: 0.5}) == describe_collectives({0: 0.0, 1: 0.0}) == ""


def test_missing_traces_are_named(tmp_path: Path) -> None:
    write(tmp_path, 1, 0.0, 0.0)
    said = list(merge(str(tmp_path), [0, 1, 2], here=False))
    assert said[0].startswith("profile of rank 1: ")
    elsewhere = "other hosts keep theirs in a folder of the same name"
    assert said[1:] == [f"no profile of ranks 0,2 in {tmp_path}; {elsewhere}"]
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "began.json").write_text('["too soon"]')
    assert f"no profile of rank 0 in {tmp_path}; too soon" in merge(str(tmp_path), [0, 1], True)
    (tmp_path / "1" / "x.trace.json.gz").write_bytes(b"no gzip")
    assert next(merge(str(tmp_path), [1], here=True)).startswith("--profile: cannot write ")


def test_each_trace_has_its_own_file(tmp_path: Path) -> None:
    """A rank may have missed the second one."""
    for rank, times in ((0, [1.0, 9.0]), (1, [1.5])):
        write(tmp_path, rank, 0.0, 0.0)
        said = [[at, "x.trace.json.gz", 5.0] for at in times]
        (tmp_path / str(rank) / "began.json").write_text(json.dumps(said))
    first, second = merge(str(tmp_path), [0, 1], here=True)
    assert first.startswith(f"profile of ranks 0-1: {tmp_path}/trace.json.gz (")
    assert second.startswith(f"profile of rank 0: {tmp_path}/trace-2.json.gz (")
    assert len(merged(tmp_path)) == 6


def test_traces_of_earlier_jobs_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, 0, 0.0, 0.0)
    (tmp_path / "trace-2.json.gz").touch()
    prepare(str(tmp_path))
    assert not (tmp_path / "trace-2.json.gz").exists()
    assert list(merge(str(tmp_path), [0], here=True)) == [f"no profile of rank 0 in {tmp_path}"]
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=r"--profile .*file: "):
        prepare(str(tmp_path / "file"))
