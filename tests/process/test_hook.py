"""The hook inside a rank's Python, in programs without JAX."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs, shell_script

pytestmark = pytest.mark.every_jax


def run(jobs: Jobs, program: str, **env: str) -> str:
    ended = jobs.run("--no-prefix", sys.executable, "-c", program, env=env)
    assert ended.status == 0, ended.stderr
    return ended.stdout


def test_the_users_sitecustomize_still_runs(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'")
    program = "import sitecustomize, sys; print(mine, sitecustomize.__file__, '_mcjax_launch' in sys.modules)"
    assert run(jobs, program, PYTHONPATH=str(tmp_path)) == f"ran {tmp_path}/sitecustomize.py True\n"


def test_hook_leaves_no_trace_in_python(jobs: Jobs) -> None:
    program = """
import sys
here = [entry for entry in sys.path if 'mcjax_launch/hook' in entry]
print(here, sorted({'jax', 'json', 'socket', 'threading'} & set(sys.modules)))
"""
    assert run(jobs, program) == "[] []\n"


def test_nested_job_is_independent(jobs: Jobs) -> None:
    """It is a job of its own: neither the outer's options nor its coordinates nor its hook."""
    show = "env | grep -cE '^MCJAX_(HOOK|NUM|LOG)|JAX_PROCESS_ID=1'; true"
    inner = f'{sys.executable} -m mcjax_launch --no-hook --no-prefix sh -c "{show}"'
    env = {"MCJAX_NUM_PROCESSES": "2", "MCJAX_NO_PREFIX": "1"}
    assert jobs.run("sh", "-c", inner, env=env).stdout == "0\n0\n"


def test_a_syntax_error_is_named(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (\n")
    (tmp_path / "train.py").write_text("import bad\n")
    for name in ("bad.py", "train.py"):
        report = jobs.run(tmp_path / name).report
        assert "rank 0 failed: SyntaxError: " in report
        assert f"at {tmp_path}/bad.py:1 in <module>: def (" in report


def test_hundreds_of_processes_have_the_hook(jobs: Jobs) -> None:
    """They are forked, so that they connect to the agent within moments."""
    program = "import sys; print(any('_mcjax_launch' in str(type(f)) for f in sys.meta_path))"
    options = ["--no-prefix", "--preload", "json", "-n", 200]
    ended = jobs.run(*options, sys.executable, "-c", program)
    assert (ended.status, ended.report) == (0, "")
    assert ended.stdout == "True\n" * 200


def test_ranks_without_the_hook_are_reported(jobs: Jobs, tmp_path: Path) -> None:
    python = shell_script(tmp_path / "python", f'unset PYTHONPATH\nexec {sys.executable} "$@"')
    ended = jobs.run("-n", 2, python, "-c", "pass")
    assert ended.status == 0
    assert ended.report == (
        "the hook did not run in ranks 0-1 (2 of 2): "
        "initialize() finds no coordinates there; does something replace PYTHONPATH?"
    )


def test_commands_are_not_expected_to_use_the_hook(jobs: Jobs) -> None:
    assert jobs.run("-n", 2, "sh", "-c", f"exec {sys.executable} -I -c pass").report == ""
    assert jobs.run("-n", 2, "--no-hook", sys.executable, "-c", "pass").report == ""
