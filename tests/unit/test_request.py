"""From options to the hosts and the Job."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.cli.command import command
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.arguments import coordinates
from mcjax_launch.job.describe import format_dry_run
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.options.options import Options
from mcjax_launch.request import ranks_python, ready, this_machine
from mcjax_launch.request.hosts import choose_via, find_hosts
from mcjax_launch.request.ranks_python import RanksPython
from mcjax_launch.request.ready import make_job
from mcjax_launch.request.this_machine import ThisMachine
from mcjax_launch.wire.messages import VisibleGpus

HERE = ThisMachine(chdir="/w", python=RanksPython("/py", "VIRTUAL_ENV's"))
SLURM = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}


def options(words: str) -> Options:
    return Options(**command.make_context("mcjax-launch", words.split()).params)


def slots(words: str, environ: dict[str, str] | None = None) -> list[tuple[str, int]]:
    return [(host.name, host.slots) for host in find_hosts(options(words), environ or {})]


def test_ranks_default_to_this_machine() -> None:
    assert slots("a.py") == [("localhost", 1)]
    assert slots("-n 3 a.py") == [("localhost", 3)]
    assert slots("--procs-per-host 2 a.py") == [("localhost", 2)]


def test_hosts_option_takes_a_list_or_a_file(tmp_path: Path) -> None:
    assert slots("--hosts a,b:3 --procs-per-host 2 a.py") == [("a", 2), ("b", 3)]
    (tmp_path / "h").write_text("\N{ZERO WIDTH NO-BREAK SPACE}c slots=4\nd\n")
    assert slots(f"--hosts {tmp_path}/h a.py") == [("c", 4), ("d", 1)]
    with pytest.raises(LaunchError, match=r"--hosts hosts\.txt: no such file"):
        slots("--hosts hosts.txt a.py")
    with pytest.raises(LaunchError, match="a directory, not a file"):
        slots(f"--hosts {tmp_path} a.py")


def test_slurm_allocation_is_used_with_its_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The GPUs that scontrol shows; none where it is missing, fails or shows none."""
    scontrol = tmp_path / "scontrol"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    scontrol.write_text("#!/bin/sh\necho ' Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)'\n")
    scontrol.chmod(0o755)
    found = find_hosts(options("a.py"), SLURM)
    assert [(host.name, host.slots, host.gpus) for host in found] == [("n1", 1, 2), ("n2", 1, None)]
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    assert [host.gpus for host in find_hosts(options("a.py"), SLURM)] == [None, None]
    monkeypatch.setenv("PATH", "/nowhere")
    assert [host.gpus for host in find_hosts(options("a.py"), SLURM)] == [None, None]


def test_default_transport_follows_the_scheduler() -> None:
    assert choose_via(options("a.py"), SLURM) == "srun"
    assert choose_via(options("--hosts a a.py"), SLURM) == "ssh"
    assert choose_via(options("a.py"), {}) == "ssh"


def test_each_of_several_launchers_has_its_share_of_ranks() -> None:
    place = "--num-hosts 3 --host-rank 2 --coordinator 10.0.0.1:1"
    assert slots(f"{place} -n 6 a.py") == [("localhost", 2)]
    assert slots(f"{place} --procs-per-host 4 a.py") == [("localhost", 4)]
    given = options(f"{place} --procs-per-host 4 a.py")
    job = make_job(given, find_hosts(given, {}), HERE)
    assert (job.num_processes, job.num_hosts, job.host_rank, job.processes_here) == (12, 3, 2, 4)


def test_settings_of_this_machine_complete_the_job() -> None:
    here = ThisMachine("/w", RanksPython("/py", ""), (("A", "1"),), coordinator="10.0.0.1:7")
    job = make_job(options("-C x --python p --host-rank 1 a.py"), [Host(name="a", slots=2)], here)
    assert (job.chdir, job.chdir_given, job.python, job.python_given) == ("/w", True, "/py", True)
    assert (job.env, job.coordinator) == ((("A", "1"),), "10.0.0.1:7")
    assert (job.num_processes, job.num_hosts, job.host_rank) == (2, 1, 0)


def test_own_modules_of_a_program_are_read_for_a_hint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, own = tmp_path / "a.py", tmp_path / "own.py"
    program.write_text("import own\nown.main()\n")
    own.write_text(
        "import fire, jax\ndef main(coordinator, n, i):\n"
        "    jax.distributed.initialize(coordinator, n, i)\nfire.Fire(main)\n"
    )
    read: list[str] = []

    def read_source(path: str) -> bytes:
        read.append(path)
        return Path(path).read_bytes()

    monkeypatch.setattr(coordinates, "read_source", read_source)
    monkeypatch.chdir(tmp_path)
    job, _ = ready.prepare(options("-n 2 a.py"), {}, print)
    assert set(read) == {str(program)}
    words = "--coordinator {coordinator} --n {num_processes} --i {process_id}"
    assert job.suggest_program() == ("a.py", *words.split())
    assert str(own) in read


