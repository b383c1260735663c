"""Record of the programs that each rank runs over several processes, compared while it runs.

Programs in order are compared in `sequences.py`, and differences told by `differences.py`.
"""
