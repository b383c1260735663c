"""The same program twice: its ranks started afresh, and forked by default. Nothing may differ."""

import re
from pathlib import Path

import pytest
from jobs import Jobs

pytestmark = pytest.mark.afresh  # a test says itself which ranks are forked

# What a program sees before its import of jax, and after it.
SEES = """
import atexit, faulthandler, gc, importlib.metadata, json, locale, logging, os, random, resource, signal, sys, threading, warnings
from pathlib import Path

def kind(fd):
    return os.readlink(f"/proc/self/fd/{fd}").partition(":")[0], os.get_inheritable(int(fd))

def of_stream(file):
    names = "name mode encoding errors newlines line_buffering write_through closed"
    return [getattr(file, name, None) for name in names.split()] + [file.fileno(), file.isatty(), file.seekable()]

def seen():
    loggers = logging.root.manager.loggerDict
    status = Path("/proc/self/status").read_text()
    own = {"JAX_COORDINATOR_ADDRESS", "MCJAX_JOB_ID"}
    main = vars(sys.modules["__main__"])
    return {
        "variables": {n: v for n, v in os.environ.items() if n not in own and "MCJAX_HOOK" not in n},
        "filters": sorted({repr(filter) for filter in warnings.filters}),
        "loggers": sorted((n, str(l), getattr(l, "disabled", 0), len(getattr(l, "handlers", ()))) for n, l in loggers.items()),
        "handlers": sorted(repr(handler()) for handler in logging._handlerList),
        "exits": atexit._ncallbacks(),
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), resource.getrlimit(resource.RLIMIT_NOFILE)],
        "gc": [gc.isenabled(), gc.get_threshold(), [str(callback).split(" at ")[0] for callback in gc.callbacks]],
        "folder": [os.getcwd(), status.partition("Umask:")[2].split()[0], getattr(sys, "path")],
        "signals": [str(signal.getsignal(number)).split(" at ")[0] for number in (1, 2, 10, 12, 13, 14, 15)],
        "blocked": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "fault": faulthandler.is_enabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "random": random.random() if SEEDED else 0,
        "points": len(importlib.metadata.entry_points()),
        "modules": sorted({n.partition(".")[0] for n in sys.modules if "cython_" not in n} - {*sys.stdlib_module_names}),
        "command": [Path("/proc/self/cmdline").read_text(), Path("/proc/self/comm").read_text()],
        "environ": sorted(word for word in Path("/proc/self/environ").read_text().split(chr(0)) if word and not word.startswith(("MCJAX_", *own))),
        "cores": len(os.sched_getaffinity(0)),
        "files": [each for each in sorted((min(int(fd), 3), *kind(fd)) for fd in sorted(os.listdir("/proc/self/fd"))[:-1]) if "libffi" not in each[1]],
        "leads": [number == os.getpid() for number in (os.getsid(0), os.getpgid(0), threading.main_thread().native_id)],
        "main": [main is globals(), sorted(n for n in main if n.startswith("__")), str(main["__loader__"]), main["__package__"]],
        "python": [sys.argv, sys.orig_argv, str(sys.flags), sys._xoptions, sys.executable, sys.prefix, hash("a word")],
        "hooks": [repr(sys.excepthook), repr(sys.unraisablehook), repr(sys.displayhook), sys.gettrace(), sys.getprofile()],
        "streams": [of_stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)],
    }

def show(what, shown):
    for name, value in shown.items():
        print(what, name, json.dumps(value, default=str))
"""
BEFORE = """
SEEDED, LEFT = False, ("filters", "loggers", "handlers", "exits", "gc", "modules", "points", "variables")
{before}
show("before", {{n: v for n, v in seen().items() if n not in LEFT}}) if {shows} else None
"""
AFTER = """
import jax, multiprocessing
show("after", seen())
show("jax", {n: repr(v) for n, v in jax.config.values.items()})
print(jax.__file__, multiprocessing.get_start_method(), jax.numpy.arange(3).sum())
import numpy; numpy.ones((300, 300)) @ numpy.ones((300, 300))
print("threads", len(os.listdir("/proc/self/task")))
logging.getLogger("jax").warning("from a logger of jax's own")
warnings.warn("numpy.dtype size changed", UserWarning)
warnings.warn("mine", UserWarning)
"""
# What a program does before it imports jax: of these each rank of one job does another.
OF_A_RANK = {
    "basic logging": "logging.basicConfig(level='INFO', format='%(name)s %(message)s')",
    "limits": "sys.setrecursionlimit(4321); sys.setswitchinterval(0.01); resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))",
    "processes": "import multiprocessing; multiprocessing.set_start_method('spawn')",
    "faults": "faulthandler.enable()",
    "a locale": "locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "gc": "gc.disable(); gc.set_threshold(5, 6, 7)",
    "signals": "signal.signal(signal.SIGUSR1, print); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
    "a folder": "os.chdir('/'); os.umask(0o77)",
    "random": "random.seed(1); SEEDED = True",
    "loggers": "logging.getLogger('mine').addHandler(logging.NullHandler())",
    "an exit": "atexit.register(print, 'registered first')",
}  # fmt: skip
# And these are what its source says, or what holds for all ranks.
OF_A_PROGRAM = {
    "warnings": "warnings.filterwarnings('ignore', 'mine'); warnings.filterwarnings('error', 'numpy.dtype size changed', ImportWarning)",
    "a hook": "sys.excepthook = print; threading.excepthook = print",
    "a folder": "from sys import path; path.insert(0, os.path.abspath('other')); import beside",
}  # fmt: skip
FILES = {"other/beside.py": "HERE = True"}


