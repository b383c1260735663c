"""Errors of JAX, XLA and Python that a user can do something about, by their text; pure.

What to do about each is not said here.
"""

import enum
import math
import re
from typing import NamedTuple


class KnownError(enum.Enum):
    """What went wrong."""

    INITIALIZED_TOO_LATE = enum.auto()  # something had used a device before initialize()
    PORT_IN_USE = enum.auto()
    SAME_PROCESS_TWICE = enum.auto()  # two processes took part as one
    OUT_OF_STEP = enum.auto()  # ranks ran different programs
    OUT_OF_MEMORY = enum.auto()
    UNKNOWN_XLA_FLAG = enum.auto()
    STDIN_EMPTY = enum.auto()
    NO_DEBUGPY = enum.auto()
    KEY_NEVER_SET = enum.auto()  # in the coordinator's key-value store
    SEVERAL_SLICES = enum.auto()  # make_mesh wants one
    SAME_GPU_TWICE = enum.auto()  # two ranks use one
    SHARED_MEMORY_FULL = enum.auto()  # /dev/shm
    NO_SUCH_GPU = enum.auto()
    FORKED_DRIVER = enum.auto()  # CUDA's, which had been started before the process was forked
    DRIVER_NOT_READY = enum.auto()
    GPU_FAILED = enum.auto()
    NO_GPU = enum.auto()  # JAX sees none that it can use
    TPU_IN_USE = enum.auto()  # another process has it


# Any of these texts shows the error; of several errors the first counts.
_TEXTS: tuple[tuple[KnownError, tuple[str, ...]], ...] = (
    (KnownError.INITIALIZED_TOO_LATE, ("must be called before any JAX c",)),
    (
        KnownError.PORT_IN_USE,
        ("Failed to add port to server", "Failed to start RPC server", "Address already in use"),
    ),
    # NCCL's warnings, which XLA quotes (src/init.cc, src/misc/shmutils.cc).
    (KnownError.SAME_GPU_TWICE, ("Duplicate GPU detected",)),
    (
        KnownError.SHARED_MEMORY_FULL,
        (
            *("Error while creating shared memory segment", "failed to extend /dev/shm/"),
            "Call to posix_fallocate failed",
        ),
    ),
    # CUDA's errors; the last ones of GPU_FAILED may be a kernel's own fault.
    (KnownError.NO_SUCH_GPU, ("invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE")),
    (KnownError.FORKED_DRIVER, ("CUDA_ERROR_NOT_INITIALIZED", "Cannot re-initialize CUDA in fork")),
    (KnownError.DRIVER_NOT_READY, ("CUDA_ERROR_SYSTEM_NOT_READY",)),
    (
        KnownError.GPU_FAILED,
        (
            *("NVRM: Xid", "fallen off the bus", "ncorrectable ECC error", "ECC_UNCORRECTABLE"),
            *("GPU is lost", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED"),
        ),
    ),
    (KnownError.SAME_PROCESS_TWICE, ("different incarnation", "newer incarnation")),
    (
        KnownError.OUT_OF_STEP,
        ("sync_global_devices name mismatch", "Mismatch in the number of", "op.preamble.length"),
    ),
    (
        KnownError.OUT_OF_MEMORY,
        ("RESOURCE_EXHAUSTED", "MemoryError", "Out of memory", "out of memory", "bad_alloc"),
    ),
    (KnownError.UNKNOWN_XLA_FLAG, ("Unknown flags in XLA_FLAGS", "Unknown flag in XLA_FLAGS")),
    (KnownError.STDIN_EMPTY, ("EOFError: EOF when reading a line",)),
    (KnownError.NO_DEBUGPY, ("No module named debugpy",)),
    (KnownError.KEY_NEVER_SET, ("GetKeyValue() timed out", "Timed out waiting for key")),
    (
        KnownError.TPU_IN_USE,
        ("The TPU is already in use by", "libtpu.so already in use by"),
    ),
    (KnownError.SEVERAL_SLICES, ("does not support multi-slice topologies",)),
    (
        KnownError.NO_GPU,
        (
            *("no supported devices found for platform", "No visible GPU devices"),
            *("no platforms that are instances of gpu", "no platforms that are instances of cuda"),
            *("Unable to initialize backend 'cuda'", "Unable to initialize backend 'rocm'"),
            "CUDA backend failed to initialize",
        ),
    ),
)
_NO_COORDINATES = ("Number of processes must be defined", "coordinator_address should be defined")
_PROXIES = "JAX detected proxy variable"
_FAULTHANDLER = "Fatal Python error"


def known_error(text: str) -> KnownError | None:
    """The error that a text shows, if it is one that we know."""
    matches = (error for error, texts in _TEXTS if any(part in text for part in texts))
    return next(matches, None)


class Devices(NamedTuple):
    """How many devices a program has, and how many it wants."""

    has: int
    wants: int


# What a mesh is made of; and what pmap says.
_OF_A_MESH = (
    r"Number of devices (\d{1,9}) must .{1,20} the product of mesh_shape \(([\d, ]{1,200})\)"
)
_OF_A_RESHAPE = r"cannot reshape array of size (\d{1,9}) into shape \(([\d, ]{1,200})\)"
_OF_PMAP = r"requires (\d{1,9}) (?:logical devices|replicas), but only (\d{1,9}) XLA devices"


def wrong_devices(text: str, line: str) -> Devices | None:
    """How many devices there are and should be, if a text says that their number is wrong.

    Args:
        text: of an exception.
        line: the user's own line that raised it.

    """
    if match := re.search(_OF_PMAP, text):
        return Devices(int(match[2]), int(match[1]))
    match = re.search(_OF_A_MESH, text)
    if match is None and "dev" in line:
        match = re.search(_OF_A_RESHAPE, text)
    if match is None:
        return None
    return Devices(int(match[1]), math.prod(map(int, re.findall(r"\d+", match[2]))))


def lacks_coordinates(text: str) -> bool:
    """Whether initialize() had to do without what the hook fills in."""
    return any(part in text for part in _NO_COORDINATES)


def warns_of_proxies(stderr: str) -> bool:
    """Whether JAX has seen proxy variables, which can keep processes apart."""
    return _PROXIES in stderr


def has_fault_traceback(stderr: str) -> bool:
    """Whether faulthandler has shown where a fatal signal came."""
    return _FAULTHANDLER in stderr
