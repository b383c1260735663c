"""Hosts that reach one another at no port at all: only ssh from the launcher is open."""

from collections.abc import Iterator

import pytest
from jobs import PROGRAMS, Jobs
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"
OVER_SSH = ("--coordinator", "ssh")


@pytest.fixture
def walls(lab: Lab) -> Iterator[None]:
    lab.do("isolate")
    yield
    lab.do("unisolate")


@pytest.mark.jax
@pytest.mark.usefixtures("walls")
def test_ranks_meet_through_walls(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, "jh1,jh2:2,jh3", *OVER_SSH, PROGRAMS / "meeting.py")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("knows 0 1 4 9") == 4
    assert "cannot reach host" in ended.stderr


@pytest.mark.usefixtures("walls")
def test_collectives_that_cannot_work_are_named_before_anything_starts(
    jobs: Jobs, lab: Lab
) -> None:
    ended = lab.run(jobs, ALL, *OVER_SSH, "-d", 1, "echo", "started")
    assert (ended.status, ended.out) == (255, b"")
    assert "host jh1 cannot reach host jh2 at 10.77.0.12: no answer (a firewall?), and 5 more" in (
        ended.report
    )
    assert "collectives on CPU (Gloo) connect the hosts at random ports" in ended.report
    assert ended.seconds < 20


@pytest.mark.usefixtures("walls")
def test_ranks_that_may_need_no_ports_are_started(jobs: Jobs, lab: Lab) -> None:
    ended = lab.run(jobs, ALL, *OVER_SSH, "echo", "started")
    assert (ended.status, ended.stdout.count("started")) == (0, 3)
    assert "cannot reach host" in ended.stderr
    assert "not those of TPUs" in ended.stderr
    ended = lab.run(jobs, ALL, *OVER_SSH, "-x", "JAX_PLATFORMS=tpu", "echo", "started")
    assert (ended.status, ended.stderr) == (0, "")


@pytest.mark.jax
@pytest.mark.parametrize("names", [None, "127.0.0.1 localhost\n127.0.1.1 jh1 jh2 jh3\n"])
def test_collectives_where_hosts_reach_each_other(jobs: Jobs, lab: Lab, names: str | None) -> None:
    """Also where a host's own name leads to itself alone."""
    lab.names(names)
    try:
        ended = lab.run(jobs, ALL, *OVER_SSH, "-d", 2, PROGRAMS / "tour.py")
    finally:
        lab.names()
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("all arrays are right") == 3
