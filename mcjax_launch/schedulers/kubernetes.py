"""Kubernetes: manifests that run the same job in pods, one launcher in each; pure.

The pods need neither a service account nor the API: each knows its index from its Job, and the
coordinator by name.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.protocol.exit_status import NOT_EXECUTABLE, NOT_FOUND, USAGE
from mcjax_launch.schedulers.size import Size

PORT = 8476
# What the launcher gets beyond its ranks' grace, to end them and say why.
_TERMINATION_MARGIN_S = 15
# What JobSet counts for the random end of a pod's name; a Job's pods are cut to fit.
_SUFFIX = "-abcde"
_WORKERS, _CONTAINER = "workers", "main"
# A wrong command line is wrong again. A Job says which of its rules has failed it in a message.
_NEVER_RIGHT = [USAGE, NOT_EXECUTABLE, NOT_FOUND]
_JOB_FAILURES = [
    {
        "name": name,
        "action": action,
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": [message],
    }
    for name, action, message in (
        ("disrupted", "RestartJobSetAndIgnoreMaxRestarts", "has condition DisruptionTarget"),
        ("never_right", "FailJobSet", "failed with exit code"),
    )
]


def job(command: Sequence[str], size: Size, name: str, namespace: str | None, image: str) -> str:
    """An indexed Job and the headless Service that gives its pods names.

    Raises:
        LaunchError: something cannot stand in a manifest, or restarts are asked for.

    """
    _check(command, name, namespace, image, f"{name}-{size.hosts - 1}")
    if size.restarts:
        raise LaunchError(
            "--emit job: a Job cannot restart all its pods together; use --emit jobset"
        )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": name},
            "ports": [{"name": "coordinator", "port": PORT}],
        },
    }
    address = f"{name}-0.{name}:{PORT}"
    pods = _pods(command, size, address, image)
    pods["template"]["spec"]["subdomain"] = name
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, namespace),
        "spec": {**pods, "podFailurePolicy": _pod_failures(disrupted="Ignore")},
    }
    return f"{to_yaml(service)}---\n{to_yaml(manifest)}"


def jobset(command: Sequence[str], size: Size, name: str, namespace: str | None, image: str) -> str:
    """A JobSet: the same pods, and all of them started again after a failure.

    Raises:
        LaunchError: something cannot stand in a manifest.

    """
    _check(command, name, namespace, image, f"{name}-{_WORKERS}-0-{size.hosts - 1}{_SUFFIX}")
    address = f"{name}-{_WORKERS}-0-0.{name}:{PORT}"
    pods = _pods(command, size, address, image)
    attempt = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
    (container,) = pods["template"]["spec"]["containers"]
    container["env"].append({"name": "MCJAX_ENGINE_RESTART", "valueFrom": attempt})
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(name, namespace),
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": size.restarts, "rules": _JOB_FAILURES},
            "replicatedJobs": [
                {
                    "name": _WORKERS,
                    "replicas": 1,
                    "template": {
                        "spec": {**pods, "podFailurePolicy": _pod_failures(disrupted="FailJob")}
                    },
                }
            ],
        },
    }
    return to_yaml(manifest)


def _pod_failures(disrupted: str) -> dict[str, Any]:
    """What a pod's end means to its Job; all that is not named fails it, as there are no retries.

    Args:
        disrupted: what to do when a pod had to go: a drained node, a preemption.

    """
    condition = {"type": "DisruptionTarget", "status": "True"}
    codes = {"containerName": _CONTAINER, "operator": "In", "values": _NEVER_RIGHT}
    return {
        "rules": [
            {"action": disrupted, "onPodConditions": [condition]},
            {"action": "FailJob", "onExitCodes": codes},
        ]
    }


def _metadata(name: str, namespace: str | None) -> dict[str, str]:
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def _check(
    command: Sequence[str], name: str, namespace: str | None, image: str, last_pod: str
) -> None:
    """Refuse what the API would refuse, or a YAML parser."""
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
    if not re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", image, re.ASCII):
        raise LaunchError(f"--image {image}: not the name of an image, such as registry/name:tag")
    for word in command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise LaunchError(f"{word}: cannot stand in a manifest: not UTF-8") from None


def _pods(command: Sequence[str], size: Size, coordinator: str, image: str) -> dict[str, Any]:
    """The spec of an indexed Job whose pods are the job's hosts."""
    # As variables, so that a launcher in the pod knows its place whatever its command line.
    place = {
        "MCJAX_NUM_HOSTS": str(size.hosts),
        "MCJAX_PROCS_PER_HOST": str(size.ranks),
        "MCJAX_COORDINATOR": coordinator,
    }
    words = ["mcjax-launch", *command]
    container: dict[str, Any] = {
        "name": _CONTAINER,
        "image": image,
        # Kubernetes expands $(NAME) in a command, and reduces $$ to $.
        "command": [word.replace("$", "$$") for word in words],
        "env": [{"name": name, "value": value} for name, value in place.items()],
        # The launcher writes its summary there; of what ends before, the log says why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "coordinator", "containerPort": PORT}],
    }
    if size.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": size.gpus}}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": math.ceil(size.grace) + _TERMINATION_MARGIN_S,
        "containers": [container],
    }
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": size.hosts,
        "parallelism": size.hosts,
        "backoffLimit": 0,
        # Else a pod that is being deleted would have a successor beside it, with the same ranks.
        "podReplacementPolicy": "Failed",
    }
    return {**spec, "template": {"spec": pod}}


def to_yaml(value: Any, indent: int = 0) -> str:
    """Dicts, lists and scalars as YAML in block style; scalars as JSON, which YAML includes."""
    pad = " " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{key}:{_below(child, indent + 2)}" for key, child in value.items())
    text = ""
    for child in value:
        if isinstance(child, (dict, list)):
            text += f"{pad}- {to_yaml(child, indent + 2).lstrip()}"
        else:
            text += f"{pad}- {_scalar(child)}\n"
    return text


def _below(value: Any, indent: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + to_yaml(value, indent)
    return f" {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./-]*", value)
    if plain and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return str(value)
    return json.dumps(value)
