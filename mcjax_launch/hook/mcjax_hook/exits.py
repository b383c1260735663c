"""How a rank's program ends: told to the agent before JAX's exit barrier can hide it."""

import os
import sys

from ...protocol.hook_messages import HandledException, Leaving
from . import frames

_MOST_TEXT = 32_000

_agent = None
_last_exit_code = None
_last_exit_place = None
_last_exit_handled = None
# Of the main thread, from initialize() on: how it ended tells how the program did.
_outermost_frame = None


def install(agent):
    """See every way out of the program, from its first line on."""
    global _agent
    _agent = agent
    _record_exits()
    _watch_excepthook()


def _watch_excepthook():
    chain = sys.excepthook
    if getattr(chain, "_mcjax", False):
        return

    def excepthook(kind, value, traceback):
        try:
            _tell_exception(kind, value, traceback)
        finally:
            chain(kind, value, traceback)

    excepthook._mcjax = True
    sys.excepthook = excepthook


def _tell_exception(kind, value, traceback):
    if _agent is None:
        return
    import traceback as tb

    try:
        text = _formatted(tb.TracebackException(kind, value, traceback))
        summary = "".join(tb.format_exception_only(kind, value)).strip()
    except Exception as error:  # an exception that cannot be printed
        text = summary = f"{kind.__name__} (cannot be shown: {error!r})"
    found = reversed(tb.extract_tb(traceback))
    frame = frames.users(found, lambda frame: frame.filename)
    _agent.tell_failed(
        130 if issubclass(kind, KeyboardInterrupt) else 1,
        exception=kind.__name__,
        summary=summary[:_MOST_TEXT],
        traceback=text[-_MOST_TEXT:],
        where=frame and f"{frame.filename}:{frame.lineno} in {frame.name}",
        line=frame and frame.line,
        module=getattr(value, "name", None) if isinstance(value, ImportError) else None,
        python=sys.executable,
    )


def _formatted(exception):
    """A traceback without the hook's frames and those that JAX marks as internal."""
    internal = (os.path.dirname(os.path.abspath(__file__)), *_marked_by_jax())
    ahead = [exception]
    while ahead:
        one = ahead.pop()
        if one is None:
            continue
        kept = [frame for frame in one.stack if not frame.filename.startswith(internal)]
        if kept:
            one.stack[:] = kept
        notes = getattr(one, "__notes__", None)
        if isinstance(notes, list):  # that JAX has removed some frames itself
            one.__notes__ = [note for note in notes if "JAX has removed its internal" not in note]
        ahead += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(exception.format())


def _marked_by_jax():
    """The files whose frames JAX leaves out of its own tracebacks."""
    util = sys.modules.get("jax._src.traceback_util")
    return tuple(map(str, getattr(util, "_exclude_paths", ())))


def _record_exits():
    """Make every SystemExit known to us, from the program's first line on.

    Nothing in Python announces one that nobody catches: it reaches no excepthook, and `atexit`
    does not know the status. So the name leads to a subclass that remembers the last code.
    """
    import builtins

    real = builtins.SystemExit

    class RecordedExit(real):
        def __init__(self, *args):
            global _last_exit_code, _last_exit_place, _last_exit_handled
            super().__init__(*args)
            _last_exit_code = self.code
            _last_exit_handled = _handled()
            frame = frames.here()
            if frame is not None:
                code = frame.f_code
                _last_exit_place = code.co_filename, frame.f_lineno, code.co_name

        def __del__(self):
            # Freed while no Python code runs: the interpreter is about to leave because of it.
            _tell_if_ended_by_exit(1)

    RecordedExit.__name__ = RecordedExit.__qualname__ = real.__name__
    RecordedExit.__module__ = real.__module__
    RecordedExit.__doc__ = real.__doc__

    def exit(status=None, /):  # noqa: A001
        """Exit the interpreter by raising SystemExit(status)."""
        raise RecordedExit(status)

    builtins.SystemExit = RecordedExit
    sys.exit = exit
    if "threading" in sys.modules:
        patch_threading(sys.modules["threading"])


def _handled():
    """The exception that is being handled, in words: it may be the reason for an exit."""
    kind, value, _ = sys.exc_info()
    if kind is None:
        return None
    try:
        summary = str(value)[:_MOST_TEXT]
    except Exception:
        summary = ""
    return HandledException(kind.__name__, summary)


def patch_threading(threading):
    """A thread's sys.exit() stays silent: the original hook looks for the one real class."""
    real = threading.excepthook

    def excepthook(args):
        if not issubclass(args.exc_type, SystemExit):
            real(args)

    threading.excepthook = threading.__excepthook__ = excepthook


def watch():
    """From initialize() on, say of an uncaught exit or exception before JAX's barrier hides it."""
    import atexit
    import threading

    global _outermost_frame
    if _outermost_frame is not None:
        return
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_back is not None:
        frame = frame.f_back
    _outermost_frame = frame
    atexit.register(_at_exit)  # after JAX's own, so it runs before
    _watch_excepthook()  # the program may have put its own on top of ours


def _at_exit():
    """What was not seen at once: an excepthook replaced later, an exception somebody holds."""
    global _outermost_frame
    uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if uncaught is not None and _program_was_cut_off():
        _tell_exception(type(uncaught), uncaught, uncaught.__traceback__)
    _tell_if_ended_by_exit(0)
    _agent.tell(Leaving())
    _outermost_frame = None  # what is freed from now on means nothing


def _tell_if_ended_by_exit(caller, getframe=sys._getframe):
    """Say that the program has ended by a SystemExit, if no Python code runs above us."""
    if _outermost_frame is None or _agent is None:
        return
    try:
        if caller and getframe(caller + 1):
            return
    except ValueError:
        pass
    import threading

    if threading.current_thread() is threading.main_thread() and _program_was_cut_off():
        _tell_exit(_last_exit_code)


def _program_was_cut_off():
    """Whether the outermost frame was left by an exception, not by returning."""
    import opcode

    frame = _outermost_frame
    if frame is None:
        return False
    last = frame.f_code.co_code[frame.f_lasti]
    return not opcode.opname[last].startswith("RETURN")


def _tell_exit(code):
    status = 0 if code is None else code if isinstance(code, int) else 1
    if _agent is None:
        return
    where = line = None
    if _last_exit_place is not None:
        import linecache

        file, number, name = _last_exit_place
        where, line = f"{file}:{number} in {name}", linecache.getline(file, number).strip()
    _agent.tell_failed(status, exited=True, where=where, line=line, handled=_last_exit_handled)
