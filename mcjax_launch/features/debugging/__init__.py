"""Debuggers in ranks, at the user's terminal: `breakpoint()` and --pdb."""
