"""--setup on real hosts, each with a shell of its own."""

import pytest
from jobs import Jobs, eventually
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"
# In each host's own /tmp.
COUNTS = 'echo x >> "/tmp/ran"'


def test_hosts_are_made_ready_at_each_start(jobs: Jobs, lab: Lab) -> None:
    command = f"{COUNTS}; export HERE=$(hostname)"
    for start in (1, 2):
        ended = lab.run(jobs, ALL, "--setup", command, "sh", "-c", "echo $HERE; wc -l < /tmp/ran")
        for number, host in enumerate(lab.hosts):
            assert f"[{number} {host}] {host}\n" in ended.stdout
            assert f"[{number} {host}] {start}\n" in ended.stdout


def test_failing_host_ends_the_job_before_it_begins(jobs: Jobs, lab: Lab) -> None:
    command = "[ $(hostname) != jh2 ] || { echo no room; exit 4; }"
    ended = lab.run(jobs, ALL, "--setup", command, "echo", "rank")
    assert (ended.status, ended.stdout) == (4, "")
    assert "host jh2: --setup " in ended.report.splitlines()[-1]
    assert ended.report.endswith(" s (no room): no rank was started")


@pytest.mark.parametrize("killed", ["launcher", "agent"])
def test_nothing_is_left_of_a_killed_command(jobs: Jobs, lab: Lab, killed: str) -> None:
    """Also of processes that are in no group of the command's."""
    ends = {"launcher": "true", "agent": "[ $(hostname) != jh1 ] || kill -KILL $PPID"}
    hangs = f"trap '' TERM; setsid sleep 300 & {ends[killed]}; echo hangs; wait"
    running = lab.start(jobs, "jh1,jh2", "--setup", hangs, "true")
    if killed == "launcher":
        eventually(lambda: all("sleep 300" in lab.processes(host) for host in ("jh1", "jh2")))
        lab.launcher(running).kill()
    ended = running.finish()
    assert ended.status != 0
    lab.check_clean()
    if killed == "agent":
        assert "host jh1" in ended.report
