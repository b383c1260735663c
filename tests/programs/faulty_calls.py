"""Let calls of a session go wrong at random moments, and check that it is usable or clearly over.

Arguments: how many faults; the seed; `jax` for ranks that hang in collectives, else `plain`.
"""

import contextlib
import faulthandler
import random
import signal
import sys

import psutil

import mcjax_launch

_HUNG_S = 300
_LONGEST_S = 1.0
_RANKS = 3
# Rank R does it after T seconds; all others go on to what follows.
_FAULTS = {
    "raise": "raise ValueError('bad batch')",
    "exit": "sys.exit(5)",
    "leave": "os._exit(0)",
    "kill": "os.kill(os.getpid(), 9)",
    "segfault": "__import__('ctypes').string_at(0)",
    "interrupt": "time.sleep(0)",
    "none": "time.sleep(0)",
}
_AFTER = {"plain": "time.sleep({pause})", "jax": "sync_global_devices('all')"}
_PREPARE = {
    "plain": "import os, sys, time",
    # Once, for JAX does not survive an interrupt while it imports its compiler.
    "jax": "import os, sys, time\nfrom jax.experimental.multihost_utils import sync_global_devices\n"
    "sync_global_devices('all')",
}


def main(faults: int, seed: int, kind: str) -> None:
    chance = random.Random(seed)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    counts: dict[str, int] = {}
    ranks = mcjax_launch.session(
        processes=_RANKS,
        cpu_devices=1 if kind == "jax" else None,
        initialize=kind == "jax",
        echo=False,
    )
    with ranks:
        for number in range(faults):
            faulthandler.dump_traceback_later(_HUNG_S, exit=True)
            ranks.exec(_PREPARE[kind])
            name = chance.choice(list(_FAULTS))
            outcome = _call(ranks, name, kind, chance)
            counts[f"{name}: {outcome}"] = counts.get(f"{name}: {outcome}", 0) + 1
            _check_usable(ranks, f"fault {number} ({name}: {outcome})")
    left = psutil.Process().children(recursive=True)
    assert not left, left
    for told, count in sorted(counts.items()):
        print(count, told)


def _call(ranks: mcjax_launch.Session, name: str, kind: str, chance: random.Random) -> str:
    """Make a call with a fault; return what came of it."""
    rank, pause = chance.randrange(_RANKS), round(0.2 * chance.random(), 3)
    text = (
        f"if os.environ['JAX_PROCESS_ID'] == '{rank}':\n"
        f"    time.sleep({pause})\n    {_FAULTS[name]}\n{_AFTER[kind].format(pause=pause)}\n"
    )
    moment = 1e-4 + _LONGEST_S * chance.random() ** 3 if name == "interrupt" else 0
    try:
        signal.setitimer(signal.ITIMER_REAL, moment)
        ranks.exec(text)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        assert name == "interrupt"
        return "interrupted"
    except mcjax_launch.CallFailed as error:
        assert name == "raise" and [own.rank for own in error.errors] == [rank], (name, error)
        assert "ValueError: bad batch" in str(error)
        return "failed, and started again" if error.restarted else "failed"
    except mcjax_launch.JobFailed as error:
        assert name in ("exit", "leave", "kill", "segfault"), (name, error)
        assert f"rank {rank} " in str(error), (rank, error)
        return "over"
    assert name in ("none", "interrupt"), name
    return "done"


def _check_usable(ranks: mcjax_launch.Session, after: str) -> None:
    for _ in range(3):
        with contextlib.suppress(KeyboardInterrupt):  # one that came late
            try:
                assert ranks.exec("1 + 1") == [2] * _RANKS, after
            except mcjax_launch.JobFailed:
                ranks.restart()
                assert ranks.exec("1 + 1") == [2] * _RANKS, after
            return
    raise AssertionError(after)


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
