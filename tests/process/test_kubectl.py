"""Hosts that are pods, reached with `kubectl exec`: over a stand-in that has kubectl's rules."""

import os
import signal
from pathlib import Path

import pytest
from jobs import Ended, Jobs, eventually

FAKE_KUBECTL = Path(__file__).parent.parent / "fake_kubectl"
PODS = {"FAKE_PODS": "ws-0 ws-1"}


@pytest.fixture
def pods(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Pods that wait, and a command called kubectl that leads to them."""
    (tmp_path / "kubectl").symlink_to(FAKE_KUBECTL)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return jobs


def run(
    pods: Jobs, *arguments: object, via: str = "kubectl exec -i {host} --", **env: str
) -> Ended:
    return pods.run("--hosts", "ws-[0-1]", "--via", via, *arguments, env={**PODS, **env})


def test_job_runs_in_waiting_pods(pods: Jobs) -> None:
    script = "echo rank $JAX_PROCESS_ID in $HOSTNAME; pwd"
    ended = run(pods, "-C", "/", "--procs-per-host", 2, "sh", "-c", script)
    assert ended.status == 0, ended.stderr
    for rank in range(4):
        assert f"[{rank} ws-{rank // 2}] rank {rank} in ws-{rank // 2}\n" in ended.stdout


def test_synced_file_reaches_the_pods(pods: Jobs, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("here\n")
    options = ["--hosts", "ws-0,ws-1", "--via", "kubectl exec -i {host} --", "--sync", "data"]
    ended = pods.run(*options, "cat", "data", cwd=tmp_path, env=PODS)
    assert (ended.status, ended.stdout.count("here\n")) == (0, 2), ended.stderr


def test_one_root_cause_is_reported_for_pods(pods: Jobs) -> None:
    """And the status is that rank's; kubectl's own words on it are not shown."""
    script = "[ $JAX_PROCESS_ID = 1 ] && echo too bad >&2 && exit 7; exec sleep 1000"
    ended = run(pods, "sh", "-c", script)
    assert ended.status == 7
    assert "rank 1 on ws-1 failed: exit status 7" in ended.report
    assert "terminated with exit code" not in ended.stderr


@pytest.mark.parametrize(
    ("via", "env", "words"),
    [
        ("kubectl exec -i {host} --", {"FAKE_PODS": "ws-0"}, 'pods "ws-1" not found'),
        ("kubectl exec -i {host} --", {"FAKE_PHASE": "Failed"}, "current phase is Failed"),
        ("kubectl exec -i {host}", {}, "Use exec [POD] -- [COMMAND] instead"),
    ],
)
def test_errors_of_kubectl_are_explained(
    pods: Jobs, via: str, env: dict[str, str], words: str
) -> None:
    ended = run(pods, "true", via=via, **env)
    assert ended.status == 255
    assert words in ended.report


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_job_leaves_nothing_in_the_pods(pods: Jobs, signum: int) -> None:
    """Though the end of kubectl is no signal for what it has started."""
    script = "trap '' TERM; echo ready; setsid sleep 1000 & while :; do sleep 1000; done"
    options = ["--hosts", "ws-[0-1]", "--via", "kubectl exec -i {host} --", "--grace", "0.2s"]
    running = pods.start(*options, "sh", "-c", script, env=PODS)
    running.read_until("ready", 2)
    running.process.send_signal(signum)
    running.finish()
    eventually(lambda: not pods.left())
