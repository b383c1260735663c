"""--preload with JAX: a forked rank is what any other rank is, only sooner."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs

from mcjax_launch.features.preload.hook.jax_flags import USED_BY_JAX

pytestmark = pytest.mark.afresh  # a test says itself which ranks are forked

# Of each job its own.
OF_A_JOB = {"JAX_COORDINATOR_ADDRESS", "MCJAX_JOB_ID"}
OF_A_JOB |= {f"MCJAX_HOOK_{name}" for name in ("SOCKET", "BIND", "COORDINATOR", "COMPILE_ONCE")}
# What an import of jax leaves, which a forked rank sees before its own import. (Of the signals it
# is one that the C library keeps for itself from the first thread on.)
LEFT_BY_THE_IMPORT = {
    ("before", "environment", "TF_CPP_MIN_LOG_LEVEL"),
    ("before", "environment", "TPU_SKIP_MDS_QUERY"),
    ("before", "process", "status", "SigCgt"),
    ("before", "process", "status", "SigIgn"),
    ("before", "python", "atexit"),
    ("before", "python", "finders"),
    ("before", "python", "warnings"),
}
# OpenBLAS ends its thread before a fork, and starts it again when it is used.
BY_OPENBLAS = ("after", "process", "status", "Threads")
NOT_JOINED = (
    "no rank called jax.distributed.initialize(): these ran as 2 separate single-process jobs"
)


def portraits(jobs: Jobs, *options: object) -> list[dict[str, Any]]:
    """What each of two ranks sees of itself."""
    words = ["-n", 2, "-d", 2, "--no-prefix", "-x", "PYTHONHASHSEED=7", *options]
    ended = jobs.run(*words, PROGRAMS / "self_portrait.py", "of {process_id}", "{host}")
    assert (ended.status, ended.report) == (0, NOT_JOINED), ended.stderr
    seen = [json.loads(line) for line in ended.stdout.splitlines()]
    return sorted(seen, key=lambda one: one["before"]["environment"]["JAX_PROCESS_ID"])


def differences(one: Any, other: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {*one, *other} - OF_A_JOB:
            yield from differences(one.get(name), other.get(name), (*at, name))
    elif one != other:
        yield at


@pytest.mark.every_jax
@pytest.mark.parametrize("options", [[], ["--stdin", "1", "--verify-spmd"]])
def test_a_forked_rank_sees_what_a_fresh_one_sees(jobs: Jobs, options: list[str]) -> None:
    fresh, forked = portraits(jobs, *options), portraits(jobs, "--preload", "jax", *options)
    numbers = []
    for one, other in zip(fresh, forked, strict=True):
        before, more = set(one.pop("modules")), set(other.pop("modules"))
        mine, its = one.pop("random"), other.pop("random")
        assert set(differences(one, other)) - {BY_OPENBLAS} <= LEFT_BY_THE_IMPORT
        assert before <= more and not {"jax", "jax.numpy"} & more
        assert all(mine[name] != its[name] for name in mine)
        numbers.append(its)
    assert all(numbers[0][name] != numbers[1][name] for name in numbers[0])


# --- what a program sets before its import of jax ---

SETS = "import json, os; os.environ.update(json.load(open(os.environ['SETTINGS'])))\n"
SHOWS = "import jax, json; print(json.dumps({k: repr(v) for k, v in jax.config.values.items()}))\n"
PLACES = {
    "the program": {"program.py": SETS + SHOWS},
    "a module": {"settings.py": SETS, "program.py": "import settings\n" + SHOWS},
    "sitecustomize": {"sitecustomize.py": SETS, "program.py": SHOWS},
}
MOST_FLAGS = 80  # of some 100 in the oldest jax


def flags(jobs: Jobs, folder: Path, *options: object) -> dict[str, str]:
    """All that a rank's jax.config holds."""
    env = {"SETTINGS": str(folder / "settings.json"), "PYTHONPATH": str(folder)}
    ended = jobs.run("-n", 1, "--no-prefix", *options, "program.py", cwd=folder, env=env)
    assert ended.status == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.every_jax
@pytest.mark.parametrize("place", PLACES)
def test_flags_are_those_of_a_fresh_rank(jobs: Jobs, tmp_path: Path, place: str) -> None:
    """Each of jax's flags, set in the program, in a module of its own, in a sitecustomize."""
    for name, text in PLACES[place].items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(PROGRAMS / "flags.py")]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    (tmp_path / "settings.json").write_text(json.dumps(said["settings"]))
    fresh = flags(jobs, tmp_path)
    assert sum(fresh[name] != value for name, value in said["values"].items()) > MOST_FLAGS
    assert flags(jobs, tmp_path, "--preload", "jax") == fresh


