"""--check over real ssh hosts: walls between them, and what each has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"


@pytest.mark.jax
@pytest.mark.parametrize("options", [[], ["--coordinator", "ssh"]])
def test_three_hosts(jobs: Jobs, lab: Lab, tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "check.json"
    ended = lab.run(jobs, ALL, "--check", "-d", 2, "--report", path, *options)
    assert (ended.status, ended.stderr) == (0, ""), ended.stdout
    assert "jh[1-3] " in ended.stdout
    assert "\nok       sum         21 over 6 devices" in ended.stdout
    data = json.loads(path.read_text())
    assert data["network"]["pairs"] == 6
    assert data["network"]["coordinator"] == ("" if options else "10.77.0.11")
    assert [one["addresses"] for one in data["hosts"]] == [[f"10.77.0.1{n}"] for n in (1, 2, 3)]
    faced = [one["interface"]["address"] for one in data["hosts"]]
    assert faced == [f"10.77.0.1{n}" for n in (1, 2, 3)]
    assert "faces the other hosts: MTU 1500" in ended.stdout
    assert ended.seconds < 60  # 5 s where nothing else runs


@pytest.mark.jax
def test_another_version_and_a_host_that_is_not_there(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", tmp_path / "old"], check=True
    )
    (packages,) = (tmp_path / "old").glob("lib/python3*/site-packages")
    for name in ("jax", "jaxlib"):
        (packages / f"{name}-0.1.dist-info").mkdir()
        (packages / f"{name}-0.1.dist-info" / "METADATA").write_text(
            f"Name: {name}\nVersion: 0.1\n"
        )
        (packages / f"{name}.py").write_text("raise SystemExit('not to be imported')\n")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"jh1\njh2 python={tmp_path}/old/bin/python\njh3\n10.77.0.99\n")
    ended = lab.run(jobs, str(hosts), "--check", "-d", 1)
    assert (ended.status, ended.stderr) == (1, "")
    text = " ".join(ended.stdout.split())
    assert "- 10.77.0.99: ssh: connect to host 10.77.0.99 port 22: No route to host" in text
    assert "- jh2: jax 0.1, elsewhere " in text
    assert "FAILED devices 2 cpu in all" in text
    assert "all hosts reach one another (6 ways)" in text
    assert "not run sum see hosts, jax" in text


def test_a_wall_between_all_hosts(jobs: Jobs, lab: Lab) -> None:
    lab.do("isolate")
    try:
        ended = lab.run(jobs, ALL, "--check", "-d", 1)
    finally:
        lab.do("unisolate")
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "FAILED ports 6 of 6 ways between hosts are closed" in text
    assert "- jh[2-3] cannot reach the coordinator on jh1, port " in text
    assert "- jh[1-3] cannot reach any other host (jh2 at 10.77.0.12: no answer" in text
    assert "not run sum see ports" in text
    assert ended.seconds < 60


def test_a_wall_between_two_hosts(jobs: Jobs, lab: Lab) -> None:
    lab.do("enter", "jh2", "ip", "route", "add", "unreachable", "10.77.0.13")
    try:
        ended = lab.run(jobs, ALL, "--check", "-d", 1)
    finally:
        lab.do("enter", "jh2", "ip", "route", "del", "unreachable", "10.77.0.13")
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "FAILED ports 2 of 6 ways between hosts are closed" in text
    assert "- jh2 cannot reach jh3 (jh3 at 10.77.0.13: No route to host)" in text
    assert "- jh3 cannot reach jh2 (jh2 at 10.77.0.12: no answer (a firewall?))" in text
    assert "not run sum see ports" in text
