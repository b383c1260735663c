"""Features, which can be deleted: a folder for each, with messages and a part for each process.

No code outside a feature's folder names it. The launcher finds features by listing this folder
(`options/features.py`), and asks for what is not an option's by the name of a module.
Hosts and ranks are told which they have. A folder's `messages`, `agent` and `hook` are streamed to
other hosts, and run on Python 3.9. A `client`, and all of `notebook` and `pytest`, runs in programs
that have started the command.
"""

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def exists(name: str) -> bool:
    """Return whether there is a feature of this name."""
    path = os.path.join(os.path.dirname(__file__), name, "__init__.py")
    return name.isidentifier() and os.path.exists(path)


def list_patched(name: str) -> "Sequence[str]":
    """Return the modules that a feature patches in ranks, once the program has imported them."""
    return getattr(import_module(f"{__name__}.{name}"), "PATCHED", ())
