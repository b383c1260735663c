"""What crosses processes: a folder for each feature, with its messages and its part in each.

The kernel loads the parts by name: `launcher` in the launcher, `agent` on the hosts, `hook` in the
ranks. It knows features from here alone. A folder's `messages`, `agent` and `hook` are streamed to
other hosts, and run on Python 3.9.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcjax_launch.job.job import Job

#: Those that any job may come to need.
ANY_TIME = ("debugging",)
#: Of which signals to the launcher they are told, as the first to come may be the only one.
SIGNALS = {"SIGPROF": "profile"}
#: Which one asks whether ranks on accelerators move.
ON_ACCELERATORS = "looks"

#: Those whose variable is not for processes that a rank starts.
OF_RANKS_ALONE = ("debugging",)
#: Whose part patches which modules, once the program has imported them.
PATCHES = {
    "pdb": "debugging",
    "IPython.terminal.debugger": "debugging",
    "pudb.debugger": "debugging",
    "jax._src.debugger.cli_debugger": "debugging",
}


def exists(name: str) -> bool:
    """Whether it is the name of one."""
    folder = os.path.dirname(__file__)
    return name.isidentifier() and os.path.exists(os.path.join(folder, name, "__init__.py"))


def used(job: "Job") -> "list[str]":
    """Those whose part is there before the ranks are."""
    uses = {
        "black_box": job.black_box is not None,
        "compile_once": job.compiles_once,
        "debugging": job.debugpy is not None or bool(job.pdb),
        "mtls": job.mtls != "off",
        "looks": job.answers_looks,
        "preload": bool(job.preload),
        "profile": job.profile is not None,
        "rehearse": bool(job.rehearse),
        "stdin": bool(job.stdin),
        "verify_spmd": job.verify_spmd,
    }
    return [name for name, is_used in uses.items() if is_used]


def on_hosts(job: "Job") -> "set[str]":
    """Those that hosts need."""
    uses = {
        "check": job.check,
        "function": bool(job.call),
        "preload": bool(job.watch),  # PROGRAM as it is saved later may need it
    }
    return {*ANY_TIME, *used(job), *(name for name, is_used in uses.items() if is_used)}
