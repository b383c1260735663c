"""The command line of `scripts/bench`."""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine, peers, table
from benchmarks.bench import PYTHON, ROOT, Bench
from benchmarks.compiling import compiling
from benchmarks.death import death
from benchmarks.faults import faults
from benchmarks.hosts import hosts
from benchmarks.idle import idle, memory
from benchmarks.jax_ranks import jax
from benchmarks.measure import OURS, Grid, Result, from_json, to_json
from benchmarks.one_rank import one_rank
from benchmarks.spmd import spmd
from benchmarks.startup import startup
from benchmarks.throughput import throughput

_SAVED = ROOT / "build" / "bench.json"


def who_is_here(bench: Bench) -> list[Grid]:
    """Print the other launchers, and why a launcher is missing."""
    print("\n".join([*(peer.name for peer in bench.peers), *peers.missing()]), file=sys.stderr)
    return []


_ALL: dict[str, Callable[[Bench], Sequence[Result]]] = {
    "peers": who_is_here,
    "startup": startup,
    "jax": jax,
    "one": one_rank,
    "compile": compiling,
    "throughput": throughput,
    "death": death,
    "faults": faults,
    "memory": memory,
    "idle": idle,
    "hosts": hosts,
    "spmd": spmd,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print it as Markdown."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))  # ends its jobs
    if options.install:
        peers.install()
    # What nohup ignores, or a script's shell in the background, the launchers would ignore as well.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results: Results
    if options.saved is None:
        about, results = _measured(options)
    else:
        saved = json.loads(Path(options.saved).read_text())
        about, results = saved["machine"], from_json(saved["results"])
    tables = table.markdown(results, about)
    print(tables, end="")
    if options.write:
        page = Path(options.write)
        page.write_text(table.put_into(page.read_text(), tables, "scripts/bench"))


Results = Mapping[str, Sequence[Result]]


def _measured(options: argparse.Namespace) -> tuple[Mapping[str, str], Results]:
    about = machine.description(ROOT, PYTHON)
    results: dict[str, Sequence[Result]] = {}
    with tempfile.TemporaryDirectory() as folder, _trees(options.against) as trees:
        bench = Bench(Path(folder), trees, peers.here(), **_how(options))
        for name in options.what or _ALL:
            print(f"bench: {name} ...", file=sys.stderr, flush=True)
            results[name] = _ALL[name](bench)
            _save(options.json, about, results)  # a long run may be interrupted
    return about, results


def _how(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "quick": options.quick,
        "most_rounds": options.rounds,
        "to_the_end": options.to_the_end,
    }


def _save(path: str, about: Mapping[str, str], results: Mapping[str, Sequence[Result]]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    saved = {"machine": about, "results": to_json(results)}
    Path(path).write_text(json.dumps(saved, indent=1) + "\n")


@contextmanager
def _trees(against: str | None) -> Iterator[dict[str, Path]]:
    """Yield the trees to compare, by name; the tree of a commit is checked out meanwhile."""
    if against is None:
        yield {OURS: ROOT}
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), against], check=True)
        try:
            yield {OURS: ROOT, f"at {machine.commit(tree)}": tree}
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures the launcher and others in turn, in one run, as ratios: an absolute "
        "time says nothing on a shared machine. Prints Markdown and saves JSON.",
    )
    add = parser.add_argument
    add("what", nargs="*", choices=[[], *_ALL], metavar="WHAT", help=f"of {', '.join(_ALL)}; all")
    add("--against", metavar="COMMIT", help="measure that commit's launcher too, in turn")
    add("--quick", action="store_true", help="two rounds: does all of it work?")
    add("--rounds", type=int, metavar="N", help="at most N rounds, where they take long")
    add("--to-the-end", action="store_true", help="wait for JAX's own end of a failed job: 300 s")
    add("--install", action="store_true", help="install djaxrun, honcho and MPICH (build/peers)")
    add("--json", default=str(_SAVED), metavar="FILE", help="where to save (build/bench.json)")
    add("--saved", metavar="FILE", help="measure nothing: print what such a file has")
    add("--write", metavar="PAGE", help="put the tables into a page, below <!-- scripts/bench -->")
    return parser
