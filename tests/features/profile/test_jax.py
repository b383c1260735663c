"""--profile: traces of all ranks, and one of them all."""

import gzip
import json
import signal
from pathlib import Path

import pytest
from jobs import Jobs, eventually

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


def test_trace_has_the_steps_of_all_ranks(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    traces = tmp_path / "traces"
    options = ["-n", 2, "-d", 1, "--profile", "traces@0"]
    ended = jobs.run(*options, "program.py", "traces", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    whole = f"profile of ranks 0-1: {traces}/trace.json.gz (open it at ui.perfetto.dev)"
    assert whole in ended.report
    for rank in range(2):
        assert list((traces / str(rank)).glob("plugins/profile/*/*.trace.json.gz"))
    assert f"[{rank}]" not in ended.stderr
    [run] = (traces / "plugins" / "profile").iterdir()
    assert sorted(path.name for path in run.iterdir()) == ["rank0.xplane.pb", "rank1.xplane.pb"]
    with gzip.open(traces / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    tracks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {name.split(" /")[0] for name in tracks.values()} == {"rank 0", "rank 1"}
    when = {}
    for rank in range(2):
        steps = [event for event in events if event["name"] == f"step of {rank}"]
        assert steps and all(tracks[e["pid"]].startswith(f"rank {rank} /") for e in steps)
        when[rank] = steps[0]["ts"], steps[-1]["ts"]
    # At the same time: the steps of one lie between those of the other.
    assert when[0][0] < when[1][1] and when[1][0] < when[0][1]


ON_DEMAND = """
import json, sys, time
from pathlib import Path
import jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize()
rank = jax.process_index()
said = Path(sys.argv[1], str(rank), "began.json")
print("ready", flush=True)
while process_allgather(not said.exists() or said.read_text().count("trace.json.gz") < 2).any():
    with jax.profiler.TraceAnnotation(f"step of {rank}"):
        time.sleep(0.01)
"""


def test_sigprof_starts_a_trace(jobs: Jobs, tmp_path: Path) -> None:
    """SIGPROF to the launcher begins one, as often as it comes."""
    (tmp_path / "program.py").write_text(ON_DEMAND)
    traces = tmp_path / "traces"
    options = ["-n", 2, "-d", 1, "--profile", f"{traces}@1h"]
    running = jobs.start(*options, "program.py", traces, cwd=tmp_path)
    running.read_until("ready", 2)
    running.signal(signal.SIGPROF)
    eventually(lambda: len(list(traces.glob("*/began.json"))) == 2)
    running.signal(signal.SIGPROF)
    ended = running.finish()
    assert ended.status == 0, ended.stderr
    for name in ("trace.json.gz", "trace-2.json.gz"):
        assert f"profile of ranks 0-1: {traces / name} (open it at ui.perfetto.dev)" in ended.report
        with gzip.open(traces / name) as file:
            events = {event.get("name") for event in json.load(file)["traceEvents"]}
        assert {"step of 0", "step of 1"} <= events


def test_profile_of_a_program_that_ends_too_early_is_reported_missing(
    jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["-n", 1, "-d", 1, "--profile", f"{tmp_path}/traces@1h"]
    ended = jobs.run(*options, "program.py", "quick", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    why = "the program ended within 3600 s; --profile DIR@D begins sooner"
    assert ended.report.endswith(f"no profile of rank 0 in {tmp_path}/traces; {why}")


OWN_TRACE = """
import signal, sys, time
from pathlib import Path
import jax
from jax.profiler import start_trace, stop_trace
jax.distributed.initialize()
traces, rank = Path(sys.argv[1]), jax.process_index()
own, began = traces / f"own{rank}", traces / str(rank) / "began.json"
if rank == 0:
    start_trace(own)
signal.raise_signal(signal.SIGPROF)
if rank == 0:
    while not began.exists():
        time.sleep(0.01)
    stop_trace()
else:
    state = vars(jax._src.profiler._profile_state)
    while not (state.get("session") or state.get("profile_session")):
        time.sleep(0.01)
    if rank == 1:
        start_trace(own)
        stop_trace()
    else:
        with jax.profiler.trace(own):
            pass
"""


@pytest.mark.every_jax
def test_own_trace_of_the_program_has_precedence(jobs: Jobs, tmp_path: Path) -> None:
    """Rank 0 traces already when a trace is due; the others begin their own during that one."""
    (tmp_path / "program.py").write_text(OWN_TRACE)
    traces = tmp_path / "traces"
    options = ["-n", 3, "-d", 1, "--profile", f"{traces}@1h"]
    ended = jobs.run(*options, "program.py", traces, cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    for rank in range(3):
        assert list(traces.glob(f"own{rank}/plugins/profile/*/*.trace.json.gz"))
    why = "the program began its own trace; --profile DIR@D sets when the launcher's begins"
    assert f"profile of ranks 1-2: {traces}/trace.json.gz (" in ended.report
    assert f"the profile of ranks 1-2 is incomplete: {why}" in ended.report
    assert f"no profile of rank 0 in {traces}; {why}" in ended.report
