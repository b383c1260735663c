"""Agents on other hosts, over a fake ssh."""

import json
import marshal
import os
import py_compile
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import psutil
import pytest
from conftest import Launch
from jobs import Jobs, eventually, shell_script
from remote import FAKE_SSH

from mcjax_launch.hook import install
from mcjax_launch.transport import bootstrap
from mcjax_launch.transport.remote_commands import make_script
from mcjax_launch.wire.frames import MAGIC

# The silence of hosts and the patience for their greetings: 2.4 and 2.8 s.
SOON = {"MCJAX_TEST_TIME_SCALE": "0.2"}


def test_all_agent_imports_are_streamed() -> None:
    """In an interpreter that cannot see the installed package."""
    every = frozenset(("check", "preload"))
    words = shlex.split(bootstrap.make_loader(every, keeps=False))
    done = subprocess.run(
        [sys.executable, "-I", "-S", *words],
        input=bootstrap.build_payload(every),
        capture_output=True,
    )
    assert b"mcjax-launch agent" in done.stdout, done.stderr
    assert done.stderr == b""


def test_agent_of_another_version_compiles_the_sources() -> None:
    parts = marshal.loads(bootstrap.build_code(frozenset()))
    parts[2] = (b"else", "else-39")
    parts[3] = dict.fromkeys(parts[1], b"of another version")
    other = zlib.compress(marshal.dumps(parts, 2))
    words = shlex.split(bootstrap.make_loader(frozenset(), keeps=False))
    command = [sys.executable, "-I", "-S", *words]
    done = subprocess.run(command, input=b"%09d" % len(other) + other, capture_output=True)
    assert done.stdout.startswith(MAGIC), done.stderr


BYTECODE = """
import sys
spec = sys.modules["_mcjax_launch.hook.install"].__spec__
with open(spec.cached, "rb") as file:
    print("flags", file.read(8)[4])
"""


def test_ranks_elsewhere_load_the_launchers_bytecode(jobs: Jobs, tmp_path: Path) -> None:
    """Python has not replaced it by its own, which it would compare with the source (flags 0)."""
    py_compile.compile(str(Path(install.__file__)))
    program = tmp_path / "program.py"
    program.write_text(BYTECODE)
    ended = jobs.run("--via", FAKE_SSH, "--hosts", "a", "--python", sys.executable, program)
    assert "flags 1" in ended.stdout, ended


def start_loader(cache: Path, payload: bytes) -> bytes:
    """What a host's loader and its agent say first, with this on their standard input."""
    script = make_script(sys.executable, False, frozenset(), keeps=True)
    done = subprocess.run(
        ["sh", "-c", script],
        input=payload,
        capture_output=True,
        env={"XDG_CACHE_HOME": str(cache), "PATH": os.environ["PATH"]},
    )
    said, _, rest = done.stdout.partition(b"\n")
    assert done.stderr == b"" and rest.startswith(MAGIC), done.stderr
    return said


@pytest.mark.parametrize("damage", ["", "changed", "cut", "longer", "a folder"])
def test_host_keeps_the_agents_code(tmp_path: Path, damage: str) -> None:
    """It is run only if it is what the launcher would send."""
    code, payload = bootstrap.build_code(frozenset()), bootstrap.build_payload(frozenset())
    lacks, has = (f"{bootstrap.SAYS}{word}".encode() for word in (False, True))
    assert start_loader(tmp_path, payload) == lacks
    assert start_loader(tmp_path, b"") == has
    [kept] = (tmp_path / bootstrap.KEPT).iterdir()
    assert kept.read_bytes() == code
    if not damage:
        return
    kept.write_bytes({"changed": code[:-9] + bytes(9), "cut": code[:-1]}.get(damage, code + b"x"))
    if damage == "a folder":
        kept.unlink()
        kept.mkdir()
    assert start_loader(tmp_path, payload) == lacks
    assert start_loader(tmp_path, payload) == (lacks if damage == "a folder" else has)


