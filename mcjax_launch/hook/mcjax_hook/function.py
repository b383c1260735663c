"""The program of a rank that runs one function: `python -m` finds it where the hook is.

It reads what to call from a file, and reports what comes of it over a connection of its own: the
value, or the exception, which then ends the program as any other would.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys

from ...protocol import hook_environ
from ...protocol.codec import to_json
from ...protocol.hook_messages import Hello, Returned

TYPE_CHECKING = False  # as typing's own, without importing it
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Any

# Of a message: the agent takes lines of some MiB.
_PART = 1 << 20


def main(path: str) -> None:
    """Call what the file at `path` holds, and report what comes of it."""
    with open(path, "rb") as file:
        folders, sources, initializes, call = pickle.load(file)
    # What the caller can import by its own path; the rank's own comes first.
    sys.path += [folder for folder in folders if folder not in sys.path]
    _as_main()
    _show_tracebacks(sources)
    try:
        function, args, kwargs = pickle.loads(call)
        if initializes:
            import jax

            jax.distributed.initialize()
        data = _returned(function, function(*args, **kwargs))
    except Exception as error:
        _report("raised", _exception(error))
        raise
    _report("value", data)


def _as_main() -> None:
    """Let what the program of a notebook defines have a `__main__`, which is not this module."""
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main


def _show_tracebacks(sources: Mapping[str, str]) -> None:
    """Let tracebacks have the lines of what is in no file, and begin below this module."""
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

    below = traceback
    while below is not None and below.tb_frame.f_code is not main.__code__:
        below = below.tb_next
    own = below.tb_next if below is not None else None
    print_exception(kind, error, own or traceback)


def _returned(function: Any, value: Any) -> bytes:
    try:
        return _pickled(value)
    except Exception as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"what {name} returned cannot be pickled: {error}") from None


def _pickled(value: Any) -> bytes:
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    return bytes(dumps(value))


def _exception(error: Exception) -> bytes:
    """The exception as it can be raised again; nothing if it cannot."""
    try:
        data = _pickled(error)
        pickle.loads(data)
    except Exception:
        return b""
    return data


def _report(kind: str, data: bytes) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ[hook_environ.SOCKET])
        hello = Hello(os.getpid(), os.environ["JAX_PROCESS_ID"], 0)
        for message in (hello, *_parts(kind, data)):
            link.sendall(b"\n" + to_json(message).encode() + b"\n")


def _parts(kind: str, data: bytes) -> Iterator[Returned]:
    text = base64.b64encode(data).decode()
    starts = range(0, len(text) or 1, _PART)
    for start in starts:
        yield Returned(kind, text[start : start + _PART], start == starts[-1])


if __name__ == "__main__":
    main(sys.argv[1])
