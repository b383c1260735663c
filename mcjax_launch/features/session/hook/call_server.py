"""The program of a rank that makes calls: `python -m` finds it where the hook is.

It reads each call from a file in the job's private folder, and writes the result to another file:
the value, or the exception. The last call ends the program, by its exception if it raises one.
"""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):  # before 3.11: the current folder is the first
    del sys.path[0]

import builtins
import functools
import io
import os
import pickle
import signal

from ....wire import hook_environ
from ....wire.line import AgentLine
from ....wire.source_lines import OURS, find_owner
from .. import messages as session
from ..messages import CallReady, Ready, Returned, ToRank, pickle_in_parts, unpickle
from .cells import Cells
from .partial_call import PartialCalls

TYPE_CHECKING = False  # as typing's own, without importing it
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType
    from typing import Any, NoReturn

    from ..messages import Buffer, Call, MainFile

# Packages that the caller lacks, or shall not start to show a value.
_ONLY_HERE = ("__main__", session.MAIN, "jax", "jaxlib")


def main() -> None:
    """Make the calls that arrive, until none follows."""
    CallServer(os.environ[hook_environ.SOCKET], os.environ["JAX_PROCESS_ID"]).serve()


class CallServer:
    """Maker of calls, one after another; it works even if a call changes os.environ.

    Args:
        socket: path of the agent's socket, in the job's private folder.
        rank: number of this rank.

    """

    def __init__(self, socket: str, rank: str) -> None:
        self._folder = os.path.dirname(socket)
        self._rank = rank
        self._line = AgentLine(socket, rank)
        self._pid = os.getpid()
        self._maker = CallMaker(int(rank))
        self._is_interruptible = False

    def serve(self) -> None:
        """Make calls until none follows, or the agent is gone."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)
        _show_tracebacks()
        self._line.send(Ready())
        while isinstance(order := self._line.receive(ToRank), CallReady):
            if self._serve(order):
                return

    def _on_interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self._is_interruptible:
            raise KeyboardInterrupt

    def _serve(self, order: CallReady) -> bool:
        """Make a call and report its result; return whether it was the last one.

        Raises:
            BaseException: what the last call has raised, or a SystemExit.

        """
        number = order.number
        call, parts = session.read_call(session.get_call_path(self._folder, number))
        try:
            self._is_interruptible = True
            try:
                kind, returned = self._maker.make(call, parts, order.ranks)
            finally:
                if os.getpid() != self._pid:
                    _leave(sys.exc_info()[1])
            self._write(number, returned)
            self._is_interruptible = call.is_last
        except BaseException as error:
            self._is_interruptible = call.is_last
            is_end = (isinstance(error, SystemExit) and not call.shows) or (
                call.is_last and not isinstance(error, Exception)
            )
            if not is_end:
                self._report_exception(number, error)
            if is_end or call.is_last:
                raise
        else:
            self._line.send(Returned(number, kind, session.list_sizes(returned)))
        return call.is_last

    def _report_exception(self, number: int, error: BaseException) -> None:
        """Report an exception, with a pickle of it if the caller can raise it again."""
        from ....hook.failure import describe_exception

        below = _find_below(error.__traceback__)
        failure = describe_exception(type(error), error, below, joined=False)
        try:
            parts = _pickle_value(error)
            unpickle(parts)
            self._write(number, parts)
        except Exception:
            parts = []
        self._line.send(Returned(number, "raised", session.list_sizes(parts), failure))

    def _write(self, number: int, parts: Sequence[Buffer]) -> None:
        """Write a result to the file that the agent reads.

        Raises:
            OSError: there is no room for the file.

        """
        path = session.get_result_path(self._folder, self._rank, number)
        try:
            with open(path, "wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            where = f"{os.path.dirname(self._folder)} of this rank's host"
            why = f"no room for what the function returned: {error.strerror} in {where}"
            raise OSError(error.errno, f"{why}; set TMPDIR to another directory") from None


def _leave(error: BaseException | None) -> NoReturn:
    """End this process, a fork that has come back from a call, as its program would end."""
    status = 0 if error is None else getattr(error, "code", 1)  # of SystemExit
    try:
        if error is not None and not isinstance(error, SystemExit):
            from traceback import print_exception

            print_exception(type(error), error, _find_below(error.__traceback__))
        sys.stdout.flush()
    finally:
        os._exit(status & 0xFF if isinstance(status, int) else int(status is not None))


class CallMaker:
    """Maker of calls in this process, whose `__main__` belongs to them.

    Functions of a notebook need an empty one; others the caller's main file, which is imported
    into it when a call first needs it.

    Args:
        rank: number of this rank.

    """

    def __init__(self, rank: int) -> None:
        self._main = sys.modules["__main__"] = type(sys)("__main__")
        self._main.__dict__["__builtins__"] = builtins
        self._is_main_imported = False
        self._has_initialized = False
        self._has_path = False
        self._cells = Cells(self._main.__dict__)
        self._partial = PartialCalls(rank, self._main.__dict__)

    def make(
        self, call: Call, parts: Sequence[memoryview], ranks: Sequence[int] | None
    ) -> tuple[str, list[Buffer]]:
        """Make a call; return the kind of its result, and the pickled result.

        Args:
            call: head of the call.
            parts: the pickled call.
            ranks: ranks that make it; None for all.

        Raises:
            BaseException: what the call has raised.
            TypeError: its value cannot be pickled.

        """
        self._extend_path(call)
        _add_sources(call)
        if call.main is not None and not self._is_main_imported:
            self._import_main(call.main, call.argv)
        function, args, kwargs = _load_call(call, parts)
        if call.initializes and not self._has_initialized:
            import jax

            jax.distributed.initialize()
            self._has_initialized = True
            _allow_initialize_again()
        with self._partial.among(ranks):
            if not call.cell:
                return "value", _pickle_result(function, function(*args, **kwargs))
            self._main.__dict__.update(kwargs)
            value = self._cells.run(call.sources[call.cell], call.cell)
            if call.shows:
                return "value", self._pickle_bundles(value, returns=call.returns)
            return _pickle_shown(value)

    def _extend_path(self, call: Call) -> None:
        """Let the rank import all that the caller can, in the caller's order.

        The rank's own Python and its packages stay in the place of the caller's, which may be
        another Python's. Calls after the first only add folders: the rank may have its own order.
        """
        first = () if self._has_path else call.first_folders
        self._has_path = True
        path = dict.fromkeys((*first, *sys.path, *call.folders))
        sys.path[:] = path

    def _import_main(self, file: MainFile, argv: Sequence[str]) -> None:
        sys.modules[session.MAIN] = self._main
        sys.argv = list(argv)
        names = self._main.__dict__
        code = compile(file.source, file.path, "exec", dont_inherit=True)
        names.update(__name__=session.MAIN, __file__=file.path, __package__=file.package)
        session.importing = file.path
        try:
            exec(code, names)
            self._is_main_imported = True
        finally:
            session.importing = ""
            names["__name__"] = "__main__"

    def _pickle_bundles(self, value: Any, *, returns: bool) -> list[Buffer]:
        """Pickle what to show of a cell's value, and keep the value as `_`, as Python does.

        If `returns`, a value that the caller can have comes in a list, and is not shown.
        """
        from .shown import make_bundles

        if value is not None:
            self._main.__dict__["_"] = value
        if not returns:
            return _pickle_value(make_bundles(value))
        if value is None or _pickle_shown(value)[0] == "repr":
            return _pickle_value((make_bundles(value), []))
        return _pickle_value((make_bundles(None), [value]))


def _load_call(call: Call, parts: Sequence[memoryview]) -> Any:
    try:
        return unpickle(parts)
    except AttributeError as error:
        if call.main is None:
            raise
        without = 'without the code under `if __name__ == "__main__":`'
        raise AttributeError(f"{error}: the ranks import it {without}") from None


def _allow_initialize_again() -> None:
    """Have initialize() do nothing now, as where a cell has it, or runs a second time."""
    import jax

    real = jax.distributed.initialize

    @functools.wraps(real)
    def initialize(*args: Any, **kwargs: Any) -> None:
        if not jax.distributed.is_initialized():
            real(*args, **kwargs)

    jax.distributed.initialize = initialize


# --- tracebacks ---


def _add_sources(call: Call) -> None:
    """Have tracebacks show lines of code that is in no file on this host."""
    sources = dict(call.sources)
    if call.main is not None and not os.path.exists(call.main.path):
        sources[call.main.path] = call.main.source
    if sources:
        import linecache

        for name, text in sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _show_tracebacks() -> None:
    """Have tracebacks begin below this module."""
    hook: Any = sys.excepthook
    if hasattr(hook, "__wrapped__"):  # the launcher's: it sees the whole, and has this print it
        hook.__wrapped__ = _print_exception


def _print_exception(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    from traceback import print_exception

    below = traceback
    while below is not None and below.tb_frame.f_code is not main.__code__:
        below = below.tb_next
    print_exception(kind, error, _find_below(below) or traceback)


def _find_below(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below mcjax-launch's frames; None without frames below."""
    while traceback is not None and find_owner(traceback.tb_frame.f_code.co_filename) == OURS:
        traceback = traceback.tb_next
    return traceback


# --- the result ---


def _pickle_result(function: Any, value: Any) -> list[Buffer]:
    try:
        return _pickle_value(value)
    except Exception as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"the value that {name} returned cannot be pickled: {error}") from None


def _pickle_value(value: Any) -> list[Buffer]:
    """Pickle a value by name; if that fails, by value, with cloudpickle if it is installed."""
    try:
        return pickle_in_parts(value, pickle.dumps)
    except Exception:
        try:
            from cloudpickle import dumps
        except ImportError:
            dumps = None
        if dumps is None:
            raise
    return pickle_in_parts(value, dumps)


class _AsCaller(pickle.Unpickler):
    """Unpickler that fails where the caller's would fail, or start JAX."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in _ONLY_HERE:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _pickle_shown(value: Any) -> tuple[str, list[Buffer]]:
    """Pickle the value of a cell; or its text, if the value needs to stay in this process."""
    try:
        parts = _pickle_value(value)
        _AsCaller(io.BytesIO(parts[0]), buffers=parts[1:]).load()
    except Exception:
        return "repr", pickle_in_parts(repr(value), pickle.dumps)
    return "value", parts


if __name__ == "__main__":
    main()
