"""What runs on every host: starts the ranks, watches them, leaves nothing behind.

Only the standard library and `kernel.wire`: its source may be streamed to a host without
mcjax-launch.
"""
