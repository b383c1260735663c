"""Missing arguments of PROGRAM: filled in, or advised after a failure. There is no option."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.journal.attempt import JobOutcome
    from mcjax_launch.options.features import Where

# Texts in the message of a job whose program got too few arguments, and what may be missing.
_TOO_FEW = (
    *("IndexError", "not enough values to unpack", "exit status 2", "sys.exit(2)"),
    *("invalid literal for int()", "Missing mandatory value", "is not in struct"),
)
_COORDINATES = "{process_id}, {num_processes} and {coordinator}"


def complete(job: Job, where: Where) -> Job:
    """Add the missing arguments that PROGRAM passes to initialize(), and print the new command.

    If it is unclear which are missing, the job gets a function that finds a command for hints.
    """
    from mcjax_launch.features.arguments import coordinates

    program = coordinates.complete_program(job)
    if not program:
        suggest = functools.partial(coordinates.suggest_program, job)
        return job.copy_with(suggest_program=functools.cache(suggest))
    shown = " ".join(("-m", *program) if job.module else program)
    name = coordinates.find_program_name(job)
    where.note(f"{name} takes its coordinates from its arguments: running {shown}")
    return job.copy_with(program=program)


def advise(job: Job, outcome: JobOutcome, words: Sequence[str]) -> Iterator[str]:
    """Yield a hint about missing arguments of a program that has failed."""
    from mcjax_launch.features.arguments import coordinates

    if not outcome.failed_early or not any(mark in outcome.message for mark in _TOO_FEW):
        return
    if program := job.suggest_program():
        import shlex

        line = shlex.join(["mcjax-launch", *words])
        name = coordinates.find_program_name(job)
        yield f"hint: {name} needs arguments: {line} {' '.join(program)}"
    elif coordinates.reads_coordinates(job):
        yield f"hint: in PROGRAM's arguments, {_COORDINATES} are replaced by each rank's own"
