"""Debuggers in ranks, at the user's terminal: `breakpoint()`, --pdb and --debugpy."""
