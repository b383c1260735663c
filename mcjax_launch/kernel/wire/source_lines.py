"""What tracebacks hold: whose code a line is, and an exception quoted in another's text; pure.

A rank's hook, the agent and the launcher ask this of tracebacks, stacks and calls, to name the
line that a user can act on.
"""

from __future__ import annotations

import os

from .value import Value

#: Owners that are no installed package.
USER = ""
PYTHON = "python"
OURS = "mcjax-launch"
#: Begins a line of a dump of stacks: a thread's number, and how often it gave a processor up.
SWITCHES = "Switches of "
_JAX = ("jax", "jaxlib")
# Where a thread waits for another one.
_FOR_THREADS = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/selectors.py")
_OWN_WAIT = (
    r"\bwith [^=]|\b(?:acquire|get|join|wait|result|select|poll|recv|read|accept|put|sleep)\b"
)
# What waits for nothing but its arguments.
_AT_ONCE = ("float", "int", "bool", "str", "len", "print")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_PYTHONS = ("/lib/python3", "/lib64/python3")
# Of this interpreter, whose library may be elsewhere.
_OWN_LIBRARY = os.path.dirname(os.__file__) + "/"
# The part of mcjax-launch that runs inside a user's program.
_IN_RANKS = ("/mcjax_launch/kernel/", "/mcjax_launch/features/", "/mcjax_launch/pytest_plugin/")


def owner(file: str) -> str:
    """Whose a file is: USER, PYTHON, OURS, or the name of an installed package."""
    if any(folder in file for folder in _IN_RANKS):
        return OURS
    if is_frozen(file):
        return PYTHON
    installed = _below_installed(file)
    if installed is not None:
        return installed.partition("/")[0].partition(".")[0]
    in_library = file.startswith(_OWN_LIBRARY) or _below_library(file) is not None
    return PYTHON if in_library else USER


def is_users(file: str) -> bool:
    """Whether a file belongs to no library and not to the interpreter."""
    return owner(file) == USER


def is_jax(file: str) -> bool:
    """Whether a file belongs to JAX."""
    return owner(file) in _JAX


def waits_for_a_thread(file: str, source: str) -> bool:
    """Whether a call may wait for another thread of the program's, by the line it stands at."""
    return is_own_wait(source) if owner(file) == USER else file.endswith(_FOR_THREADS)


def is_own_wait(source: str) -> bool:
    """Whether a line of the user's may wait for a thread, or a file, of the user's own."""
    import re

    return re.search(_OWN_WAIT, source) is not None


def is_one_call(source: str) -> bool:
    """Return whether a line of the user's calls only one thing that can wait.

    Args:
        source: the line; the arguments of a call may stand on the next ones.

    """
    import ast

    whole = source + ")" if source.endswith("(") else source
    try:
        calls = [node.func for node in ast.walk(ast.parse(whole)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = [call.id if isinstance(call, ast.Name) else "" for call in calls]
    return len([name for name in names if name not in _AT_ONCE]) == 1


def is_frozen(file: str) -> bool:
    """Whether a file is a module inside the interpreter: there is no source to show."""
    return file.startswith("<frozen")


def shortened(file: str) -> str:
    """A library's file without the folder that libraries are in."""
    for rest in (_below_installed(file), _below_library(file)):
        if rest is not None:
            return rest
    return file


def _below_installed(file: str) -> str | None:
    """The rest of a name after the folder of installed packages; None if it is in none."""
    end = max(file.rfind(folder) + len(folder) if folder in file else -1 for folder in _INSTALLED)
    return file[end:] if end >= 0 else None


def _below_library(file: str) -> str | None:
    """The rest of a name after `lib/python3.11/` or the like; None if there is none."""
    for folder in _PYTHONS:
        _, found, rest = file.rpartition(folder)
        version, slash, rest = rest.partition("/")
        number = version[1:].rstrip("t")  # 3.13t: without the global lock
        if found and slash and (not version or (version[0] == "." and number.isdigit())):
            return rest
    return None


# --- an exception that another one's text quotes ---
# JAX puts what a callback raised into the text of an exception of its own, and Equinox the stack
# inside of its jit: the first line of such a text says nothing.

_FRAME = '  File "'


class Quoted(Value):
    """An exception in the text of another.

    Args:
        line: that says what happened, as `ValueError: not finite`.
        frames: file, line's number and function of each call, outermost first.

    """

    line: str
    frames: tuple[tuple[str, int, str], ...]


def embedded(text: str) -> Quoted | None:
    """The exception that the text of another one quotes; the last one of several, None for none."""
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
    said = with_words(rest[end:])
    found = (_frame(line) for line in rest[:end] if line.startswith(_FRAME))
    return Quoted(said, tuple(frame for frame in found if frame)) if said else None


def with_words(lines: list[str]) -> str:
    """The first line of an exception's text, with the next one if it is but a name and a colon."""
    if not lines:
        return ""
    first = lines[0].rstrip()
    if not first.endswith(":"):
        return first
    more = next((line.strip() for line in lines[1:] if line.strip()), "")
    return f"{first} {more}" if more else first[:-1]


def _frame(line: str) -> tuple[str, int, str] | None:
    file, _, rest = line[len(_FRAME) :].partition('", line ')
    number, _, name = rest.partition(", in ")
    return (file, int(number), name) if number.isdecimal() and len(number) < 10 else None
