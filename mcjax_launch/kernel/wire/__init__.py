"""What the launcher, the agents and the hooks share: messages, names of variables, the event loop.

Only the standard library, and Python 3.9: it is streamed to hosts without mcjax-launch.
"""
