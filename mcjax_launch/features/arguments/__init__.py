"""Arguments of PROGRAM with its coordinates, which are filled in if it gets none."""
