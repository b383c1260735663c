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
    assert found["reach"]["value"] == "3 of 3 ready"
    assert "3 ranks joined at 10.77.0.11:" in found["coordinator"]["value"]
    assert ended.seconds < 120  # 5 s where nothing else runs


def test_blocked_route_between_two_hosts_is_reported(jobs: Jobs, lab: Lab) -> None:
    lab.do("enter", "jh2", "ip", "route", "add", "unreachable", "10.77.0.13")
    try:
        ended = lab.run(jobs, ALL, "--check", "-d", 1, "--timeout", "25s")
    finally:
        lab.do("enter", "jh2", "ip", "route", "del", "unreachable", "10.77.0.13")
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "ok reach 3 of 3 ready" in text
    assert "error sum --timeout: still running after 25 s" in text
    assert "do firewalls pass all ports between the hosts?" in text


def test_hosts_that_fail_in_different_ways_are_all_named(jobs: Jobs, lab: Lab) -> None:
    """One has no address, and to one there is no route; the job runs on the others."""
    lab.inside("ip", "route", "add", "unreachable", "10.77.0.13")
    try:
        ended = lab.run(jobs, "jh1,nohost,jh2,jh3", "--check", "-d", 1)
    finally:
        lab.inside("ip", "route", "del", "unreachable", "10.77.0.13")
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "error reach nohost: ssh: Could not resolve hostname nohost" in text
    assert "error reach jh3: ssh: connect to host 10.77.0.13 port 22: No route to host" in text
    assert "ok reach 2 of 4 ready" in text and "ok sum 3 over 2 devices" in text
