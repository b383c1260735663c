"""--watch: detection of saved files, and the decision to start the job again.

A process forks a launcher for each run (`watcher.py`). The next run begins early and waits for a
save; its import server checks then that nothing that it has loaded has changed.
"""