def test_shown_ranks_are_parsed() -> None:
    assert make_job(options("-n 4 --show 1-3 a.py"), [], HERE).show == {1, 2, 3}


def test_dry_run_names_the_rank_that_reads_stdin() -> None:
    def shown(words: str) -> str:
        given = options(f"-n 2 {words} cat")
        hosts = find_hosts(given, {})
        return format_dry_run(make_job(given, hosts, HERE), hosts, {}, VisibleGpus())

    assert "# rank 0 reads the launcher's standard input\n" in shown("--stdin")
    assert "input" not in shown("")


def test_python_path_in_the_home_is_kept_for_each_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "own-python"
    own.touch(0o755)
    here, there = Host(name=LOCAL, slots=1), Host(name="b", slots=1)
    for given, found in (("own-python",) * 2, ("~/own-python",) * 2, (str(own), str(own))):
        asked = options(f"--python {given} a.py")
        for hosts, python in (([here], str(own)), ([here, there], found), ([there], given)):
            environ = {"PATH": str(tmp_path)}
            named = ranks_python.find(asked, hosts, environ, here=here in hosts)
            assert named.python == python


def addresses(*found: str) -> Any:
    kinds = {True: socket.AF_INET6, False: socket.AF_INET}
    return [(kinds[":" in address], 0, 0, "", (address, 0)) for address in found]


def test_coordinator_name_is_resolved_to_ipv4_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 first; a port only where the user gives one."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses("fd00::1", "10.0.0.1"))
    assert this_machine.resolve_coordinator("h:1", 0, pytest.fail) == "10.0.0.1:1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses("fd00::1"))
    assert this_machine.resolve_coordinator("h", 0, pytest.fail) == "[fd00::1]:0"


def test_stable_coordinator_name_is_kept_for_ranks() -> None:
    names = {("pod-0.svc:1", "10.0.0.1:1"): "pod-0.svc", ("10.0.0.1:1", "10.0.0.1:1"): ""}
    names |= {("[fd00::1]:1", "[fd00::1]:1"): "", ("localhost:1", "127.0.0.1:1"): ""}
    names["me:1", "127.0.1.1:1"] = ""  # as Debian sets it up
    assert {given: this_machine.choose_lasting_name(*given) for given in names} == names


def test_late_name_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    answers = [socket.gaierror(-2, "Name or service not known")] * 2 + [addresses("10.0.0.1")]

    def lookup(*_: object, **__: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(this_machine, "_PAUSE_S", 0)
    assert this_machine.resolve_coordinator("h:1", 60, said.append) == "10.0.0.1:1"
    assert said == ["waiting for the name h"]


@pytest.mark.parametrize(
    ("wait_s", "status", "words"), [(0.0, 2, "h: no$"), (0.01, 124, r"h: no; waited for 0\.01 s")]
)
def test_unresolved_name_ends_the_wait_with_an_error(
    monkeypatch: pytest.MonkeyPatch, wait_s: float, status: int, words: str
) -> None:
    def lookup(*_: object, **__: object) -> Any:
        raise socket.gaierror(-2, "no")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(this_machine, "_PAUSE_S", 0)
    with pytest.raises(LaunchError, match=words) as raised:
        this_machine.resolve_coordinator("h:1", wait_s, lambda text: None)
    assert raised.value.status == status


@pytest.mark.parametrize("text", ["", ":1", "h:port", "h:65536", "h:-1"])
def test_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="write HOST or HOST:PORT"):
        this_machine.resolve_coordinator(text, 0, pytest.fail)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("--python p python -u a.py", "/py -u a.py"),
        ("--python p python3 a.py", "/py a.py"),
        ("python a.py", "python a.py"),
        ("--python p python3.12 a.py", "python3.12 a.py"),
        ("--python p ./python a.py", "./python a.py"),
        ("--python p -m python", "python"),
        ("--python p a.py python", "a.py python"),
    ],
)
def test_python_stands_for_the_chosen_interpreter(line: str, program: str) -> None:
    """By that name alone it is the one of --python; any other names itself."""
    job = make_job(options(line), [Host(name="a", slots=1)], HERE)
    assert " ".join(job.program) == program
