"""Cells: texts that the ranks of a session run, for notebooks and for the prompt."""
