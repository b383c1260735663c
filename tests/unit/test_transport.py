"""The command that goes to a host."""

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.transport import bootstrap
from mcjax_launch.kernel.transport.client import Transport, ssh_argv, template_argv

JOB = Job(program=("true",), python="python3", chdir="/")


def test_ssh_argv() -> None:
    options = [
        *("RemoteCommand=none", "ClearAllForwardings=yes", "BatchMode=yes", "ConnectTimeout=10"),
        *("ServerAliveInterval=5", "ServerAliveCountMax=2"),
    ]
    words = ["ssh", "-T", "-x", *(word for option in options for word in ("-o", option))]
    end = ["--", "me@h", "exec sh -c 'x'"]
    host = Host(name="h", user="me", slots=1)
    assert ssh_argv(host, "x") == [*words, *end]
    assert ssh_argv(host.replaced(port=2222), "x") == [*words, "-p", "2222", *end]


TEMPLATES = {
    "sudo -u me ssh -oServerAliveInterval=1 {host}": [
        *("-u", "me", "ssh", "BatchMode=yes", "h", "exec sh -c 'x y'"),
    ],
    "ssh -F cfg -- me@{host}": ["-F", "cfg", "--", "me@h", "exec sh -c 'x y'"],
    "ssh -F cfg {host}": ["BatchMode=yes", "-F", "cfg", "h", "exec sh -c 'x y'"],
    "gcloud compute tpus tpu-vm ssh NAME --worker={host} --command={command}": [
        *("compute", "tpus", "tpu-vm", "ssh", "NAME", "--worker=h", "--command=exec sh -c 'x y'")
    ],
    "kubectl exec -i {host} --": ["exec", "-i", "h", "--", "sh", "-c", "x y"],
    "docker exec -i {host}": ["exec", "-i", "h", "sh", "-c", "x y"],
    "kubectl exec -ti {host} --": ["exec", "-ti", "h", "--", "sh", "-c", "x y"],
    "podman exec --interactive {host}": ["exec", "--interactive", "h", "sh", "-c", "x y"],
    "docker run --rm img {host}": ["h", "sh", "-c", "x y"],
    "pod-sh {host} sh -c {command}": ["h", "sh", "-c", "exec sh -c 'x y'"],
    "sudo -H {host}": ["-H", "h", "sh", "-c", "x y"],
    "srun -w {host}": ["--unbuffered", "-w", "h", "sh", "-c", "x y"],
    "bash -c 'ssh {host} {command}'": ["-c", "ssh h 'exec sh -c '\"'\"'x y'\"'\"''"],
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_template(template: str) -> None:
    argv = template_argv(template, Host(name="h", slots=1), "x y")
    assert [word for word in argv[1:] if word in TEMPLATES[template]] == TEMPLATES[template]
    assert len(argv) == len(template.split()) or "gcloud" not in template


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
