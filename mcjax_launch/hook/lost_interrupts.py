"""Ctrl-C during a callback of the garbage collector, where Python drops a KeyboardInterrupt.

JAX has such a callback, which runs often while JAX traces a function: the program would go on.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds after which the main thread has left the callback.
_BEHIND_S = 0.01


def raise_again() -> None:
    """Raise KeyboardInterrupt again, behind the callback, whenever Python drops it there."""
    import _thread
    import gc
    import time

    show = sys.unraisablehook

    def interrupt() -> None:
        time.sleep(_BEHIND_S)
        _thread.interrupt_main()

    def on_dropped(dropped: Any) -> None:
        if dropped.exc_type is KeyboardInterrupt and dropped.object in gc.callbacks:
            _thread.start_new_thread(interrupt, ())
        else:
            show(dropped)

    sys.unraisablehook = on_dropped
