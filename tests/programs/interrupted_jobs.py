"""Run many short jobs, interrupt each at a random moment, and print what went wrong.

Arguments: how many jobs; the seed.
"""

import faulthandler
import os
import random
import signal
import sys
import threading
import time

import psutil

import mcjax_launch

_HUNG_S = 60
_LONGEST_S = 1.0


def main(jobs: int, seed: int) -> None:
    moments = random.Random(seed)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    assert mcjax_launch.launch("true").ok  # all is imported
    threads, descriptors = threading.active_count(), _descriptors()
    interrupted = 0
    for number in range(jobs):
        faulthandler.dump_traceback_later(_HUNG_S, exit=True)
        program = moments.choice(["true", "sleep 0.1", "trap '' INT; exec sleep 0.2"])
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + _LONGEST_S * moments.random() ** 3)
            result = mcjax_launch.launch("sh", "-c", program, processes=2)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert result.ok, result
        except KeyboardInterrupt:
            interrupted += 1
        left = psutil.Process().children(recursive=True)
        assert not left, f"job {number} ({program}) has left {left}"
    deadline = time.monotonic() + _HUNG_S
    faulthandler.cancel_dump_traceback_later()
    # The first job's thread may still have been there when they were counted.
    while threading.active_count() > threads or _descriptors() > descriptors:
        assert time.monotonic() < deadline, (threading.enumerate(), _descriptors(), descriptors)
        time.sleep(0.01)
    print(f"{jobs} jobs, {interrupted} interrupted")


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


main(int(sys.argv[1]), int(sys.argv[2]))
