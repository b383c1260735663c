"""--preload: modules are imported once on each host, and the ranks forked.

With `MCJAX_HOOK_INSTEAD` the first rank's process imports the modules, forks the ranks and ends.
Whether that may be is decided before, from PROGRAM's files (`program.py`).
"""