def test_project_says_where_a_program_runs_and_with_which_variables(
    jobs: Jobs, tmp_path: Path
) -> None:
    code = "import os, sys; print(*map(os.environ.get, ('KEY', 'FORM_A', 'FORM_B')))"
    for host, end in {"a": "", "b": "  # another copy"}.items():
        (tmp_path / host).mkdir()
        (tmp_path / host / "train.py").write_text(code + end)
    (tmp_path / "keys.env").write_text("export KEY='of a file'\n")
    table = {
        "hosts": [f"{host} python={sys.executable} chdir={tmp_path / host}" for host in "ab"],
        "via": FAKE_SSH,
        "env-file": "keys.env",
        "env": ["FORM_*"],
        "report": "run.json",
    }
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
    (tmp_path / "pyproject.toml").write_text(f"[tool.mcjax-launch]\n{lines}")
    ended = jobs.run("train.py", cwd=tmp_path, env={"FORM_A": "1", "FORM_B": "2"})
    assert sorted(ended.stdout.splitlines()) == ["[0 a] of a file 1 2", "[1 b] of a file 1 2"]
    assert "b has another copy of train.py than a, " in ended.report
    record = json.loads((tmp_path / "run.json").read_text())
    assert list(record["attempts"][0]["program_sha256"].values()) == [["a"], ["b"]]
    assert record["command"][-2:] == ["--", "train.py"]
    assert " --env FORM_* --env-file keys.env " in " ".join(record["command"])


def test_host_without_a_home_is_sent_the_code(jobs: Jobs) -> None:
    for value in ("/dev/null", "relative", "/nonexistent/cache"):
        ended = jobs.run(
            *("--hosts", "a", "--via", FAKE_SSH, "true"), env={"XDG_CACHE_HOME": value}
        )
        assert (ended.status, ended.stderr) == (0, "")


