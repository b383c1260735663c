"""A hang is shown while it lasts; here after seconds, not half a minute."""

import re
from pathlib import Path
from subprocess import STDOUT

import pytest
from jobs import PROGRAMS, Jobs
from rows import rows

# So soon an import that forks wait for is told of as well.
pytestmark = pytest.mark.afresh
SOON = {"MCJAX_TEST_TIME_SCALE": "0.1"}
SOURCE = (PROGRAMS / "hanging.py").read_text().splitlines()


def at(code: str) -> str:
    """Where the program has a line of code that contains this, the first time."""
    return f"hanging.py:{next(n for n, line in enumerate(SOURCE, 1) if code in line)}"


SAVE, LOAD = at('("save"'), f"in load_batch at {at('time.sleep(')}"
WITHOUT = at('("without it")')


PLACES = [
    ("initialize", f"has not called initialize(), {LOAD}", f"in initialize() at {at('initialize()')}"),
    ("train", LOAD, f"in jit(step) at {at('= step(x)')}"),
    ("barrier", LOAD, f"at the barrier 'save' at {SAVE}"),
    ("left", f"waits in shutdown at {at('distributed.shutdown()')}", f"in sync_global_devices at {WITHOUT}"),
    ("uneven", LOAD, "in JAX's exit barrier"),
]  # fmt: skip


@pytest.mark.parametrize(("way", "late", "waits"), rows(PLACES, *PLACES[:3]))
def test_places_of_all_ranks_are_shown(jobs: Jobs, way: str, late: str, waits: str) -> None:
    how = {"cwd": PROGRAMS, "env": SOON, "stderr": STDOUT}
    running = jobs.start("-n", 2, "-d", 1, "hanging.py", way, 100, **how)  # type: ignore[arg-type]
    text = running.read_until("nothing has moved for ") + running.read_until("\n", 3)
    running.kill_now()
    running.finish()
    places = [re.sub(r",? \(?(after )?program \d+.*", "", line) for line in text.splitlines()[-2:]]
    assert sorted(places) == [
        f"mcjax-launch:   rank 0 waits {waits}",
        f"mcjax-launch:   rank 1 {late}",
    ]


@pytest.mark.timeout(660)
def test_slow_callback_ends_nothing(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 2, "-d", 1, "hanging.py", "callback", 5, cwd=PROGRAMS, env=SOON, limit=600
    )
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("done") == 2


def test_silent_job_is_shown_at_most_once_at_each_place(jobs: Jobs) -> None:
    """All ranks load; they step in a thread; one serves after the end of the other."""
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", "unhurried", 4, cwd=PROGRAMS, env=SOON)
    assert ended.status == 0, ended.stderr
    shown = [line for line in ended.report.splitlines() if line.startswith("  rank")]
    assert len(set(shown)) == len(shown) <= 2


@pytest.mark.long
def test_rank_absent_from_the_first_collective_is_named(jobs: Jobs) -> None:
    """The other fails after half a minute, in what sets their communication up."""
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", "first", 100, cwd=PROGRAMS, limit=120)
    assert ended.status == 1
    # And "; it was in load_batch at ...", if there was time to ask it.
    did = "rank 1 did not reach a collective in which others gave up waiting"
    assert any(line.partition(";")[0] == did for line in ended.report.splitlines()), ended.stderr
    assert "Gloo context" not in ended.report


@pytest.mark.long
def test_stuck_rank_is_found_while_another_spins(jobs: Jobs) -> None:
    """jax-ml/jax 38503: nothing of JAX's own ends such a job."""
    options = ["-n", 2, "--max-restarts", 1, "--grace", "1", "--stall-timeout", 15]
    ended = jobs.run(*options, "spinning.py", cwd=PROGRAMS, env=SOON, limit=250)
    assert ended.status == 0, ended.stderr
    assert "--stall-timeout: no rank has printed, launched or compiled for 15 s" in ended.report
    assert ended.stdout.count("step 4 done") == 4
    assert ended.stdout.count("step 9 done") == 2
    assert "rank 1 is at spinning.py:" in ended.report
    assert "; rank 0 waits for it " in ended.report


DESERTED = """
import sys, jax
jax.distributed.initialize()
from jax._src import distributed
client = distributed.global_state.client
for name in ("a", "b", "b"):
    client.wait_at_barrier(name, 60_000)
if jax.process_index() != 1:
    client.wait_at_barrier("save", int(sys.argv[1]))
"""


@pytest.mark.every_jax
def test_barrier_that_a_finished_rank_never_reaches_ends_the_job(
    jobs: Jobs, tmp_path: Path
) -> None:
    """But not one at which a rank waits so briefly that it may go on alone."""
    (tmp_path / "t.py").write_text(DESERTED)
    ended = jobs.run("-n", 2, "-d", 1, "--grace", 1, "t.py", 600_000, cwd=tmp_path)
    said = "rank 1 finished without reaching the barrier 'save', where rank 0 waits at t.py:9\n"
    assert (ended.status, said in ended.report) == (1, True), ended.report
    ended = jobs.run("-n", 2, "-d", 1, "--grace", 1, "t.py", 100, cwd=tmp_path)
    assert said not in ended.report
