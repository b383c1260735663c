"""Restarts of a job by its scheduler; pure."""

from collections.abc import Mapping


def restarts_before(environ: Mapping[str, str]) -> int:
    """How often a scheduler has started the job again: a JobSet, or Slurm with --requeue."""
    for name in ("MCJAX_ENGINE_RESTART", "SLURM_RESTART_COUNT"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return 0