def test_code_is_sent_again_only_where_nothing_is_kept(jobs: Jobs) -> None:
    said = []
    for options in ([], [], ["--no-host-cache"]):
        command = ("--hosts", "a", "--via", FAKE_SSH, *options, "true")
        ended = jobs.run(*command, env={"MCJAX_DEBUG": "frames"})
        assert ended.status == 0
        said.append(re.findall(r"Loading\(has_code=(\w+)\)", ended.stderr))
    assert said == [["False"], ["True"], []]


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"], [sys.executable, "train.py"]])
def test_host_with_another_copy_of_the_program_is_named(
    jobs: Jobs, tmp_path: Path, words: list[str]
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("print(1)\n")
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{name} chdir={tmp_path}/{name}\n" for name in "abc"))
    command = ("--hosts", hosts, "--via", FAKE_SSH, "--python", sys.executable, "-q", *words)
    assert jobs.run(*command, cwd=tmp_path).report == ""
    (tmp_path / "b/train.py").write_text("print(2)\n")
    ended = jobs.run(*command, cwd=tmp_path)
    assert (ended.status, ended.report) == (
        0,
        f"b has another copy of train{'' if words[0] == '-m' else '.py'} than a, so ranks run "
        "different programs; make them equal, or add --sync",
    )


SYNCED = """
import helper, os, sys, time
print("ready", __file__, flush=True)
os.mkdir(f"{sys.argv[1]}/{os.getpid()}")
while len(os.listdir(sys.argv[1])) < int(sys.argv[2]):
    time.sleep(0.01)
helper.fail()
"""
HELPER = """
def fail():
    raise ValueError(f"bad data, says {__file__}")
"""


@pytest.fixture
def synced(tmp_path: Path) -> list[str]:
    """Two hosts to which a program and a folder are copied, which is the user's elsewhere."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/train.py").write_text(SYNCED)
    (tmp_path / "helper").mkdir()
    (tmp_path / "ready").mkdir()
    (tmp_path / "helper/__init__.py").write_text(HELPER)
    via = ["--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable]
    return [*via, "--sync", "train.py", "--sync", "../helper"]


def test_equal_failures_of_copies_show_the_users_path(
    jobs: Jobs, tmp_path: Path, synced: list[str]
) -> None:
    options = ["--report", "run.json", "--log-dir", "logs"]
    options += ["--collapse", "always"]
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(tmp_path)}
    ended = jobs.run(
        *synced, *options, "train.py", tmp_path / "ready", 2, cwd=tmp_path / "work", env=environ
    )
    place = f"{tmp_path}/helper/__init__.py"
    assert ended.status == 1
    assert ended.stdout.count(f"ready {tmp_path}/work/train.py\n") >= 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ended.stderr)
    assert f"2 ranks failed: ValueError: bad data, says {place}\n" in plain
    assert f"at {place}:3 in fail: raise" in plain
    assert "::error file=helper/__init__.py,line=3,title=mcjax-launch::2 ranks failed" in plain
    assert re.search(r"hid \d lines of the same error|\[0-1\] Traceback", plain), plain
    record = (tmp_path / "work/run.json").read_text()
    assert f'"where": "{place}:3 in fail"' in record
    for text in (ended.stdout, ended.stderr, record):
        assert "/stage/" not in text
    logs = [(tmp_path / f"work/logs/{rank}.err").read_text() for rank in (0, 1)]
    copies = {re.search(r'"(\S+/stage)/train.py"', log)[1] for log in logs}  # type: ignore[index]
    assert len(copies) == 2  # as they were printed


def test_stacks_show_the_users_paths(jobs: Jobs, tmp_path: Path, synced: list[str]) -> None:
    how = {"cwd": tmp_path / "work", "stderr": subprocess.STDOUT}
    running = jobs.start(*synced, "train.py", tmp_path / "ready", 3, **how)  # type: ignore[arg-type]
    running.read_until("ready", 2)
    running.signal(signal.SIGQUIT)
    running.read_until(f"{tmp_path}/work/train.py:")
    running.signal(signal.SIGTERM)
    assert "/stage/" not in running.finish().stdout


def test_callbacks_get_the_users_paths(
    launch: Launch, tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "work")
    heard: list[object] = []
    launch(
        *("train.py", str(tmp_path / "ready"), "2"),
        hosts=["a", "b"],
        via=FAKE_SSH,
        python=sys.executable,
        sync=["train.py", "../helper"],
        on_line=heard.append,
        on_event=heard.append,
    )
    said = "\n".join(map(repr, heard))
    assert f"ready {tmp_path}/work/train.py'" in said
    assert f"ValueError: bad data, says {tmp_path}/helper/__init__.py" in said
    assert "/stage/" not in said


def test_interrupt_ends_a_start(jobs: Jobs) -> None:
    running = jobs.start("--hosts", "a,b", "--via", FAKE_SSH, "true", env={"FAKE_SSH": "hang"})
    launcher = psutil.Process(running.process.pid)
    eventually(lambda: len(launcher.children()) == 2)
    running.process.send_signal(2)
    ended = running.finish()
    assert ended.status == 130
    assert ended.seconds < 25


def test_starting_agent_is_waited_for_after_an_interrupt(jobs: Jobs, tmp_path: Path) -> None:
    """It hears that nobody wants it any more, tidies up, and then its client ends."""
    there, tidy = tmp_path / "there", tmp_path / "tidy"
    does = f"touch {there}\ncat > /dev/null\nsleep 0.3\ntouch {tidy}"
    client = shell_script(tmp_path / "client", does)
    running = jobs.start("--hosts", "a", "--via", f"{client} {{host}}", "true")
    eventually(there.exists)
    running.process.send_signal(2)
    assert running.finish().status == 130
    assert tidy.exists()


def test_sync_of_a_special_file_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "--sync", "pipe", "true", cwd=tmp_path)
    assert ended.status == 2
    assert "--sync pipe: neither a file nor a directory" in ended.report


def test_nothing_runs_anywhere_when_a_host_lacks_the_program(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    shell_script(tmp_path / "one" / "prog", f"touch {tmp_path}/ran")
    (tmp_path / "hosts").write_text(f"a chdir={tmp_path}/one\nb chdir={tmp_path}/two\n")
    ended = jobs.run("--hosts", tmp_path / "hosts", "--via", FAKE_SSH, "./prog")
    assert ended.status == 127
    assert "host b: ./prog: no such file" in ended.report
    assert not (tmp_path / "ran").exists()


FAILURES = {
    "unknown": "Could not resolve hostname b",
    "changed": "REMOTE HOST IDENTIFICATION HAS CHANGED",
    "key": "Permission denied (publickey)",
    "timeout": "Connection timed out",
    "no python": "not found",
}


@pytest.mark.parametrize("mode", FAILURES)
def test_unusable_host_is_reported(jobs: Jobs, mode: str) -> None:
    ended = jobs.run(
        "--hosts", "a,b", "--via", FAKE_SSH, "--python", "python3", "echo", "started", env={"FAKE_SSH": f"{mode}@b"}
    )  # fmt: skip
    assert (ended.status, ended.out) == (255, b"")
    assert "host b: " in ended.report
    assert FAILURES[mode] in ended.report
    assert ended.report.count("\n") == 0
    assert ended.report.endswith(")")  # a hint


def test_silent_connection_times_out(jobs: Jobs, tmp_path: Path) -> None:
    """And what its client has started ends with it."""
    shell_script(tmp_path / "ssh", "echo Welcome to the swamp; sleep 1000 & sleep 1000")
    env = {**SOON, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = jobs.run("--hosts", "b", "true", env=env)
    assert ended.status == 255
    assert "host b: no answer within 2.8 s (Welcome to the swamp)" in ended.report


GCLOUD = "gcloud compute tpus tpu-vm ssh NAME --zone=Z --worker={host} --quiet --command={command}"


def test_the_workers_of_a_tpu_slice_by_gcloud(jobs: Jobs, tmp_path: Path) -> None:
    """It takes longer than ssh may, and has rules of its own for its arguments."""
    (tmp_path / "gcloud").symlink_to(Path(__file__).parent.parent / "fake_gcloud")
    env = {**SOON, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAKE_GCLOUD_S": "3.2"}
    program = ["sh", "-c", 'echo rank $JAX_PROCESS_ID of $JAX_NUM_PROCESSES on $FAKE_WORKER: "$1"']
    ended = jobs.run("--hosts", "0,1,2,3", "--via", GCLOUD, *program, "-", "a  'b'", env=env)
    assert ended.status == 0, ended.stderr
    said = [f"[{n} {n}] rank {n} of 4 on {n}: a  'b'" for n in range(4)]
    assert sorted(ended.stdout.splitlines()) == said
    env["FAKE_GCLOUD_S"] = "0"
    ended = jobs.run("--hosts", "0,7", "--via", GCLOUD, "true", env=env)
    assert ended.status == 255
    assert (
        "Invalid value for [--worker]: - worker index 7 is larger than the valid worker indexes"
        in ended.report
    )


def test_refused_connections_are_retried(jobs: Jobs, tmp_path: Path) -> None:
    env = {"FAKE_SSH": "refused", "FAKE_SSH_STATE": str(tmp_path)}
    ended = jobs.run("--hosts", "a,b,c", "--via", FAKE_SSH, "true", env=env)
    assert (ended.status, ended.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_banners_and_noisy_profiles_do_no_harm(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "echo", "x", env={"FAKE_SSH": "banner"})
    assert (ended.status, ended.stdout, ended.stderr) == (0, "[0] x\n", "")


@pytest.mark.parametrize("shell", ["sh", "bash", "fish", "tcsh"])
def test_each_login_shell_works(jobs: Jobs, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: apt install {shell}")
    env = {"FAKE_SHELL": shell}
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "echo", "$HOME 'x'", env=env)
    assert (ended.status, ended.stdout) == (0, "[0] $HOME 'x'\n"), ended.stderr


def test_old_python_on_a_host_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    old = shell_script(tmp_path / "oldpython", "echo '3.6.9 (old)' >&2; exit 93")
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "--python", old, "true")
    assert ended.status == 255
    assert "host a: Python 3.6.9 is too old, 3.9 or newer is needed" in ended.report


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["-C", "/no/where", "true"], 2, "host a: /no/where: no such directory"),
        (["--python", "/no/python", "-m", "x"], 255, "host a: "),
    ],
)
def test_missing_parts_of_a_host_are_named(
    jobs: Jobs, args: list[str], status: int, words: str
) -> None:
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, *args)
    assert (ended.status, ended.out) == (status, b"")
    assert words in ended.report


@pytest.mark.parametrize(
    ("options", "program", "words"),
    [
        ([], "train.py", "/there; copy it there, or add --sync train.py"),
        ([], "./run.sh", "./run.sh: no such file; copy it there, or add --sync ./run.sh"),
        (["--sync", "run.sh"], "train.py", "/stage/there; add --sync train.py"),
        ([], "trian.py", "/there, nor here in {}; did you mean train.py?"),
        ([], "no-such-command", "host a: no-such-command: not found in PATH"),
    ],
)
def test_program_missing_on_the_host_is_named(
    jobs: Jobs, tmp_path: Path, options: list[str], program: str, words: str
) -> None:
    """It may be here, or nowhere."""
    (tmp_path / "there").mkdir()
    for name in ("train.py", "run.sh"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "there/x").touch()
    there = ["--sync", "there", *options, "-C", "there"] if options else ["-C", tmp_path / "there"]
    ended = jobs.run(
        *["--hosts", "a", "--via", FAKE_SSH, *there, program.format(tmp_path)], cwd=tmp_path
    )
    assert (ended.status, ended.out) == (127, b"")
    assert ended.report.endswith(words.format(tmp_path)), ended.report


def test_missing_transport_is_named(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "a", "--via", "no-such-ssh {host}", "true")
    assert ended.status == 255
    assert "no-such-ssh: No such file or directory; is it installed?" in ended.report


def test_dry_run_connects_to_no_host(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "u@a:2,b", "--dry-run", "x.py")
    assert ended.status == 0
    assert "# rank 1 on u@a" in ended.stdout
    assert "JAX_COORDINATOR_ADDRESS=a:PORT" in ended.stdout


# Clients that lead to this machine: what ends them ends the agent's guardian as well.
LOCAL_CLIENTS = {
    "env": "env HOST={host}",
    "nsenter": f"env HOST={{host}} nsenter -t {os.getpid()} -n",
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.parametrize(
    ("client", "how"),
    [
        ("env", "client killed"),
        ("env", "agent killed"),
        ("env", "all stopped"),
        pytest.param("nsenter", "client killed", marks=needs_root),
    ],
)
def test_abandoned_host_keeps_nothing(jobs: Jobs, client: str, how: str) -> None:
    """Neither what has left its session, nor the folder (see `jobs`)."""
    script = "setsid sleep 1000 & echo ready; exec sleep 1000"
    via = LOCAL_CLIENTS[client]
    # One that says nothing is given up after a fifth of the 12 s that it has else.
    env = SOON if how == "all stopped" else {}
    running = jobs.start("--via", via, "--hosts", "there", "bash", "-c", script, env=env)
    running.read_until("ready")
    guardian, agent = running.guardian, running.agent
    for process in (guardian, agent):
        if how == "all stopped":
            process.suspend()
            eventually(lambda: process.status() == psutil.STATUS_STOPPED)  # noqa: B023
        elif process is (agent if how == "agent killed" else guardian):
            process.kill()
    ended = running.finish()
    assert ended.status == 255
    told = {
        "client killed": "its agent was stopped by SIGTERM",
        "agent killed": "its agent was killed by SIGKILL",
        "all stopped": "no heartbeat for 2.4 s",
    }[how]
    assert f"host there: {told}" in ended.report
    assert jobs.left() == []


def test_hosts_abandoned_at_the_start_keep_nothing(jobs: Jobs, tmp_path: Path) -> None:
    """One host cannot be reached; the others' agents are somewhere on their way by then."""
    client = tmp_path / "client.py"
    client.write_text("""
import os, sys, time
if sys.argv[1] == "h10":
    time.sleep(float(sys.argv[2]))
    sys.exit("no such host")
os.execvp("sh", ["sh", "-c", sys.argv[3]])
""")
    hosts = ",".join(f"h{number}" for number in range(1, 11))
    for pause in (0, 0.1):
        via = f"{sys.executable} {client} {{host}} {pause}"
        ended = jobs.run("--via", via, "--hosts", hosts, "true")
        assert ended.status == 255
        assert "host h10: no such host" in ended.report
