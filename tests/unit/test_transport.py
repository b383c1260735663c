"""The command that goes to a host."""

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.transport import bootstrap
from mcjax_launch.kernel.transport.client import Transport, ssh_argv, template_argv

JOB = Job(program=("true",), python="python3", chdir="/")


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


def test_ssh_argv() -> None:
    words, end = ["ssh", "-T", "-x", *ssh_options()], ["--", "me@h", "exec sh -c 'x'"]
    host = Host(name="h", user="me", slots=1)
    assert ssh_argv(host, "x") == [*words, *end]
    assert ssh_argv(host.replaced(port=2222), "x") == [*words, "-p", "2222", *end]


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
def test_template(template: str) -> None:
    assert template_argv(template, Host(name="h", slots=1), "x y") == TEMPLATES[template]


def test_how_long_a_client_may_take() -> None:
    seconds = {
        ("ssh", 900.0): 14,
        ("srun", None): 14,
        ("ssh {host}", None): 60,
        ("x {host}", 900.0): 900,
    }
    for (via, start_timeout), patience in seconds.items():
        transport = Transport(JOB.replaced(via=via, start_timeout=start_timeout), ())
        assert transport.greeting_s(Host(name="h", slots=1)) == patience
        assert transport.greeting_s(Host(name=LOCAL, slots=1)) == 60


def test_all_workers_of_a_slice_are_no_host() -> None:
    template = "gcloud compute tpus tpu-vm ssh {host} --worker=all --command={command}"
    with pytest.raises(LaunchError, match="--hosts 0,1,2,3 and --worker="):
        template_argv(template, Host(name="h", slots=1), "x")


BAD_TEMPLATES = (
    *("ssh", "ssh 'x", "", "kubectl exec {host} --", "kubectl exec {host} -- -i"),
    *("sudo docker exec {host}", "podman exec --tty {host}"),
)


@pytest.mark.parametrize("template", BAD_TEMPLATES)
def test_bad_template(template: str) -> None:
    with pytest.raises(LaunchError, match="--via"):
        template_argv(template, Host(name="h", slots=1), "x")


def test_the_loader_needs_no_quoting() -> None:
    assert not set("'\"\\$`!\n") & set(bootstrap.loader(frozenset()))
