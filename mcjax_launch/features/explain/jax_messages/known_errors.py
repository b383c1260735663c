"""Known errors of JAX, XLA and Python, recognized by their text, with hints; pure."""

import enum
import math
import re
from collections.abc import Sequence
from typing import NamedTuple


class KnownError(enum.Enum):
    """A known error: the texts that show it, and a hint for the user.

    If a text shows several errors, the first one here counts.
    """

    INITIALIZED_TOO_LATE = (
        ["must be called before any JAX c"],
        "call jax.distributed.initialize() before anything that uses a device, including code "
        "that runs while your modules are imported",
    )
    PORT_IN_USE = (
        ["Failed to add port to server", "Failed to start RPC server", "Address already in use"],
        "the port is in use: leave out the program's own address or --coordinator's port, and a "
        "free one is picked",
    )
    LOOPBACK_DOWN = (  # Gloo's
        ["Unable to find interface for: [127."],
        "the loopback interface of that machine seems to be down; bring it up: ip link set lo up",
    )
    # NCCL's warnings, which XLA quotes (src/init.cc, src/misc/shmutils.cc).
    SAME_GPU_TWICE = (
        ["Duplicate GPU detected"],
        "two ranks of a host use the same GPU, which NCCL refuses: give each its own with "
        "--gpus-per-process, and do not set CUDA_VISIBLE_DEVICES or local_device_ids to the same "
        "value in all ranks; with one GPU use -n 1, or -d K for CPU devices",
    )
    SHARED_MEMORY_FULL = (
        [
            *("Error while creating shared memory segment", "failed to extend /dev/shm/"),
            "Call to posix_fallocate failed",
        ],
        "shared memory (/dev/shm) is too small for NCCL (containers have 64 MB): docker run "
        "--shm-size=16g, or in Kubernetes an emptyDir with medium: Memory, mounted there; remove "
        "what dead jobs left in it; -x NCCL_SHM_DISABLE=1 avoids it, but is slower",
    )
    # CUDA's errors; the last ones of GPU_FAILED may be a kernel's own fault.
    NO_SUCH_GPU = (
        ["invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"],
        "the rank asks for a GPU that it does not see: JAX_LOCAL_DEVICE_IDS, local_device_ids and "
        "cuda:N count from 0 within CUDA_VISIBLE_DEVICES; are there more ranks than GPUs?",
    )
    FORKED_DRIVER = (
        ["CUDA_ERROR_NOT_INITIALIZED", "Cannot re-initialize CUDA in fork"],
        "CUDA does not work in a process that was forked after its first use: start processes with "
        "multiprocessing's spawn, and use no GPU in modules that --preload imports",
    )
    DRIVER_NOT_READY = (
        ["CUDA_ERROR_SYSTEM_NOT_READY"],
        "the GPUs are not ready: on machines with NVSwitch the Fabric Manager has to run, in the "
        "driver's version (systemctl status nvidia-fabricmanager)",
    )
    GPU_FAILED = (
        [
            *("NVRM: Xid", "fallen off the bus", "ncorrectable ECC error", "ECC_UNCORRECTABLE"),
            *("GPU is lost", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED"),
        ],
        "a kernel of the program's own may have failed, or the GPU itself: `dmesg | grep Xid` on "
        "that host shows which; an Xid such as 48, 63, 74, 79 or 94 means the hardware",
    )
    SAME_PROCESS_TWICE = (
        ["different incarnation", "newer incarnation"],
        "two processes joined as the same rank: another job uses this coordinator address, or two "
        "ranks have the same process_id",
    )
    OUT_OF_STEP = (
        ["sync_global_devices name mismatch", "Mismatch in the number of", "op.preamble.length"],
        "the ranks are at different places in the program; --verify-spmd shows where they diverge",
    )
    HOST_MEMORY = (  # Python's and NumPy's, and C++'s
        ["MemoryError", "bad_alloc", "Cannot allocate memory"],
        "the host is out of memory, not a device: use less in Python and NumPy, or run fewer ranks "
        "per host",
    )
    OUT_OF_MEMORY = (
        ["RESOURCE_EXHAUSTED", "Out of memory", "out of memory"],
        "out of memory: use less per device, or run fewer ranks per host; for ranks that share "
        "GPUs, try --gpus-per-process or XLA_PYTHON_CLIENT_MEM_FRACTION",
    )
    NO_CERTIFICATES = (
        ["Insecure gRPC credentials are unexpectedly used"],
        "JAX_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS, or verify_secure_credentials, aborts a process "
        "that joins without certificates: use --mtls on, set JAX_MTLS_CERT_FILE, "
        "JAX_MTLS_KEY_FILE and JAX_MTLS_CA_FILE, or turn that check off",
    )
    UNKNOWN_XLA_FLAG = (
        ["Unknown flags in XLA_FLAGS", "Unknown flag in XLA_FLAGS"],
        "XLA_FLAGS names a flag that the ranks' jaxlib does not have",
    )
    STDIN_EMPTY = (
        ["EOFError: EOF when reading a line"],
        "ranks have no standard input: input() and getpass() need --stdin, which rank 0 gets",
    )
    KEY_NEVER_SET = (  # in the coordinator's key-value store
        ["GetKeyValue() timed out", "Timed out waiting for key"],
        "a rank timed out waiting for a value that another rank should have set: did that rank "
        "reach the code that sets it?",
    )
    TPU_IN_USE = (
        ["The TPU is already in use by", "libtpu.so already in use by"],
        "another process uses all TPU chips of the host: run one rank there, give each rank its "
        "own chips with --tpu-chips-per-process K, or end the other process (-d K: CPU devices)",
    )
    NO_TRANSFERS = (  # by jax.device_put, between processes
        ["jax_cross_host_transfer_socket_address"],
        "add --cpu-transfers to mcjax-launch's options: it gives each rank such an address",
    )
    SEVERAL_SLICES = (  # make_mesh needs a single slice
        ["does not support multi-slice topologies"],
        "build the mesh with mesh_utils.create_hybrid_device_mesh, or a flat one with "
        "Mesh(np.array(jax.devices()).reshape(...), ...), or make all devices one slice with "
        "--slices one (on GPUs that replaces the id of the NVLink fabric)",
    )
    SAVE_UNFINISHED = (  # Python's thread pools refuse work while the program ends
        ["cannot schedule new futures after"],
        "work was left for threads when the program, or their pool, ended: if it is Orbax's save, "
        "call wait_until_finished() of the checkpointer or manager before the end, or close() it",
    )
    NO_GPU = (
        [
            *("no supported devices found for platform", "No visible GPU devices"),
            *("no platforms that are instances of gpu", "no platforms that are instances of cuda"),
            *("Unable to initialize backend 'cuda'", "Unable to initialize backend 'rocm'"),
            "Unable to initialize backend 'oneapi'",
            "CUDA backend failed to initialize",
        ],
        "JAX sees no GPU that it can use here: nvidia-smi shows whether the driver does, "
        "CUDA_VISIBLE_DEVICES hides GPUs, and the ranks' jax needs its plugin (pip install "
        '"jax[cuda12]")',
    )

    def __init__(self, texts: Sequence[str], hint: str) -> None:
        self.texts = texts
        self.hint = hint


# Variables of other launchers: torchrun's, and those from which a program may take coordinates.
_OF_TORCHRUN = re.compile(r"(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)")
_OF_OTHERS = {
    "process_id": "SLURM_PROCID SLURM_NODEID OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK "
    "NODE_RANK PROCESS_ID JAX_RANK KERAS_DISTRIBUTION_PROCESS_ID",
    "num_processes": "SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_NPROCS OMPI_COMM_WORLD_SIZE PMI_SIZE "
    "NNODES NUM_PROCESSES JAX_WORLD_SIZE KERAS_DISTRIBUTION_NUM_PROCESSES",
    "coordinator": "DISTRIBUTED_COORDINATOR KERAS_DISTRIBUTION_JOB_ADDRESSES",
    "coordinator_host": "JAX_COORDINATOR_IP",
    "coordinator_port": "JAX_COORDINATOR_PORT",
    "local_process_id": "SLURM_LOCALID OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID",
}
_PREFIXES_OF_OTHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI_")
_READS_VARIABLE = re.compile(r"(?:environ\.get|getenv)\(\s*['\"](\w+)['\"]")
_NO_COORDINATES = ("Number of processes must be defined", "coordinator_address should be defined")
_PROXIES = "JAX detected proxy variable"
_FAULTHANDLER = "Fatal Python error"


def find_known_error(text: str) -> KnownError | None:
    """Return the known error that a text shows; None if it shows none."""
    matches = (error for error in KnownError if any(part in text for part in error.texts))
    return next(matches, None)


class WrongDevices(NamedTuple):
    """The numbers of devices that a program has and wants.

    Attributes:
        has: number of existing devices; None if the error does not name it.
        wants: number of devices that the program requires.
        are_local: True if both numbers count the devices of a single rank.

    """

    has: int | None
    wants: int
    are_local: bool = False


# What a mesh is made of; what pmap says; what a program asserts.
_OF_A_MESH = (
    r"Number of devices (\d{1,9}) must .{1,20} the product of mesh_shape \(([\d, ]{1,200})\)"
)
_OF_A_RESHAPE = r"cannot reshape array of size (\d{1,9}) into shape \(([\d, ]{1,200})\)"
_OF_PMAP = r"requires (\d{1,9}) (?:logical devices|replicas), but only (\d{1,9}) XLA devices"
_COUNT = r"(?:len\((?:jax\.)?(local_)?devices\(\)\)|(?:jax\.)?(local_)?device_count\(\))"
_ASSERTED = (
    rf"assert {_COUNT} (?:==|>=) (?P<wants>\d{{1,9}})(?:,.*)?",
    rf"assert (?P<wants>\d{{1,9}}) (?:==|<=) {_COUNT}(?:,.*)?",
)


def parse_wrong_devices(text: str, line: str) -> WrongDevices | None:
    """Return the numbers of devices in an error about a wrong number; None for other errors.

    Args:
        text: text of the exception, beginning with its name.
        line: source of the user's line that raised it.

    """
    if text.startswith("AssertionError"):
        return _parse_assertion(line)
    if match := re.search(_OF_PMAP, text):
        return WrongDevices(int(match[2]), int(match[1]), are_local=True)
    match = re.search(_OF_A_MESH, text)
    if match is None and "dev" in line:
        match = re.search(_OF_A_RESHAPE, text)
    if match is None:
        return None
    return WrongDevices(int(match[1]), math.prod(map(int, re.findall(r"\d+", match[2]))))


def _parse_assertion(line: str) -> WrongDevices | None:
    """Return the number of devices in an `assert` line; None if it asserts anything else."""
    line = line.strip()
    match = re.fullmatch(_ASSERTED[0], line) or re.fullmatch(_ASSERTED[1], line)
    if match is None:
        return None
    return WrongDevices(None, int(match["wants"]), are_local="local_" in match.groups())


def advise_on_variable(text: str, line: str) -> str:
    """Return advice on a missing variable that another launcher would set; "" for other errors.

    Args:
        text: text of the exception, beginning with its name.
        line: source of the user's line that raised it.

    """
    missing = re.search(r"KeyError: '(\w+)'$", text)
    if missing is None and text.startswith("TypeError: ") and "NoneType" in text:
        missing = _READS_VARIABLE.search(line)
    name = missing[1] if missing is not None else ""
    bare = "jax.distributed.initialize() without arguments needs no variable"
    if _OF_TORCHRUN.fullmatch(name):
        return f"--env-style torch sets {name} and torchrun's other variables; {bare}"
    found = (placeholder for placeholder, names in _OF_OTHERS.items() if name in names.split())
    placeholder = next(found, "")
    if not placeholder and not name.startswith(_PREFIXES_OF_OTHERS):
        return ""
    how = f"-x {name}={{{placeholder}}} sets it; " if placeholder else ""
    return f"ranks have no {name}: {how}{bare}"


def says_other_collective(text: str) -> bool:
    """Return whether Gloo reports that ranks ran collectives of different sizes or kinds."""
    return "op.preamble.length" in text


def lacks_coordinates(text: str) -> bool:
    """Return whether an error shows that initialize() lacked the arguments from the hook."""
    return any(part in text for part in _NO_COORDINATES)


def misses_shared_program(text: str) -> bool:
    """Return whether a compilation timed out waiting for the program from another process.

    This happens with `jax_share_binary_between_hosts`; the key is that of JAX's cache.
    """
    return (
        re.search(r"GetKeyValue\(\) timed out with key: [\w.-]{1,200}-[0-9a-f]{64}\b", text)
        is not None
    )


def warns_of_proxies(stderr: str) -> bool:
    """Return whether JAX warned of proxy variables, which can keep processes apart."""
    return _PROXIES in stderr


def has_fault_traceback(stderr: str) -> bool:
    """Return whether faulthandler has printed the stacks of a fatal signal."""
    return _FAULTHANDLER in stderr
