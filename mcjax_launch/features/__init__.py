"""Features that span processes: a folder each, with messages and a part for each process.

Each process loads its parts by name: `launcher` in the launcher, `agent` on the hosts, `hook`
in the ranks. It knows features only from this module. A folder's `messages`, `agent` and `hook` are
streamed to other hosts, and run on Python 3.9. A `client`, and all of `notebook` and `pytest`, runs
in programs that have started the command.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcjax_launch.job.job import Job

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
#: The feature that patches a module, once the program has imported it, by the module's name.
PATCHES = {
    "pdb": "debugging",
    "IPython.terminal.debugger": "debugging",
    "pudb.debugger": "debugging",
    "jax._src.debugger.cli_debugger": "debugging",
}
#: Modules that a feature patches in the same way, if the job uses it.
OWN_PATCHES = {
    ALONE: (
        "jax.experimental.multihost_utils",
        "orbax.checkpoint.checkpoint_manager",
        "orbax.checkpoint.checkpointers",
        "orbax.checkpoint.v1",
        "orbax.checkpoint.experimental.v1",
    ),
}


def exists(name: str) -> bool:
    """Return whether there is a feature of this name."""
    folder = os.path.dirname(__file__)
    return name.isidentifier() and os.path.exists(os.path.join(folder, name, "__init__.py"))


def list_used(job: "Job") -> "list[str]":
    """Return the names of features whose launcher part must exist before the ranks start."""
    uses = {
        COMPILER: job.compiles_once,
        "debugging": bool(job.pdb),
        "mtls": job.mtls != "off",
        "preload": bool(job.preload),
        ALONE: bool(job.alone),
        "profile": job.profile is not None,
        RECORDER: job.verify_spmd,
        "session": job.has_calls,
        "setup": job.setup is not None,
        "stdin": job.stdin,
    }
    return [name for name, is_used in uses.items() if is_used and exists(name)]


def list_for_hosts(job: "Job") -> "set[str]":
    """Return the names of features whose code hosts need."""
    return {*filter(exists, ANY_TIME), *list_used(job)}
