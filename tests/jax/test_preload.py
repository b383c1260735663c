"""--preload with JAX: a forked rank is what any other rank is, only sooner."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs

# Of each job its own.
OF_A_JOB = {"JAX_COORDINATOR_ADDRESS", "MCJAX_JOB_ID"}
OF_A_JOB |= {f"MCJAX_HOOK_{name}" for name in ("SOCKET", "BIND", "COORDINATOR")}
# What an import of jax leaves, which a forked rank sees before its own import. (Of the signals it
# is one that the C library keeps for itself from the first thread on.)
LEFT_BY_THE_IMPORT = {
    ("before", "environment", "TF_CPP_MIN_LOG_LEVEL"),
    ("before", "environment", "TPU_SKIP_MDS_QUERY"),
    ("before", "process", "status", "SigCgt"),
    ("before", "process", "status", "SigIgn"),
    ("before", "python", "atexit"),
    ("before", "python", "finders"),
    ("before", "python", "warnings"),
}
# OpenBLAS ends its thread before a fork, and starts it again when it is used.
BY_OPENBLAS = ("after", "process", "status", "Threads")
NOT_JOINED = (
    "no rank called jax.distributed.initialize(): these ran as 2 separate single-process jobs"
)


def portraits(jobs: Jobs, *options: object) -> list[dict[str, Any]]:
    """What each of two ranks sees of itself."""
    words = ["-n", 2, "-d", 2, "--no-prefix", "-x", "PYTHONHASHSEED=7", *options]
    ended = jobs.run(*words, PROGRAMS / "self_portrait.py", "of {process_id}", "{host}")
    assert (ended.status, ended.report) == (0, NOT_JOINED), ended.stderr
    seen = [json.loads(line) for line in ended.stdout.splitlines()]
    return sorted(seen, key=lambda one: one["before"]["environment"]["JAX_PROCESS_ID"])


def differences(one: Any, other: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {*one, *other} - OF_A_JOB:
            yield from differences(one.get(name), other.get(name), (*at, name))
    elif one != other:
        yield at


@pytest.mark.parametrize("options", [[], ["--stdin", "1", "--verify-spmd"]])
def test_a_forked_rank_sees_what_a_fresh_one_sees(jobs: Jobs, options: list[str]) -> None:
    fresh, forked = portraits(jobs, *options), portraits(jobs, "--preload", "jax", *options)
    numbers = []
    for one, other in zip(fresh, forked, strict=True):
        before, more = set(one.pop("modules")), set(other.pop("modules"))
        mine, its = one.pop("random"), other.pop("random")
        assert set(differences(one, other)) - {BY_OPENBLAS} <= LEFT_BY_THE_IMPORT
        assert before <= more and not {"jax", "jax.numpy"} & more
        assert all(mine[name] != its[name] for name in mine)
        numbers.append(its)
    assert all(numbers[0][name] != numbers[1][name] for name in numbers[0])
