"""The command that goes to a host."""

import errno
import os
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.transport import bootstrap
from mcjax_launch.transport.remote_commands import (
    Transport,
    make_remote_argv,
    make_ssh_argv,
    make_template_argv,
    start,
)

JOB = Job(program=("true",), python="python3", chdir="/")
HOST = Host(name="h", slots=1)


SSH_OPTIONS = {
    "RemoteCommand": "none",
    "ClearAllForwardings": "yes",
    "BatchMode": "yes",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "2",
}


def ssh_options(*left_out: str) -> list[str]:
    """Return the options that ssh gets, as words."""
    wanted = [f"{name}={value}" for name, value in SSH_OPTIONS.items() if name not in left_out]
    return [word for option in wanted for word in ("-o", option)]


def test_ssh_command_is_built() -> None:
    words, end = ["ssh", "-T", "-x", *ssh_options()], ["--", "me@h", "exec sh -c 'x'"]
    host = Host(name="h", user="me", slots=1)
    assert make_ssh_argv(host, "x") == [*words, *end]
    assert make_ssh_argv(host.copy_with(port=2222), "x") == [*words, "-p", "2222", *end]


def test_failure_to_make_pipes_counts_as_a_lost_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", fail)
    with pytest.raises(LaunchError, match="raise `ulimit -n`") as raised:
        start(["true"])
    assert raised.value.status == 255


LINE, WORDS = "exec sh -c 'x y'", ["sh", "-c", "x y"]
GCLOUD = "gcloud compute tpus tpu-vm ssh NAME --worker"
#: For each template: the command of the host h, or of me@h.
TEMPLATES = {
    "ssh -F cfg {host}": ["ssh", *ssh_options(), "-F", "cfg", "h", LINE],
    "ssh -F cfg -- me@{host}": ["ssh", *ssh_options(), "-F", "cfg", "--", "me@h", LINE],
    "sudo -u me /bin/ssh -oServerAliveInterval=1 -o BatchMode=no {host}": [
        *("sudo", "-u", "me", "/bin/ssh", *ssh_options("BatchMode", "ServerAliveInterval")),
        *("-oServerAliveInterval=1", "-o", "BatchMode=no", "h", LINE),
    ],
    f"{GCLOUD}={{host}} --command={{command}}": [*f"{GCLOUD}=h".split(), f"--command={LINE}"],
    f"{GCLOUD} {{host}} --": [*f"{GCLOUD} h --".split(), LINE],
    **{f"{name} ssh {{host}}": [name, "ssh", "h", LINE] for name in ("az", "tsh", "vagrant")},
    "pod-sh {host} --": ["pod-sh", "h", "--", *WORDS],
    "kubectl exec -i {host} --": ["kubectl", "exec", "-i", "h", "--", *WORDS],
    "docker exec -i {host}": ["docker", "exec", "-i", "h", *WORDS],
    "kubectl exec -ti {host} --": ["kubectl", "exec", "-ti", "h", "--", *WORDS],
    "podman exec --interactive {host}": ["podman", "exec", "--interactive", "h", *WORDS],
    "docker run --rm img {host}": ["docker", "run", "--rm", "img", "h", *WORDS],
    "pod-sh {host} sh -c {command}": ["pod-sh", "h", "sh", "-c", LINE],
    "rsh {host}": ["rsh", "h", LINE],
    "sudo -H {host}": ["sudo", "-H", "h", *WORDS],
    "srun -w {host}": ["srun", "--unbuffered", "-w", "h", *WORDS],
    "bash -c 'ssh {host} {command}'": ["bash", "-c", "ssh h 'exec sh -c '\"'\"'x y'\"'\"''"],
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_transport_template_is_filled_in(template: str) -> None:
    assert make_template_argv(template, HOST, "x y") == TEMPLATES[template]


def test_a_port_is_only_for_ssh() -> None:
    host = HOST.copy_with(port=2222)
    assert make_template_argv("ssh {host}", host, "x y")[-4:] == ["-p", "2222", "h", LINE]
    assert make_template_argv("rsh {host}", host, "x y") == ["rsh", "h", LINE]


OR_PYTHON3 = 'test -x "$p" || p=python3; '
#: What a host and the options say of the ranks' Python, and how its agent is started.
PYTHONS = [
    ({}, {}, f'p="python3"; {OR_PYTHON3}'),
    ({}, {"python": "~/v/python", "python_given": True}, 'p="$HOME/v/python"; '),
    ({"python": "/h/python"}, {}, 'p="/h/python"; '),
]


@pytest.mark.parametrize(("host", "job", "begins"), PYTHONS)
def test_python_of_a_host_is_chosen(host: dict[str, Any], job: dict[str, Any], begins: str) -> None:
    line = make_remote_argv(HOST.copy_with(**host), JOB.copy_with(**job), frozenset())[-1]
    assert line.startswith(f'exec sh -c \'{begins}exec "$p" -I -S -c "')


def test_words_that_no_quoting_protects_are_refused() -> None:
    with pytest.raises(LaunchError, match="is not allowed in"):
        make_remote_argv(HOST.copy_with(python="/a b$/python"), JOB, frozenset())


def test_greeting_timeout_depends_on_the_client() -> None:
    seconds = {
        ("ssh", 900.0): 14,
        ("srun", None): 14,
        ("ssh {host}", None): 60,
        ("x {host}", 900.0): 900,
    }
    for (via, start_timeout), patience in seconds.items():
        transport = Transport(JOB.copy_with(via=via, start_timeout=start_timeout), ())
        assert transport.get_greeting_limit_s(HOST) == patience
        assert transport.get_greeting_limit_s(Host(name=LOCAL, slots=1)) == 60


def test_all_workers_of_a_slice_are_no_host() -> None:
    template = "gcloud compute tpus tpu-vm ssh {host} --worker=all --command={command}"
    with pytest.raises(LaunchError, match="--hosts 0,1,2,3 and --worker="):
        make_template_argv(template, HOST, "x")


BAD_TEMPLATES = (
    *("ssh", "ssh 'x", "", "kubectl exec {host} --", "kubectl exec {host} -- -i"),
    *(
        "kubectl exec --pod-running-timeout=1s {host} --",
        "sudo docker exec {host}",
        "podman exec --tty {host}",
    ),
)


@pytest.mark.parametrize("template", BAD_TEMPLATES)
def test_malformed_template_is_refused(template: str) -> None:
    with pytest.raises(LaunchError, match="--via"):
        make_template_argv(template, HOST, "x")


@pytest.mark.parametrize("keeps", [True, False])
def test_the_loader_needs_no_quoting(keeps: bool) -> None:
    loader = bootstrap.make_loader(frozenset(), keeps=keeps)
    folder = "${XDG_CACHE_HOME:-$HOME/.cache}/"
    assert loader.count(folder) == keeps
    words = loader.replace(folder, "/").split('"')
    assert not set("'\\$`!\n") & set("".join(words))
    assert "".join(words[::2]).split() == ["-c", *([bootstrap.SAYS] if keeps else [])]
