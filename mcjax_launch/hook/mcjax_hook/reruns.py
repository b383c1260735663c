"""Which of the programs that it has run before a rank runs still, told when the launcher asks.

JAX runs a known program without Python. A signal empties its caches of how to do that, so that
the next call of each goes through Python once more, where we see it. Nothing is compiled again.
"""

import _thread
import sys

from . import replica_groups as groups

# After faulthandler's two.
_SIGNAL_OFFSET = 13
_CACHES = ("_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
# What C++ calls in the middle of a look into a cache: one that is emptied meanwhile crashes it.
_IN_A_CACHE = ("__eq__", "__hash__", "__ne__", "__del__")

#: How often the launcher has asked.
asked = 0

_tell = None
_caches = ()
_is_looking = False
_main_thread = None
# Whether other threads run programs too: one may fill a cache again while another looks into it.
_is_shared = False
# By the id of an executable: its program, and at which look that was last told. JAX may run it
# through another object each time.
_known = {}
_MOST_KNOWN = 1024


class _Known:
    def __init__(self, program, name):
        self.program = program
        self.name = name
        self.look = asked
        self.partners = None


def watch(tell):
    """Act on the launcher's signal from now on; its number, 0 where that cannot be.

    Args:
        tell: is given what runs still: the program, the number of the look, and the processes that
            have to run it too.

    """
    global _tell, _caches, _main_thread
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 0  # a cache may not be emptied while other threads look into it
    pjit = sys.modules.get("jax._src.pjit")
    caches = [getattr(pjit, name, None) for name in _CACHES]
    _caches = [cache for cache in caches if hasattr(cache, "clear")]
    try:
        import signal

        signum = signal.SIGRTMIN + _SIGNAL_OFFSET
        if not _caches or signal.getsignal(signum) is not signal.SIG_DFL:  # the program's own
            return 0
        signal.signal(signum, _look)
        signal.siginterrupt(signum, False)  # C code may not expect to be interrupted
    except (AttributeError, ValueError, OSError):  # not in the main thread
        return 0
    _tell, _main_thread = tell, _thread.get_ident()
    return int(signum)


def _look(_signum, _frame):
    """Have every program that runs from now on go through Python once.

    This may happen between any two steps of the program; it is asked for again if not now.
    """
    global asked, _is_looking
    if _is_looking or _is_shared:
        return
    _is_looking = True
    try:
        if not any(map(_is_in_a_cache, sys._current_frames().values())):
            asked += 1
            for cache in _caches:
                cache.clear()
    except Exception:
        pass
    finally:
        _is_looking = False


def _is_in_a_cache(frame):
    while frame is not None:
        if frame.f_code.co_name in _IN_A_CACHE:
            return True
        frame = frame.f_back
    return False


def see_thread():
    """The thread that this is runs programs."""
    global _is_shared
    if _main_thread is not None and _thread.get_ident() != _main_thread:
        _is_shared = True


def know(execution, program):
    """A program that spans processes runs for the first time."""
    if len(_known) >= _MOST_KNOWN:
        forget(next(iter(_known)))
    _known[id(execution.xla_executable)] = _Known(program, execution.name)


def forget(number):
    """Another executable has this id now."""
    _known.pop(number, None)


def ran(execution):
    """Something runs through Python: tell it, if it has run before and that was asked for."""
    see_thread()
    known = _known.get(id(execution.xla_executable))
    # One that was not compiled here may have got the id of one that is gone.
    if known is None or known.look == asked or known.name != execution.name:
        return
    known.look = asked
    if known.partners is None:
        known.partners = _partners(execution, known.program)
    _tell(known.program, asked, known.partners)


def _partners(execution, program):
    try:
        text = execution.xla_executable.hlo_modules()[0].to_string()
    except Exception:  # a platform that does not show it
        return []
    return groups.partners(text, program["places"], program["own"])
