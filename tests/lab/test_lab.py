"""JAX over real hosts: three of them, each with its own address, host name and sshd."""

import re
import signal
import sys

import pytest
from jobs import PROGRAMS, Jobs
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"


@pytest.mark.jax
def test_guides_tour_runs_on_several_hosts(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, ALL, "-d", 2, PROGRAMS / "tour.py")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("all arrays are right") == 3
    assert "[2 jh3] process 2: matmul over 3 x 2 devices is right" in ended.stdout


@pytest.mark.jax
@pytest.mark.parametrize("tls", ["on", "off"])
def test_guides_toy_program_runs_on_several_hosts(jobs: Jobs, lab: Lab, tls: str) -> None:
    """It names localhost, where each host would wait for itself."""
    toy = PROGRAMS / "guide" / "toy.py"
    ended = lab.run(jobs, "jh1:2,jh2,jh3", "-d", 2, "--mtls", tls, "--sync", toy, toy)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count(" got result: -0.1239") == 4


@pytest.mark.jax
def test_hosts_can_be_slices(jobs: Jobs, lab: Lab) -> None:
    """XLA itself takes these hosts for machines; a CPU job is one slice all the same."""
    script = """
import jax
jax.distributed.initialize()
xla = [type(device).__getattr__(device, "slice_index") for device in jax.devices()]
print("slices", *(device.slice_index for device in jax.devices()), "XLA's", *xla)
"""
    for which, slices in (("auto", "0 0 0"), ("host", "0 0 1")):
        command = ("-d", 1, "--slices", which, sys.executable, "-c", script)
        ended = lab.run(jobs, "jh1:2,jh2", *command)
        assert ended.status == 0, ended.stderr
        assert ended.stdout.count(f"slices {slices} XLA's 0 0 1\n") == 3


@pytest.mark.jax
def test_lost_host_is_the_cause_not_errors_of_its_peers(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, ALL, "-d", 1, "--grace", "1", PROGRAMS / "fail.py", "agent")
    assert ended.status == 255
    assert "host jh2: " in ended.report
    assert "the 3 ranks: 2 failed as a consequence at " in ended.report
    assert ", 1 lost with host jh2" in ended.report


@pytest.mark.jax
def test_transfers_work_between_hosts(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, "jh1,jh2", "-d", 2, "--cpu-transfers", PROGRAMS / "transfer.py")
    assert ended.status == 0, ended.stderr
    assert "[1 jh2] process 1 holds 4160 of the result" in ended.stdout


@pytest.mark.jax
def test_launchers_machine_may_be_first(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, "localhost,jh2", "-d", 2, PROGRAMS / "toy.py")
    assert ended.status == 0, ended.stderr


def test_coordinator_address_is_reachable_from_other_hosts(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, "jh2,jh1", "sh", "-c", "echo at {coordinator_host} on $(hostname)")
    assert sorted(ended.stdout.splitlines()) == [
        "[0 jh2] at 10.77.0.12 on jh2",
        "[1 jh1] at 10.77.0.12 on jh1",
    ]
    ended = lab.run(jobs, "localhost,jh1", "echo", "{coordinator_host}")
    assert ended.stdout.count("10.77.0.1\n") == 2


@pytest.mark.jax
@pytest.mark.parametrize("names", ["127.0.0.1 localhost\n", "10.77.0.250 jh1 jh2\n"])
def test_hosts_with_an_unusable_name_can_join(jobs: Jobs, lab: Lab, names: str) -> None:
    """No address, or that of nobody: JAX alone fails on both. All other tests have Debian's 127.0.1.1."""
    lab.names(names)
    try:
        ended = lab.run(jobs, "jh1,jh2", "-d", 1, PROGRAMS / "toy.py")
    finally:
        lab.names()
    assert ended.status == 0, ended.stderr


def test_unusable_hostname_without_the_hook_gets_a_hint(jobs: Jobs, lab: Lab) -> None:
    lab.names("127.0.0.1 localhost\n127.0.1.1 jh1 jh2\n")
    try:
        ended = lab.run(jobs, "jh1,jh2", "-d", 1, "--no-hook", "echo", "started")
    finally:
        lab.names()
    assert (ended.status, ended.out) == (255, b"")
    assert "its own name resolves to 127.0.1.1" in ended.report
    assert "point it to 10.77.0.1" in ended.report


def test_unreachable_coordinator_is_reported(jobs: Jobs, lab: Lab) -> None:
    lab.do("isolate")
    try:
        ended = lab.run(jobs, ALL, "echo", "started")
    finally:
        lab.do("unisolate")
    assert (ended.status, ended.out) == (255, b"")
    assert "cannot reach the coordinator on host jh1" in ended.report
    # The second where the hosts have never spoken to each other: the kernel finds no neighbour.
    assert re.search(r"10\.77\.0\.11: (no answer|No route to host)", ended.report)
    assert ended.seconds < 25


@pytest.mark.jax
@pytest.mark.parametrize(("way", "status", "culprit"), [("SIGKILL", 137, 0), ("raise", 1, 2)])
def test_failure_on_any_host_ends_the_job(
    jobs: Jobs, lab: Lab, way: str, status: int, culprit: int
) -> None:
    ended = lab.run(jobs, ALL, "-d", 1, "--grace", "1", PROGRAMS / "fail.py", way, culprit)
    assert ended.status == status, ended.stderr
    assert f"rank {culprit} on jh{culprit + 1} failed" in ended.report
    assert ended.seconds < 30


def test_interrupt_reaches_all_ranks_of_all_hosts(jobs: Jobs, lab: Lab) -> None:
    script = "trap 'echo got it; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    running = lab.start(jobs, "jh1:2,jh2:2", "bash", "-c", script)
    running.read_until("ready", 4)
    lab.launcher(running).send_signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130
    assert ended.stdout.count("got it") == 4
    lab.check_clean()
