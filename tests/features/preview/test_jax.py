"""Ranks that run alone are told what their programs need; nothing that spans processes is run."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import Jobs
from terminal import PROMPT, Terminal

# Fully sharded training, in which a rank has a fault of its own, and a checkpoint by keys.
PROGRAM = """\
import sys, resource
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.multihost_utils import process_allgather, sync_global_devices
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
rank, ranks = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("fsdp", "tp"))
rows = NamedSharding(mesh, P("fsdp"))
make = jax.jit(lambda: jnp.ones((512, 512)), out_shardings=NamedSharding(mesh, P("fsdp", "tp")))

@partial(jax.jit, donate_argnums=0)
def step(w, x):
    return w - 0.01 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

w, given = make(), sys.argv[1:]
for i in range(int(given[1]) if given[1:] else 3):
    batch = np.ones((8, 512), np.float32)
    if given[:1] == ["fault"] and rank == 17:
        batch = batch[:7]
    x = jax.make_array_from_process_local_data(rows, batch, (8 * ranks, 512))
    old, w = w, step(w, x)
    assert old.is_deleted()
    w.block_until_ready()  # collectives of two programs at once end jax 0.6
if given[:1] == ["sizes"]:
    stats = step.lower(w, x).compile().memory_analysis()
    sizes = stats.argument_size_in_bytes, stats.output_size_in_bytes, stats.temp_size_in_bytes
    print("sizes", *sizes, stats.alias_size_in_bytes)
if given[:1] == ["huge"]:
    huge = jax.jit(lambda: jnp.ones((1 << 17, 1 << 17)), out_shardings=rows)()
    total = process_allgather(huge.sum(), tiled=True)
    assert huge.addressable_shards[0].data[5, 5] == 0 == total
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 21, "KiB"
sync_global_devices("end")
print("rank", rank, "of", ranks, "has", jax.local_device_count(), "of", jax.device_count())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def find_line(text: str) -> str:
    """The place of the program's line that has this text."""
    lines = PROGRAM.splitlines()
    return f"program.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


STEP = find_line("old, w = w, step(w, x)")


@pytest.mark.every_jax
def test_memory_is_that_of_the_real_job(jobs: Jobs, program: Path, tmp_path: Path) -> None:
    real = jobs.run("-n", 4, "-d", 2, program, "sizes", limit=120)
    assert real.status == 0, real.stderr
    [told] = set(re.findall(r"sizes (\d+) (\d+) (\d+) (\d+)", real.stdout))
    arguments, outputs, temporaries, aliased = map(int, told)
    file = tmp_path / "report.json"
    options = ["--preview", "0,3", "--report", file]
    alone = jobs.run("-n", 4, "-d", 2, *options, program, "sizes", limit=120)
    assert alone.status == 0, alone.stderr
    assert "rank 3 of 4 has 2 of 8" in alone.stdout
    preview = json.loads(file.read_text())["attempts"][0]["preview"]
    assert "preview of rank 3: the same programs" in preview["lines"]
    programs = preview["ranks"][1]["programs"]
    step = next(each for each in programs if each["name"] == "jit_step")
    assert step["calls"] == 3
    found = step["arguments"], step["outputs"], step["temporaries"]
    assert found == (arguments, outputs - aliased, temporaries)
    axes = {tuple(found["axes"]): found["crossing"] for found in step["collectives"]}
    assert axes[("fsdp",)] > 0


@pytest.mark.every_jax
def test_own_fault_of_a_rank_is_told_with_its_line(jobs: Jobs, program: Path) -> None:
    ended = jobs.run(
        "-n", 64, "-d", 4, "--preview", "0,17", program, "fault", limit=120, cwd=program.parent
    )
    assert ended.status == 1
    assert "rank 0 of 64 has 4 of 256" in ended.stdout
    assert "rank 17 failed: ValueError: Invalid host data" in ended.report
    assert f"{find_line('rows, batch,')} in <module>: x = jax.make_array" in ended.report


