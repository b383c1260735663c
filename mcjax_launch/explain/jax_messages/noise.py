"""Kinds of noise in output."""

import enum


class Noise(enum.Enum):
    """A kind of line that may be hidden."""

    GLOO = enum.auto()  # a communicator has connected; its numbers are not the job's ranks
    TERM = enum.auto()  # the preemption service has caught SIGTERM
    VICTIM = enum.auto()  # another rank is gone
    STACK = enum.auto()  # the C++ stack of a process that ends because another rank is gone
    TRACEBACK = enum.auto()  # an exception because another rank is gone
    INTERRUPT = enum.auto()  # a Ctrl-C's traceback, like that of another rank
    INSIDE = enum.auto()  # in a Ctrl-C's traceback, all but the lines of the user's code
    SAME = enum.auto()  # a traceback like that of another rank
    END = enum.auto()  # a rank on GPUs ends, well or not
    STUB = enum.auto()  # there is no CUDA driver


#: Kinds that are hidden in every job, and not counted.
NO_NEWS = (Noise.GLOO, Noise.END, Noise.STUB)
