"""Kubernetes: manifests that run the same job in pods, one launcher in each; pure."""

import math
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from os.path import splitext
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire.exit_status import NOT_EXECUTABLE, NOT_FOUND, USAGE
from mcjax_launch.kernel.wire.schedulers import ENGINE_RESTART
from mcjax_launch.ranks import counted
from mcjax_launch.schedulers import Driver
from mcjax_launch.schedulers.manifest import change, to_yaml
from mcjax_launch.schedulers.submission import Submission

# --- TPU slices ---

_WRITTEN = r"([a-z0-9][a-z0-9-]{0,62}):([1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2})"
# What a host of any generation may have.
_ON_A_HOST = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Tpus:
    """Equal slices.

    Args:
        accelerator: their type, by the name that their nodes have, such as tpu-v6e-slice.
        topology: of each slice, such as 4x4.
        slices: how many.
        chips: on each host.

    """

    accelerator: str
    topology: str
    slices: int
    chips: int


def parse_tpus(text: str, hosts: int, slices: int) -> Tpus:
    """The slices that `--tpu TYPE:TOPOLOGY` means.

    Args:
        text: as the user wrote it.
        hosts: of all slices.
        slices: how many.

    Raises:
        LaunchError: it cannot be read, or does not fit the hosts.

    """
    written = re.fullmatch(_WRITTEN, text)
    if not written:
        raise LaunchError(f"--tpu {text}: write TYPE:TOPOLOGY, as in tpu-v6e-slice:4x4")
    if hosts % slices:
        raise LaunchError(
            f"--slices {slices}: {counted(hosts, 'host')} cannot be so many equal slices; "
            "--num-hosts counts those of all slices"
        )
    whole = math.prod(map(int, written[2].split("x")))
    chips, rest = divmod(whole, hosts // slices)
    if rest or chips not in _ON_A_HOST:
        raise LaunchError(
            f"--tpu {text}: {counted(whole, 'chip')} on {counted(hosts // slices, 'host')} of each "
            "slice, and a host has 1, 2, 4 or 8; set --num-hosts, of all slices"
        )
    return Tpus(accelerator=written[1], topology=written[2], slices=slices, chips=chips)


# --- manifests ---
# The pods need neither a service account nor the API: each knows its index from its Job, and the
# coordinator by name.

PORT = 8476
# How long pods may come after one another: a node pool that grows, an image of many gigabytes.
_PATIENCE_S = 1800
_EACH_ITS_OWN = "each pod has its own launcher"
# What the launcher gets beyond its ranks' grace, to end them and say why.
_TERMINATION_MARGIN_S = 15
# What JobSet counts for the random end of a pod's name; a Job's pods are cut to fit.
_SUFFIX = "-abcde"
_WORKERS, _CONTAINER = "workers", "main"
# A wrong command line is wrong again.
_NEVER_RIGHT = [USAGE, NOT_EXECUTABLE, NOT_FOUND]
# Neither root nor known to the image; of what a pod has, it can write to these folders.
_USER = 1000
_HOME = "/tmp"
_RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "fsGroup": _USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
# Else JobSet's pods of one slice may come to several node pools of the same topology.
_SLICE_ON_ONE_POOL = {
    "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
}
_IN_MEMORY = {"medium": "Memory"}
_FOLDERS: dict[str, tuple[str, dict[str, str]]] = {
    "shm": ("/dev/shm", _IN_MEMORY),  # it has 64 MB else, which NCCL and others fill
    "tmp": (_HOME, {}),
}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is to run in pods.

    Args:
        submission: the job.
        command: of the launcher in each pod, without its own name.
        patience: seconds that all pods may take to come.
        tpus: what their nodes have; None for others.

    """

    submission: Submission
    command: Sequence[str]
    patience: float
    tpus: Tpus | None

    @property
    def slices(self) -> int:
        """As many Jobs of a JobSet."""
        return self.tpus.slices if self.tpus else 1


class Kubernetes(Driver):
    """Manifests of an indexed Job, and of a JobSet."""

    kinds_with_tpus = ("jobset",)

    def emit(self, submission: Submission) -> str:
        """The manifest; an `--engine-option` changes it, see `manifest.change`."""
        kind = submission.emit
        _check_for_pods(submission)
        if submission.min_hosts:
            raise LaunchError(f"--emit {kind}: a job needs all its pods; leave out --min-hosts")
        if not submission.image:
            raise LaunchError(f"--emit {kind} needs --image: an image with mcjax-launch and JAX")
        tpus, done_here = None, {"max_restarts"}
        if submission.tpu is not None:
            if submission.gpus:
                raise LaunchError("--tpu cannot be combined with --gpus-per-process")
            slices = submission.slices if isinstance(submission.slices, int) else 1
            tpus = parse_tpus(submission.tpu, submission.num_hosts, slices)
            done_here |= {"slices"}  # as JAX finds them
        given, patience = _patience(submission)
        wanted = Workload(
            submission=submission,
            command=[*given, *submission.words(done_here)],
            patience=patience,
            tpus=tpus,
        )
        return job(wanted) if kind == "job" else jobset(wanted)


DRIVER = Kubernetes()


def _check_for_pods(submission: Submission) -> None:
    """Refuse what a launcher in a pod would do in vain, or not at all."""
    kind, sync, path = submission.emit, submission.sync, submission.report
    for wrong, why in (
        (submission.stdin, "pods have no standard input; leave out --stdin"),
        (submission.pdb, "pods have no terminal; leave out --pdb"),
        (submission.mtls == "on", f"{_EACH_ITS_OWN}; leave out --mtls on"),
        (
            sync,
            "pods have no files of this machine; leave out --sync, and put "
            f"{', '.join(sync)} into the image or on a volume",
        ),
    ):
        if wrong:
            raise LaunchError(f"--emit {kind}: {why}")
    if path is not None and submission.num_hosts > 1 and "{host}" not in path:
        raise LaunchError(
            f"--emit {kind}: {_EACH_ITS_OWN}, and writes a file of its own; name them "
            f"with {{host}}, on a volume: --report '/shared/{{host}}{splitext(path)[1]}'"
        )


def _patience(submission: Submission) -> tuple[list[str], float]:
    """The time that all pods have to come, as words where the user gives none, and in seconds."""
    if submission.no_hook or "start_timeout" in submission.given:
        return [], submission.start_timeout or _PATIENCE_S
    return ["--start-timeout", f"{_PATIENCE_S // 60}m"], _PATIENCE_S


def job(wanted: Workload) -> str:
    """An indexed Job and the headless Service that gives its pods names.

    Raises:
        LaunchError: something cannot stand in a manifest, or restarts are asked for.

    """
    name = wanted.submission.name
    _check(wanted, f"{name}-{wanted.submission.num_hosts - 1}")
    if wanted.submission.max_restarts:
        raise LaunchError(
            "--emit job: a Job cannot restart all its pods together; use --emit jobset"
        )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wanted),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": name},
            "ports": [{"name": "coordinator", "port": PORT}],
        },
    }
    spec = _job(wanted, f"{name}-0.{name}:{PORT}", disrupted="Ignore")
    spec["template"]["spec"]["subdomain"] = name
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(wanted),
        "spec": spec,
    }
    _change(wanted, manifest, spec)
    return f"{to_yaml(service)}---\n{to_yaml(manifest)}"


def jobset(wanted: Workload) -> str:
    """A JobSet: the same pods, and all of them started again after a failure.

    Raises:
        LaunchError: something cannot stand in a manifest.

    """
    name, slices = wanted.submission.name, wanted.slices
    last = wanted.submission.num_hosts // slices - 1
    _check(wanted, f"{name}-{_WORKERS}-{slices - 1}-{last}{_SUFFIX}")
    spec = _job(wanted, f"{name}-{_WORKERS}-0-0.{name}:{PORT}", disrupted="FailJob")
    (container,) = spec["template"]["spec"]["containers"]
    attempt = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    container["env"].append(_field(ENGINE_RESTART, attempt))
    restarts = wanted.submission.max_restarts
    policy: dict[str, Any] = {"maxRestarts": restarts, "rules": _job_failures()}
    if slices > 1:
        container["env"] += _place_in_slices(last + 1)
        # All pods of all slices are gone before there are new ones.
        policy["restartStrategy"] = "BlockingRecreate"
    metadata = _metadata(wanted)
    if wanted.tpus:
        metadata["annotations"] = dict(_SLICE_ON_ONE_POOL)
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": policy,
            "replicatedJobs": [{"name": _WORKERS, "replicas": slices, "template": {"spec": spec}}],
        },
    }
    _change(wanted, manifest, spec)
    return to_yaml(manifest)


def _field(name: str, path: str) -> dict[str, Any]:
    """A variable with what the pod's object has there."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _place_in_slices(hosts: int) -> list[dict[str, Any]]:
    """Variables that count a pod over all slices, each of so many hosts."""
    return [
        _field("JOB_INDEX", "metadata.labels['jobset.sigs.k8s.io/job-index']"),
        # The Job's own variable of this comes after ours, which could not refer to it.
        _field("POD_INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        {"name": "MCJAX_HOST_RANK", "value": f"$(JOB_INDEX)*{hosts}+$(POD_INDEX)"},
    ]


def _change(wanted: Workload, manifest: dict[str, Any], spec: dict[str, Any]) -> None:
    """Change what the user wants otherwise; `spec` is that of the Job in it."""
    pod = spec["template"]["spec"]
    places = {
        "metadata": manifest["metadata"],
        "spec": manifest["spec"],
        "job": spec,
        "pod": pod,
        "container": pod["containers"][0],
    }
    for option in wanted.submission.engine_option:
        change(places, option)


def _job_failures() -> list[dict[str, Any]]:
    """What a JobSet does when its Job has failed; it starts again where nothing is said."""
    by_rule = {"onJobFailureReasons": ["PodFailurePolicy"]}
    drained, wrong = ["has condition DisruptionTarget"], ["failed with exit code"]
    return [
        {
            "name": "disrupted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            **by_rule,
            # A Job says which of its rules has failed it in a message.
            "onJobFailureMessagePatterns": drained,
        },
        {
            "name": "never_right",
            "action": "FailJobSet",
            **by_rule,
            "onJobFailureMessagePatterns": wrong,
        },
        {"name": "timeout", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]


def _pod_failures(disrupted: str) -> dict[str, Any]:
    """What a pod's end means to its Job; all that is not named fails it, as there are no retries.

    Args:
        disrupted: what to do when a pod had to go: a drained node, a preemption.

    """
    condition = {"type": "DisruptionTarget", "status": "True"}
    codes = {"containerName": _CONTAINER, "operator": "In", "values": [*_NEVER_RIGHT]}
    return {
        "rules": [
            {"action": disrupted, "onPodConditions": [condition]},
            {"action": "FailJob", "onExitCodes": codes},
        ]
    }


def _metadata(wanted: Workload) -> dict[str, Any]:
    namespace = wanted.submission.namespace
    return {"name": wanted.submission.name, **({"namespace": namespace} if namespace else {})}


def _check(wanted: Workload, last_pod: str) -> None:
    """Refuse what the API would refuse, or a YAML parser."""
    submission = wanted.submission
    name, namespace, image = submission.name, submission.namespace, submission.image
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(last_pod) > 63:
        raise LaunchError(
            f"--name {name}: use a-z, 0-9 and '-', a letter first, and at most 63 characters in "
            f"the name of a pod ({last_pod})"
        )
    if namespace is not None and not re.fullmatch(
        r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?", namespace
    ):
        raise LaunchError(
            f"--namespace {namespace}: use a-z, 0-9 and '-', at most 63 characters, and no '-' at "
            "either end"
        )
    if not re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", image or "", re.ASCII):
        raise LaunchError(f"--image {image}: not the name of an image, such as registry/name:tag")
    for word in wanted.command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise LaunchError(f"{word}: cannot stand in a manifest: not UTF-8") from None


def _job(wanted: Workload, coordinator: str, disrupted: str) -> dict[str, Any]:
    """The spec of an indexed Job whose pods are the job's hosts.

    Args:
        wanted: what is to run.
        coordinator: its address.
        disrupted: what to do when a pod had to go.

    """
    attempt_s, pods = wanted.submission.attempt_s, wanted.submission.num_hosts // wanted.slices
    limit = {}
    if attempt_s is not None:  # the launchers' own --timeout comes first, and shows stacks
        deadline = math.ceil(attempt_s + wanted.patience + _TERMINATION_MARGIN_S)
        limit = {"activeDeadlineSeconds": deadline}
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": 0,
        **limit,
        # Else a pod that is being deleted would have a successor beside it, with the same ranks.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _pod_failures(disrupted),
        "template": {"spec": _pod(wanted, coordinator)},
    }


def _pod(wanted: Workload, coordinator: str) -> dict[str, Any]:
    nodes = {}
    if wanted.tpus:
        accelerator, topology = wanted.tpus.accelerator, wanted.tpus.topology
        labels = {"accelerator": accelerator, "topology": topology}
        nodes = {f"cloud.google.com/gke-tpu-{name}": value for name, value in labels.items()}
    return {
        **({"nodeSelector": nodes} if nodes else {}),
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": math.ceil(wanted.submission.grace) + _TERMINATION_MARGIN_S,
        **(
            {} if wanted.tpus else {"securityContext": deepcopy(_RESTRICTED_POD)}
        ),  # root's are the chips
        "containers": [_container(wanted, coordinator)],
        "volumes": [{"name": name, "emptyDir": dict(kind)} for name, (_, kind) in _FOLDERS.items()],
    }


def _container(wanted: Workload, coordinator: str) -> dict[str, Any]:
    submission = wanted.submission
    # As variables, so that a launcher in the pod knows its place whatever its command line.
    environ = {
        "MCJAX_NUM_HOSTS": str(submission.num_hosts),
        "MCJAX_PROCS_PER_HOST": str(submission.procs_per_host),
        "MCJAX_COORDINATOR": coordinator,
        "HOME": _HOME,
    }
    devices = {"nvidia.com/gpu": submission.gpus} if submission.gpus else {}
    if wanted.tpus:
        devices = {"google.com/tpu": wanted.tpus.chips}
    resources = {"resources": {"limits": devices}} if devices else {}
    return {
        "name": _CONTAINER,
        "image": submission.image,
        # Kubernetes expands $(NAME) in a command, and reduces $$ to $.
        "command": [word.replace("$", "$$") for word in ("mcjax-launch", *wanted.command)],
        "env": [{"name": name, "value": value} for name, value in environ.items()],
        # The launcher writes its summary there; of what ends before, the log says why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "coordinator", "containerPort": PORT}],
        **resources,
        **({} if wanted.tpus else {"securityContext": deepcopy(_RESTRICTED_CONTAINER)}),
        "volumeMounts": [
            {"name": name, "mountPath": place} for name, (place, _) in _FOLDERS.items()
        ],
    }
