"""Ranks that others wait for in vain: told once, whichever comes first."""

from typing import Any

import pytest

from mcjax_launch.history import History, Stop
from mcjax_launch.missing import Missing

Event = tuple[int, dict[str, Any]]

ENDED = {"status": 0, "sent": (), "cpu_s": 0.0, "peak_kib": 0, "killer": None}
JOINING = {"joining": {"process_id": 0, "num_processes": 3}}
OF_TWO = {"joining": {"process_id": 0, "num_processes": 2}}
JOINED = {"joined": {"process_id": 1}}
LEAVING = {"leaving": True}

NEVER_CAME = ["rank 1 has ended with 0 and never called initialize(), where others wait for it"]

CASES: dict[str, tuple[list[Event], list[str]]] = {
    "it ends before the others wait": ([(1, ENDED), (0, JOINING), (2, JOINING)], NEVER_CAME),
    "it ends when one waits": ([(0, JOINING), (1, ENDED), (2, JOINING)], NEVER_CAME),
    "it ends last": ([(0, JOINING), (2, JOINING), (1, ENDED)], NEVER_CAME),
    "nobody waits": ([(1, ENDED), (0, ENDED), (2, ENDED)], []),
    "others wait for two only": ([(0, OF_TWO), (1, ENDED), (2, OF_TWO)], []),
    "it came": ([(1, JOINING), (1, JOINED), (0, JOINING), (1, LEAVING), (1, ENDED)], []),
    "it is the last of all": ([(1, JOINING), (1, JOINED), (0, ENDED), (2, ENDED), (1, ENDED)], []),
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


def test_left_without_leaving(history: History) -> None:
    lines = told([(1, JOINING), (1, JOINED), (1, ENDED)], history)
    assert len(lines) == 1
    assert lines[0].startswith("rank 1 has ended with 0 without leaving the job: os._exit()")


def test_nothing_is_missed_where_the_job_ends_anyway(history: History) -> None:
    history.stopped(Stop("enough", 1), 0.5)
    assert told([(1, ENDED), (0, JOINING)], history) == []
