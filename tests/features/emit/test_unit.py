"""What a scheduler gets of a command line."""

import gzip
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from job_controller import job_failure, jobset_action, replaces_while_it_ends, verdict
from kubelet import environment, expanded

from mcjax_launch.cli.command import main
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.emit import kubernetes, template
from mcjax_launch.features.emit.command import build
from mcjax_launch.features.emit.submission import Submission, make_default_name
from mcjax_launch.options import kinds

TEMPLATES = Path(template.__file__).parent
JOB = Submission(
    emit="jobset",
    given=("num_hosts", "max_restarts", "quiet"),
    name="train",
    num_hosts=2,
    max_restarts=3,
    quiet=True,
    image="i",
    program=("train.py", "-n"),
)


def emit(kind: str, submission: Submission) -> str:
    return build(submission.copy_with(emit=kind))


def test_what_this_machine_lacks_is_no_concern_of_a_script(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = "--emit slurm --num-hosts 2 -n 4 -x NO_SUCH_VARIABLE_* train.py"
    assert main(words.split()) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["slurm", "jobset", "job"])
def test_the_template_of_each_kind_is_package_data(kind: str) -> None:
    settings = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    files = [path for pattern in patterns for path in TEMPLATES.glob(pattern)]
    assert [path.stem for path in files].count(kind) == 1


def test_template_lines_are_filled() -> None:
    text = """## of {no} name
a {x:02} {{}}
b {none}
- {items}
c  # if x
d:  # if not x
  - d
    ## e

  e
f:  # if items
  f
  g:  # if none
    - {x}
  h
"""
    values = {"x": 7, "none": None, "items": ["{x}", "# if none"]}
    filled = template.fill(text.splitlines(), values)
    assert filled == "a 07 {}\n- {x}\n- # if none\nc\n\n  e\nf:\n  f\n  h\n"


def test_emitted_launcher_gets_the_remaining_options() -> None:
    """Not the size, which it knows from the scheduler; restarts where they are its own."""
    assert emit("slurm", JOB).endswith(" --max-restarts 3 --quiet -- train.py -n\n")
    assert " --timeout 1234567 " in emit(
        "slurm", JOB.copy_with(given=("timeout",), timeout=1234567.0)
    )
    for hosts, report in ((2, "/x/{host}.json"), (1, "run.json")):
        assert report in emit(
            "jobset", JOB.copy_with(given=("report",), num_hosts=hosts, report=report)
        )
    pods = emit("jobset", JOB)
    assert "--quiet" in pods and "train.py" in pods
    assert "--max-restarts" not in pods and "--num-hosts" not in pods


def test_default_name_follows_from_the_program() -> None:
    names = {
        "train.py": "train",
        "a/Train_v2.py": "train-v2",
        "7.py": "job-7",
        "./run.sh": "run-sh",
    }
    assert {program: make_default_name(program) for program in names} == names


# --- batch scripts ---

PREFIX = "#SBATCH "


def directives(**changes: Any) -> list[str]:
    wanted = {"procs_per_host": 4, "max_restarts": 0, "program": ("train.py", "it's $x"), **changes}
    text = emit("slurm", JOB.copy_with(**wanted))
    assert text.startswith("#!/bin/bash\n")
    last = shlex.split(text.splitlines()[-1])
    assert last[0] == "exec" and last[-2:] == ["train.py", "it's $x"]
    lines = [line for line in text.splitlines()[1:] if line.startswith("#")]
    assert all(line.startswith(PREFIX) and shlex.split(line[len(PREFIX) :]) for line in lines)
    return [line.removeprefix(PREFIX) for line in lines]


def test_directives_follow_from_options() -> None:
    found = directives(gpus_per_process=2, timeout=3600.0, grace=30.0, max_restarts=1)
    wanted = ["--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=8", "--time=122", "--requeue"]
    assert found == ["--job-name=train", *wanted]
    assert directives() == ["--job-name=train", *wanted[:2]]


