"""How long timers run that nobody sets: whoever waits one out in a test has it run shorter.

Internal: MCJAX_TEST_TIME_SCALE=0.1 has them take a tenth. It reaches the launcher, and the agents
that inherit its environment: those of this machine, but none over a real ssh.
"""

import os

SCALE = "MCJAX_TEST_TIME_SCALE"
_scale = float(os.environ.get(SCALE) or 1)


def scaled(seconds: float) -> float:
    """So many seconds, or what a test has made of them."""
    return seconds * _scale
