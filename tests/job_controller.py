"""Decide on a failed pod as Kubernetes' Job controller and JobSet's controller do.

`pkg/controller/job/pod_failure_policy.go` and `job_controller.go` of Kubernetes 1.34, and
`pkg/controllers/failure_policy.go` of JobSet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def replaces_while_it_ends(spec: Mapping[str, Any]) -> bool:
    """Whether a Job has a new pod made for one that is still being deleted."""
    default = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    policy: str = spec.get("podReplacementPolicy", default)
    return policy == "TerminatingOrFailed"


def verdict(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, str]:
    """What a failed pod is to its Job: Ignore, Count or FailJob, and the Job's message with that."""
    status, name = pod["status"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for index, rule in enumerate(spec.get("podFailurePolicy", {}).get("rules", [])):
        action = str(rule["action"])
        for container in status.get("containerStatuses", []):
            code = container["state"]["terminated"]["exitCode"]
            if _matches(rule.get("onExitCodes"), container["name"], code):
                ended = f"Container {container['name']} for pod {name} failed with exit code {code}"
                return action, f"{ended} matching {action} rule at index {index}"
        for wanted in rule.get("onPodConditions", []):
            if wanted in status.get("conditions", []):
                has = f"Pod {name} has condition {wanted['type']}"
                return action, f"{has} matching {action} rule at index {index}"
    return "Count", ""


def _matches(wanted: Mapping[str, Any] | None, container: str, code: int) -> bool:
    if wanted is None or code == 0 or wanted.get("containerName", container) != container:
        return False
    return (code in wanted["values"]) is (wanted["operator"] == "In")


def job_failure(
    spec: Mapping[str, Any], failed: int, action: str, message: str
) -> tuple[str, str] | None:
    """Reason and message of a Job's failure, if it has failed.

    Args:
        spec: of the Job.
        failed: pods that have failed, but for those that are ignored.
        action: for the last of them.
        message: with that.

    """
    if action == "FailJob":
        return "PodFailurePolicy", message
    if failed > spec.get("backoffLimit", 6):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def jobset_action(policy: Mapping[str, Any], reason: str, message: str) -> str:
    """What a JobSet does about a Job that has failed."""
    for rule in policy.get("rules", []):
        reasons, patterns = (
            rule.get(key, []) for key in ("onJobFailureReasons", "onJobFailureMessagePatterns")
        )
        known = not patterns or any(re.search(pattern, message) for pattern in patterns)
        if (not reasons or reason in reasons) and known:
            return str(rule["action"])
    return "RestartJobSet"