def test_site_options_come_last() -> None:
    """Of two equal options sbatch takes the last."""
    options = ("--partition=gpu", "--nodes=1-2")
    assert directives(engine_option=options) == [*directives(), *options]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_option": ("q",)}, "--engine-option q: not an option of "),
        ({"engine_option": ("--x\nrm y",)}, r"--engine-option --x\nrm y: not"),
        ({"name": "a b"}, "--name a b: use letters, digits"),
    ],
)
def test_values_a_batch_script_cannot_hold_are_refused(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(LaunchError, match=re.escape(words)):
        directives(**changes)


# --- manifests ---

PROGRAM = ("train.py", "{process_id}", "it's $(HOME)", "a$$b", "$", "$$(x) $HOME$")
PODS = JOB.copy_with(
    given=("env", "timeout"),
    num_hosts=3,
    procs_per_host=2,
    gpus_per_process=2,
    image="repo/image:1",
    namespace="ml",
    env=("A=$(b) $$c",),
    timeout=600.0,
    program=PROGRAM,
)
VERSIONS = ("1.29", "1.33", "1.37")


def check_pods(spec: Any) -> dict[str, str]:
    """What the schemas do not catch; the variables of the pods."""
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 3
    assert spec["backoffLimit"] == 0
    assert not replaces_while_it_ends(spec)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert container["image"] == "repo/image:1"
    # All that the standard "restricted" asks of pods.
    security = {**pod["securityContext"], **container["securityContext"]}
    assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts == {"/dev/shm": {"medium": "Memory"}, "/tmp": {}}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    environ = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    command = [expanded(word, {"HOME": "/", **environ}) for word in container["command"]]
    assert command[0] == "mcjax-launch"
    assert command[-6:] == [*PROGRAM]
    assert command[command.index("--env") + 1] == "A=$(b) $$c"
    assert "--max-restarts" not in command
    return environ


def test_emitted_job_has_variables_and_names() -> None:
    service, job = yaml.safe_load_all(emit("job", PODS.copy_with(name="run-7", max_restarts=0)))
    for document in (service, job):
        assert document["metadata"] == {"name": "run-7", "namespace": "ml"}
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    assert check_pods(job["spec"]) == {
        "MCJAX_NUM_HOSTS": "3",
        "MCJAX_PROCS_PER_HOST": "2",
        "MCJAX_COORDINATOR": "run-7-0.run-7:8476",
        "HOME": "/tmp",
    }
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == "run-7"
    assert pod["terminationGracePeriodSeconds"] == 30 + 15  # Kubernetes waits longer than we do
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": "run-7"}


@cache
def jobset_schema() -> Any:
    packed = (Path(__file__).parents[2] / "lab" / "jobset-crd.yaml.gz").read_bytes()
    crd = yaml.load(gzip.decompress(packed), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = (
        candidate for candidate in crd["spec"]["versions"] if candidate["name"] == "v1alpha2"
    )
    return version["schema"]["openAPIV3Schema"]


def check_jobset(jobset: Any) -> None:
    """By the schemas."""
    jsonschema.validate(jobset, jobset_schema())
    (workers,) = jobset["spec"]["replicatedJobs"]
    # The schema of the CRD takes any pod; Kubernetes' own is stricter.
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    kubernetes_validate.validate({**job, "spec": workers["template"]["spec"]}, "1.33", strict=True)


def test_emitted_jobset_has_restarts() -> None:
    jobset = yaml.safe_load(emit("jobset", PODS))
    check_jobset(jobset)
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    # A rank looks for the coordinator as soon as it runs, ready or not.
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert jobset["spec"]["network"] == network
    (workers,) = jobset["spec"]["replicatedJobs"]
    found = check_pods(workers["template"]["spec"])
    assert found["MCJAX_COORDINATOR"] == "train-workers-0-0.train:8476"
    assert "MCJAX_ENGINE_RESTART" in found


@pytest.mark.parametrize(
    ("given", "has"), [({}, True), ({"start_timeout": None}, False), ({"no_hook": True}, False)]
)
def test_pods_get_more_time_to_start(given: dict[str, Any], has: bool) -> None:
    """Longer than for ranks that start together."""
    wanted = JOB.copy_with(given=tuple(given), **given)
    assert ("--start-timeout" in emit("jobset", wanted) and "30m" in emit("jobset", wanted)) is has
    assert "30m" not in emit("slurm", wanted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_option": ("pod.x=1",)}, "--emit jobset: --engine-option is for batch scripts; "),
        ({"image": None}, "needs --image: an image with mcjax-launch and JAX"),
        (
            {"program": ("echo", "\udce4")},
            "not UTF-8, so it cannot be in a manifest",
        ),
        ({"name": "Run_7"}, "--name Run_7: use a-z, 0-9 and '-', a letter first, "),
        (
            {"name": "a" * 46},
            rf"at most 63 characters in the name of a pod \({'a' * 46}-workers-0-1-abcde\)",
        ),
    ],
)
def test_options_pods_cannot_honour_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        emit("jobset", JOB.copy_with(**changes))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, None),
        ({"timeout": 600.0}, 600 + 30 + 1800 + 15),
        ({"timeout": 600.0, "grace": 5.0, "max_restarts": 0}, 600 + 5 + 1800 + 15),
        ({"timeout": 600.0, "start_timeout": 60.0}, 600 + 30 + 60 + 15),
    ],
)
def test_attempt_deadline_exceeds_the_timeout(given: dict[str, Any], seconds: int | None) -> None:
    """The launcher's own --timeout counts from the start of the ranks, and comes before it."""
    wanted = JOB.copy_with(**{"max_restarts": 2, **given}, given=tuple(given))
    spec = yaml.safe_load(emit("jobset", wanted))["spec"]
    (workers,) = spec["replicatedJobs"]
    assert workers["template"]["spec"].get("activeDeadlineSeconds") == seconds
    reached = ("DeadlineExceeded", "Job was active longer than specified deadline")
    assert jobset_action(spec["failurePolicy"], *reached) == "FailJobSet"


