"""Features that span processes: a folder each, with messages and a part for each process.

Each process loads its parts by name: `launcher` in the launcher, `agent` on the hosts, `hook`
in the ranks. It knows features from this module, and the launcher also from `options/features.py`.
A folder's `messages`, `agent` and `hook` are streamed to other hosts, and run on Python 3.9. A
`client`, and all of `notebook` and `pytest`, runs in programs that have started the command.
"""

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Features that any job may come to need.
ANY_TIME = ("debugging", "recorder")
#: The feature that acts on hosts before they are prepared.
FIRST_STEP = "setup"
#: The feature that records the programs of ranks that have joined.
RECORDER = "recorder"
#: The feature whose ranks run alone, and which records programs in its own way.
ALONE = "preview"
#: The feature that obtains programs that another rank, or an earlier run, has compiled.
COMPILER = "compile_once"

#: Features with a variable that is removed for a rank's child processes.
OF_RANKS_ALONE = ("debugging",)


def exists(name: str) -> bool:
    """Return whether there is a feature of this name."""
    folder = os.path.dirname(__file__)
    return name.isidentifier() and os.path.exists(os.path.join(folder, name, "__init__.py"))


def list_patched(name: str) -> "Sequence[str]":
    """Return the modules that a feature patches in ranks, once the program has imported them."""
    return getattr(import_module(f"{__name__}.{name}"), "PATCHED", ())


def list_for_hosts(used: "Iterable[str]") -> "set[str]":
    """Return the names of features whose code hosts need, of those that a job uses."""
    return {*filter(exists, ANY_TIME), *used}
