"""Messages, frames and names of variables that cross between launcher, agents and hooks.

It uses only the standard library and runs on Python 3.9, because it is streamed to hosts without
mcjax-launch. It imports nothing else of the package.
"""
