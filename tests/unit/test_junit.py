"""--junit's file: a case for each rank, whatever its end, in XML that every reader takes."""

import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from records import JOB, KILL, TERM, end_of, failure, say

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.summary import not_started, summarize
from mcjax_launch.report.junit import JUnit
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import Stop

# What the schemas of Jenkins' xUnit plugin and of pytest allow.
ATTRIBUTES = {
    "testsuites": set(),
    "testsuite": {
        "name",
        "tests",
        "failures",
        "errors",
        "skipped",
        "time",
        "timestamp",
        "hostname",
    },
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "system-out": set(),
    "system-err": set(),
}
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "properties": ["property"],
    "testcase": ["error", "failure", "system-out", "system-err"],
}


def planned(ranks: int, hosts: int = 1) -> RunState:
    state = RunState(hosts=hosts)
    state.planned("ab", "c", {rank: f"h{rank}" for rank in range(ranks)}, None)
    for rank in range(ranks):
        state.started(rank, 7, 0.5)
    return state


def attempt(state: RunState) -> Attempt:
    return Attempt(restart=0, hosts=("h0", "h1"), seconds=3, state=state, summary=summarize(state))


def written(path: Path, *attempts: Attempt, status: int | None = None, end: str = "end") -> Any:
    """The suite that is written after these attempts."""
    junit = JUnit(str(path), JOB.replaced(program=("./a/train.py",)), pytest.fail)
    for each in attempts:
        junit.ended(each)
    junit.over(attempts[-1].summary.status if status is None else status, end)
    root = ElementTree.fromstring(path.read_bytes())
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        order = [CHILDREN[element.tag].index(child.tag) for child in element]
        assert order == sorted(order)
    (suite,) = root
    for kind in ("failure", "error"):
        assert int(suite.get(f"{kind}s")) == len(suite.findall(f"testcase/{kind}"))
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    return suite


def verdicts(suite: Any) -> dict[str, tuple[str, str, str]]:
    """By case: the kind of its end, its type and message."""
    found = {}
    for case in suite.findall("testcase"):
        end = next((child for child in case if child.tag in ("error", "failure")), None)
        found[case.get("name")] = (
            ("ok", "", "") if end is None else (end.tag, end.get("type"), end.get("message"))
        )
    return found


def test_a_good_end(tmp_path: Path) -> None:
    state = planned(2)
    for rank, run in state.ranks.items():
        run.stdout, run.stderr = "1%\r2%\nout\n", "err\n" if rank else ""
        state.exited(end_of(rank, 0), 2.0 + rank)
    suite = written(tmp_path / "a.xml", attempt(state))
    first, second = suite.findall("testcase")
    assert (first.get("classname"), first.get("name"), first.get("time")) == (
        "a.train",
        "rank 0",
        "1.500",
    )
    assert [child.tag for child in first] == ["system-out"]
    assert second.findtext("system-out") == "2%\nout"
    assert second.findtext("system-err") == "err"


def test_a_failure_and_what_it_did_to_the_others(tmp_path: Path) -> None:
    state = planned(4, hosts=4)
    say(state, 1, failure(), 1.0)
    state.exited(end_of(1, 1), 1.5)
    state.exited(end_of(0, 0), 1.5)
    state.exited(end_of(2, -KILL, (TERM, KILL)), 3.0)
    state.ranks[3].stderr = "what I said\n"
    state.exited(end_of(3, -signal.SIGABRT), 3.0)
    last = attempt(state)
    suite = written(tmp_path / "a.xml", last)
    assert verdicts(suite) == {
        "rank 0 on h0": ("ok", "", ""),
        "rank 1 on h1": ("failure", "ValueError", "rank 1 on h1 failed: ValueError: x"),
        "rank 2 on h2": ("error", "stopped", "rank 2: killed (still running after SIGTERM)"),
        "rank 3 on h3": ("failure", "killed by SIGABRT", "rank 3 failed: killed by SIGABRT"),
    }
    assert suite.findtext("testcase/failure") == "\n".join(last.summary.lines)
    assert "rank 1 on h1 failed: ValueError: x" in suite.findtext("testcase/error")
    assert "what I said" in suite.findall("testcase/failure")[1].text


def test_a_job_that_was_stopped(tmp_path: Path) -> None:
    state = planned(1)
    state.stopped(Stop("--timeout: still running after 1 s", 124), 1.0)
    state.exited(end_of(0, -TERM, (TERM,)), 3.0)
    suite = written(tmp_path / "a.xml", attempt(state))
    assert verdicts(suite) == {"rank 0": ("error", "stopped", "rank 0: ended by SIGTERM")}
    assert "--timeout: still running after 1 s" in suite.findtext("testcase/error")


def test_a_stop_after_which_all_ranks_ended_well(tmp_path: Path) -> None:
    state = planned(1)
    state.stopped(Stop("stopped by SIGTERM", 143), 1.0)
    state.exited(end_of(0, 0, (TERM,)), 3.0)
    suite = written(tmp_path / "a.xml", attempt(state), end="stopped by SIGTERM")
    assert verdicts(suite) == {
        "rank 0": ("ok", "", ""),
        "job": ("error", "job", "stopped by SIGTERM"),
    }


def test_a_job_that_was_not_started(tmp_path: Path) -> None:
    state = planned(2)
    summary = not_started("host h0: away", 255)
    away = Attempt(restart=0, hosts=("h0", "h1"), seconds=3, state=state, summary=summary)
    expected = {"job": ("error", "job", "host h0: away")}
    assert verdicts(written(tmp_path / "a.xml", away, end="host h0: away")) == expected
    junit = JUnit(str(tmp_path / "{job_id}.xml"), JOB, pytest.fail)
    junit.over(125, "internal error")
    (suite,) = ElementTree.fromstring((tmp_path / "not-started.xml").read_text())
    assert verdicts(suite) == {"job": ("error", "job", "internal error")}


def test_earlier_attempts_are_properties(tmp_path: Path) -> None:
    first, second = planned(1), planned(1)
    first.exited(end_of(0, 3), 1.0)
    second.exited(end_of(0, 0), 1.0)
    suite = written(tmp_path / "a.xml", attempt(first), attempt(second))
    assert verdicts(suite) == {"rank 0": ("ok", "", "")}
    values = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert values == {
        "exit status": "0", "end": "end", "job id": "ab", "hosts": "h0 h1",
        "attempt 1": "rank 0 failed: exit status 3",
    }  # fmt: skip


def test_any_character(tmp_path: Path) -> None:
    state = planned(1)
    most = "".join(chr(code) for code in range(256) if chr(code) not in "\r\n")
    state.ranks[0].stdout = f"{most}\ud800\ufffe\U0001f600 ]]> \x1b[1;31mred\x1b[0m\n"
    say(state, 0, failure('ValueError: \x1b[31m<&">\x00'), 1.0)
    state.exited(end_of(0, 1), 1.5)
    suite = written(tmp_path / "a.xml", attempt(state))
    text = suite.findtext("testcase/system-out")
    assert text.endswith("\\ud800\\ufffe\U0001f600 ]]> red")
    assert text.startswith("\\x00\\x01")
    assert "\\x08\t\\x0b\\x0c\\x0e" in text
    assert "xyz{|}~" in text
    assert verdicts(suite)["rank 0"][2] == 'rank 0 failed: ValueError: \\x1b[31m<&">\\x00'