def test_pods_of_both_kinds_are_alike() -> None:
    """The two templates repeat a pod, but for the coordinator, a drained node and restarts."""
    wanted = JOB.copy_with(max_restarts=0, gpus_per_process=2, timeout=60.0)
    pods = emit("job", wanted).partition("  completionMode")[2].splitlines()
    others = emit("jobset", wanted).partition("completionMode")[2].splitlines()
    assert {line.strip() for line in pods} ^ {line.strip() for line in others} == {
        *("subdomain: train", "- action: Ignore", 'value: "train-0.train:8476"'),
        *("- name: MCJAX_ENGINE_RESTART", "valueFrom:", "fieldRef:"),
        "fieldPath: \"metadata.labels['jobset.sigs.k8s.io/restart-attempt']\"",
        'value: "train-workers-0-0.train:8476"',
    }


def test_names_special_in_yaml_are_quoted() -> None:
    for name in ("yes", "no", "on", "null", "true", "y", "n", "1", "a: b", "#"):
        assert yaml.safe_load(f"x: {kubernetes.format_scalar(name)}") == {"x": name}


# --- TPUs of GKE ---

TPUS = JOB.copy_with(tpu="tpu-v6e-slice:4x4", num_hosts=8, slices=2)


def jobs_of(submission: Submission) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec of a JobSet, and its Jobs' entry."""
    manifest = yaml.safe_load(emit("jobset", submission))
    check_jobset(manifest)
    (workers,) = manifest["spec"]["replicatedJobs"]
    pool = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert manifest["metadata"]["annotations"] == pool
    return manifest["spec"], workers


def test_tpu_slices_become_replicas() -> None:
    spec, workers = jobs_of(TPUS)
    job = workers["template"]["spec"]
    assert (workers["replicas"], job["completions"], job["parallelism"]) == (2, 4, 4)
    assert spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    pod = job["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert "securityContext" not in pod and "securityContext" not in container
    assert "--slices" not in container["command"] and "--tpu" not in container["command"]


def test_pods_are_counted_over_slices() -> None:
    """By the labels and annotations that JobSet and the Job controller give them."""
    _, workers = jobs_of(TPUS)
    (container,) = workers["template"]["spec"]["template"]["spec"]["containers"]
    found = []
    for index in range(8):
        of_pod = {
            "metadata.labels['jobset.sigs.k8s.io/job-index']": str(index // 4),
            "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index % 4),
            "metadata.labels['jobset.sigs.k8s.io/restart-attempt']": "0",
        }
        variables = environment(container["env"], {}, of_pod.__getitem__)
        assert variables["MCJAX_NUM_HOSTS"] == "8"
        assert variables["MCJAX_COORDINATOR"] == "train-workers-0-0.train:8476"
        found.append(kinds.parse_host_rank(variables["MCJAX_HOST_RANK"]))
    assert found == list(range(8))


def test_single_tpu_slice_is_one_job() -> None:
    """Its Job counts its pods."""
    spec, workers = jobs_of(TPUS.copy_with(slices=1, num_hosts=4))
    assert "restartStrategy" not in spec["failurePolicy"]
    assert workers["replicas"] == 1
    assert "MCJAX_HOST_RANK" not in yaml.dump(workers)


def test_chips_per_host_follow_from_the_topology() -> None:
    chips = {
        ("tpu-v5-lite-podslice:2x4", 1, 1): 8,
        ("tpu-v5-lite-podslice:2x4", 2, 1): 4,
        ("tpu-v4-podslice:2x2x4", 8, 2): 4,
        ("tpu7x:1x1", 1, 1): 1,
    }
    assert {given: kubernetes.parse_tpus(*given).chips for given in chips} == chips


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("job", {}, "--tpu needs --emit jobset"),
        ("slurm", {}, "--tpu needs --emit jobset"),
        ("jobset", {"tpu": "v6e"}, "--tpu v6e: write TYPE:TOPOLOGY, as in tpu-v6e-slice:4x4"),
        ("jobset", {"tpu": "v6e:4"}, "write TYPE:TOPOLOGY"),
        ("jobset", {"num_hosts": 1, "slices": 1}, "16 chips on 1 host of each slice, but a host "),
        ("jobset", {"num_hosts": 5, "slices": 1}, "16 chips on 5 hosts of each slice"),
        ("jobset", {"num_hosts": 7}, "--slices 2: 7 hosts cannot be split into 2 equal slices"),
        ("jobset", {"gpus_per_process": 1}, "--tpu cannot be combined with --gpus-per-process"),
    ],
)
def test_tpus_that_do_not_fit_are_refused(kind: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchError) as refused:
        emit(kind, TPUS.copy_with(**changes))
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["1*4", "1+4*3", "*", "1*4+", "-1", "1*4+3+2", ""])
def test_invalid_host_rank_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        kinds.parse_host_rank(text)


