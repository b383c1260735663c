"""--profile: a trace of each rank."""

import gzip
import json
from pathlib import Path

from jobs import Jobs

# Works for a second after both ranks are being traced.
PROGRAM = """
import sys, time
from pathlib import Path
import jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize()
rank = jax.process_index()
if "quick" in sys.argv:
    sys.exit()
own, began = Path(sys.argv[1], str(rank)), None
while process_allgather(began is None or time.monotonic() < began + 1).any():
    with jax.profiler.TraceAnnotation(f"step of {rank}"):
        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    if began is None and own.is_dir():
        began = time.monotonic()
"""


def test_each_rank_is_traced(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    traces = tmp_path / "traces"
    options = ["-n", 2, "-d", 1, "--profile", "traces@0"]
    ended = jobs.run(*options, "program.py", "traces", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    assert f"profile of ranks 0-1: {traces}/RANK (" in ended.report
    for rank in range(2):
        [found] = (traces / str(rank)).glob("plugins/profile/*/*.trace.json.gz")
        with gzip.open(found) as file:
            names = {event.get("name") for event in json.load(file)["traceEvents"]}
        assert f"step of {rank}" in names


def test_profile_of_a_program_that_ends_too_early_is_reported_missing(
    jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["-n", 1, "-d", 1, "--profile", f"{tmp_path}/traces@1h"]
    ended = jobs.run(*options, "program.py", "quick", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    why = "the program ended within 3600 s; --profile DIR@D begins sooner"
    assert ended.report.endswith(f"no profile of rank 0 in {tmp_path}/traces: {why}")


def test_folder_that_cannot_be_written_is_reported(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("own.is_dir()", "True"))
    (tmp_path / "file").write_text("")
    options = ["-n", 1, "-d", 1, "--profile", "file/traces@0"]
    ended = jobs.run(*options, "program.py", "traces", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    assert f"no profile of rank 0 in {tmp_path}/file/traces: " in ended.report
