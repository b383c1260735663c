"""Runs the launcher in a process that ends with the one that started it, however that ends.

A launcher as a subprocess, and not in pytest's own process: no test, fixture or plugin there can
come into its way (forks, signal handlers, captured streams, threads), nor it into theirs.
"""

import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run mcjax-launch with the arguments after the first, which is the parent's pid."""
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    parent = int(sys.argv.pop(1))
    from mcjax_launch.kernel.wire.system import LINUX

    if LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it has ended meanwhile
            return
    else:
        _end_with_input(os.path.dirname(sys.argv[-1]))
    from mcjax_launch.__main__ import run

    run()


def _end_with_input(folder: str) -> None:
    """End when the parent's end of standard input is closed, which nobody else has.

    Args:
        folder: of the parent's socket, which it may have left.

    """
    import shutil
    import threading

    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)

    def wait() -> None:
        os.read(fd, 1)
        shutil.rmtree(folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
