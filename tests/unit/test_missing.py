"""Ranks that others wait for in vain: told once, whichever comes first."""

from typing import Any

import pytest

from mcjax_launch.run.state import History, Stop
from mcjax_launch.watchdog.absent_ranks import Missing

Event = tuple[int, dict[str, Any]]

ENDED = {"status": 0, "sent": (), "cpu_s": 0.0, "peak_kib": 0, "killer": None}


def joining(rank: int, count: int = 3, address: str = "a:1", where: str = "") -> Event:
    told = {"process_id": rank, "num_processes": count, "coordinator_address": address}
    return rank, {"joining": {**told, "where": where}}


JOINED = {"joined": {"process_id": 1}}
LEAVING = {"leaving": True}

NEVER_CAME = ["rank 1 has ended with 0 and never called initialize(), where others wait for it"]

CASES: dict[str, tuple[list[Event], list[str]]] = {
    "it ends before the others wait": ([(1, ENDED), joining(0), joining(2)], NEVER_CAME),
    "it ends when one waits": ([joining(0), (1, ENDED), joining(2)], NEVER_CAME),
    "it ends last": ([joining(0), joining(2), (1, ENDED)], NEVER_CAME),
    "nobody waits": ([(1, ENDED), (0, ENDED), (2, ENDED)], []),
    "others wait for two only": ([joining(0, 2), (1, ENDED), joining(2, 2)], []),
    "it came": ([joining(1), (1, JOINED), joining(0), (1, LEAVING), (1, ENDED)], []),
    "it is the last of all": ([joining(1), (1, JOINED), (0, ENDED), (2, ENDED), (1, ENDED)], []),
}


HOPELESS: dict[str, tuple[list[Event], list[str]]] = {
    "too many": (
        [joining(0, 4, where="t.py:3"), joining(1, 4)],
        ["rank 0 called initialize() at t.py:3 with num_processes=4, but the job has 3"],
    ),
    "one number twice": (
        [joining(0), (2, joining(0)[1])],
        ["rank 2 called initialize() with process_id=0, as rank 0 did"],
    ),
    "two jobs": ([joining(0, 1), (2, joining(0, 1, "b:2")[1])], []),
    "more than numbers": (
        [(0, joining(0)[1]), (1, {"joining": {**joining(1)[1]["joining"], "num_processes": None}})],
        [],
    ),
}


def told(events: list[Event], history: History) -> list[str]:
    missing, lines = Missing(), []
    for rank, body in events:
        tell = history.exited if "status" in body else history.hooked
        tell(rank, body, 1.0)
        lines += missing.news(history)
    return lines


@pytest.fixture
def history() -> History:
    history = History(num_processes=3)
    history.planned("job", "a:1", dict.fromkeys(range(3), "h"), None)
    return history


@pytest.mark.parametrize("name", CASES)
def test_told_once(history: History, name: str) -> None:
    events, lines = CASES[name]
    assert told(events, history) == lines


@pytest.mark.parametrize("name", HOPELESS)
def test_what_cannot_be(history: History, name: str) -> None:
    events, lines = HOPELESS[name]
    assert told(events, history) == lines


def test_left_without_leaving(history: History) -> None:
    lines = told([joining(1), (1, JOINED), (1, ENDED)], history)
    assert len(lines) == 1
    assert lines[0].startswith("rank 1 has ended with 0 without leaving the job: os._exit()")


def test_nothing_is_missed_where_the_job_ends_anyway(history: History) -> None:
    history.stopped(Stop("enough", 1), 0.5)
    assert told([(1, ENDED), joining(0)], history) == []
