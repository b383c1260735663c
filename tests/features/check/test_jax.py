"""--check with real JAX: the sum, and jobs that fail."""

import json
import os
import re
import signal
from importlib.metadata import version
from pathlib import Path

from jobs import Jobs
from remote import FAKE_SSH


def test_check_passes_on_this_machine(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    ended = jobs.run("--check", "-n", 2, "-d", 2, "--report", path)
    assert (ended.status, ended.stderr) == (0, ""), ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("passed: 2 ranks on 1 host, in ")
    data = json.loads(path.read_text())
    found = {finding["topic"]: finding["value"] for finding in data["findings"]}
    assert data["passed"]
    assert found["coordinator"].startswith("2 ranks joined at a private socket in ")
    assert found["sum"].startswith("10 over 4 devices, in ")
    assert found["devices"] == "4 cpu"
    assert found["jax"].startswith(f"{version('jax')}, ")


def test_check_passes_over_several_hosts_without_the_hook(jobs: Jobs) -> None:
    ended = jobs.run("--check", "--hosts", "a:2,b", "--via", FAKE_SSH, "-d", 1, "--no-hook")
    assert (ended.status, ended.stderr) == (0, ""), ended.stdout
    assert "\nok       sum          6 over 3 devices, in " in ended.stdout


def test_check_fails_if_not_all_ranks_join(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nif os.environ.get('JAX_PROCESS_ID') == '1': time.sleep(1000)\n"
    )
    options = ["-n", 2, "-d", 1, "-x", f"PYTHONPATH={tmp_path}", "--start-timeout", "12s"]
    ended = jobs.run("--check", *options)
    assert ended.status == 1
    assert re.search(r"(?s)\nerror    sum  .*initialize\(\)", ended.stdout)
    assert ended.seconds < 60


def test_interrupt_during_the_sum_ends_the_check(jobs: Jobs, tmp_path: Path) -> None:
    """A rank's Python says when it starts; then the user has had enough."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys, time\nif sys.argv[:1] == ['probe.py'] or 'stage' in str(sys.orig_argv):\n"
        f"    open({str(fifo)!r}, 'w').write('here')\n    time.sleep(1000)\n"
    )
    running = jobs.start("--check", "-d", 1, "-x", f"PYTHONPATH={tmp_path}")
    assert fifo.read_text() == "here"
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert (ended.status, ended.out) == (130, b"")
    assert ended.report.count("stopped by SIGINT") == 1
    assert ended.seconds < 30


def test_check_reports_ranks_that_cannot_be_placed(jobs: Jobs) -> None:
    """What the launcher refuses after it has asked the hosts."""
    ended = jobs.run("--check", "-n", 1, "--gpus-per-process", 999)
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert "error sum host localhost: this host has no GPU that its ranks could use" in text