def test_program_that_does_not_fit_fails_the_job(jobs: Jobs, program: Path) -> None:
    ended = jobs.run("-n", 4, "-d", 2, "--preview", "--on", "1M", program, cwd=program.parent)
    assert ended.status == 1
    assert re.search(rf"jit\(step\): .* of 1\.0 MiB: does not fit \(.* at {STEP}\)", ended.report)


@pytest.mark.every_jax
def test_arrays_of_many_hosts_take_no_memory(jobs: Jobs, program: Path) -> None:
    ended = jobs.run("-n", 256, "-d", 4, "--preview", "255", program, "huge", limit=120)
    assert ended.status == 0, ended.stderr
    assert "rank 255 of 256 has 4 of 1024" in ended.stdout


def test_endless_loop_ends_after_some_calls(jobs: Jobs, program: Path) -> None:
    options = ["--preview", "1", "--preview-steps", 4]
    ended = jobs.run("-n", 2, "-d", 2, *options, program, "loop", 10**9, cwd=program.parent)
    assert ended.status == 0, ended.stderr
    assert f"jit(step) at {STEP}: called 4 times" in ended.report


EXCHANGE = """\
import jax, numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils
jax.distributed.initialize()
rank, client = jax.process_index(), distributed.global_state.client
assert multihost_utils.broadcast_one_to_all(rank) == rank
assert multihost_utils.process_allgather(np.arange(2), tiled=True).tolist() == [0, 1] * 3
multihost_utils.assert_equal(rank, "other values")
client.key_value_set(f"name/{rank}", "mine")
client.wait_at_barrier("named", 1000)
assert client.blocking_key_value_get("name/0", 1000) == "mine"
client.blocking_key_value_get("size/0", 1000)
"""


@pytest.mark.every_jax
def test_values_of_other_ranks_are_its_own(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    ended = jobs.run("-n", 3, "-d", 2, "--preview", "2", "exchange.py", cwd=tmp_path)
    assert "--preview: the key 'size/0' is set by another rank, which does not run" in ended.report


CHECKPOINTS = """\
import os, jax, jax.numpy as jnp, orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
rows = NamedSharding(mesh, P("x"))
state = jax.jit(lambda: {"w": jnp.ones((1024, 256))}, out_shardings={"w": rows})()
shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
options = ocp.CheckpointManagerOptions(save_interval_steps=2)
with ocp.CheckpointManager(os.path.abspath("saved"), options=options) as manager:
    for step in range(4):
        assert manager.save(step, args=ocp.args.StandardSave(state)) == (step % 2 == 0)
    back = manager.restore(0, args=ocp.args.StandardRestore(shapes))
assert back["w"].sharding == rows
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(os.path.abspath("other"), state)
    assert checkpointer.restore(os.path.abspath("other"), shapes)["w"].sharding == rows
"""


def test_checkpoints_are_measured_and_not_written(jobs: Jobs, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    (tmp_path / "saves.py").write_text(CHECKPOINTS)
    ended = jobs.run("-n", 4, "-d", 2, "--preview", "saves.py", cwd=tmp_path, limit=120)
    assert ended.status == 0, ended.stderr
    assert "save at saves.py:11: 2 checkpoints of 256.0 KiB of this rank's" in ended.report
    assert "restore at saves.py:12: 1 checkpoint of 256.0 KiB of this rank's" in ended.report
    assert os.listdir(tmp_path) == ["saves.py"]


def test_debugger_opens_where_a_rank_alone_fails(
    at_terminal: Callable[..., Terminal], program: Path
) -> None:
    options = ["-n", 64, "-d", 4, "--preview", "17", "--pdb"]
    terminal = at_terminal(*options, program, "fault")
    terminal.answer(PROMPT, "up 3")
    terminal.answer(PROMPT, "p rank, batch.shape")
    terminal.until("(17, (7, 512))")
    terminal.answer(PROMPT, "q")
    assert terminal.finish() != 0
