"""The agent as bytes for a host that has nothing of ours, and the line that takes them there."""

import os
import zlib
from functools import cache

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
#: What streams over, written out: whatever these import must be here or in the standard library.
MODULES = (
    "",
    "agent",
    "agent.environ",
    "agent.group",
    "agent.guardian",
    "agent.hardware",
    "agent.hooks",
    "agent.interpreter",
    "agent.loop",
    "agent.main",
    "agent.memory",
    "agent.ports",
    "agent.posix",
    "agent.prepare",
    "agent.reach",
    "agent.staging",
    "agent.streams",
    "agent.usage",
    "agent.wire",
)
HOOK_FILES = (
    "sitecustomize.py",
    "mcjax_rank_exits.py",
    "mcjax_rank_frames.py",
    "mcjax_rank_groups.py",
    "mcjax_rank_hook.py",
    "mcjax_rank_looks.py",
    "mcjax_rank_programs.py",
)
OLDEST_PYTHON = (3, 9)
_LOADING_S = 60
#: The loader's exit status on an interpreter older than that.
TOO_OLD = 93


@cache
def payload() -> bytes:
    """What the loader reads: our sources, and what makes modules of them."""
    sources = {".".join(filter(None, ("mcjax_launch", name))): _source(name) for name in MODULES}
    sources["mcjax_launch"] = ""  # its own imports are the launcher's affair
    hook = {name: _read("rank", name) for name in HOOK_FILES}
    text = f"{_read('agent', 'assemble.py')}\nassemble({sources!r}, {hook!r})\n"
    return zlib.compress(text.encode(), 9)


def loader() -> str:
    """Python code that runs the payload that follows on stdin.

    It goes through a login shell of any kind: no quotes, backslashes, dollars or exclamation marks.
    """
    old = f"sys.version_info<{OLDEST_PYTHON}and(sys.stderr.write(sys.version),sys.exit({TOO_OLD}))"
    # A launcher that dies while it sends this may leave no end of file.
    run = (
        f"signal.alarm({_LOADING_S});exec(zlib.decompress(sys.stdin.buffer.read({len(payload())})))"
    )
    return f"import signal,sys,zlib;{old};{run}".replace(", ", ",")


def _source(name: str) -> str:
    path = os.path.join(_PACKAGE, *name.split("."))
    return _read(path, "__init__.py") if os.path.isdir(path) else _read("", f"{path}.py")


def _read(*parts: str) -> str:
    with open(os.path.join(_PACKAGE, *parts), encoding="utf-8") as file:
        return file.read()
