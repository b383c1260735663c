"""Code that runs on every host: it starts the ranks, watches them, and leaves nothing behind.

It uses only the standard library, `wire` and `machine`, because its source may be streamed to a
host without mcjax-launch.
"""
