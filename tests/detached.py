"""Start detached jobs and wait for what becomes of them."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from jobs import Ended, Jobs, eventually

from mcjax_launch.features.detached.commands import collect_fields
from mcjax_launch.features.detached.jobs import find_all_jobs

#: Prints lines of its rank, and one more for each file `more` that comes; ends with `end`'s number.
PROGRAM = """
import os, sys, time
from pathlib import Path
rank = os.environ["JAX_PROCESS_ID"]
for number in range(int(sys.argv[1]) if sys.argv[1:] else 1):
    print(f"rank {rank} line {number}", flush=True)
end = Path("end")
while not end.exists() or not end.read_text():
    time.sleep(0.02)
print("ends", flush=True)
sys.exit(int(end.read_text()))
"""


class DetachedJobs:
    """Detached jobs in a state folder of their own.

    Args:
        jobs: starts launchers.

    """

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.folder = Path(os.environ["XDG_STATE_HOME"]) / "mcjax-launch" / "jobs"

    def start(self, *args: object, **how: Any) -> str:
        """Start a job; its id."""
        ended = self.jobs.run("--detach", *args, **how)
        assert ended.status == 0, ended.stderr
        assert ended.stdout.count("\n") == 1 and not ended.stderr, (ended.stdout, ended.stderr)
        return ended.stdout.strip()

    def program(self, tmp_path: Path, *args: object, ranks: int = 2, **how: Any) -> str:
        """Start PROGRAM in a folder, in which the file `end` ends it; the job's id."""
        (tmp_path / "program.py").write_text(PROGRAM)
        return self.start("-n", ranks, "program.py", *args, cwd=tmp_path, **how)

    def attach(self, *args: object, **how: Any) -> Ended:
        """Return to a job until it ends."""
        return self.jobs.run("--attach", *args, **how)

    def listed(self) -> list[dict[str, Any]]:
        """What --jobs --json says, without a process for it."""
        return list(map(collect_fields, find_all_jobs()))

    def one(self, job_id: str) -> dict[str, Any]:
        """What it says of one job."""
        return next(job for job in self.listed() if job["id"] == job_id)

    def await_line(self, job_id: str, line: str) -> None:
        """Wait until a job has printed this line last."""
        eventually(lambda: self.one(job_id)["last_line"] == line)

    def kill(self) -> None:
        """Kill the launchers that still run, and with them all that they have started."""
        for job in self.listed():
            if job["state"] == "running":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job["launcher_pid"], signal.SIGKILL)
        with contextlib.suppress(AssertionError):  # which the check for leftovers reports
            eventually(lambda: not self.jobs.left(), 10)