# The rank that compiles a program for the others has more threads than they.
# Addresses, and times that jax's older logger prints.
_DIFFERS = r"0x\w+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+"
COMMON = ["-v", "-x", "PYTHONHASHSEED=7", "--compile-once", "off"]


def twins(jobs: Jobs, folder: Path, *words: object) -> list[list[str]]:
    """What each way prints, with what differs between any two jobs left out."""
    found = []
    for way in ("none", "auto"):
        ended = jobs.run(*COMMON, "--preload", way, *words, "program.py", cwd=folder, limit=250)
        lines = [*ended.stdout.splitlines(), *ended.stderr.splitlines()]
        report = [
            line for line in ended.report.splitlines() if "--preload" in line or "fork" in line
        ]
        assert way == "none" or report, ended.stderr
        found.append(sorted(re.sub(_DIFFERS, "X", line) for line in lines if line[0] == "["))
        found[-1].append(f"status {ended.status}")
    return [*found, report]


def differences(fresh: list[str], forked: list[str]) -> list[tuple[str, str]]:
    """The lines that are not the same."""
    if len(fresh) != len(forked):
        return [(line, "") for line in {*fresh} ^ {*forked}]
    return [(first, other) for first, other in zip(fresh, forked, strict=True) if first != other]


def compare(
    jobs: Jobs, folder: Path, ranks: int, before: str, *options: object, shows: bool = False
) -> None:
    (folder / "other").mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text)
    text = SEES + BEFORE.format(before=before, shows=shows) + AFTER
    (folder / "program.py").write_text(text)
    fresh, forked, report = twins(jobs, folder, "-n", ranks, "-d", 2, *options)
    assert differences(fresh, forked) == [], report
    assert "after importing jax" in report[0], report


@pytest.mark.every_jax
def test_forked_rank_equals_a_fresh_rank(jobs: Jobs, tmp_path: Path) -> None:
    compare(jobs, tmp_path, 2, "", "--verify-spmd", shows=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OF_A_PROGRAM)
def test_settings_of_a_program_have_their_effect_in_forked_ranks(
    jobs: Jobs, tmp_path: Path, name: str
) -> None:
    compare(jobs, tmp_path, 2, OF_A_PROGRAM[name])


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_differing_forked_ranks_equal_fresh_ranks(jobs: Jobs, tmp_path: Path) -> None:
    ways = [*OF_A_RANK.values()]
    compare(jobs, tmp_path, len(ways), f"exec({ways}[int(os.environ['JAX_PROCESS_ID'])])")


# A plugin as those for GPUs are: it writes down who calls it.
PLUGIN = """
import os

def called(what):
    with open(os.environ["CALLS"], "a") as file:
        print(os.getpid(), what, file=file)

called("import")

def initialize():
    called("initialize")
"""


@pytest.mark.long
def test_the_import_touches_no_device(jobs: Jobs, tmp_path: Path) -> None:
    """A plugin, which would start a GPU's driver, is called in the ranks and nowhere else."""
    plugin, calls = tmp_path / "library" / "jax_plugins" / "stand_in", tmp_path / "calls"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(PLUGIN)
    (tmp_path / "program.py").write_text("import jax, os; jax.devices(); print('pid', os.getpid())")
    env = {"PYTHONPATH": str(tmp_path / "library"), "CALLS": str(calls)}
    ended = jobs.run(
        *COMMON, "-n", 2, "-d", 2, "--preload", "auto", "program.py", cwd=tmp_path, env=env
    )
    assert "ranks 0-1 forked after importing jax" in ended.report
    ranks = {line.split()[-1] for line in ended.stdout.splitlines() if "pid" in line}
    said = [line.split() for line in calls.read_text().splitlines()]
    assert len(ranks) == 2 and {pid for pid, _ in said} == ranks
    assert {what for _, what in said} == {"import", "initialize"}
