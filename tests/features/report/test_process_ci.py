"""Jobs in CI: the log of GitHub Actions."""

import os
from pathlib import Path

import github_log
import pytest
from jobs import Ended, Jobs

ACTIONS = {"GITHUB_ACTIONS": "true"}
FAILING = """
import os, sys
rank = int(os.environ['JAX_PROCESS_ID'])
print('::error::not ours')
print(f'I am {rank}', file=sys.stderr, flush=True)
if rank:
    raise ValueError('50% bad: a, b')
"""


def read(ended: Ended) -> github_log.Log:
    """The log of both streams, and no more commands on stdout than there are to be: none."""
    assert github_log.read(ended.stdout).commands == []
    return github_log.read(ended.stderr)


def errors(log: github_log.Log) -> list[tuple[str, dict[str, str]]]:
    return [(each.data, each.properties) for each in log.commands if each.name == "error"]


def test_failure_is_annotated_under_github_actions(jobs: Jobs, tmp_path: Path) -> None:
    program = tmp_path / "src" / "train.py"
    program.parent.mkdir()
    os.mkfifo(program.parent / "said")  # rank 1 fails when rank 0 has said all
    meets = "open('said', 'r' if rank else 'w').close()\nif rank:"
    program.write_text(FAILING.replace("if rank:", meets))
    env = {**ACTIONS, "GITHUB_WORKSPACE": str(tmp_path), "NO_COLOR": "1"}
    ended = jobs.run("-n", 2, program, cwd=program.parent, env=env)
    assert ended.status == 1
    log = read(ended)
    (error,) = errors(log)
    assert error[1] == {"file": "src/train.py", "line": "8", "title": "mcjax-launch"}
    assert error[0].startswith("rank 1 failed: ValueError: 50% bad: a, b\nat ")
    assert log.text.count("[1] I am 1") == 1
    assert ended.stdout.count("[1] ::error::not ours\n") == 1
    assert ended.stderr.splitlines()[-1].startswith("::error ")


def test_traceback_is_printed_once_under_github_actions(jobs: Jobs, tmp_path: Path) -> None:
    """In the log; neither of each rank, nor in the summary below it once more."""
    program = tmp_path / "train.py"
    program.write_text("def step():\n    raise ValueError('bad batch')\n\n\nstep()\n")
    env = {**ACTIONS, "GITHUB_WORKSPACE": str(tmp_path), "NO_COLOR": "1"}
    ended = jobs.run("-n", 3, program, cwd=tmp_path, env=env)
    assert ended.status == 1
    log = read(ended)
    assert sum("Traceback" in line for line in log.text) == 1
    ((data, properties),) = errors(log)
    assert "failed" in data.partition("\n")[0] and data.count("Traceback") <= 1
    assert properties == {"file": "train.py", "line": "2", "title": "mcjax-launch"}


@pytest.mark.parametrize(("env", "on"), [({"GITHUB_ACTIONS": "false"}, False), (ACTIONS, True)])
def test_ci_annotations_depend_on_the_environment(
    jobs: Jobs, env: dict[str, str], on: bool
) -> None:
    ended = jobs.run("-n", 2, "bash", "-c", "echo hi; exit 3", env=env)
    assert ("::error " in ended.stderr) == on
    assert ("\x1b[" in ended.stdout) == on
