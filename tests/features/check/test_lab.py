"""--check over real ssh hosts: walls between them, and what each has."""

import json
from pathlib import Path

import pytest
from jobs import Jobs
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"


@pytest.mark.jax
def test_check_passes_over_three_hosts(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    ended = lab.run(jobs, ALL, "--check", "-d", 2, "--report", path)
    assert (ended.status, ended.stderr) == (0, ""), ended.stdout
    found = {finding["topic"]: finding for finding in json.loads(path.read_text())["findings"]}
    assert found["sum"]["value"].startswith("21 over 6 devices, in ")
    assert found["hosts"]["value"].startswith("3 of 3 reached in ")
    assert found["ports"]["value"] == "all hosts reach one another (6 connections)"
    assert "3 ranks joined at 10.77.0.11:" in found["initialize"]["value"]
    assert found["network"]["value"] == "MTU 1500"
    assert found["network"]["hosts"] == ["jh1", "jh2", "jh3"]
    assert ended.seconds < 60  # 5 s where nothing else runs


def test_blocked_route_between_two_hosts_is_reported(jobs: Jobs, lab: Lab) -> None:
    lab.do("enter", "jh2", "ip", "route", "add", "unreachable", "10.77.0.13")
    try:
        ended = lab.run(jobs, ALL, "--check", "-d", 1)
    finally:
        lab.do("enter", "jh2", "ip", "route", "del", "unreachable", "10.77.0.13")
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "error ports jh2: cannot reach jh3 at 10.77.0.13: No route to host" in text
    assert "error ports jh3: cannot reach jh2 at 10.77.0.12: no answer (a firewall?)" in text
    assert "note sum not run: see ports" in text
