"""Names of the environment variables that configure a hook."""

#: The agent's unix socket.
SOCKET = "MCJAX_HOOK_SOCKET"
#: The folder on PYTHONPATH that holds the hook.
FOLDER = "MCJAX_HOOK_FOLDER"
#: Address on which rank 0's coordination service listens, if the launcher chose the coordinator.
BIND = "MCJAX_HOOK_BIND"
#: Path of a unix socket on which that service may listen instead, out of other users' reach.
COORDINATOR = "MCJAX_HOOK_COORDINATOR"
#: The folder with this job's certificate, as `on:FOLDER` or `auto:FOLDER` (--mtls).
MTLS = "MCJAX_HOOK_MTLS"
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
#: Set if an uncaught exception opens a debugger (--pdb).
PDB = "MCJAX_HOOK_PDB"
#: Pid, number and address of a process that has called initialize(), for its child processes.
MEMBER = "MCJAX_HOOK_MEMBER"
#: Profile to write: seconds after initialize(), length in seconds, folder.
PROFILE = "MCJAX_HOOK_PROFILE"
#: Set if programs run only once the launcher releases them (--verify-spmd).
VERIFY_SPMD = "MCJAX_HOOK_VERIFY_SPMD"
#: Set if the launcher may ask for the main thread's position (--status).
LOOKS = "MCJAX_HOOK_LOOKS"
#: Settings for sharing compiled programs (--compile-once): mode, folders and size, as JSON.
COMPILE_ONCE = "MCJAX_HOOK_COMPILE_ONCE"
#: Set in a process that does not run the program: `feature:order`, for that feature's hook.
INSTEAD = "MCJAX_HOOK_INSTEAD"
