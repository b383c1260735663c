"""Jobs without a terminal: their folders and files, and terminals that attach to them again.

A job's folder holds what it is, how it has ended, and its output (`jobs.py`, `output.py`).
`start.py` starts the launcher, `commands.py` is what a user does with it.
"""
