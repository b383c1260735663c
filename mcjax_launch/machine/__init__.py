"""Machine of a process, as every process needs it: system calls, event loop, paths, Python, GPUs.

It uses only the standard library and runs on Python 3.9, because it is streamed to hosts without
mcjax-launch. It imports only `wire`.
"""
