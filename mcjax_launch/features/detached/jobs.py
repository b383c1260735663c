"""Detached jobs of this user: their states, search by id, removal of old jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached import record
from mcjax_launch.features.detached.folders import is_starting, iterate_job_folders, remove_folder
from mcjax_launch.features.detached.output import read_last_line
from mcjax_launch.wire import exit_status

RUNNING, ENDED, LOST = "running", "ended", "lost"
# So many ended jobs are kept: a failure may be read later.
_MOST_KEPT = 40


class DetachedJob:
    """Detached job, as read from its folder.

    Args:
        folder: path of the job's folder.
        description: the job's unchanging facts.

    """

    def __init__(self, folder: str, description: record.Description) -> None:
        self.folder, self.description = folder, description
        self.id = description.id
        self.is_here = description.host == record.identify_machine()[0]

    @cached_property
    def end(self) -> record.JobEnd | None:
        """End of the job; None if it runs."""
        is_running = not self.is_here or not record.wait_for_launcher(self.folder)
        end = record.read_end(self.folder)  # behind the lock
        if end is not None or is_running:
            return end
        why = "its launcher was killed, or this machine was restarted"
        return record.JobEnd(exit_status.HOST_LOST, why, self.description.since)

    @property
    def state(self) -> str:
        """RUNNING, ENDED, or LOST if the launcher ended without writing the job's end."""
        if self.end is None:
            return RUNNING
        return LOST if record.read_end(self.folder) is None else ENDED

    @property
    def last_line(self) -> str:
        """Last line that a rank or the launcher has printed; "" if there is none."""
        return read_last_line(self.folder)

    def wait(self, limit_s: float | None) -> DetachedJob:
        """Wait until the launcher has ended, or `limit_s` is over; return the job as it is then."""
        record.wait_for_launcher(self.folder, limit_s)
        return DetachedJob(self.folder, self.description)

    @property
    def is_reachable(self) -> bool:
        """True if the launcher runs, and its process id is valid here."""
        return self.end is None and record.signal_launcher(self.description, 0)

    def signal(self, signum: int, action: str) -> None:
        """Send the launcher a signal, unless the job has ended.

        Args:
            signum: number of the signal; 0 only checks that the launcher can be reached.
            action: the option for which, without its dashes.

        Raises:
            LaunchError: the job runs on another machine, or in another PID namespace.

        """
        is_over = self.wait(0.0).end is not None
        if is_over or record.signal_launcher(self.description, signum):
            return
        if self.wait(0.0).end is not None:  # it has ended just now
            return
        host, command = self.description.host, f"mcjax-launch --{action} {self.id}"
        if not self.is_here:
            raise LaunchError(f"job {self.id} runs on {host}: ssh {host} {command}")
        where = f"in another container or PID namespace, as process {self.description.pid} there"
        raise LaunchError(f"job {self.id} runs on {host} {where}: {command} works only there")


def find_all_jobs() -> list[DetachedJob]:
    """Return all jobs, the oldest first, after removing those that ended before the last forty.

    Raises:
        LaunchError: the folder of the jobs cannot be read, or is open to other users.

    """
    jobs = sorted(_iterate_jobs(), key=lambda job: job.description.since)
    old = [job for job in jobs if job.end is not None][:-_MOST_KEPT]
    for job in old:
        remove_folder(job.folder)
    return [job for job in jobs if job not in old]


def _iterate_jobs() -> Iterator[DetachedJob]:
    for folder in iterate_job_folders():
        description = record.read_description(folder)
        if description is not None:
            yield DetachedJob(folder, description)
        elif not is_starting(folder) and record.wait_for_launcher(folder):
            remove_folder(folder)


def find(job_id: str) -> DetachedJob:
    """Return the only job whose id begins with `job_id`; "": the running job started last, or any.

    Raises:
        LaunchError: no id, or more than one, begins with it.

    """
    jobs = find_all_jobs()
    found = [job for job in jobs if job.id.startswith(job_id)]
    if not job_id and found:
        return _choose_latest(found)
    if len(found) == 1:
        return found[0]
    ids = ", ".join(job.id for job in (found or jobs)[-_MOST_KEPT:])
    if found:
        raise LaunchError(f"{job_id}: several job ids begin with that: {ids}")
    if not job_id:
        raise LaunchError("there is no detached job: mcjax-launch --detach PROGRAM starts one")
    there_are = f"there are {ids}" if jobs else "there is none"
    raise LaunchError(f"{job_id}: no such detached job; {there_are}")


def _choose_latest(jobs: Sequence[DetachedJob]) -> DetachedJob:
    jobs = [job for job in jobs if job.is_here] or jobs
    return ([job for job in jobs if job.state == RUNNING] or jobs)[-1]
