"""Detached jobs of this user: their states, search by id, removal of old jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import cached_property

from mcjax_launch.detached import output_files
from mcjax_launch.detached.folders import iterate_job_folders, remove_folder
from mcjax_launch.detached.record import (
    Description,
    JobState,
    identify_machine,
    is_locked,
    read_description,
    read_state,
)
from mcjax_launch.errors import LaunchError
from mcjax_launch.wire import exit_status

RUNNING, ENDED, LOST = "running", "ended", "lost"
_DAY_S = 86400.0
# Ended jobs are kept for so long, at most so many of each kind: a failure may be read later.
_SUCCESSES_S, _FAILURES_S, _MOST_KEPT = 7 * _DAY_S, 30 * _DAY_S, 20
# A folder without a description belongs to a job that is just being started, or to none.
_STARTING_S = 3600.0
# What a killed launcher takes to give up its lock, when its connections are gone.
_END_S, _LOOK_S = 5.0, 0.05
_TAIL_BYTES = 1 << 16


class DetachedJob:
    """Detached job, as read from its folder.

    Args:
        folder: path of the job's folder.
        description: the job's unchanging facts.

    """

    def __init__(self, folder: str, description: Description) -> None:
        self.folder, self.description = folder, description
        self.host, self._boot = identify_machine()

    def read_again(self) -> DetachedJob:
        """Return the job as its folder is now."""
        return DetachedJob(self.folder, self.description)

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.description.id

    @property
    def is_here(self) -> bool:
        """True if the job's launcher was started on this machine."""
        return self.description.host == self.host

    @cached_property
    def has_launcher(self) -> bool:
        """True if the job's launcher still runs on this machine, if only to write last events."""
        return self.is_here and is_locked(self.folder)

    @cached_property
    def recorded(self) -> JobState:
        """State that the job's launcher wrote last."""
        return read_state(self.folder)

    @cached_property
    def state(self) -> str:
        """RUNNING, ENDED, or LOST if the launcher ended without writing the job's end."""
        is_running = not self.is_here or self.has_launcher
        if self.recorded.exit_status is not None:  # read behind the lock
            return ENDED
        return RUNNING if is_running else LOST

    @property
    def exit_status(self) -> int | None:
        """Exit status of the job; None while it runs."""
        if self.state == RUNNING:
            return None
        status = self.recorded.exit_status
        return exit_status.HOST_LOST if status is None else status

    @property
    def ended_at(self) -> float:
        """Time of the job's end, else of its last output, in seconds since the epoch."""
        if self.recorded.at:
            return self.recorded.at
        numbers = output_files.list_file_numbers(self.folder)
        paths = [output_files.get_file_path(self.folder, number) for number in numbers[-1:]]
        times = [os.stat(path).st_mtime for path in paths if os.path.exists(path)]
        return max([self.description.since, *times])

    @property
    def end(self) -> str:
        """Words for the user on how the job ended."""
        if self.state == ENDED:
            return self.recorded.message
        why = "its launcher was killed"
        if not self._boot:
            why += ", or this machine was restarted"
        elif self.description.boot != self._boot:
            why = "this machine was restarted while the job ran"
        return f"{why}, and nothing of the job is left"

    @cached_property
    def last_line(self) -> str:
        """Last line that a rank or the launcher has printed; "" if there is none."""
        for number in reversed(output_files.list_file_numbers(self.folder)):
            if line := _read_last_line(self.folder, number):
                return line
        return ""


def _read_last_line(folder: str, number: int) -> str:
    try:
        fd = output_files.open_to_read(folder, number)
    except OSError:
        return ""
    with open(fd, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().replace(b"\r", b"\n").split(b"\n")
    texts = (line.decode("utf-8", "replace").strip() for line in reversed(lines))
    return next(filter(None, texts), "")


def find_all_jobs() -> list[DetachedJob]:
    """Return all jobs, the oldest first, after removing jobs that ended long ago.

    Raises:
        LaunchError: the folder of the jobs cannot be read, or is open to other users.

    """
    jobs = sorted(_iterate_jobs(), key=lambda job: job.description.since)
    over = [job for job in jobs if job.state != RUNNING and not job.has_launcher]
    over.sort(key=lambda job: job.ended_at, reverse=True)
    old = _list_old([job for job in over if job.exit_status == 0], _SUCCESSES_S)
    old += _list_old([job for job in over if job.exit_status != 0], _FAILURES_S)
    # Whether a job of another machine still runs is not known here.
    old += [
        job
        for job in jobs
        if job.state == RUNNING and not job.is_here and job.ended_at < time.time() - _SUCCESSES_S
    ]
    for job in old:
        remove_folder(job.folder)
    return [job for job in jobs if job not in old]


def _list_old(jobs: Sequence[DetachedJob], kept_s: float) -> list[DetachedJob]:
    """Return the jobs, of which the latest comes first, that are not kept any more."""
    oldest = time.time() - kept_s
    return [job for place, job in enumerate(jobs) if place >= _MOST_KEPT or job.ended_at < oldest]


def _iterate_jobs() -> Iterator[DetachedJob]:
    for folder in iterate_job_folders():
        description = read_description(folder)
        if description is not None:
            yield DetachedJob(folder, description)
        elif _is_stale(folder):
            remove_folder(folder)


def _is_stale(folder: str) -> bool:
    """Return whether a folder is left by a launcher that was killed before it had a job."""
    try:
        age_s = time.time() - os.stat(folder).st_mtime
    except OSError:
        return False
    return age_s > _STARTING_S and not is_locked(folder)


def wait_until_settled(job: DetachedJob) -> DetachedJob:
    """Return a job anew after its launcher has hung up, once it ended or a time limit passed."""
    deadline = time.monotonic() + _END_S
    while (job := job.read_again()).state == RUNNING and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return job


def find(job_id: str) -> DetachedJob:
    """Return the only job whose id begins with `job_id`.

    Raises:
        LaunchError: no id, or more than one, begins with it.

    """
    jobs = find_all_jobs()
    found = [job for job in jobs if job.id.startswith(job_id)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(job.id for job in (found or jobs)[-_MOST_KEPT:])
    if found:
        raise LaunchError(f"{job_id}: several job ids begin with that: {ids}")
    there_are = f"there are {ids}" if jobs else "there is none; --detach starts one"
    raise LaunchError(f"{job_id}: no such detached job; {there_are}")


def find_latest() -> DetachedJob:
    """Return the running job that was started last, else the job that was started last.

    Jobs of other machines count only if there are none of this machine.

    Raises:
        LaunchError: there are no detached jobs.

    """
    jobs = find_all_jobs()
    if not jobs:
        raise LaunchError("no detached job: mcjax-launch --detach PROGRAM starts one")
    jobs = [job for job in jobs if job.is_here] or jobs
    running = [job for job in jobs if job.state == RUNNING]
    return (running or jobs)[-1]
