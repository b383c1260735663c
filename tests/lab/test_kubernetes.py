"""The pods of emitted manifests: processes on the lab's hosts, in what a kubelet makes for them."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import LAUNCHER, PROGRAMS, TOKEN, Jobs, Running
from kubelet import environment, expanded
from remote import Lab, needs_lab

pytestmark = needs_lab

OPTIONS = (
    *("--image", "none", "--name", "toy", "--grace", "2"),
    *("--num-hosts", "2", "--procs-per-host", "2", "-d", "1"),
)
IN_A_POD = str(Path(LAUNCHER[0]).parent / "mcjax-launch")
# A /dev with the file for the termination message, the volumes, a root file system that nobody can
# write, and a user that the image does not know, without any privilege; but it can read Python.
CONTAINER = """
set -e
dev=$1 message=$2 python=$3; shift 3
mkdir $dev; mount -t tmpfs none $dev; cd $dev
for device in null zero full random urandom tty; do : >$device; mount --bind /dev/$device $device; done
mkdir shm pts; mount --rbind /dev/pts pts; ln -s pts/ptmx ptmx; ln -s /proc/self/fd fd
: >termination-log; mount --bind $message termination-log
cd /; mount --move $dev /dev; hostname $0
home=/$(echo $python | cut -d / -f 2)
if [ -z "$(find $home -maxdepth 0 -perm -1)" ]; then
    mount --bind $python /mnt; mount -t tmpfs -o mode=755 none $home
    mkdir -p $python; mount --move /mnt $python
fi
mount -t tmpfs -o mode=1777 none /dev/shm
mount -o remount,bind,ro /
exec setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs \
    --bounding-set -all --inh-caps -all env -i "$@"
"""


def emitted(jobs: Jobs, kind: str, *arguments: object) -> dict[str, Any]:
    """The specification of the pods in an emitted manifest."""
    text = jobs.run("--emit", kind, *OPTIONS, *arguments).stdout
    *_, manifest = yaml.safe_load_all(text)
    if kind == "jobset":
        (manifest,) = (workers["template"] for workers in manifest["spec"]["replicatedJobs"])
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def start_pod(
    jobs: Jobs, lab: Lab, folder: Path, spec: dict[str, Any], name: str, **variables: str
) -> Running:
    """Start the container of a pod, whose name ends with its index, on the host of that index."""
    index = int(name.rpartition("-")[2])
    (container,) = spec["containers"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (
        1000,
    ) * 2
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    # /tmp is a file system of each host's in any case
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/dev/shm", "/tmp"]
    message = folder / f"{name}.message"
    message.touch()
    message.chmod(0o666)
    outside = {"PATH": "/usr/bin:/bin", "HOSTNAME": name, "JOB_COMPLETION_INDEX": str(index)}
    # There is an API, but no token for it.
    outside |= {"KUBERNETES_SERVICE_HOST": "10.77.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    env = environment(
        container["env"], {**outside, **variables, TOKEN: jobs.token}, lambda path: "0"
    )
    _, *words = [expanded(word, env) for word in container["command"]]
    return jobs.start(
        *lab.entering(f"jh{index + 1}"),
        *("unshare", "--uts", "--mount", "sh", "-c", CONTAINER),
        *(name, folder / f"{name}.dev", message, sys.base_prefix),
        *(f"{variable}={value}" for variable, value in env.items()),
        *(IN_A_POD, *words),
        launcher=["env"],
    )


def names(pods: list[str]) -> str:
    """/etc/hosts, with the pods' own names, and those that their service gives them."""
    lines = [f"10.77.0.{11 + index} {pod}.toy {pod}\n" for index, pod in enumerate(pods)]
    return "".join(["127.0.0.1 localhost\n", *lines])


@pytest.mark.jax
def test_pods_of_an_emitted_job_run(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    """Without a service account's token, with which JAX's own detection would fail."""
    script = f"""
        if (true >/etc/x) 2>/dev/null; then echo broken; fi
        touch ~/x /tmp/y /dev/shm/z && echo "$HOME $(stat -fc %T /dev/shm) $(id -u)"
        grep -E "NoNewPrivs|CapBnd" /proc/self/status
        exec {LAUNCHER[0]} {PROGRAMS / "toy.py"}
    """
    spec, pods = emitted(jobs, "job", "sh", "-c", script), ["toy-0", "toy-1"]
    lab.names(names(pods))
    try:
        running = [start_pod(jobs, lab, tmp_path, spec, pod) for pod in pods]
        ended = [pod.finish() for pod in running]
    finally:
        lab.names()
    assert [pod.status for pod in ended] == [0, 0], [pod.stderr for pod in ended]
    for rank in range(4):
        assert f"[{rank}] process {rank} of 4" in ended[rank // 2].stdout
    for pod in ended:
        assert pod.stdout.count("/tmp tmpfs 1000\n") == pod.stdout.count("NoNewPrivs:\t1\n") == 2
        assert pod.stdout.count("CapBnd:\t0000000000000000\n") == 2
        assert "broken" not in pod.stdout
    lab.check_clean()


def test_root_cause_survives_the_pod(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    """Where the launcher has a summary; of a wrong command line the log says why."""
    program = ["sh", "-c", "[ $JAX_PROCESS_ID = 3 ] && echo too bad >&2 && exit 7; exec sleep 1000"]
    lab.names(names(["toy-0", "toy-1"]))
    try:
        failed = start_pod(jobs, lab, tmp_path, emitted(jobs, "job", *program), "toy-1").finish()
        spec = emitted(jobs, "job", "/no/such/program")
        wrong = start_pod(jobs, lab, tmp_path, spec, "toy-0").finish()
    finally:
        lab.names()
    assert failed.status == 7, failed.stderr
    message = (tmp_path / "toy-1.message").read_text()
    assert "rank 3 failed: exit status 7" in message and "too bad" in message
    assert (wrong.status, (tmp_path / "toy-0.message").read_text()) == (127, "")
    assert "mcjax-launch: /no/such/program: " in wrong.stderr
    lab.check_clean()


@pytest.mark.jax
def test_pods_of_an_emitted_jobset_wait_for_the_coordinator(
    jobs: Jobs, lab: Lab, tmp_path: Path
) -> None:
    """Under the host names and variables that JobSet documents; there is no controller to ask.

    At first the coordinator's name leads to a pod that is no longer there, as after a restart.
    """
    spec, pods = (
        emitted(jobs, "jobset", PROGRAMS / "toy.py"),
        ["toy-workers-0-0", "toy-workers-0-1"],
    )
    told = {"JOBSET_NAME": "toy", "JOB_INDEX": "0", "REPLICATED_JOB_NAME": "workers"}
    lab.names(names(pods).replace("10.77.0.11 ", "10.77.0.99 "))
    try:
        second = start_pod(jobs, lab, tmp_path, spec, pods[1], **told)
        assert second.process.stderr is not None
        while b"waiting for process 0 at " not in (line := second.process.stderr.readline()):
            assert line
        assert b" at toy-workers-0-0.toy:8476" in line
        lab.names(names(pods))
        first = start_pod(jobs, lab, tmp_path, spec, pods[0], **told)
        ended = [first.finish(), second.finish()]
    finally:
        lab.names()
    assert [pod.status for pod in ended] == [0, 0], [pod.stderr for pod in ended]
    for rank in range(4):
        assert f"[{rank}] process {rank} of 4" in ended[rank // 2].stdout
    lab.check_clean()
