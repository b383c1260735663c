"""Debuggers in ranks, at the user's terminal: `breakpoint()` and --pdb."""

#: Modules of debuggers that the program may import.
PATCHED = (
    "pdb",
    "IPython.terminal.debugger",
    "pudb.debugger",
    "jax._src.debugger.cli_debugger",
)
