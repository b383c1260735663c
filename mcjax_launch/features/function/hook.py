"""The program of a rank that runs one function: `python -m` finds it where the hook is.

It reads the call from a file in the job's private folder, and writes the result to another file:
the value, or the exception, which then ends the program as any other exception would.
"""

from __future__ import annotations

import os
import pickle
import sys

from ...wire import hook_environ
from ...wire.line import AgentLine
from . import messages as function_call
from .messages import Returned, pickle_in_parts, unpickle

TYPE_CHECKING = False  # as typing's own, without importing it
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from .messages import Buffer, Call, MainFile


def main() -> None:
    """Make the call that the file holds, and report its result."""
    report = CallReport(os.environ[hook_environ.SOCKET], os.environ["JAX_PROCESS_ID"])
    call, parts = function_call.read_call(function_call.get_call_path(report.folder))
    # The ranks can import all that the caller can; the rank's own path comes first.
    sys.path += [path for path in call.folders if path not in sys.path]
    _show_tracebacks(_get_sources(call))
    try:
        _make_main(call)
        function, args, kwargs = _load_call(call, parts)
        if call.initializes:
            import jax

            jax.distributed.initialize()
        returned = _pickle_result(function, function(*args, **kwargs))
        report.write(returned)
    except Exception as error:
        _report_exception(report, error)
        raise
    report.send("value", returned)


def _make_main(call: Call) -> None:
    """Replace `__main__` by an empty module, or by the caller's main file if the call needs it.

    Functions of a notebook need an empty one.
    """
    main = type(sys)("__main__" if call.main is None else function_call.MAIN)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if call.main is not None:
        sys.modules[function_call.MAIN] = main
        sys.argv = list(call.argv)
        _import(call.main, main.__dict__)


def _import(file: MainFile, names: dict[str, object]) -> None:
    code = compile(file.source, file.path, "exec", dont_inherit=True)
    names.update(__file__=file.path, __package__=file.package)
    function_call.importing = file.path
    try:
        exec(code, names)
    finally:
        function_call.importing = ""


def _load_call(call: Call, parts: Sequence[memoryview]) -> Any:
    try:
        return unpickle(parts)
    except AttributeError as error:
        if call.main is None:
            raise
        without = 'without the code under `if __name__ == "__main__":`'
        raise AttributeError(f"{error}: the ranks import it {without}") from None


# --- tracebacks ---


def _get_sources(call: Call) -> Mapping[str, str]:
    """Return the sources of code that is in no file on this host, by name."""
    if call.main is None or os.path.exists(call.main.path):
        return call.sources
    return {**call.sources, call.main.path: call.main.source}


def _show_tracebacks(sources: Mapping[str, str]) -> None:
    """Have tracebacks show lines of code that is in no file, and begin below this module."""
    hook: Any = sys.excepthook
    if hasattr(hook, "__wrapped__"):  # the launcher's: it sees the whole, and has this print it
        hook.__wrapped__ = _print_exception
    if sources:
        import linecache

        for name, text in sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _print_exception(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    from traceback import print_exception

    ours = main.__code__.co_filename
    below = traceback
    while below is not None and below.tb_frame.f_code is not main.__code__:
        below = below.tb_next
    while below is not None and below.tb_frame.f_code.co_filename == ours:
        below = below.tb_next
    print_exception(kind, error, below or traceback)


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


def _report_exception(report: CallReport, error: Exception) -> None:
    """Report an exception, if it can be pickled and so raised again by the caller."""
    try:
        parts = _pickle_value(error)
        unpickle(parts)
        report.write(parts)
    except Exception:
        return
    report.send("raised", parts)


class CallReport:
    """Report of a call's result to the agent; it works even if the function changes os.environ.

    Args:
        socket: path of the agent's socket, in the job's private folder.
        rank: number of this rank.

    """

    def __init__(self, socket: str, rank: str) -> None:
        self.folder = os.path.dirname(socket)
        self._socket = socket
        self._rank = rank

    def write(self, parts: Sequence[Buffer]) -> None:
        """Write a result to the file that the agent reads.

        Raises:
            OSError: there is no room for the file.

        """
        try:
            with open(function_call.get_result_path(self.folder, self._rank), "wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            where = f"{os.path.dirname(self.folder)} of this rank's host"
            why = f"no room for what the function returned: {error.strerror} in {where}"
            raise OSError(error.errno, f"{why}; set TMPDIR to another directory") from None

    def send(self, kind: str, parts: Sequence[Buffer]) -> None:
        """Tell the agent which kind of result was written, and the sizes of its parts."""
        line = AgentLine(self._socket, self._rank)
        line.send(Returned(kind, function_call.list_sizes(parts)))
        line.close()


if __name__ == "__main__":
    main()
