"""--emit for Kubernetes: manifests of a job in pods, with a launcher in each pod; pure."""

import json
import math
import re
from dataclasses import dataclass
from os.path import splitext
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.emit import template
from mcjax_launch.features.emit.submission import Submission
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_count

# --- TPU slices ---

_WRITTEN = r"([a-z0-9][a-z0-9-]{0,62}):([1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2})"
# Chips that a host may have, over all generations.
_ON_A_HOST = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Tpus:
    """TPU slices of the same type and topology.

    Args:
        accelerator: type of the slices, as in GKE's node labels, such as tpu-v6e-slice.
        topology: topology of each slice, such as 4x4.
        slices: number of slices.
        chips: number of chips on each host.

    """

    accelerator: str
    topology: str
    slices: int
    chips: int


def parse_tpus(text: str, hosts: int, slices: int) -> Tpus:
    """Parse `--tpu TYPE:TOPOLOGY`.

    Args:
        text: value of --tpu.
        hosts: number of hosts of all slices together.
        slices: number of slices.

    Raises:
        LaunchError: the text cannot be read, or does not fit the hosts.

    """
    written = re.fullmatch(_WRITTEN, text)
    if not written:
        raise LaunchError(f"--tpu {text}: write TYPE:TOPOLOGY, as in tpu-v6e-slice:4x4")
    if hosts % slices:
        raise LaunchError(
            f"--slices {slices}: {format_count(hosts, 'host')} cannot be split into {slices} equal "
            "slices; --num-hosts counts the hosts of all slices"
        )
    whole = math.prod(map(int, written[2].split("x")))
    chips, rest = divmod(whole, hosts // slices)
    if rest or chips not in _ON_A_HOST:
        raise LaunchError(
            f"--tpu {text}: {format_count(whole, 'chip')} on "
            f"{format_count(hosts // slices, 'host')} of each slice, but a host has 1, 2, 4 or 8; "
            "set --num-hosts to the hosts of all slices"
        )
    return Tpus(accelerator=written[1], topology=written[2], slices=slices, chips=chips)


# --- manifests ---

_PORT = 8476  # as in the templates
# The last pod may start this much after the first, as a node pool grows or a large image is pulled.
_PATIENCE_S = 1800
_EACH_ITS_OWN = "each pod has its own launcher"
# Time for the launcher beyond its ranks' grace, to end them and print the summary.
_TERMINATION_MARGIN_S = 15
# JobSet counts this for the random end of a pod's name; a Job's pod names are cut to fit.
_SUFFIX = "-abcde"


def build_manifest(submission: Submission) -> str:
    """Return a manifest as YAML: a Job and its Service, or a JobSet, which can restart all pods.

    Raises:
        LaunchError: pods cannot run the job, or Kubernetes would refuse the names of pods.

    """
    _check_for_pods(submission)
    tpus = _parse_tpu_option(submission)
    slices = tpus.slices if tpus else 1
    pods = submission.num_hosts // slices
    name = submission.name
    first, last = f"{name}-0", f"{name}-{pods - 1}"
    if submission.emit == "jobset":
        first, last = (
            f"{name}-workers-0-0",
            f"{name}-workers-{slices - 1}-{pods - 1}{_SUFFIX}",
        )
    _check_name(name, last)
    given, patience = _choose_start_timeout(submission)
    done_here = (
        {"max_restarts", "slices"} if tpus else {"max_restarts"}
    )  # slices: as JAX finds them
    deadline = None
    if submission.attempt_s is not None:  # the launchers' own --timeout comes first
        deadline = math.ceil(submission.attempt_s + patience + _TERMINATION_MARGIN_S)
    values = {
        "name": name,
        "namespace": submission.namespace,
        "image": submission.image,
        "command": _escape_command(["mcjax-launch", *given, *submission.make_arguments(done_here)]),
        "coordinator": f"{first}.{name}:{_PORT}",
        "hosts": submission.num_hosts,
        "ranks": submission.procs_per_host,
        "pods": pods,
        "slices": slices,
        "several_slices": slices > 1,
        "max_restarts": submission.max_restarts,
        "deadline": deadline,
        "grace": math.ceil(submission.grace) + _TERMINATION_MARGIN_S,
        "gpus": submission.gpus or None,
        "chips": tpus and tpus.chips,
        "devices": tpus or submission.gpus,
        "tpus": tpus,
        "accelerator": tpus and tpus.accelerator,
        "topology": tpus and tpus.topology,
    }
    scalars = {name: _format_scalars(value) for name, value in values.items()}
    return template.fill(template.read(f"{submission.emit}.yaml"), scalars)


def _check_for_pods(submission: Submission) -> None:
    """Refuse options that a launcher in a pod cannot use."""
    kind, sync, path = submission.emit, submission.sync, declared.get(submission, "report")
    for wrong, why in (
        (declared.get(submission, "stdin"), "pods have no standard input; leave out --stdin"),
        (declared.get(submission, "pdb"), "pods have no terminal; leave out --pdb"),
        (declared.get(submission, "mtls") == "on", f"{_EACH_ITS_OWN}; leave out --mtls on"),
        (
            sync,
            "pods do not have this machine's files; leave out --sync, and put "
            f"{', '.join(sync)} into the image or on a volume",
        ),
        (
            submission.env_file,
            "pods do not have this machine's files; leave out --env-file, and set the variables in "
            "the manifest, from a Secret",
        ),
        (
            submission.engine_option,
            "--engine-option is for batch scripts; change the manifest with kubectl patch or "
            "kustomize",
        ),
        (
            kind == "job" and submission.max_restarts,
            "a Job cannot restart all its pods together; use --emit jobset",
        ),
    ):
        if wrong:
            raise LaunchError(f"--emit {kind}: {why}")
    if not submission.image:
        raise LaunchError(f"--emit {kind} needs --image: an image with mcjax-launch and JAX")
    if path is not None and submission.num_hosts > 1 and "{host}" not in path:
        raise LaunchError(
            f"--emit {kind}: {_EACH_ITS_OWN}, which writes its own report; use {{host}} in the "
            f"name, on a volume: --report '/shared/{{host}}{splitext(path)[1]}'"
        )


def _parse_tpu_option(submission: Submission) -> Tpus | None:
    """Return the slices that --tpu requests; None without --tpu.

    Raises:
        LaunchError: --tpu is invalid, or combined with --gpus-per-process.

    """
    if submission.tpu is None:
        return None
    if submission.gpus:
        raise LaunchError("--tpu cannot be combined with --gpus-per-process")
    slices = submission.slices if isinstance(submission.slices, int) else 1
    return parse_tpus(submission.tpu, submission.num_hosts, slices)


def _choose_start_timeout(submission: Submission) -> tuple[list[str], float]:
    """Return words of --start-timeout to add, and the seconds in which all pods must start.

    There are no words if the user has given the option, or with --no-hook.
    """
    if submission.no_hook or "start_timeout" in submission.given:
        return [], submission.start_timeout or _PATIENCE_S
    return ["--start-timeout", f"{_PATIENCE_S // 60}m"], _PATIENCE_S


def _check_name(name: str, last_pod: str) -> None:
    """Refuse a --name that Kubernetes would accept, to fail at the first pod."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(last_pod) > 63:
        raise LaunchError(
            f"--name {name}: use a-z, 0-9 and '-', a letter first, and at most 63 characters in "
            f"the name of a pod ({last_pod})"
        )


def _escape_command(words: list[str]) -> list[str]:
    """Double each `$` of a command, because Kubernetes expands $(NAME) and turns $$ into $."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise LaunchError(f"{word}: not UTF-8, so it cannot be in a manifest") from None
    return [word.replace("$", "$$") for word in words]


def _format_scalars(value: Any) -> Any:
    """Convert a text, or each text of a list, to a YAML scalar; return other values unchanged."""
    if isinstance(value, list):
        return [format_scalar(text) for text in value]
    return format_scalar(value) if isinstance(value, str) else value


def format_scalar(text: str) -> str:
    """Return a text as a YAML scalar on one line: plain if that is safe, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z/][\w./-]*", text, re.ASCII)
    if plain and text.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return text
    return f'"{"".join(map(_escape_char, text))}"'


def _escape_char(char: str) -> str:
    """Escape a character for a YAML text in double quotes: as in JSON, with two exceptions."""
    if char > "\uffff":
        return f"\\U{ord(char):08x}"  # JSON would write two surrogates, which YAML refuses
    return f"\\x{ord(char):02x}" if char == "\x7f" else json.dumps(char)[1:-1]
