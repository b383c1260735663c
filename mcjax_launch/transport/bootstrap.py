"""The agent's code as bytes for hosts without mcjax-launch, and the loader that runs it."""

import os
import zlib
from collections.abc import Iterable, Iterator
from functools import cache

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders that each host gets: the agent, its ranks' hook, and the code that both import.
_FOLDERS = ("agent", "hook", "machine", "wire")
# Parts of a feature that each host gets, each a file or a folder.
_PARTS = ("messages", "agent", "hook")
OLDEST_PYTHON = (3, 9)
_LOADING_S = 60
# Level 9 takes three times as long and saves 1 %.
_LEVEL = 6
#: The loader's exit status on an interpreter older than OLDEST_PYTHON.
TOO_OLD = 93


@cache
def build_payload(features: frozenset[str]) -> bytes:
    """Return the compressed code that the loader runs: the package's sources and their importer.

    Args:
        features: names of the features whose files to include.

    """
    files = read_streamed_files(features)
    assemble = files["agent/assemble.py"]
    return zlib.compress(f"{assemble}\nassemble({files!r})\n".encode(), _LEVEL)


def read_streamed_files(features: Iterable[str]) -> dict[str, str]:
    """Return the text of each file to send to a host, by its path below the package."""
    files = {}
    for path in sorted(_iterate_paths(features)):
        with open(os.path.join(_PACKAGE, path), encoding="utf-8") as file:
            files[path] = file.read()
    return files


def _iterate_paths(features: Iterable[str]) -> Iterator[str]:
    yield "features/__init__.py"
    folders = list(_FOLDERS)
    for name in features:
        for part in ("__init__", *_PARTS):
            if os.path.exists(os.path.join(_PACKAGE, "features", name, f"{part}.py")):
                yield f"features/{name}/{part}.py"
        folders += [f"features/{name}/{part}" for part in _PARTS]
    for folder in folders:
        for below, _, names in os.walk(os.path.join(_PACKAGE, folder)):
            for name in names:
                if name.endswith(".py"):
                    yield os.path.relpath(os.path.join(below, name), _PACKAGE)


def make_loader_code(features: frozenset[str]) -> str:
    """Return Python code for `python -c` that reads the payload from stdin and runs it.

    It contains no quotes, backslashes, dollars or exclamation marks, so it passes unchanged through
    any login shell.
    """
    size = len(build_payload(features))
    old = f"sys.version_info<{OLDEST_PYTHON}and(sys.stderr.write(sys.version),sys.exit({TOO_OLD}))"
    # The alarm: if the launcher dies while it sends the payload, stdin may not end.
    run = f"signal.alarm({_LOADING_S});exec(zlib.decompress(sys.stdin.buffer.read({size})))"
    return f"import signal,sys,zlib;{old};{run}".replace(", ", ",")
