"""Names of the environment variables that configure a hook."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The agent's unix socket.
SOCKET = "MCJAX_HOOK_SOCKET"
#: The folder on PYTHONPATH that holds the hook.
FOLDER = "MCJAX_HOOK_FOLDER"
#: Address on which rank 0's coordination service listens, if the launcher chose the coordinator.
BIND = "MCJAX_HOOK_BIND"
#: Path of a unix socket on which that service may listen instead, out of other users' reach.
COORDINATOR = "MCJAX_HOOK_COORDINATOR"
#: Seconds that initialize() may take in total, if the user set a limit.
JOIN_TIMEOUT = "MCJAX_HOOK_JOIN_TIMEOUT"
#: Set if ranks go on when another rank fails (--on-rank-failure).
SURVIVES = "MCJAX_HOOK_SURVIVES"
#: This rank's own address for jax.device_put between CPU processes.
TRANSFER = "MCJAX_HOOK_TRANSFER"
#: The first rank of each slice, if the user has asked for slices (--slices): `0,4`.
SLICES = "MCJAX_HOOK_SLICES"
#: The GPUs that the launcher has given this rank, as JAX_LOCAL_DEVICE_IDS: `0,1`.
GPUS = "MCJAX_HOOK_GPUS"
#: This host's address, if its own name leads to none that other hosts can use.
ADDRESS = "MCJAX_HOOK_ADDRESS"
#: "0" if ranks record no programs; and the user's variable that says so, to measure the cost.
RECORD, SWITCH = "MCJAX_HOOK_RECORD", "MCJAX_RECORD"
#: Pid, number and address of a process that has called initialize(), for its child processes.
MEMBER = "MCJAX_HOOK_MEMBER"
#: Set in a process that does not run the program: `feature:order`, for that feature's hook.
RUN_INSTEAD = "MCJAX_HOOK_INSTEAD"

#: Python's own variable that keeps the current folder out of `sys.path` of a `python -m`, and the
#: value that the launcher gives it. The hook removes it: child processes are the program's own.
SAFE_PATH = "PYTHONSAFEPATH"
OUR_SAFE_PATH = "mcjax-launch"

#: Beginning of the variable that enables a feature's hook; its value is the request.
ALL = "MCJAX_HOOK_FOR_"
#: Beginning of a variable with a feature's request that child processes do not get.
OWN = "MCJAX_HOOK_OWN_"


def get_feature_variable(feature: str) -> str:
    """Return the name of the variable that enables a feature's hook, also in child processes."""
    return ALL + feature.upper()


def get_request(feature: str, environ: Mapping[str, str]) -> str:
    """Return what the launcher requests of a feature's hook; "" for nothing in particular."""
    own = environ.get(OWN + feature.upper(), "")
    return own or environ.get(get_feature_variable(feature), "")


def list_requested_features(environ: Iterable[str]) -> list[str]:
    """Return the features whose variable (see `get_feature_variable`) is in `environ`, sorted."""
    names = (name for name in environ if name.startswith(ALL))
    return sorted(name[len(ALL) :].lower() for name in names)
