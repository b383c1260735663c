"""Command lines and the ranks' Python: what a user types, and what it does."""

import os
import socket
import subprocess
import sys
import venv
from pathlib import Path

import click
import pytest
from jobs import Jobs

import mcjax_launch

BAD = {
    "not executable": (["/etc/passwd"], 126, "/etc/passwd: not executable"),
    "coordinator elsewhere": (
        ["--coordinator", "10.9.8.7:1", "echo"],
        2,
        "10.9.8.7 is not an address of this host",
    ),
    "too few GPUs": (
        ["--gpus-per-process", "1", "echo"],
        2,
        "this host has no GPU that its ranks could use",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(jobs: Jobs, name: str) -> None:
    """More of it is in tests/unit/test_refused.py."""
    args, status, words = BAD[name]
    ended = jobs.run(*args, env={"CUDA_VISIBLE_DEVICES": ""})
    assert ended.status == status
    assert ended.out == b""
    assert ended.stderr.count("\n") == 1
    assert words in ended.report


def test_zero_timeout_means_no_limit(jobs: Jobs) -> None:
    limits = [word for name in ("", "start-", "stall-") for word in (f"--{name}timeout", "0")]
    ended = jobs.run(*limits, "sh", "-c", "sleep 0.3; echo x")
    assert (ended.status, ended.stdout) == (0, "[0] x\n"), ended.stderr


def test_port_of_another_job_is_not_taken(jobs: Jobs) -> None:
    """JAX would bind beside it, and end the other job."""
    with socket.socket() as other, socket.socket() as beside:
        for each in (other, beside):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = jobs.run("--coordinator", f"127.0.0.1:{port}", "echo", "started")
        assert (ended.status, ended.out) == (2, b"")
        assert f"port {port} is in use" in ended.report
        # Nobody was sent to the other job, and a bind like JAX's would not have noticed it.
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
        beside.bind(("127.0.0.1", port))


def test_a_free_coordinator_port_is_used(jobs: Jobs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ended = jobs.run("--coordinator", f"localhost:{port}", "echo", "{coordinator}")
    assert ended.stdout == f"[0] 127.0.0.1:{port}\n"


def test_misspelt_placeholder_is_a_hint(jobs: Jobs) -> None:
    ended = jobs.run("echo", "{proces_id}", '{"lr": 0.1}')
    assert (ended.status, ended.stdout) == (0, '[0] {proces_id} {"lr": 0.1}\n')
    assert ended.report == "{proces_id} is not a placeholder; did you mean {process_id}?"
    ended = jobs.run("-x", "GPU={process_id+1}", "sh", "-c", "echo $GPU")
    assert (ended.status, ended.stdout) == (0, "[0] {process_id+1}\n")
    assert ended.report == (
        "{process_id+1} is not a placeholder, and stays unchanged: only names are filled in"
    )


def test_interpreter_that_reads_its_input_gets_a_hint(jobs: Jobs) -> None:
    told = " reads its standard input, which is empty in ranks; --stdin gives rank 0 the launcher's"
    for words in (["python3", "-"], ["bash", "-i"], ["python3", "/dev/stdin", "10"]):
        assert told in jobs.run("-n", 2, *words).report
    for words in (["--stdin", "sh"], ["sh", "-c", "true"], ["python3", "-V"], ["true"]):
        assert jobs.run(*words).report == ""


def test_options_end_at_the_program(jobs: Jobs) -> None:
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "-n", "2", "--help", "--"]
    for before in ([], ["--"]):
        assert jobs.run(*before, *program).stdout == "[0] ['-n', '2', '--help', '--']\n"


def test_options_are_read_from_the_environment(jobs: Jobs) -> None:
    env = {"MCJAX_NUM_PROCESSES": "2", "MCJAX_NO_PREFIX": "1", "MCJAX_ENV": "A=1 B=2"}
    ended = jobs.run("sh", "-c", "echo $A$B", env=env)
    assert ended.out == b"12\n12\n"


def test_module(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys; print(sys.argv[1:])")
    ended = jobs.run("-m", "-C", tmp_path, "job", "{process_id}")
    assert ended.stdout == "[0] ['0']\n"


def test_program_path_is_relative_to_chdir(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import os; print(os.getcwd())")
    assert jobs.run("-C", tmp_path, "job.py").stdout == f"[0] {tmp_path}\n"


def test_variable_is_passed_on(jobs: Jobs) -> None:
    ended = jobs.run(
        "-x", "MINE", "-x", "R=r{process_id}", "sh", "-c", "echo $MINE $R", env={"MINE": "a b"}
    )
    assert ended.stdout == "[0] a b r0\n"


def test_all_ranks_share_a_hash_seed(jobs: Jobs) -> None:
    ended = jobs.run("-n", 3, "--no-prefix", sys.executable, "-c", "print(hash('x'))")
    assert len(set(ended.stdout.split())) == 1
    ended = jobs.run("--no-prefix", "sh", "-c", "echo $PYTHONHASHSEED", env={"PYTHONHASHSEED": "7"})
    assert ended.out == b"7\n"


def test_ranks_are_bound_to_separate_cores(jobs: Jobs) -> None:
    program = "import os; print(*sorted(os.sched_getaffinity(0)))"
    ended = jobs.run("-n", 2, "--no-prefix", "--bind-cores", "on", sys.executable, "-c", program)
    first, second = ({*map(int, line.split())} for line in ended.stdout.splitlines())
    cores = os.sched_getaffinity(0)
    assert first | second == cores
    assert len(cores) == 1 or not first & second


def test_dry_run_starts_nothing(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, "--dry-run", "touch", tmp_path / "started")
    assert ended.status == 0
    assert "# rank 1 on localhost" in ended.stdout
    assert "JAX_PROCESS_ID=1" in ended.stdout
    assert not (tmp_path / "started").exists()


def test_version(jobs: Jobs) -> None:
    assert jobs.run("--version").stdout.startswith("mcjax-launch 0.")


def test_closed_standard_streams_do_no_harm(jobs: Jobs, tmp_path: Path) -> None:
    script = f'"$@" >&- 2>&- <&-; echo $? > {tmp_path}/status'
    command = [sys.executable, "-m", "mcjax_launch", "--log-dir", str(tmp_path), "echo", "x"]
    subprocess.run(["sh", "-c", script, "-", *command], env=jobs.environment(), check=True)
    assert (tmp_path / "status").read_text() == "0\n"
    assert (tmp_path / "0.out").read_text() == "x\n"


def test_internal_error_is_one_line_and_a_file(jobs: Jobs, tmp_path: Path) -> None:
    breaking = "import mcjax_launch.transport.remote_commands as t; t.start = None; from mcjax_launch.cli.command import main; main(['true'])"
    ended = jobs.run(
        launcher=[sys.executable, "-c", breaking.replace("main([", "raise SystemExit(main([") + ")"]
    )
    assert ended.status == 125
    assert ended.stderr.count("\n") == 1
    assert ended.report.startswith("internal error: TypeError(")
    log = ended.report.rsplit(" ", 1)[1]
    assert "TypeError" in Path(log).read_text()
    Path(log).unlink()


# --- the ranks' Python ---


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The folder of the commands of an environment without jax."""
    venv.create(tmp_path / "bare", symlinks=True)
    return tmp_path / "bare/bin"


@pytest.fixture
def on_its_own(bare: Path, tmp_path: Path) -> list[str]:
    """A launcher in an environment of its own without jax, as pipx and uvx make it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/click").symlink_to(Path(click.__file__).parent)
    paths = [str(Path(mcjax_launch.__file__).parents[1]), str(tmp_path / "lib")]
    start = f"import sys; sys.path[:0] = {paths}; import mcjax_launch.__main__ as m; m.run()"
    return [str(bare / "python"), "-I", "-c", start]


@pytest.fixture
def says_its_python(tmp_path: Path) -> Path:
    program = tmp_path / "says.py"
    program.write_text("import sys; print(sys.executable)  # jax\n")
    return program


def test_active_environment_is_used(jobs: Jobs, bare: Path, says_its_python: Path) -> None:
    """Also where it is not the launcher's own, and lacks what that has; a lost one is ignored."""
    active = {"VIRTUAL_ENV": str(bare.parent)}
    ended = jobs.run(says_its_python, env=active)
    assert ended.status == 2
    assert ended.report == (
        f"{bare}/python (VIRTUAL_ENV's) has no jax: install it there, or choose another with "
        "--python"
    )
    says_its_python.write_text("import sys; print(sys.executable)")
    ended = jobs.run("-v", says_its_python, env=active)
    assert ended.stdout == f"[0] {bare}/python\n"
    assert f"the ranks' Python: {bare}/python (VIRTUAL_ENV's)" in ended.report
    for folder in (sys.prefix, f"{bare}/gone"):
        ended = jobs.run(says_its_python, env={"VIRTUAL_ENV": folder})
        assert ended.stdout == f"[0] {sys.executable}\n"


def test_launcher_without_jax_uses_the_first_python_with_jax(
    jobs: Jobs, bare: Path, says_its_python: Path, on_its_own: list[str]
) -> None:
    path = os.pathsep.join([str(bare), os.path.dirname(sys.executable), "/usr/bin", "/bin"])
    ended = jobs.run("-v", says_its_python, launcher=on_its_own, env={"PATH": path})
    assert ended.status == 0, ended.stderr
    assert ended.stdout.startswith(f"[0] {os.path.dirname(sys.executable)}/python")
    assert "(the first in PATH that has jax)" in ended.report
    # As a shell would find it: uvx puts the launcher's own in front of PATH.
    ended = jobs.run("--python", "python", says_its_python, launcher=on_its_own, env={"PATH": path})
    assert ended.stdout.startswith(f"[0] {os.path.dirname(sys.executable)}/python")


def test_missing_python_with_jax_is_reported(
    jobs: Jobs, bare: Path, says_its_python: Path, on_its_own: list[str]
) -> None:
    ended = jobs.run(says_its_python, launcher=on_its_own, env={"PATH": str(bare)})
    assert (ended.status, ended.out) == (2, b"")
    assert ended.report == (
        f"{bare}/python (the launcher's own) has no jax, nor has any Python in PATH: activate "
        "the environment that has it, or name its Python with --python"
    )


def test_a_name_of_python_is_looked_up_in_path(
    jobs: Jobs, bare: Path, says_its_python: Path
) -> None:
    says_its_python.write_text("import sys; print(sys.executable)")
    path = os.pathsep.join([str(bare), os.environ["PATH"]])
    ended = jobs.run("--python", "python", says_its_python, env={"PATH": path})
    assert ended.stdout == f"[0] {bare}/python\n"
    ended = jobs.run("--python", bare / "python", "python", says_its_python)  # not the one in PATH
    assert ended.stdout == f"[0] {bare}/python\n"
    words = ["--dry-run", "--python", bare / "python", "--hosts", "a,b", "python3", "-c", "0"]
    assert jobs.run(*words).stdout.count(f" {bare}/python -c 0\n") == 2
    ended = jobs.run("--python", "no-such-python", says_its_python)
    assert ended.status == 127
    assert ended.report == "--python no-such-python: not found in PATH"