def test_longest_names_are_accepted() -> None:
    """JobSet's webhook counts a suffix; a Job's pods are hosts called so, without one."""
    emit("jobset", JOB.copy_with(name="a" * 45))
    lone = JOB.copy_with(max_restarts=0)
    emit("job", lone.copy_with(name="a" * 61))
    with pytest.raises(LaunchError, match=rf"name of a pod \({'a' * 62}-1\)"):
        emit("job", lone.copy_with(name="a" * 62))


# --- what becomes of a pod's end, by the rules of the Job controller and of JobSet's ---

DRAINED = {"type": "DisruptionTarget", "status": "True"}
ENDS: list[tuple[int, list[dict[str, str]], str | None, str | None]] = [
    (1, [], "BackoffLimitExceeded", "RestartJobSet"),
    (134, [], "BackoffLimitExceeded", "RestartJobSet"),
    (2, [], "PodFailurePolicy", "FailJobSet"),
    (126, [], "PodFailurePolicy", "FailJobSet"),
    (127, [], "PodFailurePolicy", "FailJobSet"),
    (143, [DRAINED], "PodFailurePolicy", "RestartJobSetAndIgnoreMaxRestarts"),
    (2, [DRAINED], "PodFailurePolicy", "RestartJobSetAndIgnoreMaxRestarts"),
    (143, [{**DRAINED, "status": "False"}], "BackoffLimitExceeded", "RestartJobSet"),
]


def ended(code: int, conditions: list[dict[str, str]], container: str) -> dict[str, Any]:
    terminated = {"name": container, "state": {"terminated": {"exitCode": code}}}
    status = {"containerStatuses": [terminated], "conditions": conditions}
    return {"metadata": {"name": "p-0-abcde", "namespace": "ns"}, "status": status}


@pytest.mark.parametrize(("code", "conditions", "reason", "action"), ENDS)
def test_failed_pod_of_a_jobset_follows_the_policy(
    code: int, conditions: list[dict[str, str]], reason: str, action: str
) -> None:
    spec = yaml.safe_load(emit("jobset", JOB))["spec"]
    (workers,) = spec["replicatedJobs"]
    job = workers["template"]["spec"]
    name = job["template"]["spec"]["containers"][0]["name"]
    failure = job_failure(job, 1, *verdict(job, ended(code, conditions, name)))
    assert failure is not None and failure[0] == reason
    assert jobset_action(spec["failurePolicy"], *failure) == action


@pytest.mark.parametrize(
    ("code", "conditions", "is_"),
    [(1, [], "Count"), (2, [], "FailJob"), (127, [], "FailJob"), (143, [DRAINED], "Ignore")],
)
def test_failed_pod_of_a_job_follows_the_policy(
    code: int, conditions: list[dict[str, str]], is_: str
) -> None:
    _, job = yaml.safe_load_all(emit("job", JOB.copy_with(max_restarts=0)))
    assert verdict(job["spec"], ended(code, conditions, "main"))[0] == is_
