"""Real hosts that are lost: a cable is cut, the power goes, a machine comes back."""

import time
from pathlib import Path

from jobs import Jobs, eventually
from remote import Lab, needs_lab

pytestmark = needs_lab
ALL = "jh1,jh2,jh3"
# A rank that ignores TERM, with a stray in a session of its own.
DEAF = ("bash", "-c", "setsid sleep 1000 & trap '' TERM; echo ready; while :; do sleep 1000; done")


def test_cut_cable_is_noticed_on_both_sides(jobs: Jobs, lab: Lab) -> None:
    """No reset, no end of file: silence. Both sides notice, and nothing comes back with it."""
    running = lab.start(jobs, ALL, *DEAF)
    running.read_until("ready", 3)
    lab.do("cut", "jh3")
    began = time.monotonic()
    try:
        ended = running.finish()
        assert time.monotonic() - began < 20
        eventually(lambda: not any("sleep 1000" in line for line in lab.processes("jh3")), 20)
        assert time.monotonic() - began < 20
    finally:
        lab.do("restore", "jh3")
    assert ended.status == 255
    assert "host jh3: " in ended.report
    assert "1 lost with host jh3" in ended.report
    lab.check_clean(limit=40)


def test_cable_cut_during_a_sync_ends_the_job(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(400 << 20))
    options = ["--sync", str(tmp_path / "big"), "true"]
    running = lab.start(jobs, "jh2,jh3", *options)
    eventually(lambda: bool(lab.processes("jh3")), 10)
    lab.do("cut", "jh3")
    began = time.monotonic()
    try:
        assert running.finish().status == 255
        eventually(lambda: not any("python" in line for line in lab.processes("jh3")), 20)
        assert time.monotonic() - began < 25
    finally:
        lab.do("restore", "jh3")
    lab.check_clean(limit=40)
