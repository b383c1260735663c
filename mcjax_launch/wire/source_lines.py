"""Parsing of tracebacks: owners of source lines, and exceptions quoted in exceptions' texts.

The hook, the agent and the launcher use it on tracebacks, stacks and calls, to name a line that the
user can act on. No function here changes anything.
"""

from __future__ import annotations

import os

from .value import Value

#: Owners of a file besides installed packages.
USER = ""
PYTHON = "python"
OURS = "mcjax-launch"
#: JAX's module whose functions each run a program of all processes: process_allgather, ...
JAX_COLLECTIVES = "/jax/experimental/multihost_utils.py"
#: JAX's files that call the user's function from a running program, in a thread of the runtime.
CALLBACKS = ("/jax/_src/callback.py", "/jax/_src/debugging.py")
#: First line of the main thread's stack.
MAIN_THREAD = "Stack (most recent call first):"
#: Prefix of a line in a dump of stacks: the exception that the thread above is handling.
HANDLING = "Handling "
#: Last line of a dump of stacks.
END_OF_STACKS = "End of stacks"
_JAX = ("jax", "jaxlib")
# Python's files in which a thread waits for another thread.
_FOR_THREADS = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/selectors.py")
_OWN_WAIT = (
    r"\bwith [^=]|\b(?:acquire|get|join|wait|result|select|poll|recv|read|accept|put|sleep)\b"
)
_INSTALLED = ("/site-packages/", "/dist-packages/")
_PYTHONS = ("/lib/python3", "/lib64/python3")
# This interpreter's library, which may be in an unusual folder.
_OWN_LIBRARY = os.path.dirname(os.__file__) + "/"
# The part of mcjax-launch that runs inside a user's program.
_IN_RANKS = tuple(
    f"/mcjax_launch/{folder}/"
    for folder in ("hook", "machine", "wire", "features", "agent", "python")
)


def find_owner(file: str) -> str:
    """Return the owner of a file: USER, PYTHON, OURS, or the name of an installed package."""
    if any(folder in file for folder in _IN_RANKS):
        return OURS
    if is_frozen(file):
        return PYTHON
    installed = _find_installed_part(file)
    if installed is not None:
        return installed.partition("/")[0].partition(".")[0]
    in_library = file.startswith(_OWN_LIBRARY) or _find_library_part(file) is not None
    return PYTHON if in_library else USER


def is_users(file: str) -> bool:
    """Return whether a file is the user's: not of a package, Python or mcjax-launch."""
    return find_owner(file) == USER


def is_jax(file: str) -> bool:
    """Return whether a file belongs to JAX."""
    return find_owner(file) in _JAX


def waits_for_a_thread(file: str, source: str) -> bool:
    """Return whether a frame may be waiting for another thread, by its file and source line."""
    if find_owner(file) != USER:
        return file.endswith(_FOR_THREADS)
    import re

    return re.search(_OWN_WAIT, source) is not None


def is_frozen(file: str) -> bool:
    """Return whether a file name is of a frozen module, which has no source to show."""
    return file.startswith("<frozen")


def shorten_path(file: str) -> str:
    """Return a library's path below the folder of libraries; other paths unchanged."""
    for rest in (_find_installed_part(file), _find_library_part(file)):
        if rest is not None:
            return rest
    return file


def format_path(file: str) -> str:
    """Return a file's path for the user: relative if below the working directory."""
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory is gone, or the path is empty
        return file
    return file if below.startswith(os.pardir) else below


def _find_installed_part(file: str) -> str | None:
    """Return the part of a path below the folder of installed packages; None if there is none."""
    end = max(file.rfind(folder) + len(folder) if folder in file else -1 for folder in _INSTALLED)
    return file[end:] if end >= 0 else None


def _find_library_part(file: str) -> str | None:
    """Return the part of a path below `lib/python3.11/` or the like; None if there is none."""
    for folder in _PYTHONS:
        _, found, rest = file.rpartition(folder)
        version, slash, rest = rest.partition("/")
        number = version[1:].rstrip("t")  # 3.13t: without the global lock
        if found and slash and (not version or (version[0] == "." and number.isdigit())):
            return rest
    return None


# --- an exception that the text of another exception quotes ---
# JAX quotes what a callback raised in the text of its own exception, and Equinox quotes the stack
# inside its jit: the first line of such a text says nothing.

_FRAME = '  File "'


class Quoted(Value):
    """Exception that is quoted in the text of another exception.

    Args:
        line: class and message, such as `ValueError: not finite`.
        frames: file, line number and function of each call, outermost first.

    """

    line: str
    frames: tuple[tuple[str, int, str], ...]


def find_quoted_exception(text: str) -> Quoted | None:
    """Return the last exception that an exception's text quotes; None if it quotes none."""
    lines = text.splitlines()
    begins = (
        at
        for at in range(len(lines) - 1, 0, -1)
        if lines[at].startswith(_FRAME) and lines[at - 1].rstrip().endswith(":")
    )
    begin = next((at for at in begins if not lines[at - 1].startswith(" ")), None)
    if begin is None:
        return None
    rest = lines[begin:]
    end = next((at for at, line in enumerate(rest) if line.strip() and line[0] != " "), len(rest))
    said = format_first_line(rest[end:])
    found = (_parse_frame(line) for line in rest[:end] if line.startswith(_FRAME))
    return Quoted(said, tuple(frame for frame in found if frame)) if said else None


def format_first_line(lines: list[str]) -> str:
    """Return the first line of an exception's text; if it ends with a colon, add the next line."""
    if not lines:
        return ""
    first = lines[0].rstrip()
    if not first.endswith(":"):
        return first
    more = next((line.strip() for line in lines[1:] if line.strip()), "")
    return f"{first} {more}" if more else first[:-1]


def _parse_frame(line: str) -> tuple[str, int, str] | None:
    file, _, rest = line[len(_FRAME) :].partition('", line ')
    number, _, name = rest.partition(", in ")
    return (file, int(number), name) if number.isdecimal() and len(number) < 10 else None
