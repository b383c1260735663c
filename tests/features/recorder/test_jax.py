"""Programs that ranks have run before, in another order on one of them; and healthy programs."""

import json
import re
from pathlib import Path

import pytest
from jobs import PROGRAMS, Jobs

REORDERING = PROGRAMS / "reordering.py"
F, U, E = (re.escape(f"jit({name})") for name in ("forward", "update", "evaluate"))
#: Fault: words that name it, and the number of the program, after six that make all known.
FAULTS = {
    "skip:0": (f"skipped {U}", 8),
    "skip:4": (f"skipped {U}", 17),
    "skip:10": (f"skipped {U}", 31),
    "repeat:0": (f"repeated {U}", 9),
    "repeat:9": (f"repeated {U}", 30),
    "swap:0": (f"ran {U}.* before {F}", 7),
    "swap:8": (f"ran {U}.* before {F}", 25),
    "other:1": (f"ran {E}.* in place of {U}", 10),
    "other:7": (f"ran {E}.* in place of {U}", 24),
    "extra:3": (f"ran {E}.*, which ranks 0-1 did not run", 16),
    "reshape:6": (f"ran {F} .* with an argument of another shape", 21),
}


def test_first_program_that_differs_is_named(jobs: Jobs) -> None:
    """Each fault has a mesh of its own; test_unit_sequences.py has more places."""
    ended = jobs.run("-n", 3, "-d", len(FAULTS), "-q", REORDERING, *FAULTS, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "of this mesh" in line]
    for fault, (words, number) in FAULTS.items():
        place = rf"\(program {number} of this mesh\)"
        assert any(re.search(rf"rank 2 {words}.*{place}", line) for line in lines), (fault, lines)
    assert len(lines) == len(FAULTS)
    assert all("at reordering.py:" in line for line in lines)


