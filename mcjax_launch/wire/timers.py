"""Scaling of internal timers, so that tests that wait for a timer can shorten it.

MCJAX_TEST_TIME_SCALE=0.1 shortens all of them to a tenth. It reaches the launcher and the agents
that inherit its environment: those on this machine, not those over a real ssh.
"""

import os

SCALE = "MCJAX_TEST_TIME_SCALE"
_scale = float(os.environ.get(SCALE) or 1)


def scale_time(seconds: float) -> float:
    """Return `seconds` multiplied by MCJAX_TEST_TIME_SCALE (1 by default)."""
    return seconds * _scale