def test_a_value_that_jax_refuses(jobs: Jobs, tmp_path: Path) -> None:
    """The program may catch that, and import jax with another one."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "os.environ['JAX_ENABLE_X64'] = 'maybe'\n"
        "try: import jax\n"
        "except ValueError as error: print(error, 'jax' in sys.modules)\n"
        "os.environ['JAX_ENABLE_X64'] = 'on'\n"
        "import jax; print(jax.config.jax_enable_x64)\n"
        "os.environ['JAX_DEBUG_NANS'] = 'maybe'\n"
    )
    ended = jobs.run("-n", 1, "--no-prefix", "--preload", "jax", program)
    refused = "invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'"
    assert ended.stdout.splitlines() == [f"{refused} False", "True"], ended.stderr
    program.write_text("import os; os.environ['JAX_ENABLE_X64'] = 'maybe'\nimport jax\n")
    fresh, forked = (jobs.run("-n", 1, *words, program) for words in ([], ["--preload", "jax"]))
    assert f"rank 0 failed: ValueError: {refused}" in forked.report
    assert forked.report.splitlines()[:-1] == fresh.report.splitlines()[:-1]


MINE = "import jax, numpy, jax.numpy as jnp; X64 = jax.config.jax_enable_x64"
X64 = "os.environ['JAX_ENABLE_X64'] = '1'"
SHOWN = "print(jax.numpy.arange(2.).dtype, len(jax.devices()), jax.config.jax_platforms)"
NOT_SEEN = "--preload: {} had been imported when the program changed {}, and has not seen that: "
NOT_SEEN += "use -x NAME=VALUE, or --preload none"
ORDERS = {
    f"import numpy; {X64}; import jax; {SHOWN}": "float64 2 cpu",
    f"import jax; {X64}; import numpy; {SHOWN}": "float32 2 cpu",
    f"{X64}; del os.environ['JAX_PLATFORMS']; from mine import jax; {SHOWN}": "float64 2 None",
    f"from mine import jax; {X64}; import jax; {SHOWN}": "float32 2 cpu",
    f"os.environ['JAX_NUM_CPU_DEVICES'] = '3'; from jax._src import api; import jax; {SHOWN}": "float32 3 cpu",
}  # fmt: skip


def test_the_first_import_of_jax_counts(jobs: Jobs, tmp_path: Path) -> None:
    """Whoever imports it; each rank in another order."""
    (tmp_path / "mine.py").write_text(MINE)
    text = f"import os; exec({[*ORDERS]}[int(os.environ['JAX_PROCESS_ID'])])"
    (tmp_path / "program.py").write_text(text)
    words = ["-n", len(ORDERS), "-d", 2, "program.py"]
    for options in ([], ["--preload", "jax,mine"]):
        ended = jobs.run(*options, *words, cwd=tmp_path)
        shown = [f"[{rank}] {line}" for rank, line in enumerate(ORDERS.values())]
        assert sorted(ended.stdout.splitlines()) == shown, ended.stderr


MISSED = {
    f"{X64}; import mine": ("mine", "JAX_ENABLE_X64"),
    "import jax; jax.config.update('jax_enable_x64', True); import mine": ("mine", "JAX_ENABLE_X64"),
    "os.environ['JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS'] = '1'; import jax": ("jax", "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"),
    f"{X64}; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; import jax; assert jax.config.jax_enable_x64": ("jax", "TF_CPP_MIN_LOG_LEVEL"),
    "os.environ.update(OMP_NUM_THREADS='2', MKL_NUM_THREADS='2'); import numpy": ("numpy", "MKL_NUM_THREADS, OMP_NUM_THREADS"),
    "os.environ.update(XLA_FLAGS='', PYTHONHASHSEED='0', LD_LIBRARY_PATH='/'); import mine": None,
}  # fmt: skip


@pytest.mark.parametrize("program", MISSED)
def test_what_cannot_be_made_up_for_is_told(jobs: Jobs, tmp_path: Path, program: str) -> None:
    """Where the rank has printed something; otherwise it is started afresh."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "program.py").write_text("import os; print('seen'); " + program)
    ended = jobs.run("-n", 2, "--preload", "jax,mine", "program.py", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    missed = MISSED[program]
    said = [line for line in ended.report.splitlines() if line != NOT_JOINED]
    assert said == ([NOT_SEEN.format(*missed)] if missed else [])


# Prints the flags that jax's own import uses, but for those that it only hands to a hook, which is
# called with another value as well.
USES = """
import importlib.util, sys
names = set()

class Finder:
    def find_spec(self, name, *_):
        if name == "jax._src.config":
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            self.load, spec.loader.exec_module = spec.loader.exec_module, self.loaded
            return spec

    def loaded(self, module):
        self.load(module)
        real = module.State.value

        def value(state):
            frame = sys._getframe(1)
            while frame and frame.f_code.co_name != "_add_hooks":
                frame = frame.f_back
            if not frame:
                names.add(state._name.upper())
            return real.__get__(state)

        module.State.value = property(value)

sys.meta_path.insert(0, Finder())
import jax
print(*names)
"""


@pytest.mark.every_jax
def test_flags_that_jax_itself_uses_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", USES], capture_output=True, check=True, text=True)
    used = set(done.stdout.split())
    assert used and used <= USED_BY_JAX
