"""Code shared by the launcher, agents and hooks: messages, names of variables, the event loop.

It uses only the standard library and runs on Python 3.9, because it is streamed to hosts without
mcjax-launch.
"""