def test_job_ends_at_a_difference_with_verify_spmd(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "--verify-spmd", REORDERING, "skip:4", cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert "--verify-spmd: the ranks run different programs\n" in ended.report
    assert "rank 1 skipped jit(update) at reordering.py:" in ended.report


def test_calls_of_all_kinds_are_recorded_alike(jobs: Jobs) -> None:
    """Also where rank 0 calls the same functions alone, and JAX forgets what it has compiled."""
    ended = jobs.run("-n", 2, "-d", 1, "-v", PROGRAMS / "recorded.py")
    assert ended.status == 0, ended.stderr
    assert "of this mesh" not in ended.stderr
    assert "no longer compared" not in ended.stderr
    assert "does not record" not in ended.stderr


UNCLEAR = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
x = jax.make_array_from_callback((2,), NamedSharding(mesh, PartitionSpec("x")), lambda _: jnp.ones(1))
scale = jax.jit(lambda factor, x: x * factor)
total = jax.jit(lambda x: x.sum())
for number in range(9):
    total(scale(2.0, x))
    if jax.process_index() == 0:
        scale(2.0, jnp.ones(3))
"""


def test_no_difference_is_made_up_where_calls_look_alike(jobs: Jobs, tmp_path: Path) -> None:
    """The first argument does not tell whether the call is of rank 0 alone."""
    (tmp_path / "train.py").write_text(UNCLEAR)
    ended = jobs.run("-n", 2, "-d", 1, "train.py", cwd=tmp_path)
    assert (ended.status, ended.stderr) == (0, "")


UNUSUAL = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()
rank = jax.process_index()


def spread(devices, rows=1):
    sharding = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
    values = np.arange(rows * len(devices), dtype="f")
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


class Evaluate:
    @staticmethod
    @jax.jit
    def run(x):
        return x * 2


class Average:
    def __init__(self):
        self.run = jax.jit(lambda x: x * 3)


class Log:
    def run(self, x):
        pass


def run_all(steps, x):
    for step in steps:
        step.run(x)


x, average = spread(jax.devices()), Average()
Evaluate.run(x)
average.run(x)
for _ in range(40):  # rank 0 calls what is no jitted function at this line, often
    run_all([Log()] if rank == 0 else [], x)
for _ in range(3):
    run_all([Evaluate(), average], x)

# A tool made this function, with an address in the file's name, and it has two programs.
made = {}
exec(compile("def add(x, y): return x + y[0]", f"<made at {id(made):#x}{rank}>", "exec"), made)
add = jax.jit(made["add"])
for rows in (1, 2, 1, 2):
    add(x, spread(jax.devices(), rows))

# Rank 0 is in more meshes than it has room for, the others are not.
by_rank = [[d for d in jax.devices() if d.process_index == other] for other in range(3)]
for other in (1, 2):
    for number in range(10):
        if rank in (0, other):
            y = spread([by_rank[0][number // 4], by_rank[other][number % 4]])
            for _ in range(3):
                Evaluate.run(y)
"""


def test_unusual_programs_do_not_differ(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "unusual.py").write_text(UNUSUAL)
    ended = jobs.run("-n", 3, "-d", 4, "-v", "unusual.py", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    assert "of this mesh" not in ended.stderr
    assert "over ranks 0-2 is no longer compared" not in ended.stderr
    assert "over ranks 0,2 is no longer compared: rank 0 cannot tell it" in ended.stderr


ALIKE = """
from functools import partial, wraps
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()
local = jax.local_device_count()
meshes = [[d for d in jax.devices() if d.id % local == number] for number in range(local)]
sharding = [NamedSharding(Mesh(np.array(mesh), ("x",)), PartitionSpec("x")) for mesh in meshes]
xs = [jax.make_array_from_callback((2,), own, lambda index: np.ones(2)[index]) for own in sharding]


def scale(n, x):
    return x * n


def make(n):
    @jax.jit
    def made(x):
        return x * n
    return made


def decorate(function):
    @jax.jit
    @wraps(function)
    def inner(*args):
        return function(*args)
    return inner


@decorate
def step(x):
    return x + 1


@decorate
def measure(x):
    return x - 1


def mean(x):
    return jax.lax.pmean(x, "i")


def total(x):
    return jax.lax.psum(x, "i")


pairs = [
    [jax.jit(lambda x: x * 2), jax.jit(lambda x: x + 2)],
    [jax.jit(partial(scale, n)) for n in (2, 3)],
    [make(n) for n in (2, 3)],
    [step, measure],
    [jax.jit(f).lower(xs[4]).compile() for f in (partial(scale, 2.0), lambda x: x + 2)],
    [jax.pmap(f, axis_name="i", devices=meshes[5]) for f in (mean, total)],
]
xs[5] = np.ones((1, 2))
for number in range(30):
    for (f, g), x in zip(pairs, xs):
        for call in (g, f) if number == 17 and jax.process_index() == 1 else (f, g):
            call(x)
"""


def test_functions_that_look_alike_are_told_apart(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALIKE)
    ended = jobs.run("-n", 2, "-d", 6, "train.py", cwd=tmp_path)
    found = [line for line in ended.stderr.splitlines() if "(program 35 of this mesh)" in line]
    assert len(found) == 6, ended.stderr


HANGING = (PROGRAMS / "hanging.py").read_text().splitlines()
SHIFT, TURN = (
    f"hanging.py:{next(n for n, line in enumerate(HANGING, 1) if code in line)}"
    for code in ("= shift(x", "= accumulate(x")
)


@pytest.mark.parametrize(("way", "words"), [
    ("batches", rf"rank 0 has waited \d+ s in program (\d+), jit\(shift\) at {SHIFT}, for rank 1, "
     r"which has run (\d+), has finished and is in JAX's exit barrier, so the job can never go on"),
    ("skip", rf"rank 0 in jit\(accumulate\) at {TURN} and rank 1 in jit\(shift\) at {SHIFT} have waited "
     r"\d+ s for one another, so the job can never go on"),
])  # fmt: skip
def test_deadlock_in_a_line_with_two_calls_ends_the_job(jobs: Jobs, way: str, words: str) -> None:
    soon = {"MCJAX_TEST_TIME_SCALE": "0.1"}
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", way, 0, cwd=PROGRAMS, env=soon)
    assert ended.status == 1, ended.stderr
    found = [match for line in ended.report.splitlines() if (match := re.fullmatch(words, line))]
    assert len(found) == 1, ended.report
    numbers = [int(number) for number in found[0].groups()]
    assert numbers == [] or numbers[0] == numbers[1] + 1


def test_last_programs_of_each_rank_are_shown_at_a_limit(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n",
        3,
        "-d",
        2,
        "--grace",
        1,
        "--stall-timeout",
        3,
        "hanging.py",
        "train",
        100,
        cwd=PROGRAMS,
    )
    assert ended.status == 124, ended.stderr
    last = [line for line in ended.report.splitlines() if ": last began programs " in line]
    assert [line.partition(":")[0] for line in last] == ["rank 1", "ranks 0,2"]
    counts = [int(re.findall(r" (\d+) jit\(step\) at hanging.py:", line)[-1]) for line in last]
    assert counts[0] < counts[1]


UNEVEN = """
import sys, time
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
sharding = NamedSharding(mesh, PartitionSpec("x"))
x = jax.make_array_from_callback((6,), sharding, lambda index: jnp.arange(6.0)[index])
step = jax.jit(lambda x: x - 0.01 * x.sum())
loss = jax.jit(lambda x: (x * x).sum())
for _ in range(140):
    time.sleep(0.02 + 0.06 * (str(jax.process_index()) in sys.argv[1:]))
    x = step(x)
    float(loss(x))
"""


@pytest.mark.parametrize("slow", [["1"], ["0", "1", "2"]], ids=["one", "all"])
def test_slow_rank_is_named_during_the_run_and_at_the_end(
    slow: list[str], jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(UNEVEN)
    options = ["-n", 3, "-d", 1, "--report", "run.json", "train.py", *slow]
    ended = jobs.run(*options, cwd=tmp_path)
    named = [line for line in ended.stderr.splitlines() if " came late to " in line]
    found = json.loads((tmp_path / "run.json").read_text())["attempts"][0]["slow"]
    assert [entry["rank"] for entry in found] == ([1] if slow == ["1"] else [])
    assert ended.status == 0
    assert len(named) == 2 * len(found), ended.stderr
    for line in named:
        words = r"mcjax-launch: rank 1 came late to \d+ % of \d+ runs of jit\(_lambda\) "
        assert re.match(rf"{words}at train.py:\d+, by \d+ ms: the others waited ", line)
